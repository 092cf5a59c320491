"""A reverse proxy between a run and the backlot, as a gateway in front of a service. It fails on demand.

Requests without a failure pass unchanged, with their Host header, so that the download URLs of the service's
answers lead through the proxy too.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from tests.servers.s3_proxy import QuietServer


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
        skip: so many requests pass unchanged before the first failure.
        times: so many requests fail; None for all that follow.
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


class ReverseProxy:
    """A running proxy.

    Attributes:
        base_url: its address.
        requests: the method and path of every request that it has received.
        failed: those of them that met a failure.
        refuses: the answer to a request that the service does not get, from the request's method and body.
        rewrite: makes another answer of the service's, from the request's path, the head and the body.
    """

    def __init__(self, target: str, port: int) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 80)
        self._failures: list[Failure] = []
        self._lock = threading.Lock()
        self.base_url = f"http://127.0.0.1:{port}"
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

    def answer(self, request: _Handler) -> bytes:
        """The answer to a request; empty where the connection is closed without one."""
        method, path = request.command, request.path
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        if refusal := self.refuses and self.refuses(method, body):
            failure: Failure | None = Failure(method, path, answer=refusal, reaches_service=False)
        else:
            with self._lock:
                self.requests.append((method, path))
                failure = next((one for one in self._failures if one.applies(method, path)), None)
                if failure:
                    self.failed.append((method, path))
        answer = b""
        if failure is None or failure.reaches_service:
            answer = self._pass_on(request, body)
        if self.rewrite and not failure:
            head, separator, content = answer.partition(b"\r\n\r\n")
            answer = self.rewrite(path, head + separator, content)
        if failure and failure.cut:
            return b""
        if failure and failure.status:
            page = f"<html><body><h1>{failure.status}</h1><p>An error page of the gateway.</p></body></html>"
            answer = http_answer(b"%d X" % failure.status, page.encode(), b"Content-Type: text/html")
        return (failure and failure.answer) or answer

    def _pass_on(self, request: _Handler, body: bytes) -> bytes:
        """The service's whole answer; empty where it closed the connection without one."""
        kept = [f"{name}: {value}" for name, value in request.headers.items() if name.lower() != "connection"]
        head = "\r\n".join([request.requestline, *kept, "Connection: close", "", ""])
        try:
            with socket.create_connection(self._target) as service:
                service.sendall(head.encode("latin-1") + body)
                head_, separator, content = service.makefile("rb").read().partition(b"\r\n\r\n")
        except ConnectionError:
            return b""
        lines = [each for each in head_.split(b"\r\n") if not each.lower().startswith(b"connection:")]
        return b"\r\n".join(lines) + separator + content


class _Server(QuietServer):
    proxy: ReverseProxy

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.connections: list[socket.socket] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.connections.append(self.connection)

    def _serve(self) -> None:
        answer = self.server.proxy.answer(self)
        self.wfile.write(answer)
        head, _, content = answer.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)^content-length: *(\d+)", head, re.MULTILINE)
        if not answer or (self.command != "HEAD" and len(content) != int(length[1] if length else 0)):
            self.close_connection = True  # it was cut off

    do_GET = do_HEAD = do_POST = do_PATCH = _serve  # noqa: N815 - http.server's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Silent."""


def http_answer(status: bytes, body: bytes, *headers: bytes) -> bytes:
    """A whole answer: `200 OK`, a body, and headers such as `Content-Type: image/png`."""
    length = b"Content-Length: %d" % len(body)
    return b"\r\n".join([b"HTTP/1.1 " + status, length, *headers, b"", body])


@contextmanager
def reverse_proxy(target: str) -> Iterator[ReverseProxy]:
    """Runs a proxy on a free port of 127.0.0.1, in front of the service at the base URL `target`."""
    with _Server() as server:
        server.proxy = ReverseProxy(target, server.server_port)
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        try:
            yield server.proxy
        finally:
            server.shutdown()
            for connection in server.connections:
                with suppress(OSError):  # it is closed
                    connection.shutdown(socket.SHUT_RDWR)
