"""One HTTP/1.1 connection: a request goes out, its answer comes in, and only then the next request.

httptools parses the answers, with the parser of Node.js. What this module adds is when to give up, and that
a connection is used again only when its last answer was complete. It knows nothing of the interface.
"""

from __future__ import annotations

import asyncio
import math
import select
import zlib
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import cast

import httptools

from callsheet.service.urls import Address, Url

LONGEST_HEAD = 100 * 1024
"""Bytes of an answer before its body; httptools itself has no limit."""

LARGEST_WAIT = 1 << 20
"""Bytes of a body that may wait for the reader; then the connection stops receiving."""

_BLOCK = (
    1 << 18
)  # bytes of a body that are given to the system at once, so that a large one is not copied whole


class Unsent(Exception):
    """Not a byte of the request has left this machine."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request.

    Attributes:
        method: in capitals.
        url: where to.
        headers: complete lines, each with its line break; without `Host` and `Content-Length`.
        body: empty for none.
    """

    method: str
    url: Url
    headers: str = ""
    body: bytes = b""

    def __str__(self) -> str:
        return f"{self.method} {self.url.path}"


class Response:
    """An answer whose head has come. Close it; then its connection is free for the next request.

    Attributes:
        request: what is answered.
        status: its status.
        reason: the words after the status.
        headers: by name in lower case; of a name that comes more than once, all values, with commas.
        content: the body, once `read` has read it.
    """

    def __init__(
        self, request: Request, status: int, reason: str, headers: dict[str, str], connection: Connection
    ) -> None:
        self.request = request
        self.status = status
        self.reason = reason
        self.headers = headers
        self.content = b""
        self._connection = connection

    @property
    def is_success(self) -> bool:
        """Whether the status is a 2xx."""
        return 200 <= self.status < 300

    async def read(self) -> None:
        """Reads the whole body, and unpacks it where the server has compressed it.

        Raises:
            Exception: it broke off, took too long, or cannot be unpacked.
        """
        body = b"".join([chunk async for chunk in self._connection.body()])
        if body and self.headers.get("content-encoding", "").lower() in ("gzip", "x-gzip", "deflate"):
            body = zlib.decompress(body, wbits=zlib.MAX_WBITS | 32)  # 32: whichever of the two formats it is
        self.content = body

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes, as the server sent it.

        Raises:
            Exception: it broke off, or the next part took too long.
        """
        self._connection.expect_no_end()
        async for chunk in self._connection.body():
            yield chunk

    def close(self) -> None:
        """Frees the connection, or closes it where the body was not read to its end."""
        self._connection.release()


class Connection(asyncio.Protocol):
    """An open connection.

    Args:
        free: where the connection is put when it can take another request.

    Attributes:
        transport: the connection as asyncio has it.
        to_proxy: requests go to a proxy, which needs the whole URL.
        proxy_credentials: of that proxy; empty for none.
        free_since: when it became free, in the loop's seconds.
    """

    transport: asyncio.Transport

    def __init__(self, free: list[Connection]) -> None:
        self.to_proxy = False
        self.proxy_credentials = ""
        self.free_since = 0.0
        self._free = free
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._error: Exception | None = None  # why the connection cannot be used
        self._sending_paused = False
        self._begin(math.inf, math.inf)
        self._busy = False

    def _begin(self, part: float, until: float) -> None:
        self._busy = True
        self._part, self._until, self._heard = part, until, self._loop.time()
        self._status, self._reason = 0, b""
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        self._chunks: deque[bytes] = deque()
        self._waiting = 0  # bytes of them
        self._reading_paused = False
        self._complete = self._may_stay = self._ends_with_connection = False

    def usable(self) -> bool:
        """Whether a free connection can take a request: the server has neither closed it nor sent anything.

        It asks the system, because the loop may not have looked for a while.
        """
        if self._error or self.transport.is_closing():
            return False
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)

    async def send(self, request: Request, *, part: float, until: float) -> Response:
        """Sends a request, and waits for the head of its answer.

        Args:
            request: the request.
            part: seconds to wait for each part of the answer, and while a part of the request is sent.
            until: the end of all waiting, in the loop's seconds.

        Raises:
            Unsent: the connection was lost before the request could leave.
            Exception: it was lost later, took too long, or the answer is not HTTP.
        """
        head = self._head(request)
        if self._error or self.transport.is_closing():
            raise Unsent from self._error
        self._begin(part, until)
        self._timer = self._loop.call_at(min(self._heard + part, until), self._check_time)
        try:
            await self._write(head, request.body)
            while not self._status:
                await self._change()
        except BaseException:
            self.abort()
            raise
        return Response(request, self._status, self._reason.decode("latin-1"), self._headers, self)

    async def connect_through(self, address: Address) -> None:
        """Asks the proxy at the other end for a connection to a server; waits without end.

        Raises:
            Exception: it has not made one.
        """
        host = f"[{address.host}]" if ":" in address.host else address.host
        line = f"CONNECT {host}:{address.port} HTTP/1.1\r\nHost: {host}:{address.port}\r\n"
        self._begin(math.inf, math.inf)
        self.transport.write(f"{line}{self._proxy_header()}\r\n".encode())
        while not self._status:
            await self._change()
        if not 200 <= self._status < 300:
            raise ConnectionRefusedError(f"the proxy answers {self._status} {self._reason.decode('latin-1')}")
        self._parser = httptools.HttpResponseParser(self)
        self._busy = False

    async def body(self) -> AsyncIterator[bytes]:
        """The body of the answer, as it comes."""
        while True:
            while self._chunks:
                chunk = self._chunks.popleft()
                self._waiting -= len(chunk)
                yield chunk
            if self._complete:
                return
            if self._reading_paused:
                self._reading_paused = False
                self.transport.resume_reading()
            await self._change()

    def expect_no_end(self) -> None:
        """From here on only the time between two parts of the answer counts."""
        self._until = math.inf

    def release(self) -> None:
        """Ends the exchange: the connection is free for the next request, or closed where it cannot be."""
        if not self._busy:
            return
        self._busy = False
        if self._timer:
            self._timer.cancel()
        if self._complete and self._may_stay and not self._error:
            self.free_since = self._loop.time()
            self._free.append(self)
        else:
            self.abort()

    def abort(self) -> None:
        """Closes the connection at once."""
        self._fail(ConnectionAbortedError("closed by this side"))

    # ---- sending

    def _head(self, request: Request) -> bytes:
        url = request.url
        target = f"{url.path}{url.query}"
        proxy_header = ""
        if self.to_proxy:
            target = f"{url.address.scheme}://{url.address.authority}{target}"
            proxy_header = self._proxy_header()
        length = f"Content-Length: {len(request.body)}\r\n" if request.body else ""
        return (
            f"{request.method} {target} HTTP/1.1\r\nHost: {url.address.authority}\r\n"
            f"{request.headers}{proxy_header}{length}\r\n"
        ).encode()

    def _proxy_header(self) -> str:
        return f"Proxy-Authorization: {self.proxy_credentials}\r\n" if self.proxy_credentials else ""

    async def _write(self, head: bytes, body: bytes) -> None:
        if len(body) <= _BLOCK:
            self.transport.write(head + body)
            return
        self.transport.write(head)
        view = memoryview(body)
        for begin in range(0, len(body), _BLOCK):
            while self._sending_paused and not self._status:
                await self._change()
            if self._status:  # answered before it was all sent: a refusal
                self._may_stay = False
                return
            self.transport.write(view[begin : begin + _BLOCK])

    # ---- waiting

    async def _change(self) -> None:
        """Waits until something has come, or can be sent."""
        if self._error and not self._complete:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        if self._error and not self._complete:
            raise self._error

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    def _check_time(self) -> None:
        """Gives up when nothing has come for too long; otherwise looks again when that may be so."""
        now = self._loop.time()
        if self._reading_paused:  # it is the reader who takes the time
            self._heard = now
        ends = min(self._heard + self._part, self._until)
        if now < ends:
            self._timer = self._loop.call_at(ends, self._check_time)
        elif not self._complete:
            self._fail(TimeoutError())

    def _fail(self, error: Exception) -> None:
        self._error = self._error or error
        if self._timer:
            self._timer.cancel()
        self.transport.abort()
        self._wake()

    # ---- asyncio calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is not derived from it

    def data_received(self, data: bytes) -> None:  # noqa: D102
        self._heard = self._loop.time()
        if not self._busy:
            self._fail(ConnectionError("the server sent something that nobody had asked for"))
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._may_stay = False
            if not self._complete:
                self._fail(error)
        if self._status:
            self._wake()
            if self._waiting > LARGEST_WAIT and not self._reading_paused:
                self._reading_paused = True
                self.transport.pause_reading()
        else:
            self._head_bytes += len(data)
            if self._head_bytes > LONGEST_HEAD:
                self._fail(ConnectionError(f"the answer's head has more than {LONGEST_HEAD} bytes"))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: D102
        if self._busy and exc is None and self._ends_with_connection:
            self._complete = True
        self._fail(exc or ConnectionError("the connection was closed before the answer was complete"))

    def pause_writing(self) -> None:  # noqa: D102
        self._sending_paused = True

    def resume_writing(self) -> None:  # noqa: D102
        self._sending_paused = False
        self._heard = self._loop.time()
        self._wake()

    # ---- the parser calls these

    def on_message_begin(self) -> None:  # noqa: D102
        if self._complete:
            raise ValueError("there is more than one answer")
        self._reason, self._headers = b"", {}

    def on_status(self, reason: bytes) -> None:  # noqa: D102
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:  # noqa: D102
        if self._status:  # it comes after the body, and nobody needs it
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:  # noqa: D102
        status = self._parser.get_status_code()
        if status < 200:  # another answer follows
            return
        self._status = status
        self._may_stay = self._parser.should_keep_alive()
        framed = "content-length" in self._headers or "transfer-encoding" in self._headers
        self._ends_with_connection = not framed

    def on_body(self, chunk: bytes) -> None:  # noqa: D102
        self._chunks.append(chunk)
        self._waiting += len(chunk)

    def on_message_complete(self) -> None:  # noqa: D102
        self._complete = self._status > 0
