"""One connection for each request in flight, and none that may break under a paid POST."""

from __future__ import annotations

import asyncio
import gzip
import random
import socket
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from callsheet.service import transport
from callsheet.service.transport import Connections, Unsent
from tests.servers.sockets import (
    Behaviour,
    certificate,
    close,
    full_backlog,
    raw,
    reply,
    serve,
    silence,
    trickle,
    unused_port,
)
from tests.waiting import LONGEST, wait_until

OK = reply(200, b"ok")


@asynccontextmanager
async def client() -> AsyncIterator[Connections]:
    connections = Connections()
    try:
        yield connections
    finally:
        await connections.aclose()


def begin(
    connections: Connections, url: str, body: bytes = b"{}", **seconds: float
) -> Any:  # an asynchronous context manager with the response
    request = httpx.Request("POST", url, content=body)
    return connections.send(request, **{"connect": LONGEST, "within": LONGEST} | seconds)


async def post(connections: Connections, url: str, body: bytes = b"{}", **seconds: float) -> httpx.Response:
    """A request and its whole answer."""
    response: httpx.Response
    async with begin(connections, url, body, **seconds) as response:
        await response.aread()
    return response


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def talk(*behaviours: Behaviour, use: Callable[[Connections, str], Coroutine[Any, Any, Any]] = post) -> Any:
    async def scenario() -> Any:
        async with client() as http:
            return await use(http, server.url)

    with serve(*behaviours) as server:
        return asyncio.run(scenario())


def keeping_open(message: bytes) -> Behaviour:
    """These bytes; the connection stays open."""

    def behave(connection: socket.socket) -> bool:
        connection.sendall(message)
        return True

    return behave


# ---- which connection a request takes


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
            for turn in range(3):
                await asyncio.gather(*(post(http, server.url) for _ in range(10)))
                await asyncio.to_thread(wait_for_closed, 10 * turn + 10)

    def wait_for_closed(number: int) -> None:
        wait_until(lambda: server.closed == number, "the server keeps its connections")

    with serve(raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")) as server:
        run(scenario())
        assert (len(server.requests), server.connections) == (30, 30)


def test_a_connection_that_breaks_under_a_request_is_dropped_and_the_request_is_sent_once() -> None:
    async def scenario() -> None:
        async with client() as http:
            await post(http, server.url)
            with pytest.raises(httpx.RemoteProtocolError):
                await post(http, server.url)
            assert (await post(http, server.url)).status_code == 200

    with serve(OK, close, OK) as server:
        run(scenario())
        assert (len(server.requests), server.connections) == (3, 2)


def test_a_cancelled_request_closes_its_connection() -> None:
    async def scenario() -> None:
        async with client() as http:
            request = asyncio.create_task(post(http, server.url))
            await asyncio.to_thread(server.arrived.wait, 5)
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request
            assert (await post(http, server.url)).status_code == 200

    with serve(silence, OK) as server:
        run(scenario())
        assert server.connections == 2


def test_an_unread_body_is_not_mixed_into_the_next_answer() -> None:
    async def scenario() -> None:
        async with client() as http:
            async with begin(http, server.url) as response:
                await anext(response.aiter_bytes())
            assert (await post(http, server.url)).content == b"second"

    with serve(reply(200, b"x" * 1_000_000), reply(200, b"second")) as server:
        run(scenario())


def test_what_a_server_sends_unasked_is_not_taken_for_an_answer() -> None:
    def twice(connection: socket.socket) -> bool:
        OK(connection)
        answered.wait(LONGEST)
        keeping_open(b"HTTP/1.1 408 Idle\r\nContent-Length: 4\r\n\r\nidle")(connection)
        sent.set()
        return True

    async def scenario(http: Connections, url: str) -> None:
        await post(http, url)
        answered.set()
        await asyncio.to_thread(sent.wait, LONGEST)
        assert (await post(http, url)).content == b"ok"

    answered, sent = threading.Event(), threading.Event()
    talk(twice, OK, use=scenario)


@pytest.mark.parametrize(
    "more", [b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged", b"?"], ids=["an answer", "a byte"]
)
def test_what_comes_after_an_answer_is_not_taken_for_the_next_one(more: bytes) -> None:
    async def scenario() -> None:
        async with client() as http:
            assert [(await post(http, server.url)).content for _ in range(3)] == [b"ok"] * 3

    with serve(keeping_open(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + more), OK) as server:
        run(scenario())
        assert (len(server.requests), server.connections) == (3, 2)


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_tls_trusts_the_certificates_that_the_environment_names(
    secure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))

    async def scenario() -> None:
        async with client() as http:
            for _ in range(3):
                assert (await post(http, server.url)).status_code == 200

    with serve(OK, tls=pem if secure else None) as server:
        run(scenario())
        assert server.connections == 1


# ---- what an answer may look like


@pytest.mark.parametrize(
    "message",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
        b"HTTP/1.1 200\r\nContent-Length: 4\r\n\r\nbody",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nA: b\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nb\r\n3;x=y\r\nody\r\n0\r\nA: b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: upgrade\r\nUpgrade: h2\r\nContent-Length: 4\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\n\r\nbody",
        b"HTTP/1.0 200 OK\r\n\r\nbody",
    ],
    ids=["length", "no reason", "information first", "chunked", "upgrade offered", "until it closes", "1.0"],
)
def test_each_way_to_send_a_body_is_understood(message: bytes) -> None:
    answer = talk(raw(message))
    assert (answer.status_code, answer.content) == (200, b"body")
    assert "a" not in answer.headers


