"""One exchange: what may be answered, how long it is waited for, and when the connection is used again."""

from __future__ import annotations

import asyncio
import gzip
import random
import socket
import threading
import zlib
from collections.abc import Callable, Coroutine
from typing import Any

import httptools
import pytest

from callsheet.service.connection import LARGEST_WAIT, LONGEST_HEAD, Response
from callsheet.service.transport import Connections
from tests.servers.sockets import Behaviour, raw, reply, serve, silence, trickle
from tests.service.test_transport import begin, client, post
from tests.waiting import LONGEST

OK = reply(200, b"ok")


def keeping_open(message: bytes) -> Behaviour:
    """These bytes; the connection stays open."""

    def behave(connection: socket.socket) -> bool:
        connection.sendall(message)
        return True

    return behave


def talk(*behaviours: Behaviour, use: Callable[[Connections, str], Coroutine[Any, Any, Any]] = post) -> Any:
    async def scenario() -> Any:
        async with client() as http:
            return await use(http, server.url)

    with serve(*behaviours) as server:
        return asyncio.run(scenario())


def connections_for_two(first: Behaviour) -> int:
    """How many connections two requests take, where the first is answered so."""

    async def twice(http: Connections, url: str) -> None:
        await post(http, url)
        for _ in range(3):
            await asyncio.sleep(0)  # so that the loop could see what comes after an answer
        assert (await post(http, url)).content == b"ok"

    async def scenario() -> None:
        async with client() as http:
            await twice(http, server.url)

    with serve(first, OK) as server:
        asyncio.run(scenario())
        return server.connections


# ---- what an answer may look like


def test_an_answer_has_its_status_headers_and_body() -> None:
    answer = talk(reply(422, b"body", {"X-One": " a ", "x-one": "b", "X-Odd": "\xe9"}))
    assert (answer.status, answer.reason, answer.content) == (422, "Whatever", b"body")
    assert answer.headers["x-one"] == "a, b"
    assert not answer.is_success


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
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "byte by byte"])
def test_each_way_to_send_a_body_is_understood(message: bytes, at_once: bool) -> None:
    def slowly(connection: socket.socket) -> bool:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in message:
            connection.sendall(bytes([byte]))
        return False

    answer = talk(raw(message) if at_once else slowly)
    assert (answer.status, answer.content) == (200, b"body")
    assert "a" not in answer.headers


@pytest.mark.parametrize(
    "pack, name",
    [(gzip.compress, "gzip"), (gzip.compress, "X-GZIP"), (zlib.compress, "deflate"), (bytes, "identity")],
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
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 3\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nbody",
        b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n\r\n",
    ],
)
def test_an_answer_that_is_not_complete_or_not_http_is_an_error(message: bytes) -> None:
    with pytest.raises((ConnectionError, httptools.HttpParserError, httptools.HttpParserUpgrade)):
        talk(raw(message))


