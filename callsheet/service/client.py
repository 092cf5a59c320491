"""The service's endpoints (INTERFACE 4), one method each, with typed answers and typed errors.

Every failure is a `ServiceError`: `NotSent` when nothing can have happened, `Refusal` when the service (or a
proxy before it) answered with an error, and `MaybeSent` for everything else. The client does not decide what
a failure means (`verdicts.py` does), and never repeats a submission or a poll. It repeats only the requests
that a run makes once (models, balance, costs), when the service is too busy or fails.

The API key is sent to the API and nowhere else: not to download URLs or redirects, and not into a message or
a log.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from decimal import Decimal
from typing import Any, Self
from urllib.parse import quote, urlencode, urljoin

from pydantic import TypeAdapter

from callsheet.errors import ConfigError, InvalidApiKey, NotFound, RateLimit, Refusal, UnexpectedAnswer
from callsheet.records import Catalogue, Failed, Generation, Model, ModelType, Pending
from callsheet.service import verdicts
from callsheet.service.answers import header_number, rate_headers, read_answer, read_catalogue
from callsheet.service.connection import Request, Response, Unsent
from callsheet.service.failures import WINDOW, refusal, transport_failures, without_secrets
from callsheet.service.models import (
    Accepted,
    Answer,
    Balance,
    Costs,
    Download,
    FailedVideo,
    ImageAnswer,
    PendingVideo,
    VideoAnswer,
    VideoError,
)
from callsheet.service.transport import Connections
from callsheet.service.urls import Url, parse_url

READ_TRIES = 4
"""Tries in all of a request that is repeated; a submission that is answered 500 has as many."""

_OTHER_PROJECT = (
    "The key seems to be of another project than the one that bought it: check the key and service.base_url."
)
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 20  # of one download
# The bytes of a file must be those that Content-Length counts, and compressing them again helps nobody.
_HEADERS = "User-Agent: callsheet\r\nAccept: */*\r\nAccept-Encoding: identity\r\n"
_jitter = random.SystemRandom()
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_video: TypeAdapter[Any] = TypeAdapter(VideoAnswer)


class Client:
    """The service, as one workspace sees it. Use it in an `async with`.

    Args:
        base_url: the service's address, without the version.
        api_key: `sk_...`.
        key_place: where the key is from, in words, for the hint of a 401.
        connect_timeout: seconds to wait for a connection.
        read_timeout: seconds to wait for each part of an answer to a request that is free; the whole answer
            may take twice as long.
        generation_timeout: the same for a submission, and for sending it. The service makes an image while
            the client waits, and giving up leaves the job in doubt, so it is long.

    Raises:
        ConfigError: the address is not a URL, or the key has characters that a header cannot carry.

    Every method raises `NotSent`, `MaybeSent` or one of the `Refusal` types. `MaybeSent` is raised for a 2xx
    answer that cannot be read, too: a submission is then in doubt, anything else is free to repeat.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        key_place: str = "",
        connect_timeout: float = 10.0,
        read_timeout: float = 30.0,
        generation_timeout: float = 300.0,
    ) -> None:
        if not (api_key.isascii() and api_key.isprintable() and api_key and " " not in api_key):
            raise ConfigError(
                "the API key is empty, or has a space, a line break or a character that is not ASCII",
                hint="A key looks like sk_...; check CALLSHEET_API_KEY (service.api_key_env).",
            )
        try:
            self._base = parse_url(base_url)
        except ValueError as error:
            raise ConfigError(f"service.base_url is not a URL: {error}") from None
        self.base_url = base_url.rstrip("/")
        self._path = self._base.path.rstrip("/")
        self._key, self._key_place = api_key, key_place
        self._headers = f"{_HEADERS}Authorization: Bearer {api_key}\r\n"
        self._connect, self._reading, self._generating = connect_timeout, read_timeout, generation_timeout
        self._connections = Connections()
        address = without_secrets(self.base_url)
        self._hint = (
            f"Is {address} the service's address? It is service.base_url, CALLSHEET_BASE_URL, or in a block."
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connections.aclose()

    # ---- the endpoints

    async def create_image(self, body: Mapping[str, Any]) -> Answer[Generation]:
        """Buys an image and waits for it (INTERFACE 4.1).

        An answer without the id, a file or the cost is `MaybeSent`, and its message has the id: without the
        cost the ledger would not be right to the cent, so a person has to settle it.
        """
        response = await self._post("/v2/images/generations", body)
        image = read_answer(response, ImageAnswer.model_validate)
        return Answer(Generation(image.id, image.data, image.usage), rate_headers(response.headers))

    async def create_video(self, body: Mapping[str, Any]) -> Answer[Pending]:
        """Submits a video (INTERFACE 4.4). Every 2xx answer with an id is an accepted video."""
        response = await self._post("/v2/videos/generations", body)
        accepted = read_answer(response, Accepted.model_validate)
        return Answer(Pending(accepted.id), rate_headers(response.headers))

    async def models(self, of_type: ModelType | None = None) -> Catalogue:
        """The models with their prices, by id (INTERFACE 4.2); of one type, or all.

        An entry that cannot be read is in the catalogue with the reason, and the others stay usable.
        """
        return read_catalogue(await self._repeated("/v2/models", {"type": of_type.value} if of_type else {}))

    async def model(self, model_id: str) -> Model:
        """One model (INTERFACE 4.3)."""
        response = await self._repeated(f"/v2/models/{quote(model_id, safe='')}")
        return read_answer(response, Model.model_validate)

    async def video(self, generation_id: str, *, within: float = math.inf) -> Pending | Failed | Generation:
        """The state of a video (INTERFACE 4.5). Its one file is the first of the answer's `data`.

        Args:
            generation_id: the id of its submission.
            within: seconds for which the caller can wait.
        """
        path = f"/v2/videos/generations/{quote(generation_id, safe='')}"
        try:
            response = await self._get(path, within=within)
        except NotFound as unknown:
            unknown.hint = _OTHER_PROJECT
            raise
        video = read_answer(response, _video.validate_python)
        if isinstance(video, PendingVideo):
            return Pending(generation_id)
        if isinstance(video, FailedVideo):
            error = video.error or VideoError()
            return Failed(generation_id, error.code or "unknown", error.message or "no reason was given")
        return Generation(generation_id, video.data[:1], video.usage)

    async def balance(self) -> Decimal:
        """The workspace's balance in dollars (INTERFACE 4.6). It is free and never cached: also a probe."""
        return read_answer(await self._repeated("/v2/billing/balance"), Balance.model_validate).balance

    async def costs(self, start: datetime, end: datetime) -> Costs:
        """The cost of each UTC day from `start` to `end`, both with a time zone (INTERFACE 4.7)."""
        query = {"start": start.isoformat(), "end": end.isoformat()}
        return read_answer(await self._repeated("/v2/billing/costs", query), Costs.model_validate)

    @asynccontextmanager
    async def download(self, url: str) -> AsyncIterator[Download]:
        """Fetches a signed URL as given (INTERFACE 4.8), without the key. Redirects are followed.

        Every error answer is `UnexpectedAnswer`, whatever its status: the interface defines none here.
        """
        name = f"GET {without_secrets(url)}"
        hint = "Check the network between this machine and the server of the service's files."
        with transport_failures(name, hint):
            response = await self._file(url)
        try:
            if not response.is_success:
                with transport_failures(name):
                    await response.read()
                refused = refusal(name, response, api_key=self._key)
                # The key was not sent, so no answer here is about the key or its workspace's balance.
                raise UnexpectedAnswer(refused.message, status=refused.status, code=refused.code)
            length = header_number(response.headers, "content-length")
            mime_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            yield Download(_chunks(name, response), length, mime_type)
        finally:
            response.close()

    # ---- one request

    async def _repeated(self, path: str, query: Mapping[str, str] | None = None) -> Response:
        """A GET that is repeated a few times after a 429 or a 5xx: it is free."""
        for tries in itertools.count(1):
            try:
                return await self._get(path, query)
            except Refusal as error:
                may_pass = error.status == 429 or error.status >= 500
                retry_after = (error.retry_after or 0.0) if isinstance(error, RateLimit) else 0.0
                if not may_pass or tries == READ_TRIES or retry_after > WINDOW:
                    raise
            await asyncio.sleep(max(retry_after, verdicts.backoff(tries, _jitter)))
        raise AssertionError("unreachable")

    async def _get(
        self, path: str, query: Mapping[str, str] | None = None, *, within: float = math.inf
    ) -> Response:
        url = Url(self._base.address, self._path + path, f"?{urlencode(query)}" if query else "")
        return await self._answer(Request("GET", url, self._headers), self._reading, within)

    async def _post(self, path: str, body: Mapping[str, Any]) -> Response:
        url = Url(self._base.address, self._path + path, "")
        content = _encoder.encode(body).encode()
        headers = f"{self._headers}Content-Type: application/json\r\n"
        return await self._answer(Request("POST", url, headers, content), self._generating)

    async def _answer(self, request: Request, part: float, within: float = math.inf) -> Response:
        """Sends a request to the API; the answer, with its body read.

        Args:
            request: the request.
            part: seconds to wait for each part of the answer.
            within: seconds to wait in all, unless that is more than twice as long.
        """
        whole = min(2 * part, within)
        with transport_failures(str(request), self._hint):
            response = await self._connections.send(request, connect=self._connect, part=part, whole=whole)
            try:
                await response.read()
            finally:
                response.close()
        if not response.is_success:
            error = refusal(str(request), response, api_key=self._key, hint=self._hint)
            if isinstance(error, InvalidApiKey) and self._key_place:
                error.hint = f"Check the API key in {self._key_place}. {self._hint}"
            raise error
        return response

    async def _file(self, url: str) -> Response:
        """Asks for a file, and follows redirects; the head of the answer."""
        for _ in range(_MOST_REDIRECTS + 1):
            try:
                target = parse_url(url)
            except ValueError as error:
                raise Unsent from error
            credentials = target.address.credentials
            headers = f"{_HEADERS}Authorization: {credentials}\r\n" if credentials else _HEADERS
            part = self._reading
            response = await self._connections.send(
                Request("GET", target, headers), connect=self._connect, part=part, whole=2 * part
            )
            location = response.headers.get("location")
            if response.status not in _REDIRECTS or not location:
                return response
            response.close()
            url = urljoin(url, location)
        raise ConnectionError(f"there are more than {_MOST_REDIRECTS} redirects")


async def _chunks(request_name: str, response: Response) -> AsyncIterator[bytes]:
    with transport_failures(request_name):
        async for chunk in response.chunks():
            yield chunk