@pytest.mark.parametrize(
    "pack, name", [(gzip.compress, "gzip"), (gzip.compress, "GZip"), (zlib.compress, "deflate")]
)
def test_a_body_that_was_compressed_unasked_is_unpacked(pack: Callable[[bytes], bytes], name: str) -> None:
    answer = talk(reply(200, pack(b"body" * 100), {"Content-Encoding": name}))
    assert answer.content == b"body" * 100
    assert talk(reply(204, b"", {"Content-Encoding": name})).content == b""


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno length",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 3\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nbody",
        b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 40_000,
        b"SSH-2.0-OpenSSH\r\n\r\n",
    ],
    ids=[
        "none",
        "half",
        "short",
        "no end",
        "no chunks",
        "two lengths",
        "odd length",
        "101",
        "endless",
        "SSH",
    ],
)
def test_an_answer_that_is_not_complete_or_not_http_is_an_error(message: bytes) -> None:
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        talk(raw(message))


def test_a_large_request_arrives_whole() -> None:
    body = random.Random(1).randbytes(5_000_000)

    async def scenario() -> None:
        async with client() as http:
            await post(http, server.url, body)

    with serve(OK) as server:
        run(scenario())
    head, _, received = server.requests[0].partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert received == body


def test_a_refusal_before_the_request_is_all_sent_is_read() -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def refuse() -> None:
        with listener.accept()[0] as connection:
            connection.recv(1000)
            reply(413, b"too large")(connection)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 20):  # as servers do that want their answer to be read
                pass

    async def scenario() -> httpx.Response:
        async with client() as http:
            return await post(http, f"http://127.0.0.1:{listener.getsockname()[1]}", bytes(20_000_000))

    thread = threading.Thread(target=refuse)
    thread.start()
    with listener:
        answer = asyncio.run(scenario())
        thread.join()
    assert (answer.status_code, answer.content) == (413, b"too large")


def test_a_body_that_nobody_reads_does_not_fill_the_memory() -> None:
    """The server can send no more than the system's buffers hold, until the reader goes on."""
    size, sent = 50_000_000, [0]

    def send(connection: socket.socket) -> bool:
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode())
        for _ in range(size // 500_000):
            connection.sendall(bytes(500_000))
            sent[0] += 500_000
        return False

    async def scenario(http: Connections, url: str) -> None:
        async with begin(http, url, part=LONGEST) as response:
            before = -1
            while before != sent[0]:
                before = sent[0]
                await asyncio.sleep(0.2)
            assert before < size / 2
            assert sum([len(chunk) async for chunk in response.aiter_bytes()]) == size

    talk(send, use=scenario)


# ---- how long it is waited


def part_of(answer: bytes) -> Behaviour:
    def behave(connection: socket.socket) -> bool:
        connection.sendall(answer)
        return silence(connection)

    return behave


@pytest.mark.parametrize("seconds", [{"within": 0.1}, {"part": 0.1, "within": 0.5}], ids=["whole", "part"])
@pytest.mark.parametrize(
    "begun", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbegun"]
)
def test_a_server_that_falls_silent_is_given_up(begun: bytes, seconds: dict[str, float]) -> None:
    async def scenario(http: Connections, url: str) -> None:
        with pytest.raises((TimeoutError, httpx.ReadTimeout)):
            await post(http, url, **seconds)

    talk(part_of(begun), use=scenario)


def test_a_server_that_does_not_read_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        async def scenario() -> None:
            async with client() as http:
                with pytest.raises(TimeoutError):
                    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
                    await post(http, url, bytes(50_000_000), within=0.2)

        asyncio.run(scenario())


def test_a_file_that_comes_in_parts_may_take_longer_than_its_beginning() -> None:
    async def as_a_whole(http: Connections, url: str) -> None:
        with pytest.raises(TimeoutError):
            await post(http, url, within=0.2)

    async def in_parts(http: Connections, url: str) -> None:
        async with begin(http, url, within=0.5, part=LONGEST) as response:
            assert b"".join([chunk async for chunk in response.aiter_bytes()]) == b"." * 40

    talk(trickle(b"." * 500), use=as_a_whole)
    talk(trickle(b"." * 40), use=in_parts)


# ---- what was never sent


def test_without_a_connection_a_request_is_unsent(tmp_path: Path) -> None:
    async def scenario(url: str, **seconds: float) -> None:
        async with client() as http:
            with pytest.raises(Unsent):
                await post(http, url, **seconds)

    with unused_port() as port:
        run(scenario(f"http://127.0.0.1:{port}"))
    with full_backlog() as port:
        run(scenario(f"http://127.0.0.1:{port}", connect=0.1))
    run(scenario("http://no-such-host.invalid"))
    run(scenario("ftp://127.0.0.1"))
    with serve(OK, tls=certificate(tmp_path)) as untrusted:
        run(scenario(untrusted.url))
    assert untrusted.requests == []
