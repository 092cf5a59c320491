"""The service's endpoints (INTERFACE 4), one method each, with typed answers and typed errors.

Every failure is a `ServiceError`: `NotSent` when nothing can have happened, `Refusal` when the service (or a
proxy before it) answered with an error, and `MaybeSent` for everything else. The client does not decide what
a failure means (`verdicts.py` does), and never repeats a submission or a poll. It repeats only other
requests (models, balance, costs), when the service is too busy or fails.

The API key is sent to the API and nowhere else: not to download URLs or redirects, and not into a message or
a log.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import re
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Self
from urllib.parse import quote, unquote_to_bytes, urlencode, urljoin, urlsplit

import httpx

from callsheet.errors import ConfigError, InvalidApiKey, MaybeSent, MediaError, NotFound, NotSent, Refusal
from callsheet.records import Generation
from callsheet.service.answers import (
    WINDOW,
    goes_through,
    header_number,
    rate_headers,
    read_answer,
    read_catalogue,
    redirect,
    refusal,
    request_name,
    transport_failures,
    without_secrets,
)
from callsheet.service.models import (
    Accepted,
    Balance,
    Catalogue,
    Costs,
    DailyCosts,
    Download,
    Failed,
    ImageAnswer,
    NoFile,
    Pending,
    RateHeaders,
    VideoAnswer,
)
from callsheet.service.transport import Connections, Unsent, proxy_of
from callsheet.service.verdicts import Backoff, may_pass

READ_TRIES = 4
"""Tries in all of a request that is repeated."""

_OTHER_PROJECT = (
    "The key seems to be of another project than the one that bought it: check the key and service.base_url."
)
_MOST_REDIRECTS = 20  # of one download
_MOST_RESUMES = 3  # one after another that bring nothing of a file
_CONTENT_RANGE = re.compile("bytes ([0-9]{1,15})-[0-9]{1,15}/([0-9]{1,15})")
_ROUNDING = Decimal("0.0000005")  # of an amount that is kept with six decimals
_MOST_DAYS = timedelta(days=179)  # from a request's first day of costs to its last: within 180 of `start`
# The bytes of a file must be those that Content-Length counts, and compressing them again helps nobody.
_HEADERS = {"User-Agent": "callsheet", "Accept": "*/*", "Accept-Encoding": "identity"}
_QUOTES = "\"'`\u2018\u2019\u201c\u201d"
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class Client:
    """The service, as one workspace sees it. Use it in an `async with`.

    Args:
        base_url: the service's address, without the version (`config.checks.service_address`).
        api_key: `sk_...` (INTERFACE 5), perhaps with blanks around it.
        key_place: where the key is from, in words. No message repeats the key itself.
        connect_timeout: seconds to wait for a connection.
        read_timeout: seconds to wait for the answer to a request that is free; of a file, for its beginning
            and for each part.
        generation_timeout: seconds to send a submission and wait for its answer. The service makes an image
            while the client waits, and giving up leaves the job in doubt, so it is long.
        backoff: how long to wait before something is tried again, here and in the steps of a run.

    Raises:
        ConfigError: the address is not a URL, the key cannot be one, or the environment names a proxy or
            authorities that cannot be used.

    Every method raises `NotSent`, `MaybeSent` or one of the `Refusal` types. `MaybeSent` is raised for a 2xx
    answer that cannot be read, too: a submission is then in doubt, anything else is free to repeat.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        key_place: str = "service.api_key_env",
        connect_timeout: float = 10.0,
        read_timeout: float = 30.0,
        generation_timeout: float = 300.0,
        backoff: Backoff = Backoff(),  # noqa: B008 - it cannot be changed
    ) -> None:
        self._key, self._key_place = _checked_key(api_key, key_place), key_place
        self.base_url, self.backoff = base_url.rstrip("/"), backoff
        try:
            base = httpx.URL(self.base_url)
        except httpx.InvalidURL as error:
            raise ConfigError(f"service.base_url is not a URL: {error}") from None
        self._connections = Connections()
        self._connections.prepare(base)
        self._headers = {**_HEADERS, "Authorization": f"Bearer {self._key}"}
        self._connect, self._reading, self._generating = connect_timeout, read_timeout, generation_timeout
        address = without_secrets(self.base_url)
        self._hint = (
            f"Is {address} the service's address? It is service.base_url, CALLSHEET_BASE_URL, or in a block."
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connections.aclose()

    # ---- the endpoints

    async def create_image(self, body: Mapping[str, Any]) -> tuple[Generation, RateHeaders | None]:
        """Buys an image and waits for it (INTERFACE 4.1); the headers are None where they cannot be read.

        An answer with an id and a file is bought, whatever else is missing. Any other is `MaybeSent`, with
        the id where it has one: a person has to settle it.
        """
        response = await self._post("/v2/images/generations", body)
        image = read_answer(response, ImageAnswer.model_validate)
        return Generation(image.id, image.data, image.usage, image.model), rate_headers(response.headers)

    async def create_video(self, body: Mapping[str, Any]) -> tuple[str, RateHeaders | None]:
        """Submits a video (INTERFACE 4.4); its id, and headers as of an image.

        Every 2xx answer with an id is an accepted video.
        """
        response = await self._post("/v2/videos/generations", body)
        accepted = read_answer(response, Accepted.model_validate)
        return accepted.id, rate_headers(response.headers)

    async def models(self) -> Catalogue:
        """The models with their prices, by id (INTERFACE 4.2).

        An entry that cannot be read is in the catalogue with the reason, and the others stay usable.
        """
        return read_catalogue(await self._repeated("/v2/models"))

    async def video(
        self, generation_id: str, *, within: float = math.inf
    ) -> Pending | Failed | NoFile | Generation:
        """The state of a video (INTERFACE 4.5). Its one file is the first of the answer's `data`.

        An answer with a file is a finished video, unless its status says another thing that the interface
        knows. A status that it does not know is not the end. An answer about another id is `MaybeSent`.
        `within`: seconds for which the caller can wait.
        """
        path = f"/v2/videos/generations/{quote(generation_id, safe='')}"
        try:
            response = await self._get(path, within=within)
        except NotFound as unknown:
            unknown.hint = _OTHER_PROJECT
            raise
        video = read_answer(response, VideoAnswer.model_validate)
        if video.id not in (None, generation_id):
            raise MaybeSent(f"GET {path}: the answer is about another generation: {video.id}")
        match (video.status or "").strip().casefold():
            case "pending":
                return Pending()
            case "failed":
                error = video.error
                code, message = error.code or "unknown", error.message or "no reason was given"
                return Failed(code, message, video.usage)
            case _ if video.data:
                return Generation(generation_id, video.data[:1], video.usage, video.model)
            case "completed":
                return NoFile(video.said())
        return Pending(video.said())

    async def balance(self) -> Decimal:
        """The workspace's balance in dollars (INTERFACE 4.6). It is free and never cached: also a probe."""
        return read_answer(await self._repeated("/v2/billing/balance"), Balance.model_validate).balance

    async def daily_costs(self, start: datetime, end: datetime) -> DailyCosts:
        """What the project was charged on each UTC day of a range of any length, in dollars (INTERFACE 4.7).

        It is asked for in pieces of whole days. The first and the last day count from `start` and until
        `end`, which have a time zone; the end is not in the future. Recent charges may be missing.

        Raises:
            MaybeSent: an answer does not have each day of its range once.
        """
        start, end = start.astimezone(UTC), end.astimezone(UTC)
        costs: dict[date, Decimal] = {}
        beyond = Decimal(0)
        while start < end:
            last = min(end, datetime.combine(start.date() + _MOST_DAYS, time.max, UTC))
            query = urlencode({"start": start.isoformat(), "end": last.isoformat()})
            answer = read_answer(await self._repeated(f"/v2/billing/costs?{query}"), Costs.model_validate)
            days = range((last.date() - start.date()).days + 1)
            if sorted(day.date for day in answer.data) != [start.date() + timedelta(day) for day in days]:
                raise MaybeSent(
                    "GET /v2/billing/costs: the answer does not have each day from "
                    f"{start.date()} to {last.date()} once",
                    hint="Is this the service of the interface's version 2?",
                )
            costs |= {day.date: day.cost for day in answer.data}
            beyond += _beyond(answer)
            start = datetime.combine(last.date() + timedelta(days=1), time.min, UTC)
        return DailyCosts(costs, beyond)

    @asynccontextmanager
    async def download(self, url: str) -> AsyncIterator[Download]:
        """Fetches a signed URL as given (INTERFACE 4.8), without the key. Redirects are followed.

        A data URI is a file, too; a relative address is relative to the service's. Blanks around it are none.
        Every error answer is a plain `Refusal`, whatever its status: the interface defines none here.

        Raises:
            MediaError: a data URI cannot be read.
        """
        url = url.strip()
        if url[:5].lower() == "data:":
            yield _in_data_uri(url)
            return
        name = f"GET {without_secrets(url)}"
        hint = "Check the network between this machine and the server of the service's files."
        async with AsyncExitStack() as stack:
            try:
                with transport_failures(name, hint):
                    response = await self._file(url, stack)
            except ConfigError as error:  # the API's own server needs no such proxy or authorities
                raise NotSent(f"{name}: not sent: {error.message}", hint=error.hint) from error
            if not response.is_success:
                with transport_failures(name):
                    await response.aread()
                refused = refusal(name, response, api_key=self._key)
                # The key was not sent, so no answer here is about the key or its workspace's balance.
                plain = Refusal(refused.message, status=refused.status, code=refused.code)
                plain.retry_after, plain.date = refused.retry_after, refused.date
                raise plain
            headers = response.headers
            if packed := headers.get("content-encoding"):
                headers["content-encoding"] = packed = packed.lower().replace("x-gzip", "gzip")
            is_part = response.status_code == httpx.codes.PARTIAL_CONTENT  # nobody has asked for it
            chunked = "transfer-encoding" in headers  # then there is no other length
            sent = None if chunked else header_number(headers, "content-length")
            length = None if packed or is_part else sent  # of a packed file it is not the file's
            # The transport sees that a length, or the last chunk, has come; `_chunks` sees the end of gzip.
            proven = not is_part and (chunked or sent is not None or packed == "gzip")
            mime_type = headers.get("content-type", "").partition(";")[0].strip().lower()
            chunks = _chunks(name, response)
            if proven and not packed and headers.get("accept-ranges", "").lower() != "none":
                chunks = self._to_its_end(name, url, response, length, stack)
            yield Download(chunks, length, proven, mime_type)

    async def _to_its_end(
        self, name: str, url: str, response: httpx.Response, length: int | None, stack: AsyncExitStack
    ) -> AsyncIterator[bytes]:
        """The bytes of a file. Where its connection breaks off it goes on from there, if the server can.

        Raises:
            MaybeSent: it broke off, and the server does not go on, or sends nothing more several times.
        """
        etag, tries, at = response.headers.get("etag", ""), 0, 0
        unchanged = response.headers.get("last-modified", "") if etag[:2] in ("", "W/") else etag
        while True:
            try:
                async for chunk in _chunks(name, response):
                    tries, at = 0, at + len(chunk)
                    yield chunk
                if length in (None, at):
                    return
                cut = MaybeSent(f"{name}: only {at} of {length} bytes came")
            except MaybeSent as error:
                cut = error
            while True:
                tries += 1
                if not at or tries > _MOST_RESUMES:
                    raise cut
                await asyncio.sleep(self.backoff(tries - 1) if tries > 1 else 0)
                with suppress(MaybeSent, NotSent), transport_failures(name):
                    await stack.aclose()
                    asks = {"Range": f"bytes={at}-"} | ({"If-Range": unchanged} if unchanged else {})
                    response = await self._file(url, stack, asks)
                    break
            part = _CONTENT_RANGE.fullmatch(response.headers.get("content-range", ""))
            encoding = response.headers.get("content-encoding")
            is_same_file = response.headers.get("etag", etag) == etag and not encoding
            if response.status_code != httpx.codes.PARTIAL_CONTENT or not (part and is_same_file):
                raise cut
            length = length or int(part[2])
            if (int(part[1]), int(part[2])) != (at, length):
                raise cut

    # ---- one request

    async def _repeated(self, path: str) -> httpx.Response:
        """A GET that is repeated a few times after a 429 or a 5xx: it is free."""
        for tries in range(1, READ_TRIES):
            try:
                return await self._get(path)
            except Refusal as error:
                retry_after = error.retry_after or 0.0
                if not may_pass(error) or retry_after > WINDOW:
                    raise
            await asyncio.sleep(max(retry_after, self.backoff(tries)))
        return await self._get(path)

    async def _get(self, path: str, *, within: float = math.inf) -> httpx.Response:
        request = httpx.Request("GET", f"{self.base_url}{path}", headers=self._headers)
        return await self._answer(request, min(self._reading, within))

    async def _post(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        headers = {**self._headers, "Content-Type": "application/json"}
        content = _encoder.encode(body).encode()
        request = httpx.Request("POST", f"{self.base_url}{path}", headers=headers, content=content)
        return await self._answer(request, self._generating)

    async def _answer(self, request: httpx.Request, seconds: float) -> httpx.Response:
        """Sends a request to the API; the answer, with its body read, within so many seconds."""
        name = request_name(request)
        with transport_failures(name, self._hint):
            async with self._connections.send(request, connect=self._connect, within=seconds) as response:
                await response.aread()
        if not response.is_success:
            hint = f"{goes_through(proxy_of(request.url))}{self._hint}"
            error = refusal(name, response, api_key=self._key, hint=hint)
            if isinstance(error, InvalidApiKey):
                error.hint = f"Check the API key in {self._key_place}. {self._hint}"
            raise error
        return response

    async def _file(
        self, url: str, stack: AsyncExitStack, headers: Mapping[str, str] = MappingProxyType({})
    ) -> httpx.Response:
        """Asks for a file, and follows redirects; the head of the answer, which ends with the stack.

        `headers` are sent besides those of every request.
        """
        for _ in range(_MOST_REDIRECTS + 1):
            try:
                full_url = url if urlsplit(url).scheme else urljoin(f"{self.base_url}/", url)
                request = httpx.Request("GET", full_url, headers={**_HEADERS, **headers})
            except (ValueError, httpx.InvalidURL) as error:
                raise Unsent from error
            if request.url.userinfo:
                next(httpx.BasicAuth(request.url.username, request.url.password).auth_flow(request))
            part = self._reading
            sending = self._connections.send(request, connect=self._connect, within=part, part=part)
            response = await stack.enter_async_context(sending)
            if not (url := redirect(response)):
                return response
            await stack.aclose()
        raise ConnectionError(f"there are more than {_MOST_REDIRECTS} redirects")


def _beyond(costs: Costs) -> Decimal:
    """By how much the total is more than the sum of its days; nothing where only their rounding differs."""
    if costs.total_cost is None:
        return Decimal(0)
    difference = costs.total_cost - sum((day.cost for day in costs.data), Decimal(0))
    return difference if abs(difference) > _ROUNDING * (len(costs.data) + 1) else Decimal(0)


def _checked_key(text: str, place: str) -> str:
    """An API key without the blanks around it."""
    key = text.strip()
    if not key:
        fault = "is empty"
    elif key[0] in _QUOTES or key[-1] in _QUOTES:
        fault = "is in quotes"
    elif key.lower().startswith("bearer"):
        fault = "begins with Bearer"
    elif not (key.isascii() and key.isprintable() and " " not in key):
        fault = "has a blank, a line break or a character that is not ASCII in it"
    else:
        return key
    raise ConfigError(
        f"the API key in {place} {fault}",
        hint="Give the key alone, as sk_...: without quotes, blanks or the word Bearer.",
    )


async def _chunks(name: str, response: httpx.Response) -> AsyncIterator[bytes]:
    with transport_failures(name):
        if response.headers.get("content-encoding") != "gzip":
            async for chunk in response.aiter_bytes():
                yield chunk
            return
        unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)  # of httpx's, nobody knows whether it saw the end
        async for chunk in response.aiter_raw():
            if not unpacker.eof:
                yield unpacker.decompress(chunk)
        if not unpacker.eof:
            raise EOFError("the compressed file has no end")


def _in_data_uri(url: str) -> Download:
    head, comma, text = url[5:].partition(",")
    mime_type, *parameters = (part.strip().lower() for part in head.split(";"))
    content = unquote_to_bytes(text)
    try:
        if "base64" in parameters:
            digits = b"".join(content.split()).rstrip(b"=")
            content = base64.b64decode(digits + b"=" * (-len(digits) % 4), altchars=b"-_", validate=True)
    except ValueError:
        comma = ""
    if not comma:
        raise MediaError(f"the data URI cannot be read: {without_secrets(url)}")

    async def chunks() -> AsyncIterator[bytes]:
        yield content

    return Download(chunks(), len(content), True, mime_type)
