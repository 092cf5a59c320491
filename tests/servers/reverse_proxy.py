"""A reverse proxy between a run and the backlot, as a gateway in front of a service. It fails on demand.

    with reverse_proxy(backlot.base_url) as proxy:
        proxy.fail(Failure("POST", "/v2/images/", status=504, times=3))
        ...  # proxy.base_url, proxy.requests

It listens on 127.0.0.1, in a thread with its own event loop. Requests without a failure pass unchanged, with
their Host header, so that the download URLs of the service's answers lead through the proxy too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass
class Failure:
    """What happens to requests with a method and a path.

    Attributes:
        method: the method of the requests.
        path: how their path begins.
        status: answers with this status and an HTML page, not with the service's answer.
        answer: answers with this, as it is (`http_answer` makes one).
        cut: closes the connection without an answer. With neither, the service's answer is sent.
        reaches_service: whether the service gets the request before that and carries it out.
        seconds: waits for so long before it sends or closes anything.
        skip: so many requests pass unchanged before the first failure.
        times: so many requests fail; None for all that follow.
    """

    method: str
    path: str
    status: int | None = None
    answer: bytes = b""
    cut: bool = False
    reaches_service: bool = True
    seconds: float = 0.0
    skip: int = 0
    times: int | None = None
    matched: int = 0

    def applies(self, method: str, path: str) -> bool:
        """Whether a request fails; each call counts one request."""
        if method != self.method or not path.startswith(self.path):
            return False
        self.matched += 1
        number = self.matched - self.skip
        return number >= 1 and (self.times is None or number <= self.times)


class ReverseProxy:
    """A running proxy.

    Attributes:
        base_url: its address.
        requests: the method and path of every request that it has received.
        failed: those of them that met a failure.
        refuses: the answer to a request that the service does not get, from the request's method and body.
        rewrite: makes another answer of the service's, from the request's path, the head and the body.
    """

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 80)
        self._failures: list[Failure] = []
        self._lock = threading.Lock()
        self.base_url = ""
        self.rewrite: Callable[[str, bytes, bytes], bytes] | None = None
        self.refuses: Callable[[str, bytes], bytes | None] | None = None
        self.requests: list[tuple[str, str]] = []
        self.failed: list[tuple[str, str]] = []

    def fail(self, *failures: Failure) -> None:
        """Replaces the failures; without arguments, everything passes. The first that applies is used."""
        with self._lock:
            self._failures = list(failures)

    def count(self, method: str, path: str) -> int:
        """How many requests with this method, and a path that begins like this, it has received."""
        with self._lock:
            return sum(m == method and p.startswith(path) for m, p in self.requests)

    def _failure(self, method: str, path: str) -> Failure | None:
        with self._lock:
            self.requests.append((method, path))
            failure = next((one for one in self._failures if one.applies(method, path)), None)
            if failure:
                self.failed.append((method, path))
            return failure

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection of a client, until either side closes it."""
        try:
            with suppress(OSError, EOFError):
                while await self._answer_one(reader, writer):
                    pass
        finally:  # also when the proxy ends
            writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serves one request; returns whether the connection stays open."""
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(_length(head))
        method, path, _ = head.decode("latin-1").split(" ", 2)
        if refusal := self.refuses and self.refuses(method, body):
            failure: Failure | None = Failure(method, path, answer=refusal, reaches_service=False)
        else:
            failure = self._failure(method, path)
        answer = b""
        if failure is None or failure.reaches_service:
            answer = await self._pass_on(head, body)
        if self.rewrite:
            answer_head, separator, content = answer.partition(b"\r\n\r\n")
            answer = self.rewrite(path, answer_head + separator, content)
        if failure:
            await asyncio.sleep(failure.seconds)
            if failure.cut:
                return False
            if failure.answer:
                answer = failure.answer
            elif failure.status:
                answer = _html(failure.status)
        writer.write(answer)
        await writer.drain()
        answer_head, _, content = answer.partition(b"\r\n\r\n")
        return method == "HEAD" or len(content) == _length(answer_head)  # otherwise the answer was cut off

    async def _pass_on(self, head: bytes, body: bytes) -> bytes:
        """The service's whole answer; empty where it closed the connection without one."""
        reader, writer = await asyncio.open_connection(*self._target)
        try:
            writer.write(_with_connection_closed(head) + body)
            await writer.drain()
            answer = await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()
        if not answer:
            raise EOFError
        answer_head, separator, content = answer.partition(b"\r\n\r\n")
        return _without_connection(answer_head) + separator + content


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def _without_connection(head: bytes) -> bytes:
    lines = (line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:"))
    return b"\r\n".join(lines)


def _with_connection_closed(head: bytes) -> bytes:
    return _without_connection(head.removesuffix(b"\r\n\r\n")) + b"\r\nConnection: close\r\n\r\n"


def http_answer(status: bytes, body: bytes, *headers: bytes) -> bytes:
    """A whole answer: `200 OK`, a body, and headers such as `Content-Type: image/png`."""
    length = b"Content-Length: %d" % len(body)
    return b"\r\n".join([b"HTTP/1.1 " + status, length, *headers, b"", body])


def _html(status: int) -> bytes:
    content = f"<html><body><h1>{status}</h1><p>An error page of the gateway.</p></body></html>".encode()
    head = f"HTTP/1.1 {status} Gateway Error\r\nContent-Type: text/html\r\nContent-Length: {len(content)}"
    return f"{head}\r\n\r\n".encode() + content


@contextmanager
def reverse_proxy(target: str) -> Iterator[ReverseProxy]:
    """Runs a proxy on a free port of 127.0.0.1, in front of the service at the base URL `target`."""
    proxy = ReverseProxy(target)
    listening = threading.Event()
    stop: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def listen() -> None:
        stopped = asyncio.Event()
        server = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
        proxy.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        stop.append((asyncio.get_running_loop(), stopped))
        listening.set()
        await stopped.wait()
        server.close()

    thread = threading.Thread(target=asyncio.run, args=[listen()], daemon=True)
    thread.start()
    listening.wait()
    try:
        yield proxy
    finally:
        loop, stopped = stop[0]
        loop.call_soon_threadsafe(stopped.set)
        thread.join()
