"""The service's endpoints (INTERFACE 4), one method each: typed answers out, typed errors up.

Every failure is a `ServiceError`: `NotSent` when nothing can have happened, `Refusal` when the service (or
what stands before it) answered with an error, and `MaybeSent` for all the rest. Decides nothing: what a
failure means is `verdicts`' to say, and sending again is the steps'; only what they read once, at the start
(models, balance, costs), is asked for again here when the service was too busy or failed.

The API key goes to the API alone: not to download URLs, not along redirects, not into a message or a log.
"""

from __future__ import annotations

import itertools
import logging
import math
import random
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from datetime import datetime
from decimal import Decimal
from email.utils import parsedate_to_datetime
from typing import Any, Self, TypeVar
from urllib.parse import quote

import anyio
import httpx
from pydantic import TypeAdapter, ValidationError

from callsheet.errors import (
    CallsheetError,
    ConfigError,
    ContentPolicyViolation,
    InvalidApiKey,
    InvalidParameter,
    MaybeSent,
    NotFound,
    NotSent,
    ParameterMissing,
    QuotaExceeded,
    RateLimit,
    Refusal,
    ServerError,
    UnexpectedAnswer,
)
from callsheet.records import Catalogue, Failed, Generation, Model, ModelType, Pending, Pricing
from callsheet.service import verdicts
from callsheet.service.models import (
    Accepted,
    Answer,
    Balance,
    Costs,
    Download,
    ErrorEnvelope,
    FailedVideo,
    ImageAnswer,
    PendingVideo,
    RateHeaders,
    VideoAnswer,
    VideoError,
    parse,
)
from callsheet.service.transport import Connections

T = TypeVar("T")

# Each would write a line for every request, with the signed URLs in it.
for _name in ("httpx", "httpcore"):
    logging.getLogger(_name).setLevel(logging.WARNING)

_NOT_SENT = (
    httpx.ConnectError,  # refused, name not found, TLS handshake failed
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,  # the proxy opened no way to the service
    httpx.UnsupportedProtocol,
    httpx.InvalidURL,
)

_BY_STATUS: dict[int, type[Refusal]] = {  # whatever the body is
    401: InvalidApiKey,
    402: QuotaExceeded,
    429: RateLimit,
}
_BY_STATUS_AND_CODE: dict[tuple[int, str], type[Refusal]] = {
    (400, "invalid_parameter"): InvalidParameter,
    (400, "parameter_missing"): ParameterMissing,
    (422, "parameter_missing"): ParameterMissing,  # INTERFACE 7 leaves its status open
    (404, "not_found"): NotFound,
    (422, "content_policy_violation"): ContentPolicyViolation,
}

# Said by what stands before the service, and may have passed the request on.
_GATEWAY = frozenset({502, 504})

_HINTS: dict[type[Refusal], str] = {
    InvalidApiKey: "Check CALLSHEET_API_KEY (service.api_key_env).",
    QuotaExceeded: "Top up the workspace's balance; the same command goes on from here.",
}

_OTHER_PROJECT = (
    "The key seems to be of another project than the one that bought it: check the key and service.base_url."
)

WINDOW = 60.0
"""Seconds to wait where a `Retry-After` cannot be read: a whole window (INTERFACE 8)."""

READ_TRIES = 4
"""Times that a reading is tried in all, as often as a submission that is answered 500."""

_CHANCE = random.SystemRandom()
_LONGEST_WAIT = 3600  # seconds: a `Retry-After` beyond it is none, with windows of 60 seconds

_entries = TypeAdapter(tuple[dict[str, Any], ...])
_video: TypeAdapter[Any] = TypeAdapter(VideoAnswer)


