"""One connection for each request in flight, and none that may break under a paid POST."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import certifi
import httpx
import pytest

from callsheet.errors import ConfigError, MaybeSent, NotSent
from callsheet.service.answers import transport_failures
from callsheet.service.client import Client
from callsheet.service.transport import Connections
from tests.servers.sockets import (
    Behaviour,
    Server,
    certificate,
    json_reply,
    raw,
    reply,
    serve,
    silence,
    trickle,
)
from tests.service.asking import KEY
from tests.service.asking import run as ask
from tests.waiting import LONGEST, wait_until

OK = reply(200, b"ok")


@asynccontextmanager
async def client(**settings: float) -> AsyncIterator[Connections]:
    connections = Connections(**{"keepalive": LONGEST} | settings)
    try:
        yield connections
    finally:
        await connections.aclose()


def begin(
    connections: Connections, url: str, body: bytes = b"", **seconds: float
) -> Any:  # an asynchronous context manager with the response
    request = httpx.Request("POST" if body else "GET", url, content=body)
    return connections.send(request, **{"connect": LONGEST, "within": LONGEST} | seconds)


async def send(connections: Connections, url: str, body: bytes = b"", **seconds: float) -> httpx.Response:
    """A request, which is a POST where it has a body, and its whole answer."""
    response: httpx.Response
    async with begin(connections, url, body, **seconds) as response:
        await response.aread()
    return response


def run(scenario: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(scenario)


def talk(
    use: Callable[[Connections, Server], Coroutine[Any, Any, None]], *behaviours: Behaviour, **settings: float
) -> Server:
    """Uses connections to a server that behaves so; the server as it was left."""

    async def scenario() -> None:
        async with client(**settings) as http:
            await use(http, server)

    with serve(*behaviours) as server:
        run(scenario())
    return server


def keeping_open(message: bytes) -> Behaviour:
    """These bytes; the connection stays open."""

    def behave(connection: socket.socket) -> bool:
        connection.sendall(message)
        return True

    return behave


# ---- which connection a request takes


def test_concurrent_requests_have_a_connection_each_and_later_ones_use_them_again() -> None:
    async def many(http: Connections, server: Server) -> None:
        for _ in range(3):
            await asyncio.gather(*(send(http, server.url) for _ in range(20)))

    server = talk(many, OK)
    assert (len(server.requests), server.connections) == (60, 20)


def test_a_submission_has_a_new_connection_that_nothing_else_uses() -> None:
    """Whatever a server does with a connection after its answer, it is not in the way of the next POST."""

    def close_a_moment_later(connection: socket.socket) -> bool:
        keeping_open(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")(connection)
        return connection.recv(1) == b""  # the next request is on its way when it closes

    async def one_after_another(http: Connections, server: Server) -> None:
        for body in (b"", b"{}", b"{}", b"", b"{}"):
            assert (await send(http, server.url, body)).content == b"ok"

    server = talk(one_after_another, OK, close_a_moment_later, close_a_moment_later, OK)
    assert (len(server.requests), server.connections) == (5, 4)


def test_a_connection_that_was_idle_for_long_is_not_used_again() -> None:
    async def later(http: Connections, server: Server) -> None:
        await send(http, server.url)
        await asyncio.sleep(0.1)
        await send(http, server.url)

    assert talk(later, OK, keepalive=0.05).connections == 2


def test_a_request_does_not_fail_because_the_server_closed_an_idle_connection() -> None:
    async def again_and_again(http: Connections, server: Server) -> None:
        for number in (10, 20, 30):
            await asyncio.gather(*(send(http, server.url) for _ in range(10)))
            closed = lambda number=number: server.closed == number  # noqa: E731
            await asyncio.to_thread(wait_until, closed, "the server keeps its connections")

    server = talk(again_and_again, raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
    assert (len(server.requests), server.connections) == (30, 30)


def test_a_cancelled_request_closes_its_connection() -> None:
    async def cancel(http: Connections, server: Server) -> None:
        request = asyncio.create_task(send(http, server.url))
        await asyncio.to_thread(server.arrived.wait, LONGEST)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        assert (await send(http, server.url)).status_code == 200

    assert talk(cancel, silence, OK).connections == 2


def test_an_unread_body_is_not_mixed_into_the_next_answer() -> None:
    async def read_a_part(http: Connections, server: Server) -> None:
        async with begin(http, server.url) as response:
            await anext(response.aiter_bytes())
        assert (await send(http, server.url)).content == b"second"

    talk(read_a_part, reply(200, b"x" * 1_000_000), reply(200, b"second"))


def test_what_a_server_sends_unasked_is_not_taken_for_an_answer() -> None:
    def twice(connection: socket.socket) -> bool:
        OK(connection)
        answered.wait(LONGEST)
        keeping_open(b"HTTP/1.1 408 Idle\r\nContent-Length: 4\r\n\r\nidle")(connection)
        sent.set()
        return True

    async def wait(http: Connections, server: Server) -> None:
        await send(http, server.url)
        answered.set()
        await asyncio.to_thread(sent.wait, LONGEST)
        assert (await send(http, server.url)).content == b"ok"

    answered, sent = threading.Event(), threading.Event()
    talk(wait, twice, OK)


@pytest.mark.parametrize(
    "more", [b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged", b"?"], ids=["an answer", "a byte"]
)
def test_what_comes_after_an_answer_is_not_taken_for_the_next_one(more: bytes) -> None:
    async def three_times(http: Connections, server: Server) -> None:
        assert [(await send(http, server.url)).content for _ in range(3)] == [b"ok"] * 3

    message = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + more
    server = talk(three_times, keeping_open(message), OK)
    assert (len(server.requests), server.connections) == (3, 2)


def test_an_answer_that_is_written_oddly_is_read_and_what_the_library_refuses_is_said() -> None:
    """What h11 and httpcore let through and refuse; docs/reliability.md says it."""
    length, chunks = b"Content-Length: 2\r\n", b"2;a=b\r\nok\r\n0\r\nX-Trailer: 1\r\n\r\n"
    chunked = b"Transfer-Encoding: chunked\r\n"
    read = [
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.0 200\r\n" + length * 2 + b"\r\nok",
        b"HTTP/1.1 200 OK\n" + length + "X-A: Größe\x01\n and more\n\nok".encode(),
        b"HTTP/1.1 200 OK\r\n" + length + chunked + b"\r\n" + chunks,
        b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 101_000 + b"\r\n\r\nok",
    ]
    odd_headers = [b"x-cache/edge: hit", b"X-A : hit", b"no colon", b"X-A: \x00"]
    refused = [b"HTTP/1.1 200 OK\r\n" + length + header + b"\r\n\r\nok" for header in odd_headers]
    for encodings in (chunked * 2, b"Transfer-Encoding: gzip, chunked\r\n"):
        refused.append(b"HTTP/1.1 200 OK\r\n" + encodings + b"\r\n" + chunks)

    async def look(http: Connections, server: Server) -> None:
        for _ in read:
            assert (await send(http, server.url, b"{}")).content == b"ok"
        for _ in refused:
            with (
                pytest.raises(MaybeSent, match="its answer cannot be read: RemoteProtocolError: "),
                transport_failures("POST"),
            ):
                await send(http, server.url, b"{}")

    talk(look, *map(raw, read + refused))


def test_a_refusal_before_the_request_is_all_sent_is_read() -> None:
    def refuse() -> None:
        with listener.accept()[0] as connection:
            connection.recv(1000)
            reply(413, b"too large")(connection)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 20):  # as servers do that want their answer to be read
                pass

    async def send_much() -> httpx.Response:
        async with client() as http:
            return await send(http, f"http://127.0.0.1:{listener.getsockname()[1]}", bytes(20_000_000))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=refuse)
        thread.start()
        answer = run(send_much())
        thread.join()
    assert (answer.status_code, answer.content) == (413, b"too large")


# ---- how long it is waited


@pytest.mark.parametrize(
    "begun", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbegun"]
)
def test_a_file_that_falls_silent_is_given_up(begun: bytes) -> None:
    def fall_silent(connection: socket.socket) -> bool:
        connection.sendall(begun)
        return silence(connection)

    async def give_up(http: Connections, server: Server) -> None:
        with pytest.raises((TimeoutError, httpx.ReadTimeout)):
            await send(http, server.url, part=0.1, within=0.5)

    talk(give_up, fall_silent)


def test_a_file_that_comes_in_parts_may_take_longer_than_its_beginning() -> None:
    async def in_parts(http: Connections, server: Server) -> None:
        async with begin(http, server.url, within=0.5, part=LONGEST) as response:
            assert b"".join([chunk async for chunk in response.aiter_bytes()]) == b"." * 40

    talk(in_parts, trickle(b"." * 40))


def test_a_server_that_does_not_read_is_given_up() -> None:
    async def send_much() -> None:
        async with client() as http:
            with pytest.raises(TimeoutError):
                url = f"http://127.0.0.1:{listener.getsockname()[1]}"
                await send(http, url, bytes(50_000_000), within=0.2)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        run(send_much())


# ---- whose certificates are trusted, and what is said where one is not


VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
BALANCE = json_reply({"currency": "USD", "balance": "1.0000"})


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_the_authorities_of_all_variables_are_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Package managers set one of them by themselves; what a company sets beside it counts, too.

    Of a list of folders, those that are there count. OpenSSL finds a file by the hash of its subject.
    """
    pem = certificate(tmp_path)
    (tmp_path / "88d0bdcb.0").symlink_to(pem)
    folders = f"{tmp_path / 'gone'}:{tmp_path}"
    named = ("SSL_CERT_FILE", str(pem)), ("REQUESTS_CA_BUNDLE", str(pem)), ("SSL_CERT_DIR", folders)
    for name, value in named:
        for beside in {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"} - {name}:
            monkeypatch.setenv(beside, certifi.where())
        monkeypatch.setenv(name, value)
        with serve(BALANCE, tls=pem) as server:
            assert ask(server.url, lambda client: client.balance()) == 1
        monkeypatch.delenv(name)


def test_authorities_that_are_not_there_are_named_with_their_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / "odd.pem"
    for name in VARIABLES:
        monkeypatch.setenv(name, str(odd))
        with pytest.raises(ConfigError, match=f"^{name} names {odd}, which is not there$") as caught:
            Client("https://service.test", KEY)
        assert caught.value.hint == (
            f"{name} names the certificates that TLS trusts; without it, those of the system are trusted."
        )
        Client("http://service.test", KEY)  # which needs none
        monkeypatch.delenv(name)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(odd))
    for content in b"", b"no certificate", b"-----BEGIN CERTIFICATE-----\nAA\n":
        odd.write_bytes(content)
        with pytest.raises(ConfigError, match=f"BUNDLE names {odd}, which is no file of certificates"):
            Client("https://service.test", KEY)


def test_a_server_without_tls_is_said_before_the_address() -> None:
    def answer_in_plain_text() -> None:
        with listener.accept()[0] as connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.recv(65536)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer_in_plain_text)
        thread.start()
        with pytest.raises(NotSent) as caught:
            ask(f"https://127.0.0.1:{listener.getsockname()[1]}", lambda client: client.balance())
        thread.join()
    assert caught.value.hint.startswith("What answers there does not speak TLS")
