"""The client's requests: which are repeated, how files are downloaded, and where the key is sent."""

from __future__ import annotations

import gzip
import logging
import re
import socket
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from backlot.server import serve as serve_backlot
from backlot.settings import Settings
from callsheet.errors import (
    CallsheetError,
    ConfigError,
    MaybeSent,
    MediaError,
    NotSent,
    RateLimit,
    Refusal,
)
from callsheet.service.answers import without_secrets
from callsheet.service.client import READ_TRIES, Client
from tests.servers import http
from tests.servers.sockets import (
    Behaviour,
    close,
    error_reply,
    json_reply,
    page,
    raw,
    reply,
    serve,
    unused_port,
)
from tests.service.asking import IMAGE, KEY, ask, fetched, image, run

# ---- repeated requests

BALANCE = json_reply({"currency": "USD", "balance": "12.3456"})


async def balance(client: Client) -> Any:
    return await client.balance()


def test_a_request_that_a_run_makes_once_is_repeated_a_few_times() -> None:
    for failure in error_reply(500, "server_error"), error_reply(429, "rate_limit"), page(502), page(503):
        with serve(failure, failure, failure, BALANCE) as server:
            assert run(server.url, balance) == Decimal("12.3456")
    with serve(failure) as server, pytest.raises(Refusal):
        run(server.url, lambda client: client.models())
    assert len(server.requests) == READ_TRIES


def test_a_repeated_request_waits_for_retry_after_unless_that_is_long() -> None:
    busy = error_reply(429, "rate_limit", {"Retry-After": "2"})
    began = time.monotonic()
    with serve(busy, BALANCE) as server:
        assert run(server.url, balance) == Decimal("12.3456")
    assert time.monotonic() - began >= 2
    with serve(error_reply(429, "rate_limit", {"Retry-After": "600"})) as server, pytest.raises(RateLimit):
        run(server.url, balance)
    assert len(server.requests) == 1


def test_no_other_request_is_repeated() -> None:
    failed = error_reply(500, "server_error")
    cases: list[tuple[Behaviour, Callable[[Client], Awaitable[Any]]]] = [
        (error_reply(401, "invalid_api_key"), balance),
        (page(404), balance),
        (json_reply("?"), balance),
        (failed, lambda client: client.video("v")),
        (failed, image),
    ]
    for failure, use in cases:
        with serve(failure) as server, pytest.raises(CallsheetError):
            run(server.url, use)
        assert len(server.requests) == 1


# ---- downloads


def test_a_download_uses_its_url_as_given_and_does_not_send_the_key() -> None:
    content = bytes(range(256)) * 1000
    signed = "/v2/downloads/req-1/0?exp=1&sig=a%2Fb%2Bc+d/e~f=="
    with serve(reply(200, content, {"Content-Type": "Image/JPEG; q=1"})) as server:
        downloaded = fetched(server.url + signed)
    assert downloaded == (content, len(content), "image/jpeg")
    assert server.requests[0].split(b" ")[1] == signed.encode()
    assert b"uthorization" not in server.requests[0]
    assert KEY.encode() not in server.requests[0]


def test_a_redirect_of_a_download_is_followed_as_curl_does() -> None:
    """Bytes that a URL cannot have are escaped as they came, whatever the other headers are encoded in."""

    def redirect(connection: socket.socket) -> bool:
        to = locations.pop(0).replace(b"{host}", server.url.partition("//")[2].encode())
        head = b"HTTP/1.1 302 Found\r\nX-Odd: \xe9\r\nContent-Length: 0\r\n"
        return raw(head + b"Location: " + to + b"\r\n\r\n")(connection)

    cases = {
        "/caf\u00e9/1?sig=a%2Fb".encode(): b"/caf%C3%A9/1?sig=a%2Fb",
        "/caf\u00e9/1".encode("latin-1"): b"/caf%E9/1",
        b"/with space": b"/with%20space",
        b"more/1?x": b"/v2/more/1?x",
        b"//{host}/1": b"/1",
        b"HTTP://{host}/1#part": b"/1",
    }
    locations = [*cases]
    for asked in cases.values():
        with serve(redirect, reply(200, b"file")) as server:
            assert fetched(server.url + "/v2/f")[0] == b"file"
        assert server.requests[1].split(b" ")[1] == asked
        assert KEY.encode() not in b"".join(server.requests)