class Client:
    """The service, as one workspace sees it. Use it in an `async with`.

    Args:
        base_url: the service's address, without the version.
        api_key: `sk_...`.
        connect_timeout: seconds to wait for a connection.
        read_timeout: seconds to wait for each part of an answer that costs nothing; all of it, which may
            come byte by byte, has twice as long.
        generation_timeout: the same for a submission, and for sending it. An image is drawn while we wait,
            and giving up on one leaves doubt: better to wait too long.

    Raises:
        ConfigError: the address or the key can be neither.

    Every method raises `NotSent`, `MaybeSent` or one of the `Refusal` types. `MaybeSent` also stands for a
    2xx answer that cannot be read: for a submission that is doubt, for a reading it is free to try again.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        connect_timeout: float = 10.0,
        read_timeout: float = 30.0,
        generation_timeout: float = 300.0,
    ) -> None:
        if not (api_key.isascii() and api_key.isprintable() and api_key and " " not in api_key):
            raise ConfigError(
                "the API key is empty or has a space, a line break or another character that no key has",
                hint="A key looks like sk_...; check CALLSHEET_API_KEY (service.api_key_env).",
            )
        try:
            self._base_url = str(httpx.URL(base_url)).rstrip("/")
        except httpx.InvalidURL as error:
            raise ConfigError(f"service.base_url is no address: {error}") from error
        self._key = api_key
        self._reading = httpx.Timeout(read_timeout, connect=connect_timeout)
        self._generating = httpx.Timeout(generation_timeout, connect=connect_timeout)
        self._http = httpx.AsyncClient(transport=Connections(), headers={"User-Agent": "callsheet"})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    # ---- the endpoints

    async def create_image(self, body: Mapping[str, Any]) -> Answer[Generation]:
        """Buys an image and waits for it (INTERFACE 4.1).

        An answer that lacks the id, a whole file or the cost is `MaybeSent`, and its message gives the id:
        without the cost no ledger could stay right to the cent, so a person settles it.
        """
        response = await self._submit("/v2/images/generations", body)
        answer = _readable(response, ImageAnswer.model_validate)
        return Answer(Generation(answer.id, answer.data, answer.usage), _rate(response.headers))

    async def create_video(self, body: Mapping[str, Any]) -> Answer[Pending]:
        """Orders a video (INTERFACE 4.4). Whatever else the answer says, with an id it is accepted."""
        response = await self._submit("/v2/videos/generations", body)
        accepted = _readable(response, Accepted.model_validate)
        return Answer(Pending(accepted.id), _rate(response.headers))

    async def models(self, of_type: ModelType | None = None) -> Catalogue:
        """The models with their prices, by id (INTERFACE 4.2); of one type, or all.

        An entry that cannot be read is there with the reason, so that one odd model hides no others.
        """
        response = await self._ask("/v2/models", {"type": of_type.value} if of_type else {})
        return {model.id: model for model in map(_model, _readable(response, _entries.validate_python))}

    async def model(self, model_id: str) -> Model:
        """One model (INTERFACE 4.3)."""
        return _readable(await self._ask(f"/v2/models/{quote(model_id, safe='')}"), Model.model_validate)

    async def video(self, generation_id: str, *, within: float = math.inf) -> Pending | Failed | Generation:
        """How far a video is (INTERFACE 4.5). Its one file is the first that the answer lists.

        `within` is the seconds for which the caller can wait.
        """
        path = f"/v2/videos/generations/{quote(generation_id, safe='')}"
        try:
            response = await self._read(path, within=within)
        except NotFound as unknown:
            unknown.hint = _OTHER_PROJECT
            raise
        answer = _readable(response, _video.validate_python)
        if isinstance(answer, PendingVideo):
            return Pending(generation_id)
        if isinstance(answer, FailedVideo):
            error = answer.error or VideoError()
            return Failed(generation_id, error.code or "unknown", error.message or "no reason was given")
        return Generation(generation_id, answer.data[:1], answer.usage)

    async def balance(self) -> Decimal:
        """What the workspace has, in US dollars (INTERFACE 4.6)."""
        return _readable(await self._ask("/v2/billing/balance"), Balance.model_validate).balance

    async def costs(self, start: datetime, end: datetime) -> Costs:
        """What each UTC day from `start` to `end` has cost (INTERFACE 4.7). Both need a time zone."""
        span = {"start": start.isoformat(), "end": end.isoformat()}
        return _readable(await self._ask("/v2/billing/costs", span), Costs.model_validate)

    @asynccontextmanager
    async def download(self, url: str) -> AsyncIterator[Download]:
        """Fetches a signed URL as given (INTERFACE 4.8), without the key. Redirects are followed."""
        what = f"GET {_shown(url)}"
        with _failures(what, "Check the network between here and where the service keeps its files."):
            # Unpacked by httpx, the bytes would not be those that the length counts.
            request = self._http.build_request(
                "GET", url, headers={"Accept-Encoding": "identity"}, timeout=self._reading
            )
            with _whole(self._reading):
                response = await self._http.send(request, stream=True, follow_redirects=True)
        try:
            if not response.is_success:
                with _failures(what), _whole(self._reading):
                    await response.aread()
                raise self._refusal(what, response)
            length = _number(response.headers, "Content-Length")
            mime_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            yield Download(_chunks(what, response), length, mime_type)
        finally:
            await response.aclose()

    # ---- one request

    async def _submit(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        return await self._send("POST", path, self._generating, json=body)

    async def _ask(self, path: str, query: Mapping[str, str] | None = None) -> httpx.Response:
        """Reads, and again a few times after a 429 or a 5xx: it is free."""
        for tries in itertools.count(1):
            try:
                return await self._read(path, query)
            except Refusal as error:
                busy = error.status == 429 or error.status >= 500
                told = (error.retry_after or 0.0) if isinstance(error, RateLimit) else 0.0
                if not busy or tries == READ_TRIES or told > WINDOW:
                    raise
            await anyio.sleep(max(told, verdicts.backoff(tries, _CHANCE)))
        raise AssertionError("unreachable")

    async def _read(
        self, path: str, query: Mapping[str, str] | None = None, *, within: float = math.inf
    ) -> httpx.Response:
        return await self._send("GET", path, self._reading, within, params=query)

    async def _send(
        self, method: str, path: str, timeout: httpx.Timeout, within: float = math.inf, **content: Any
    ) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._key}"}
        request = self._http.build_request(
            method, self._base_url + path, headers=headers, timeout=timeout, **content
        )
        what = f"{method} {path}"
        address = _shown(self._base_url)
        hint = f"Is {address} the service's address? It is service.base_url, or CALLSHEET_BASE_URL."
        with _failures(what, hint), _whole(timeout, within):
            response = await self._http.send(request)
        if not response.is_success:
            raise self._refusal(what, response, hint)
        return response

    def _refusal(self, what: str, response: httpx.Response, hint: str = "") -> Refusal:
        """The answer as the error of its status and code."""
        status = response.status_code
        try:
            error = ErrorEnvelope.model_validate(parse(response.content)).error
        except ValueError:
            error_type = _BY_STATUS.get(status, UnexpectedAnswer)
            message = f"{what}: answered {status} {response.reason_phrase}, without the service's error body"
            refusal = error_type(message, status=status, code=f"http_{status}", hint=hint)
        else:
            error_type = _error_type(status, error.code)
            # Some services repeat the key that they refuse, or a whole data URL.
            said = error.message.replace(self._key, "sk_...")[:500]
            param = f", {error.param}" if error.param else ""
            message = f"{what}: {said} ({status} {error.code}{param})"
            refusal = error_type(
                message, status=status, code=error.code, param=error.param, hint=_HINTS.get(error_type, "")
            )
        if isinstance(refusal, RateLimit):
            refusal.retry_after = _retry_after(response.headers)
        if response.request.method == "POST":
            refusal.rate = _rate(response.headers)
        return refusal


def _error_type(status: int, code: str) -> type[Refusal]:
    """The error of an answer that has the interface's body (INTERFACE 7)."""
    error_type = _BY_STATUS.get(status) or _BY_STATUS_AND_CODE.get((status, code))
    if error_type is None and status >= 500 and status not in _GATEWAY:
        error_type = ServerError
    return error_type or UnexpectedAnswer


