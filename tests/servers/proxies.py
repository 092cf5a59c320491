"""Proxies in front of a real server, which refuse, cut off or change requests as a test says.

`ReverseProxy` stands before the backlot, as a gateway in front of a service; `S3Proxy` before an S3 server.
What they let pass they pass on unchanged, with its Host header: so download URLs of the service's answers
lead through the proxy too, and signatures stay valid.
"""

from __future__ import annotations

import itertools
import re
import socket
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Self
from urllib.parse import urlsplit

Headers = dict[str, str]


class Proxy:
    """A proxy that runs in threads of this process, on a port of 127.0.0.1, and passes everything on."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 80)
        self._lock = Lock()
        self._port = 0
        self.connections: set[socket.socket] = set()
        self.start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listens, after `stop` on the same port as before."""
        self._server = _Server(("127.0.0.1", self._port), _Handler)
        self._server.proxy = self
        self._port = self._server.server_port
        Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Refuses connections, and closes the open ones."""
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self.connections):
            with suppress(OSError):  # it is closed
                connection.shutdown(socket.SHUT_RDWR)

    def answer(self, method: str, path: str, headers: Headers, body: bytes) -> bytes:
        """The whole answer to a request; empty where the connection is closed without one."""
        return self.pass_on(method, path, headers, body)

    def pass_on(self, method: str, path: str, headers: Headers, body: bytes) -> bytes:
        """The server's whole answer; empty where it closed the connection without one."""
        kept = [
            f"{name}: {headers[name]}" for name in headers if name.lower() not in ("connection", "expect")
        ]
        head = "\r\n".join([f"{method} {path} HTTP/1.1", *kept, "Connection: close", "", ""])
        try:
            with socket.create_connection(self._target) as server:
                server.sendall(head.encode("latin-1") + body)
                answer, separator, content = server.makefile("rb").read().partition(b"\r\n\r\n")
        except ConnectionError:
            return b""
        lines = [line for line in answer.split(b"\r\n") if not line.lower().startswith(b"connection:")]
        return b"\r\n".join(lines) + separator + content


class _Server(ThreadingHTTPServer):
    proxy: Proxy
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Silent: a connection may be broken on purpose."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.proxy.connections.add(self.connection)

    def finish(self) -> None:
        self.server.proxy.connections.discard(self.connection)
        super().finish()

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer = self.server.proxy.answer(self.command, self.path, dict(self.headers.items()), body)
        self.wfile.write(answer)
        head, _, content = answer.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)^content-length: *(\d+)", head, re.MULTILINE)
        if not answer or (self.command != "HEAD" and len(content) != int(length[1] if length else 0)):
            self.close_connection = True  # it was cut off, or its end is that of the connection

    do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = do_PATCH = _serve  # noqa: N815 - http.server's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Silent."""


def http_answer(status: bytes, body: bytes, *headers: bytes) -> bytes:
    """A whole answer: `200 OK`, a body, and headers such as `Content-Type: image/png`."""
    length = b"Content-Length: %d" % len(body)
    return b"\r\n".join([b"HTTP/1.1 " + status, length, *headers, b"", body])


# ---- before the backlot


@dataclass
class Failure:
    """What happens to requests with a method, and a path that begins like this.

    They are answered with `status` and an HTML page, with `answer` as it is (`http_answer` makes one), or not
    at all where the connection is `cut`; with none of these, with the service's answer. `reaches_service`:
    whether the service gets the request before that, and carries it out. The first `skip` requests pass, then
    so many `times` fail; None for all that follow.
    """

    method: str
    path: str
    status: int | None = None
    answer: bytes = b""
    cut: bool = False
    reaches_service: bool = True
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


class ReverseProxy(Proxy):
    """A gateway before the backlot.

    Attributes:
        requests: the method and path of every request that it has received.
        failed: those of them that met a failure.
        refuses: the answer to a request that the service does not get, from the request's method and body.
        rewrite: makes another answer of the service's, from the request's path, the head and the body.
    """

    def __init__(self, target: str) -> None:
        self._failures: list[Failure] = []
        self.rewrite: Callable[[str, bytes, bytes], bytes] | None = None
        self.refuses: Callable[[str, bytes], bytes | None] | None = None
        self.requests: list[tuple[str, str]] = []
        self.failed: list[tuple[str, str]] = []
        super().__init__(target)

    def fail(self, *failures: Failure) -> None:
        """Replaces the failures; without arguments, everything passes. The first that applies is used."""
        with self._lock:
            self._failures = list(failures)

    def count(self, method: str, path: str) -> int:
        """How many requests with this method, and a path that begins like this, it has received."""
        with self._lock:
            return sum(m == method and p.startswith(path) for m, p in self.requests)

    def answer(self, method: str, path: str, headers: Headers, body: bytes) -> bytes:
        if refusal := self.refuses and self.refuses(method, body):
            return refusal
        with self._lock:
            self.requests.append((method, path))
            failure = next((one for one in self._failures if one.applies(method, path)), None)
            if failure:
                self.failed.append((method, path))
        answer = b""
        if failure is None or failure.reaches_service:
            answer = self.pass_on(method, path, headers, body)
        if failure is None:
            head, separator, content = answer.partition(b"\r\n\r\n")
            return self.rewrite(path, head + separator, content) if self.rewrite else answer
        if failure.cut:
            return b""
        if failure.status:
            page = f"<html><body><h1>{failure.status}</h1><p>An error page of the gateway.</p></body></html>"
            return http_answer(b"%d X" % failure.status, page.encode(), b"Content-Type: text/html")
        return failure.answer or answer


