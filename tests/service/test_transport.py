"""One connection for each request in flight, and none that may break under a paid POST."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from callsheet.errors import ConfigError
from callsheet.service import transport
from callsheet.service.connection import Request, Response, Unsent
from callsheet.service.transport import Connections, environment_proxy
from callsheet.service.urls import parse_url
from tests.servers.sockets import (
    Behaviour,
    certificate,
    close,
    full_backlog,
    raw,
    reply,
    serve,
    silence,
    unused_port,
)
from tests.waiting import LONGEST

OK = reply(200, b"{}")


@asynccontextmanager
async def client() -> AsyncIterator[Connections]:
    connections = Connections()
    try:
        yield connections
    finally:
        await connections.aclose()


async def begin(connections: Connections, url: str, body: bytes = b"{}", **seconds: float) -> Response:
    request = Request("POST", parse_url(url), "X-Test: 1\r\n", body)
    return await connections.send(request, **{"connect": LONGEST, "part": LONGEST} | seconds)


async def post(connections: Connections, url: str, body: bytes = b"{}", **seconds: float) -> Response:
    """A request and its whole answer."""
    response = await begin(connections, url, body, **seconds)
    try:
        await response.read()
    finally:
        response.close()
    return response


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_requests_one_after_the_other_share_one_connection() -> None:
    async def scenario() -> None:
        async with client() as http:
            for _ in range(5):
                await post(http, server.url)

    with serve(OK) as server:
        run(scenario())
        assert (len(server.requests), server.connections) == (5, 1)


def test_concurrent_requests_have_a_connection_each_and_later_ones_use_them_again() -> None:
    async def scenario() -> None:
        async with client() as http:
            for _ in range(3):
                await asyncio.gather(*(post(http, server.url) for _ in range(20)))

    with serve(OK) as server:
        run(scenario())
        assert (len(server.requests), server.connections) == (60, 20)


def test_a_connection_that_was_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "KEEPALIVE", 0.05)

    async def scenario() -> None:
        async with client() as http:
            await post(http, server.url)
            await asyncio.sleep(0.1)
            await post(http, server.url)

    with serve(OK) as server:
        run(scenario())
        assert server.connections == 2


def test_a_request_does_not_fail_because_the_server_closed_an_idle_connection() -> None:
    async def scenario() -> None:
        async with client() as http:
            for _ in range(3):
                await asyncio.gather(*(post(http, server.url) for _ in range(10)))
                await asyncio.sleep(0.1)

    with serve(OK, idle=0.05) as server:
        run(scenario())
        assert (len(server.requests), server.connections) == (30, 30)


def test_a_broken_connection_is_dropped() -> None:
    async def scenario() -> None:
        async with client() as http:
            with pytest.raises(ConnectionError):
                await post(http, server.url)
            assert (await post(http, server.url)).status == 200

    with serve(close, OK) as server:
        run(scenario())
        assert server.connections == 2


def test_a_cancelled_request_closes_its_connection() -> None:
    async def scenario() -> None:
        async with client() as http:
            request = asyncio.create_task(post(http, server.url))
            await asyncio.to_thread(server.arrived.wait, 5)
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request
            assert (await post(http, server.url)).status == 200

    with serve(silence, OK) as server:
        run(scenario())
        assert server.connections == 2


def test_an_unread_body_is_not_mixed_into_the_next_answer() -> None:
    async def scenario() -> None:
        async with client() as http:
            response = await begin(http, server.url)
            await anext(response.chunks())
            response.close()
            assert (await post(http, server.url)).content == b"second"

    with serve(reply(200, b"x" * 1_000_000), reply(200, b"second")) as server:
        run(scenario())


def test_tls_trusts_the_certificates_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))

    async def scenario() -> None:
        async with client() as http:
            for _ in range(3):
                assert (await post(http, server.url)).status == 200

    with serve(OK, tls=pem) as server:
        run(scenario())
        assert server.connections == 1


def tunnel(port: int) -> Behaviour:
    """Carries out a CONNECT: passes everything on to a port of this machine, and back."""

    def behave(near: socket.socket) -> bool:
        near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as far:
            while True:
                held = getattr(near, "pending", int)()  # bytes that TLS has read from the socket already
                for one in [near] if held else select.select([near, far], [], [])[0]:
                    if not (data := one.recv(65536)):
                        return False
                    (far if one is near else near).sendall(data)
        return False

    return behave


@pytest.mark.parametrize("secure_proxy", [False, True], ids=["http proxy", "https proxy"])
def test_a_proxy_gets_the_whole_url_of_a_plain_request_and_its_own_credentials(
    secure_proxy: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))

    async def scenario() -> None:
        async with client() as http:
            for _ in range(2):
                assert (await post(http, "http://service.test/v2/models?type=image")).status == 200

    with serve(OK, tls=pem if secure_proxy else None) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("://", "://me:p%40ss@"))
        run(scenario())
    assert proxy.connections == 1
    head = proxy.requests[0].decode()
    assert head.startswith("POST http://service.test/v2/models?type=image HTTP/1.1\r\nHost: service.test\r\n")
    assert "Proxy-Authorization: Basic bWU6cEBzcw==\r\n" in head


@pytest.mark.parametrize("secure_proxy", [False, True], ids=["http proxy", "https proxy"])
def test_a_proxy_connects_a_secure_request_without_seeing_it(
    secure_proxy: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    monkeypatch.setattr(transport, "_LOOPBACK", ())  # so that it goes to the test's server through the proxy
    monkeypatch.setattr("urllib.request.proxy_bypass", lambda host: False)

    async def scenario() -> None:
        async with client() as http:
            for _ in range(2):
                assert (await post(http, f"{server.url}/secret")).content == b"{}"

    with serve(OK, tls=pem) as server:
        port = server.url.rpartition(":")[2]
        with serve(tunnel(int(port)), tls=pem if secure_proxy else None) as proxy:
            monkeypatch.setenv("https_proxy", proxy.url.replace("://", "://me:p%40ss@"))
            run(scenario())
    [asked] = proxy.requests
    assert asked.startswith(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n".encode())
    assert b"Proxy-Authorization: Basic bWU6cEBzcw==\r\n" in asked
    assert len(server.requests) == 2
    assert server.requests[0].startswith(b"POST /secret HTTP/1.1\r\n")
    assert b"Proxy" not in server.requests[0]


# ---- what was never sent


@pytest.mark.parametrize(
    "answer",
    [reply(407), reply(502, b"no"), close, raw(b"HTTP?\r\n\r\n"), raw(b"HTTP/1.1 200 OK\r\n\r\nnot TLS")],
    ids=["407", "502", "closed", "garbled", "no TLS behind it"],
)
def test_a_proxy_that_does_not_connect_means_unsent(
    answer: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with client() as http:
            with pytest.raises(Unsent):
                await post(http, "https://service.test")

    with serve(answer) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        run(scenario())


def test_without_a_connection_a_request_is_unsent(tmp_path: Path) -> None:
    async def scenario(url: str, cause: type[Exception], **seconds: float) -> None:
        async with client() as http:
            with pytest.raises(Unsent) as caught:
                await post(http, url, **seconds)
            assert isinstance(caught.value.__cause__, cause)

    with unused_port() as port:
        run(scenario(f"http://127.0.0.1:{port}", ConnectionRefusedError))
    with full_backlog() as port:
        run(scenario(f"http://127.0.0.1:{port}", TimeoutError, connect=0.1))
        run(scenario(f"http://127.0.0.1:{port}", TimeoutError, whole=0.1))
    run(scenario("http://no-such-host.invalid", OSError))
    with serve(OK, tls=certificate(tmp_path)) as untrusted:
        run(scenario(untrusted.url, OSError))
    assert untrusted.requests == []


def test_a_connection_that_is_lost_before_the_request_leaves_means_unsent() -> None:
    async def scenario() -> None:
        async with client() as http:
            await post(http, server.url)
            [[connection]] = http._free.values()
            connection.abort()
            request = Request("POST", parse_url(server.url))
            with pytest.raises(Unsent):
                await connection.send(request, part=LONGEST, until=float("inf"))

    with serve(OK) as server:
        run(scenario())
        assert len(server.requests) == 1


# ---- which proxy


@pytest.mark.parametrize(
    "url, proxy",
    [
        ("http://service.test/", "http://plain:1"),
        ("https://service.test/", "http://secure:2"),  # a proxy's scheme may be left out
        ("http://127.0.0.1:8000/", None),
        ("http://localhost:8000/", None),
        ("http://[::1]:8000/", None),
        ("https://api.direct.test/", None),
    ],
)
def test_which_proxy_is_used(url: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://plain:1")
    monkeypatch.setenv("https_proxy", "secure:2")
    monkeypatch.setenv("no_proxy", "direct.test")
    named = environment_proxy(parse_url(url).address)
    assert named == (parse_url(proxy).address if proxy else None)


def test_an_unsupported_proxy_is_a_config_error_that_does_not_show_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("all_proxy", "socks5://me:secret@proxy:1080")
    with pytest.raises(ConfigError, match="socks5://, which is not supported") as caught:
        environment_proxy(parse_url("https://service.test/").address)
    assert "secret" not in caught.value.message + caught.value.hint