def test_redirects_without_end_are_an_error() -> None:
    again = reply(302, b"", {"Location": "/again"})
    with serve(again) as server, pytest.raises(MaybeSent, match="20 redirects"):
        fetched(server.url)
    assert len(server.requests) == 21


def test_a_file_that_is_compressed_unasked_is_unpacked() -> None:
    """Content-Length is not the file's length, then. `x-gzip` is an old name of the same."""
    content = bytes(range(256)) * 1000
    packed = gzip.compress(content)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\nContent-Encoding: "
    for framed in (
        b"gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(packed), packed),
        b"gzip\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(packed), packed),
        b"gzip\r\n\r\n" + packed,
        b"X-GZip\r\n\r\n" + packed,
    ):
        with serve(raw(head + framed)) as server:
            downloaded = fetched(server.url)
        assert downloaded == (content, None, "image/jpeg")
    for cut in (b"gzip\r\n\r\n", b"gzip\r\nContent-Length: 300\r\n\r\n"):  # a server that has a part of it
        with serve(raw(head + cut + packed[:300])) as server, pytest.raises(MaybeSent, match="has no end"):
            fetched(server.url)


def test_a_download_whose_connection_breaks_off_goes_on_from_there() -> None:
    """Where the file is still the same: a part of another one is never put behind it."""
    content = bytes(range(256)) * 10

    def piece(at: int, *more: str, of: int = len(content), etag: str = '"1"') -> Behaviour:
        head = f"HTTP/1.1 {'206' if more else '200'} OK\r\nETag: {etag}\r\n"
        head += f"Content-Length: {len(content) - at}\r\n"
        ranges = f"Content-Range: bytes {more[0]}/{of}\r\n" if more else ""
        return raw((head + ranges + "\r\n").encode() + content[at : at + 1000])

    parts = piece(0), close, piece(1000, "1000-2559"), piece(2000, "2000-2559")
    with serve(*parts) as server:
        assert fetched(server.url) == (content, len(content), "")
    asked = [request for request in server.requests if b"\r\nRange: " in request]
    assert [re.findall(rb"Range: bytes=(\d+)-", request)[0] for request in asked] == [
        b"1000",
        b"1000",
        b"2000",
    ]
    assert all(b'\r\nIf-Range: "1"\r\n' in request for request in asked)
    others = (
        piece(0),  # from its beginning
        piece(900, "900-2559"),
        piece(1000, "1000-2599", of=2600),
        piece(1000, "1000-2559", etag='"2"'),
        reply(416),
    )
    for other in others:
        with serve(piece(0), other) as server, pytest.raises(MaybeSent):
            fetched(server.url)


def test_the_length_of_a_part_is_not_the_files() -> None:
    """A part that nobody asked for (206) is then whole only where it ends as its format ends."""
    with serve(reply(206, b"begun", {"Content-Range": "bytes 0-4/500"})) as server:
        assert fetched(server.url) == (b"begun", None, "application/json")


def test_a_data_uri_is_a_file() -> None:
    for uri, file in (
        ("data:image/png;base64,AP+/", (b"\0\xff\xbf", 3, "image/png")),
        ("DATA:Image/PNG;name=a;BASE64,AP-_", (b"\0\xff\xbf", 3, "image/png")),
        ("data:image/png;base64,AP8%3D", (b"\0\xff", 2, "image/png")),
        ("data:image/png;base64,AP\n8", (b"\0\xff", 2, "image/png")),
        ("data:image/png,%00%ff", (b"\0\xff", 2, "image/png")),
        (" data:,a", (b"a", 1, "")),
    ):
        assert fetched(uri) == file


