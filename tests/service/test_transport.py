"""One connection for each request in flight, and none that may break under a paid POST."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from callsheet.errors import ConfigError
from callsheet.service import transport
from callsheet.service.transport import Connections, environment_proxy
from tests.servers.sockets import certificate, close, reply, serve, silence

OK = reply(200, b"{}")


@asynccontextmanager
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=Connections(), timeout=5) as http:
        yield http


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_requests_one_after_the_other_share_one_connection() -> None:
    async def scenario() -> None:
        async with client() as http:
            for _ in range(5):
                await http.post(server.url)

    with serve(OK) as server:
        run(scenario())
        assert (len(server.requests), server.connections) == (5, 1)


def test_concurrent_requests_have_a_connection_each_and_later_ones_use_them_again() -> None:
    async def scenario() -> None:
        async with client() as http:
            for _ in range(3):
                await asyncio.gather(*(http.post(server.url) for _ in range(20)))

    with serve(OK) as server:
        run(scenario())
        assert (len(server.requests), server.connections) == (60, 20)


def test_a_connection_that_was_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "KEEPALIVE", 0.05)

    async def scenario() -> None:
        async with client() as http:
            await http.post(server.url)
            await asyncio.sleep(0.1)
            await http.post(server.url)

    with serve(OK) as server:
        run(scenario())
        assert server.connections == 2


def test_a_request_does_not_fail_because_the_server_closed_an_idle_connection() -> None:
    async def scenario() -> None:
        async with client() as http:
            for _ in range(3):
                await asyncio.gather(*(http.post(server.url) for _ in range(10)))
                await asyncio.sleep(0.1)

    with serve(OK, idle=0.05) as server:
        run(scenario())
        assert (len(server.requests), server.connections) == (30, 30)


def test_a_broken_connection_is_dropped() -> None:
    async def scenario() -> None:
        async with client() as http:
            with pytest.raises(httpx.RemoteProtocolError):
                await http.post(server.url)
            assert (await http.post(server.url)).status_code == 200

    with serve(close, OK) as server:
        run(scenario())
        assert server.connections == 2


def test_a_cancelled_request_closes_its_connection() -> None:
    async def scenario() -> None:
        async with client() as http:
            request = asyncio.create_task(http.post(server.url))
            await asyncio.to_thread(server.arrived.wait, 5)
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request
            assert (await http.post(server.url)).status_code == 200

    with serve(silence, OK) as server:
        run(scenario())
        assert server.connections == 2


def test_an_unread_body_is_not_mixed_into_the_next_answer() -> None:
    async def scenario() -> None:
        async with client() as http:
            async with http.stream("GET", server.url) as response:
                await anext(response.aiter_raw())
            assert (await http.get(server.url)).content == b"second"

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
                assert (await http.post(server.url)).status_code == 200

    with serve(OK, tls=pem) as server:
        run(scenario())
        assert server.connections == 1


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with client() as http:
            assert (await http.get("http://service.test/v2/models")).status_code == 200

    with serve(OK) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        run(scenario())
        assert proxy.requests[0].startswith(b"GET http://service.test/v2/models HTTP/1.1\r\n")


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
    assert environment_proxy(httpx.URL(url)) == proxy


def test_an_unsupported_proxy_is_a_config_error_that_does_not_show_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("all_proxy", "socks5://me:secret@proxy:1080")
    with pytest.raises(ConfigError, match="socks5://, which is not supported") as caught:
        environment_proxy(httpx.URL("https://service.test/"))
    assert "secret" not in caught.value.message + caught.value.hint
