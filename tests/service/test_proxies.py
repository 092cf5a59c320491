"""Which proxy is used, what NO_PROXY takes out, and what a proxy's failure means."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest

from callsheet.errors import ConfigError, GatewayAnswer, NotSent
from callsheet.service import transport, verdicts
from callsheet.service.client import Client
from callsheet.service.transport import Unsent, proxy_for
from tests.servers.sockets import (
    SOCKS_CONNECTED,
    SOCKS_NO_PASSWORD,
    SOCKS_PASSWORD,
    SOCKS_REFUSED,
    SOCKS_WELCOME,
    Behaviour,
    certificate,
    close,
    page,
    raw,
    reply,
    reset,
    serve,
    silence,
    socks5,
    tunnel,
)
from tests.service.asking import KEY, image
from tests.service.asking import run as ask
from tests.service.test_transport import client, run, send
from tests.waiting import LONGEST

OK = reply(200, b"{}")
WITH_PASSWORD = "://me:p%40ss@"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxies but those that a test names."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name in "NO_PROXY", "no_proxy":  # so that they are put back, whatever is written
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.fixture
def local_servers_behind_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests to the test's own servers go through proxies, too."""
    monkeypatch.setattr(transport, "_LOOPBACK", ())


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A certificate that the environment names."""
    pem = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    return pem


# ---- which proxy


def test_which_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy's scheme may be left out, and this machine itself has none."""
    monkeypatch.setenv("http_proxy", "http://plain:1")
    monkeypatch.setenv("https_proxy", "secure:2")
    assert proxy_for("http", "service.test", 80) == "http://plain:1"
    assert proxy_for("https", "service.test", 443) == "http://secure:2"
    for host in "127.0.0.1", "LocalHost", "::1":
        assert proxy_for("http", host, 8000) is None


NO_PROXY = [
    ("*", ["service.test", "10.1.2.3", "fd07::1"], []),
    ("example.com", ["example.com", "a.b.Example.com"], ["wexample.com", "example.com.test"]),
    (".example.com", ["example.com", "a.example.com"], ["wexample.com"]),
    ("example.com:443", ["example.com"], []),
    ("example.com:8080", [], ["example.com"]),
    ("10.1.2.3, fd07::1", ["10.1.2.3", "fd07::1"], ["10.1.2.4", "fd07::2"]),
]