# ---- before an S3 server

Trouble = Callable[[int, Callable[[], bytes]], bytes]
"""Answers one PUT: gets its number, from 1, and a function that passes it on; empty closes the connection."""

CONDITIONS = ("If-None-Match",)
CHECKSUMS = ("x-amz-checksum-sha256", "x-amz-sdk-checksum-algorithm")
"""Headers that some servers ignore."""

ANY_CHECKSUM = ("x-amz-checksum-", "x-amz-sdk-checksum-", "x-amz-trailer")
"""How the headers begin that some servers refuse."""

Signer = Callable[[str, str, Mapping[str, str], bytes], Headers]
"""Gets a request's method, URL, headers and body; returns the headers with a new signature."""


class S3Proxy(Proxy):
    """Counts the PUTs under `prefix` (`/bucket/folder/`) as `puts`.

    Attributes:
        trouble: what answers these PUTs; None: the server does.
        sees: is called with the method and path of each request, before it is answered.
        refuses: beginnings of headers in lower case; a PUT, POST or DELETE with one is answered `refusal`.
        refusal: an HTTP status and one of S3's codes.
        refused: how many were answered so.
        demands: headers, in lower case, without which a PUT is answered AccessDenied.
        forbids: methods that are answered so.
        ignores: headers that requests are signed again without, so that the server behaves like one that does
            not know them.
        signer: signs these requests.
        damages: whether the bytes of PUTs under `prefix` are changed on their way.
    """

    def __init__(self, target: str, prefix: str) -> None:
        self.prefix = prefix
        self.trouble: Trouble | None = None
        self.sees: Callable[[str, str], object] = lambda method, path: None
        self.refuses: Collection[str] = ()
        self.refusal = (501, "NotImplemented")
        self.refused = 0
        self.demands: Mapping[str, str] = {}
        self.forbids: Collection[str] = ()
        self.ignores: Collection[str] = ()
        self.signer: Signer | None = None
        self.damages = False
        self.puts = 0
        super().__init__(target)

    def answer(self, method: str, path: str, headers: Headers, body: bytes) -> bytes:
        self.sees(method, path)
        has = {name.lower(): value for name, value in headers.items()}
        if method in self.forbids or (method == "PUT" and not self.demands.items() <= has.items()):
            return _error(403, "AccessDenied")
        writes = method in ("PUT", "POST", "DELETE")
        if writes and any(name.lower().startswith(tuple(self.refuses)) for name in headers):
            self.refused += 1
            return _error(*self.refusal)
        ignored = [headers.pop(name) for name in self.ignores if name in headers]
        if ignored and self.signer:
            if self.damages and path.startswith(self.prefix):
                body = bytes(reversed(body))
            headers = self.signer(method, f"http://{headers['Host']}{path}", headers, body)

        def forward() -> bytes:
            return self.pass_on(method, path, headers, body)

        with self._lock:
            counts = method == "PUT" and path.startswith(self.prefix)
            self.puts += counts
            number = self.puts
        return self.trouble(number, forward) if counts and self.trouble else forward()


def refuse(status: int, code: str, *, after: int = 0, times: int | None = None) -> Trouble:
    """Answers PUTs with S3's error `code`: all that follow the first `after`, or only so many `times`."""
    left = iter(itertools.count() if times is None else range(times))

    def trouble(number: int, forward: Callable[[], bytes]) -> bytes:
        if number <= after or next(left, None) is None:
            return forward()
        return _error(status, code)

    return trouble


def _error(status: int, code: str) -> bytes:
    body = f"<Error><Code>{code}</Code><Message>Refused by the test.</Message></Error>"
    return http_answer(b"%d X" % status, body.encode(), b"Content-Type: application/xml")
