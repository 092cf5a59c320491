"""An HTTP proxy in front of a real S3 server, which can refuse, cut off or change requests.

Everything else is forwarded unchanged, the Host header too, so that signatures stay valid.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from urllib.parse import urlsplit

Answer = tuple[int, dict[str, str], bytes]
Trouble = Callable[[int, Callable[[], Answer]], Answer | None]
"""Answers one PUT: gets its number, from 1, and a function that forwards it; None closes the connection."""

CONDITIONS = ("If-None-Match",)
CHECKSUMS = ("x-amz-checksum-sha256", "x-amz-sdk-checksum-algorithm")
"""Headers that some servers ignore."""

ANY_CHECKSUM = ("x-amz-checksum-", "x-amz-sdk-checksum-", "x-amz-trailer")
"""How the headers begin that some servers refuse."""

Signer = Callable[[str, str, Mapping[str, str], bytes], dict[str, str]]
"""Gets a request's method, URL, headers and body; returns the headers with a new signature."""


class Proxy:
    """The proxy's address, and the number of PUTs under `prefix` (`/bucket/folder/`) so far.

    Attributes:
        trouble: what answers these PUTs; None: the server does.
        sees: is called with the method and path of each request, before it is answered.
        refuses: beginnings of headers in lower case; a PUT, POST or DELETE with one is answered `refusal`.
        refusal: an HTTP status and one of S3's codes.
        refused: how many were answered so.
        ignores: headers that requests are signed again without, so that the server behaves like one that does
            not know them.
        signer: signs these requests.
        damages: whether the bytes of PUTs under `prefix` are changed on their way.
    """

    def __init__(self, target: str, prefix: str) -> None:
        self.target, self.prefix = urlsplit(target).netloc, prefix
        self.trouble: Trouble | None = None
        self.sees: Callable[[str, str], object] = lambda method, path: None
        self.refuses: Collection[str] = ()
        self.refusal = (501, "NotImplemented")
        self.refused = 0
        self.ignores: Collection[str] = ()
        self.signer: Signer | None = None
        self.damages = False
        self.puts = 0
        self._lock = Lock()
        self._port = 0
        self._open: set[socket.socket] = set()
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listens, after `stop` on the same port as before."""
        self._server = _Server(("127.0.0.1", self._port), _Handler)
        self._server.proxy = self
        self._port = self._server.server_address[1]
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self) -> None:
        """Refuses connections, and closes the open ones."""
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def answer(self, request: _Handler, body: bytes) -> Answer | None:
        """The answer to a request; None closes the connection."""
        headers = dict(request.headers.items())
        self.sees(request.command, request.path)
        writes = request.command in ("PUT", "POST", "DELETE")
        if writes and any(name.lower().startswith(tuple(self.refuses)) for name in headers):
            self.refused += 1
            return _error(*self.refusal)
        ignored = [headers.pop(name) for name in self.ignores if name in headers]
        if ignored and self.signer:
            if self.damages and request.path.startswith(self.prefix):
                body = bytes(reversed(body))
            url = f"http://{headers['Host']}{request.path}"
            headers = self.signer(request.command, url, headers, body)

        def forward() -> Answer:
            return _forward(self.target, request.command, request.path, headers, body)

        with self._lock:
            counts = request.command == "PUT" and request.path.startswith(self.prefix)
            self.puts += counts
            number = self.puts
        return self.trouble(number, forward) if counts and self.trouble else forward()


def refuse(status: int, code: str, *, after: int = 0, times: int | None = None) -> Trouble:
    """Answers PUTs with S3's error `code`: all that follow the first `after`, or only so many `times`."""
    left = iter(itertools.count() if times is None else range(times))

    def trouble(number: int, forward: Callable[[], Answer]) -> Answer:
        if number <= after or next(left, None) is None:
            return forward()
        return _error(status, code)

    return trouble


def _error(status: int, code: str) -> Answer:
    body = f"<Error><Code>{code}</Code><Message>Refused by the test.</Message></Error>"
    return status, {"Content-Type": "application/xml"}, body.encode()


class QuietServer(ThreadingHTTPServer):
    """A server of a thread for each connection, which may be broken on purpose."""

    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Silent."""


class _Server(QuietServer):
    proxy: Proxy


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.proxy._open.add(self.connection)

    def finish(self) -> None:
        self.server.proxy._open.discard(self.connection)
        super().finish()

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer = self.server.proxy.answer(self, body)
        if answer is None:
            self.close_connection = True
            return
        status, headers, content = answer
        self.send_response_only(status)
        for name, value in ({"Content-Length": str(len(content))} | headers).items():  # a HEAD has its own
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = _serve  # noqa: N815 - http.server's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Silent."""


def _forward(target: str, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
    """Sends the request to the server, and returns the answer."""
    with closing(HTTPConnection(target)) as connection:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            if name.lower() not in ("expect", "connection"):
                connection.putheader(name, value)
        connection.endheaders(body or None)
        response = connection.getresponse()
        content = response.read()
        headers = {name.title(): value for name, value in response.getheaders()}
    for name in ("Connection", "Transfer-Encoding"):
        headers.pop(name, None)
    return response.status, headers, content


@contextmanager
def s3_proxy(target: str, prefix: str) -> Iterator[Proxy]:
    """Serves on a free port of 127.0.0.1, in front of the server at `target`."""
    proxy = Proxy(target, prefix)
    try:
        yield proxy
    finally:
        proxy.stop()