def test_a_data_uri_that_cannot_be_read_is_an_error_that_fits_a_line() -> None:
    base64 = "image/png;base64,"
    for wrong in f"{base64}{'?' * 9000}", f"{base64}{'A' * 9001}", "A" * 9000:
        with pytest.raises(MediaError, match="data URI cannot be read: data:") as caught:
            fetched(f"data:{wrong}")
        assert len(caught.value.message) < 200


def test_an_address_that_is_not_whole_is_relative_to_the_services() -> None:
    for url, asked in (
        ("/v2/downloads/1/0?exp=1&sig=a%2Fb", "/v2/downloads/1/0?exp=1&sig=a%2Fb"),
        ("//{host}/v2/downloads/1/0?exp=1", "/v2/downloads/1/0?exp=1"),
        ("v2/downloads/1/0", "/base/v2/downloads/1/0"),
        ("caf\u00e9/a b", "/base/caf%C3%A9/a%20b"),
        (" http://{host}/v2/downloads/1/0\n", "/v2/downloads/1/0"),
    ):
        with serve(reply(200, b"file")) as server:
            whole = url.replace("{host}", server.url.partition("//")[2])
            assert fetched(whole, f"{server.url}/base")[0] == b"file"
        assert server.requests[0].split(b" ")[1] == asked.encode()


def test_a_download_that_is_cut_off_or_cannot_begin_is_an_error() -> None:
    with (
        serve(raw(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nbegun")) as server,
        pytest.raises(MaybeSent),
    ):
        fetched(server.url)
    for impossible in server.url, "ftp://127.0.0.1/f", "http://[::1/f", "http://127.0.0.1:1e3/f", "http:":
        with pytest.raises(NotSent):
            fetched(impossible)


def test_the_error_of_a_download_shows_no_signature_and_says_nothing_of_the_key_which_it_did_not_have() -> (
    None
):
    for status, code in (401, "invalid_api_key"), (402, "quota_exceeded"), (404, "not_found"):
        with serve(error_reply(status, code)) as server, pytest.raises(Refusal) as caught:
            fetched(f"{server.url}/{'x' * 5000}?sig=hidden")
        assert type(caught.value) is Refusal
        assert (caught.value.status, caught.value.code, caught.value.hint) == (status, code, "")
        assert "hidden" not in str(caught.value)
        assert len(caught.value.message) < 200, "of a long address it has a line"


def test_an_error_shows_the_address_without_its_password() -> None:
    with unused_port() as port:
        address = f"http://me:hidden@127.0.0.1:{port}"
        for use in (lambda: run(address, balance)), (lambda: fetched(f"{address}/f?sig=hidden", address)):
            with pytest.raises(NotSent) as caught:
                use()
            text = caught.value.message + caught.value.hint
            assert f"http://...@127.0.0.1:{port}" in text
            assert "hidden" not in text


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://me:p@hidden@h/f?sig=hidden", "http://...@h/f"),
        ("http://me:p/hidden@h/f", "http://...@h/f"),
        ("http://me:hidden?hidden@h/f", "http://..."),
        ("http://h:1/f?sig=a@hidden", "http://..."),
        ("http://h/hat@2x.png", "http://h/hat@2x.png"),
    ],
)
def test_no_part_of_a_login_is_shown_whatever_it_holds(url: str, shown: str) -> None:
    assert without_secrets(url) == shown


def test_an_exception_of_the_code_that_reads_a_download_is_not_translated() -> None:
    async def full_disk(client: Client) -> None:
        async with client.download(server.url) as file:
            async for _ in file.chunks:
                raise OSError("disk full")

    with serve(reply(200, b"file")) as server, pytest.raises(OSError, match="disk full"):
        run(server.url, full_disk)


# ---- the key


def test_an_impossible_key_or_address_is_refused_and_the_key_is_not_shown() -> None:
    for key in "", "sk_a b", "sk_a\nb", "sk_ä":
        with pytest.raises(ConfigError) as caught:
            Client("http://127.0.0.1", key)
        assert key == "" or key not in caught.value.message + caught.value.hint
    with pytest.raises(ConfigError, match=r"service\.base_url"):
        Client("http://127.0.0.1:port", KEY)