@pytest.mark.parametrize(("no_proxy", "direct", "through"), NO_PROXY)
def test_no_proxy_takes_hosts_out(
    no_proxy: str, direct: list[str], through: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.test:3128")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    assert [host for host in [*direct, *through] if proxy_for("https", host, 443)] == through


def test_a_proxy_that_cannot_be_used_is_a_config_error_that_does_not_show_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for proxy in "socks4://me:secret@proxy:1", "http://me:secret@[::1", "http://me:secret@":
        monkeypatch.setenv("all_proxy", proxy)
        with pytest.raises(ConfigError, match="the environment names a") as caught:
            Client("https://service.test", KEY)
        assert "secret" not in caught.value.message + caught.value.hint
        assert "NO_PROXY" in caught.value.hint


# ---- what goes through it


async def _twice(url: str) -> list[httpx.Response]:
    async with client() as http:
        return [await send(http, url) for _ in range(2)]


def got(url: str) -> None:
    """Two requests one after the other are answered `{}`."""
    assert [(answer.status_code, answer.content) for answer in run(_twice(url))] == [(200, b"{}")] * 2


@pytest.mark.parametrize("secure_proxy", [False, True], ids=["http proxy", "https proxy"])
def test_a_proxy_gets_the_whole_url_of_a_plain_request_and_its_own_credentials(
    secure_proxy: bool, trusted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(OK, tls=trusted if secure_proxy else None) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("://", WITH_PASSWORD))
        got("http://service.test/v2/models?type=image")
    assert proxy.connections == 1
    head = proxy.requests[0].decode()
    assert head.startswith("GET http://service.test/v2/models?type=image HTTP/1.1\r\n")
    assert "Host: service.test\r\n" in head
    assert "Proxy-Authorization: Basic bWU6cEBzcw==\r\n" in head


@pytest.mark.usefixtures("local_servers_behind_proxies")
@pytest.mark.parametrize("secure_proxy", [False, True], ids=["http proxy", "https proxy"])
def test_a_proxy_connects_a_secure_request_without_seeing_it(
    secure_proxy: bool, trusted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(OK, tls=trusted) as server:
        port = server.url.rpartition(":")[2]
        with serve(tunnel(int(port)), tls=trusted if secure_proxy else None) as proxy:
            monkeypatch.setenv("https_proxy", proxy.url.replace("://", WITH_PASSWORD))
            got(f"{server.url}/secret")
    [asked] = proxy.requests
    assert asked.startswith(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n".encode())
    assert b"Proxy-Authorization: Basic bWU6cEBzcw==\r\n" in asked
    assert len(server.requests) == 2
    assert server.requests[0].startswith(b"GET /secret HTTP/1.1\r\n")
    assert b"Proxy" not in server.requests[0]


@pytest.mark.parametrize(("scheme", "password"), [("http", False), ("https", True)])
def test_a_socks_proxy_connects_and_finds_the_name_itself(
    scheme: str, password: bool, trusted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = (SOCKS_PASSWORD, SOCKS_WELCOME) if password else (SOCKS_NO_PASSWORD,)
    with serve(OK, tls=trusted if scheme == "https" else None) as server:
        port = int(server.url.rpartition(":")[2])
        with socks5(port, *first, SOCKS_CONNECTED) as (address, asked):
            monkeypatch.setenv("all_proxy", f"socks5{WITH_PASSWORD if password else '://'}{address}")
            got(f"{scheme}://service.test/secret")
    assert b"service.test" in asked[-1]
    assert (b"p@ss" in asked[1]) is password
    assert (server.connections, len(server.requests)) == (1, 2)


# ---- what was never sent


def never_sent(connect: float = LONGEST) -> None:
    """Two requests one after the other: no connection stays in the way of the next one."""

    async def scenario() -> None:
        async with client() as http:
            for _ in range(2):
                with pytest.raises(Unsent):
                    await send(http, "https://service.test", connect=connect)

    run(scenario())


@pytest.mark.parametrize(
    "answer",
    [
        reply(502, b"no"),
        close,
        raw(b"HTTP?\r\n\r\n"),
        raw(b"HTTP/1.1 200 OK\r\n\r\nnot TLS"),
        raw(b"HTTP/1.1 200 OK\r\n\r\n"),
        silence,
    ],
    ids=["502", "closed", "garbled", "no TLS behind it", "nothing behind it", "silent"],
)
def test_a_proxy_that_does_not_connect_means_unsent(
    answer: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(answer) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        never_sent(0.2 if answer is silence else LONGEST)
        assert len(proxy.requests) == 2 or answer is silence


@pytest.mark.parametrize(
    "answers",
    [
        (),
        (b"\5\xff",),
        (b"HTTP/1.1 400 No\r\n\r\n",),
        (SOCKS_NO_PASSWORD,),
        (SOCKS_NO_PASSWORD, SOCKS_REFUSED),
        (SOCKS_NO_PASSWORD, b"\5\0\0\7nonsense"),
    ],
    ids=["closes", "password", "HTTP", "closes later", "refuses", "odd"],
)
def test_a_socks_proxy_that_does_not_connect_means_unsent(
    answers: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """httpx passes on what its SOCKS library raises; no type of error tells."""
    with socks5(0, *answers) as (address, _):
        monkeypatch.setenv("all_proxy", f"socks5://{address}")
        never_sent()


# ---- what may have been sent


@pytest.mark.usefixtures("local_servers_behind_proxies")
@pytest.mark.parametrize("kind", ["http", "connect", "socks"])
@pytest.mark.parametrize(
    "behaviour", [close, reset, raw(b"HTTP?\r\n\r\n")], ids=["closed", "reset", "garbled"]
)
def test_a_request_that_is_cut_off_behind_a_proxy_may_have_been_carried_out(
    kind: str, behaviour: Behaviour, trusted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(behaviour, tls=trusted if kind == "connect" else None) as server:
        port = int(server.url.rpartition(":")[2])
        with (
            serve(tunnel(port)) as proxy,
            socks5(port, SOCKS_NO_PASSWORD, SOCKS_CONNECTED) as (address, _),
        ):
            named = {"http": server.url, "connect": proxy.url, "socks": f"socks5://{address}"}[kind]
            monkeypatch.setenv("all_proxy", named)
            with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
                run(_twice("http://service.test" if kind == "http" else server.url))
        assert len(server.requests) == 1


def test_a_hint_names_the_proxy_that_stands_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(reply(407)) as proxy, pytest.raises(NotSent) as caught:
        monkeypatch.setenv("https_proxy", proxy.url.replace("://", "://me:hidden@"))
        ask("https://service.test", lambda service: service.balance())
    assert "ProxyError: 407 Whatever" in caught.value.message
    shown = proxy.url.replace("://", "://...@")
    assert caught.value.hint.startswith(f"The request goes through the proxy {shown}, which the environment")
    assert "service.base_url" in caught.value.hint.partition("NO_PROXY")[2], "only then the address"
    assert "hidden" not in caught.value.message + caught.value.hint


def test_a_hint_names_the_proxy_that_answers_in_place_of_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have passed the request on before it answers 502."""
    with serve(page(502)) as proxy, pytest.raises(GatewayAnswer) as caught:
        monkeypatch.setenv("http_proxy", proxy.url)
        ask("http://service.test", image)
    assert verdicts.submit(caught.value) is verdicts.Verdict.IN_DOUBT
    assert caught.value.hint.startswith(f"The request goes through the proxy {proxy.url}, which the environm")
    assert "service.base_url" in caught.value.hint.partition("NO_PROXY")[2], "only then the address"


def test_a_certificate_for_another_name_needs_no_authority(
    trusted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(OK, tls=trusted) as server, serve(tunnel(int(server.url.rpartition(":")[2]))) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        with pytest.raises(NotSent) as caught:
            ask("https://other.test", lambda service: service.balance())
    said, _, rest = caught.value.hint.partition(". ")
    assert said.startswith("The server's certificate is not trusted: Hostname mismatch")
    assert said.endswith("'other.test'")
    assert rest.startswith(f"The request goes through the proxy {proxy.url}")