def test_a_head_that_does_not_end_is_an_error() -> None:
    endless = b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * (LONGEST_HEAD // 3)
    with pytest.raises(ConnectionError, match="head has more than"):
        talk(keeping_open(endless))


# ---- when the connection is used again


@pytest.mark.parametrize(
    "answer",
    [
        keeping_open(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        keeping_open(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
        keeping_open(b"HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 204 OK\r\n\r\n"),
        keeping_open(b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok"),
    ],
    ids=["length", "chunked", "no body", "1.0 that says so"],
)
def test_a_complete_answer_leaves_the_connection_usable(answer: Behaviour) -> None:
    assert connections_for_two(answer) == 1


@pytest.mark.parametrize(
    "answer",
    [
        keeping_open(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"),
        keeping_open(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        keeping_open(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\nforged"),
        keeping_open(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok?"),
        raw(b"HTTP/1.1 200 OK\r\n\r\nok"),
    ],
    ids=["close", "1.0", "two answers", "more bytes", "until it closes"],
)
def test_any_other_answer_is_the_last_of_its_connection(answer: Behaviour) -> None:
    assert connections_for_two(answer) == 2


def test_what_a_server_sends_unasked_is_not_taken_for_an_answer() -> None:
    def twice(connection: socket.socket) -> bool:
        OK(connection)
        sent.wait(LONGEST)
        return keeping_open(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")(connection)

    async def scenario(http: Connections, url: str) -> None:
        await post(http, url)
        [[connection]] = http._free.values()
        assert connection.usable()
        sent.set()
        while connection.usable():  # noqa: ASYNC110 - the system is asked
            await asyncio.sleep(0.01)
        assert (await post(http, url)).content == b"ok"

    sent = threading.Event()
    talk(twice, OK, use=scenario)


# ---- large bodies


def test_a_large_request_arrives_whole_also_where_the_server_reads_slowly() -> None:
    body = random.Random(1).randbytes(5_000_000)

    async def scenario() -> None:
        async with client() as http:
            await post(http, server.url, body)

    with serve(OK) as server:
        asyncio.run(scenario())
    head, _, received = server.requests[0].partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert received == body


def test_a_refusal_before_the_request_is_all_sent_is_read_and_ends_the_connection() -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def refuse() -> None:
        with listener.accept()[0] as connection:
            connection.recv(1000)
            reply(413, b"too large")(connection)
            ended.wait(LONGEST)

    async def scenario() -> Response:
        async with client() as http:
            answer = await post(http, f"http://127.0.0.1:{listener.getsockname()[1]}", bytes(50_000_000))
            assert list(http._free.values()) == [[]]
            return answer

    ended = threading.Event()
    thread = threading.Thread(target=refuse)
    thread.start()
    with listener:
        answer = asyncio.run(scenario())
        ended.set()
        thread.join()
    assert (answer.status, answer.content) == (413, b"too large")


def test_a_body_that_nobody_reads_does_not_fill_the_memory() -> None:
    body = random.Random(1).randbytes(8_000_000)

    async def scenario(http: Connections, url: str) -> None:
        response = await begin(http, url)
        connection = response._connection
        while connection.transport.is_reading():  # noqa: ASYNC110 - asyncio tells nobody
            await asyncio.sleep(0.01)
        assert LARGEST_WAIT < sum(map(len, connection._chunks)) < 2 * LARGEST_WAIT
        connection._heard -= 2 * LONGEST  # the reader took its time: that is not the server's
        connection._check_time()
        assert b"".join([chunk async for chunk in response.chunks()]) == body
        response.close()

    talk(reply(200, body), use=scenario)


# ---- how long it is waited


def part_of(answer: bytes) -> Behaviour:
    def behave(connection: socket.socket) -> bool:
        connection.sendall(answer)
        return silence(connection)

    return behave


@pytest.mark.parametrize(
    "begun", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbegun"]
)
def test_a_server_that_falls_silent_is_given_up(begun: bytes) -> None:
    async def scenario(http: Connections, url: str) -> None:
        with pytest.raises(TimeoutError):
            await post(http, url, part=0.1)
        assert list(http._free.values()) == [[]]

    talk(part_of(begun), use=scenario)


def test_a_server_that_does_not_read_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        async def scenario() -> None:
            async with client() as http:
                with pytest.raises(TimeoutError):
                    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
                    await post(http, url, bytes(50_000_000), part=0.2)

        asyncio.run(scenario())


def test_parts_that_come_in_time_are_waited_for_until_the_whole_takes_too_long() -> None:
    async def as_a_whole(http: Connections, url: str) -> None:
        with pytest.raises(TimeoutError):
            await post(http, url, part=LONGEST, whole=0.2)

    async def in_parts(http: Connections, url: str) -> None:
        response = await begin(http, url, part=LONGEST, whole=LONGEST)
        response._connection._until = 0.0  # the time for the whole is over
        chunks = response.chunks()
        begun = await anext(chunks)
        response._connection._check_time()
        assert begun + b"".join([chunk async for chunk in chunks]) == b"." * 20
        response.close()

    talk(trickle(b"." * 500), use=as_a_whole)
    talk(trickle(b"." * 20), use=in_parts)