def _retry_after(headers: httpx.Headers) -> float | None:
    """Seconds to wait for the window. With the header the window is full, even where it cannot be read."""
    if "Retry-After" not in headers:
        return None
    seconds = _number(headers, "Retry-After")
    return WINDOW if seconds is None or seconds > _LONGEST_WAIT else float(seconds)


def _number(headers: httpx.Headers, name: str) -> int | None:
    """A header of digits (INTERFACE 8); None where it is not there, or is no number that a clock can hold."""
    text = headers.get(name, "")
    return int(text) if re.fullmatch("[0-9]{1,15}", text) else None


def _rate(headers: httpx.Headers) -> RateHeaders | None:
    limit, remaining, reset = (
        _number(headers, f"X-RateLimit-{name}") for name in ("Limit", "Remaining", "Reset")
    )
    if limit is None or remaining is None or reset is None:
        return None
    try:
        date = parsedate_to_datetime(headers["Date"]).timestamp()
    except (KeyError, ValueError, ArithmeticError):
        date = None
    return RateHeaders(limit, remaining, reset, date)


def _model(entry: Mapping[str, Any]) -> Model:
    try:
        return Model.model_validate({**entry, "unreadable": ""})
    except ValidationError as error:
        name, nothing = str(entry.get("id", "")), Pricing(currency="")
        return Model(id=name, type="unknown", pricing=nothing, unreadable=_reason(error))


def _readable(response: httpx.Response, shape: Callable[[Any], T]) -> T:
    """The answer in its shape.

    Raises:
        MaybeSent: it has another shape, or is not JSON.
    """
    content: Any = None
    try:
        content = parse(response.content)
        return shape(content)
    except (ValueError, ArithmeticError) as error:
        what = f"{response.request.method} {response.request.url.path}"
        known = content.get("id") if isinstance(content, dict) else None
        raise MaybeSent(
            f"{what}: answered {response.status_code}, but the answer cannot be read: {_reason(error)}"
            + (f"; it is about {known}" if known else ""),
            hint="Is this the service of the interface's version 2?",
        ) from error


async def _chunks(what: str, response: httpx.Response) -> AsyncIterator[bytes]:
    with _failures(what):
        async for chunk in response.aiter_raw():
            yield chunk


@contextmanager
def _failures(what: str, hint: str = "") -> Iterator[None]:
    """Turns whatever httpx, and what lies under it, raises into our types.

    What is not known to come before the request left may have come after it.
    """
    try:
        yield
    except CallsheetError:
        raise
    except _NOT_SENT as error:
        raise NotSent(f"{what}: not sent: {_reason(error)}", hint=hint) from error
    except Exception as error:
        raise MaybeSent(f"{what}: sent, but no answer came: {_reason(error)}", hint=hint) from error


def _shown(url: str) -> str:
    """An address without its secrets: a signature in the query, a password before the host."""
    return re.sub("//[^/]*@", "//...@", url.partition("?")[0])


def _whole(timeout: httpx.Timeout, within: float = math.inf) -> AbstractContextManager[object]:
    """Bounds the time for all of an answer, where `timeout` bounds that for a part of it."""
    return anyio.fail_after(min(2 * (timeout.read or math.inf), within))


def _reason(error: Exception) -> str:
    """What went wrong, in a line."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'the body'}: {first['msg']}"
    return f"{type(error).__name__}: {error}".rstrip(": ")