def test_no_log_has_the_key_or_the_signature_of_a_url(caplog: pytest.LogCaptureFixture) -> None:
    """httpx writes every URL to its log, unless one knows how to ask it."""
    caplog.set_level(logging.DEBUG)
    with serve(json_reply(IMAGE), reply(200, b"file")) as server:
        run(server.url, image)
        fetched(server.url + "/f?sig=hidden")
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []
    assert KEY not in caplog.text
    assert "hidden" not in caplog.text


# ---- costs of a range of any length: every day once, from as few requests as the interface allows


FIRST = datetime(2024, 11, 1, tzinfo=UTC)


def test_a_range_of_two_years_is_asked_for_in_pieces_and_no_charge_is_missing_or_counted_twice() -> None:
    moments = [
        FIRST,
        datetime(2025, 4, 29, 23, 59, 59, 999000, UTC),  # the last moment of the first 180 days
        datetime(2025, 4, 30, tzinfo=UTC),
        datetime(2026, 10, 31, 12, tzinfo=UTC),
    ]
    moment = FIRST

    def clock() -> float:
        return moment.timestamp()

    with serve_backlot(Settings(port=0, image_seconds=0), clock) as lot:
        headers = {"Authorization": f"Bearer {lot.api_key}"}
        for moment in moments:
            body = {"model": "still-1", "prompt": f"a fox at {moment}"}
            http.post(f"{lot.base_url}/v2/images/generations", json=body, headers=headers).raise_for_status()
        costs, beyond = run(
            lot.base_url, lambda client: client.daily_costs(FIRST, moments[-1]), key=lot.api_key
        )
    assert beyond == 0
    assert list(costs) == [FIRST.date() + timedelta(days=n) for n in range(730)]
    assert {day: cost for day, cost in costs.items() if cost} == {
        moment.date(): Decimal("0.04") for moment in moments
    }


def answer(*days: str) -> dict[str, Any]:
    data = [{"date": day, "cost": 0.1} for day in days]
    return {"currency": "USD", "data": data, "total_cost": 0.1 * len(days)}


START, END = datetime(2026, 3, 1, 6, tzinfo=UTC), datetime(2026, 3, 3, 12, tzinfo=UTC)


def test_the_range_is_sent_with_its_time_zone_and_costs_are_exact_a_refund_too() -> None:
    body = answer("2026-03-01", "2026-03-02", "2026-03-03")
    body["data"][1]["cost"] = -0.30000000000000004
    with serve(json_reply(body)) as server:
        costs, _ = run(server.url, lambda client: client.daily_costs(START, END))
    assert list(map(str, costs.values())) == ["0.100000", "-0.300000", "0.100000"]
    [request] = server.requests
    query = parse_qs(urlsplit(request.split(b" ")[1].decode()).query)
    assert query == {"start": ["2026-03-01T06:00:00+00:00"], "end": ["2026-03-03T12:00:00+00:00"]}


def test_a_total_that_is_not_the_sum_of_its_days_is_known_and_one_that_is_rounded_is_it() -> None:
    days = answer("2026-03-01", "2026-03-02", "2026-03-03")
    for total, beyond in (
        (0.30000000000000004, "0"),
        (0.3000019, "0"),
        (0.5, "0.2"),
        (0.1, "-0.2"),
        (None, "0"),
        ("a lot", "0"),
    ):
        costs = ask(json_reply(days | {"total_cost": total}), lambda client: client.daily_costs(START, END))
        assert costs.beyond == Decimal(beyond), total


def test_an_answer_without_each_day_once_is_an_error() -> None:
    first, second, third, fourth = (f"2026-03-0{day}" for day in range(1, 5))
    for days in (first, second), (first, second, third, fourth), (first, first, second, third), ():
        with pytest.raises(MaybeSent, match="each day from 2026-03-01 to 2026-03-03 once"):
            ask(json_reply(answer(*days)), lambda client: client.daily_costs(START, END))
