"""The client against real sockets: every answer and every breakage, and what it means for the money."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from callsheet import errors
from callsheet.errors import (
    CallsheetError,
    ConfigError,
    ContentPolicyViolation,
    InvalidApiKey,
    InvalidParameter,
    MaybeSent,
    NotFound,
    NotSent,
    ParameterMissing,
    QuotaExceeded,
    RateLimit,
    Refusal,
    ServerError,
    ServiceError,
    UnexpectedAnswer,
)
from callsheet.records import Failed, Generation, Kind, Pending
from callsheet.service import client as client_module
from callsheet.service import verdicts
from callsheet.service.client import WINDOW, Client
from callsheet.service.models import RateHeaders
from callsheet.service.verdicts import Verdict
from tests.servers.sockets import (
    Behaviour,
    certificate,
    close,
    full_backlog,
    raw,
    reply,
    reset,
    serve,
    silence,
    unused_port,
)

KEY = "sk_very-secret"
IMAGE = {
    "id": "req-1",
    "status": "completed",
    "model": "m",
    "data": [
        {
            "url": "http://127.0.0.1/v2/downloads/req-1/0?exp=1&sig=a%2Fb",
            "width": None,
            "height": 1024,
            "mime_type": "image/jpeg",
            "deletes_at": "2026-01-01T00:00:00.000Z",
            "new": {"fields": "are ignored"},
        }
    ],
    "usage": {"total_cost": 0.04, "billable_unit": "image", "unit_price": 0.04, "quantity": 1},
}
VIDEO = {**IMAGE["data"][0], "mime_type": "video/mp4", "duration": 5, "fps": 24, "has_sound": False}  # type: ignore[index]
RATE = {"X-RateLimit-Limit": "60", "X-RateLimit-Remaining": "59", "X-RateLimit-Reset": "1700000060"}


def run(url: str, use: Callable[[Client], Awaitable[Any]], **timeouts: float) -> Any:
    async def scenario() -> Any:
        async with Client(url, KEY, **timeouts) as client:
            return await use(client)

    return asyncio.run(scenario())


def ask(behaviour: Behaviour, use: Callable[[Client], Awaitable[Any]], **timeouts: float) -> Any:
    with serve(behaviour) as server:
        return run(server.url, use, **timeouts)


def json_reply(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Behaviour:
    return reply(status, json.dumps(content).encode(), headers)


def error_reply(status: int, code: str, headers: Mapping[str, str] | None = None, **more: Any) -> Behaviour:
    body = {"message": "No.", "type": "invalid_request_error", "param": None, "code": code} | more
    return json_reply({"error": body}, status, headers)


async def image(client: Client) -> Any:
    return await client.create_image({"model": "m", "prompt": "a cat"})


async def video(client: Client) -> Any:
    return await client.create_video({"model": "m", "prompt": "a cat"})


# ---- what a breakage means for a submission

HTML = b"<html><h1>Bad Gateway</h1></html>"
PAGE = {"Content-Type": "text/html"}
LONG = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + json.dumps(IMAGE).encode()[:200]


@pytest.mark.parametrize("submit", [image, video])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize(
    "behaviour, verdict",
    [
        pytest.param(close, Verdict.IN_DOUBT, id="closed after the request was read"),
        pytest.param(reset, Verdict.IN_DOUBT, id="reset after the request was read"),
        pytest.param(silence, Verdict.IN_DOUBT, id="read timed out"),
        pytest.param(raw(b"HTTTP!\r\n\r\n"), Verdict.IN_DOUBT, id="garbled status line"),
        pytest.param(LONG and raw(LONG), Verdict.IN_DOUBT, id="2xx cut off in the body"),
        pytest.param(reply(200, b"{"), Verdict.IN_DOUBT, id="2xx that is not JSON"),
        pytest.param(reply(200, b"[" * 100_000), Verdict.IN_DOUBT, id="2xx nested without end"),
        pytest.param(reply(200, b'{"id": "\xff"}'), Verdict.IN_DOUBT, id="2xx that is not UTF-8"),
        pytest.param(reply(204), Verdict.IN_DOUBT, id="2xx without a body"),
        pytest.param(reply(200, HTML, PAGE), Verdict.IN_DOUBT, id="2xx with a page"),
        pytest.param(
            reply(200, b"no gzip", {"Content-Encoding": "gzip"}),
            Verdict.IN_DOUBT,
            id="2xx that cannot be unpacked",
        ),
        pytest.param(json_reply({"status": "pending"}), Verdict.IN_DOUBT, id="2xx without an id"),
        pytest.param(reply(502, HTML, PAGE), Verdict.IN_DOUBT, id="502 with a page"),
        pytest.param(reply(504, HTML, PAGE), Verdict.IN_DOUBT, id="504 with a page"),
        pytest.param(error_reply(502, "server_error"), Verdict.IN_DOUBT, id="502 with the error body"),
        pytest.param(reply(500, HTML, PAGE), Verdict.IN_DOUBT, id="500 with a page"),
        pytest.param(error_reply(500, "server_error"), Verdict.SAYS_NO, id="500"),
        pytest.param(reply(503, HTML, PAGE), Verdict.SAYS_NO, id="503 with a page"),
        pytest.param(error_reply(503, "server_error"), Verdict.SAYS_NO, id="503"),
        pytest.param(error_reply(429, "rate_limit"), Verdict.LANES_FULL, id="429"),
        pytest.param(
            error_reply(429, "rate_limit", {"Retry-After": "7"}),
            Verdict.WINDOW_FULL,
            id="429 with Retry-After",
        ),
        pytest.param(error_reply(400, "invalid_parameter"), Verdict.REFUSED, id="400"),
        pytest.param(error_reply(401, "invalid_api_key"), Verdict.STOP_KEY, id="401"),
        pytest.param(error_reply(402, "quota_exceeded"), Verdict.STOP_BALANCE, id="402"),
        pytest.param(error_reply(404, "not_found"), Verdict.REFUSED, id="404"),
        pytest.param(error_reply(422, "content_policy_violation"), Verdict.REFUSED, id="422"),
        pytest.param(reply(302, b"", {"Location": "/elsewhere"}), Verdict.REFUSED, id="redirect"),
    ],
)
def test_verdict_on_a_submission(
    behaviour: Behaviour,
    verdict: Verdict,
    tls: bool,
    submit: Callable[[Client], Awaitable[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pem = certificate(tmp_path) if tls else None
    if pem:
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    with serve(behaviour, tls=pem) as server, pytest.raises(ServiceError) as caught:
        run(server.url, submit, generation_timeout=0.2)
    assert verdicts.submit(caught.value) is verdict
    assert len(server.requests) == 1, "a submission is sent once"
    assert KEY not in repr(caught.value) + caught.value.hint


def test_verdict_on_a_second_submission_over_the_same_connection() -> None:
    """A connection that was good once and breaks under the next request raises doubt, as it must."""

    async def twice(client: Client) -> None:
        await image(client)
        with pytest.raises(MaybeSent):
            await image(client)

    with serve(json_reply(IMAGE), close) as server:
        run(server.url, twice)
        assert (server.connections, len(server.requests)) == (1, 2)


def test_refused_connection_was_not_sent() -> None:
    with (
        unused_port() as port,
        pytest.raises(NotSent, match="POST /v2/images/generations: not sent") as caught,
    ):
        run(f"http://127.0.0.1:{port}", image)
    assert f"http://127.0.0.1:{port}" in caught.value.hint
    assert "service.base_url" in caught.value.hint
    assert "CALLSHEET_BASE_URL" in caught.value.hint


def test_unknown_name_was_not_sent() -> None:
    with pytest.raises(NotSent):
        run("http://no-such-host.invalid", image)


def test_connect_timeout_was_not_sent() -> None:
    with full_backlog() as port, pytest.raises(NotSent):
        run(f"http://127.0.0.1:{port}", image, connect_timeout=0.2)


def test_failed_tls_handshake_was_not_sent(tmp_path: Path) -> None:
    with serve(json_reply(IMAGE), tls=certificate(tmp_path)) as untrusted, pytest.raises(NotSent):
        run(untrusted.url, image)
    assert untrusted.requests == []
    with serve(json_reply(IMAGE)) as plain, pytest.raises(NotSent):
        run(plain.url.replace("http:", "https:"), image, connect_timeout=0.5)


def test_garbled_tls_after_the_handshake_is_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's TLS raises an error of its own here, which httpx does not translate."""
    pem = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))

    def garble(channel: Any) -> bool:
        import socket

        with socket.socket(fileno=channel.fileno()) as under:
            under.sendall(b"this is no TLS record")
            under.shutdown(socket.SHUT_WR)
            under.detach()
        return silence(channel)

    with serve(garble, tls=pem) as server, pytest.raises(MaybeSent):
        run(server.url, image, generation_timeout=2)


def test_a_proxy_that_does_not_let_us_through_means_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(reply(403)) as proxy, pytest.raises(NotSent):
        monkeypatch.setenv("https_proxy", proxy.url)
        run("https://service.test", image)


def test_a_proxy_that_answers_502_leaves_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(reply(502, HTML, PAGE)) as proxy, pytest.raises(UnexpectedAnswer) as caught:
        monkeypatch.setenv("http_proxy", proxy.url)
        run("http://service.test", image)
    assert verdicts.submit(caught.value) is Verdict.IN_DOUBT


@pytest.mark.parametrize(
    "kind",
    [kind for _, kind in inspect.getmembers(httpx, inspect.isclass) if issubclass(kind, httpx.RequestError)],
)
def test_every_error_of_httpx_has_its_meaning(kind: type[httpx.RequestError]) -> None:
    never_left = {"ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol"}
    expected: type[ServiceError] = NotSent if kind.__name__ in never_left else MaybeSent
    with pytest.raises(expected), client_module._failures("GET /x"):
        raise kind("boom")


# ---- refusals


@pytest.mark.parametrize(
    "status, code, kind",
    [
        (400, "invalid_parameter", InvalidParameter),
        (400, "parameter_missing", ParameterMissing),
        (422, "parameter_missing", ParameterMissing),
        (401, "invalid_api_key", InvalidApiKey),
        (402, "quota_exceeded", QuotaExceeded),
        (404, "not_found", NotFound),
        (422, "content_policy_violation", ContentPolicyViolation),
        (429, "rate_limit", RateLimit),
        (500, "server_error", ServerError),
        (501, "server_error", ServerError),
        (409, "brand_new", UnexpectedAnswer),
        (400, "brand_new", UnexpectedAnswer),
    ],
)
def test_each_code_has_its_error(status: int, code: str, kind: type[Refusal]) -> None:
    with pytest.raises(Refusal) as caught:
        ask(error_reply(status, code, RATE, param="model"), image)
    error = caught.value
    assert type(error) is kind
    assert (error.status, error.code, error.param) == (status, code, "model")
    assert error.rate == (60, 59, 1700000060, None)
    assert "POST /v2/images/generations" in str(error)
    assert "No." in str(error)


def test_every_refusal_of_the_tree_is_reachable() -> None:
    drawn = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Refusal)}
    made = {*client_module._BY_STATUS.values(), *client_module._BY_STATUS_AND_CODE.values()}
    assert drawn - made == {Refusal, UnexpectedAnswer}


def test_an_answer_without_the_error_body_keeps_its_status_as_code() -> None:
    with pytest.raises(UnexpectedAnswer, match="answered 404 Whatever, without") as caught:
        ask(reply(404, HTML, PAGE), lambda client: client.video("req-1"))
    assert caught.value.code == "http_404"
    assert "CALLSHEET_BASE_URL" in caught.value.hint
    assert caught.value.rate is None


@pytest.mark.parametrize(
    "header, seconds",
    [("0", 0.0), ("30", 30.0), ("soon", WINDOW), ("", WINDOW), ("-1", WINDOW), (None, None)],
)
def test_retry_after(header: str | None, seconds: float | None) -> None:
    headers = {} if header is None else {"Retry-After": header}
    with pytest.raises(RateLimit) as caught:
        ask(error_reply(429, "rate_limit", headers), image)
    assert caught.value.retry_after == seconds


def test_a_key_that_the_service_repeats_is_not_shown() -> None:
    with pytest.raises(InvalidApiKey) as caught:
        ask(error_reply(401, "invalid_api_key", message=f"Incorrect key: {KEY}"), image)
    assert "Incorrect key: sk_..." in str(caught.value)


# ---- answers


def test_an_image_is_bought() -> None:
    headers = {**RATE, "Date": "Tue, 14 Nov 2023 22:13:20 GMT"}
    with serve(json_reply(IMAGE, headers=headers)) as server:
        answer = run(server.url + "/", image)
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v2/images/generations HTTP/1.1\r\n")
    assert f"Authorization: Bearer {KEY}".encode() in head
    assert json.loads(body) == {"model": "m", "prompt": "a cat"}
    assert answer.rate == RateHeaders(60, 59, 1700000060, 1700000000.0)
    assert isinstance(answer.value, Generation)
    assert answer.value.id == "req-1"
    assert answer.value.usage.total_cost == Decimal("0.04")
    [media] = answer.value.media
    assert (media.url, media.width, media.height) == (IMAGE["data"][0]["url"], None, 1024)  # type: ignore[index]
    assert media.deletes_at == datetime(2026, 1, 1, tzinfo=UTC)


def test_money_is_read_to_six_decimals_and_never_as_a_float() -> None:
    def cost(text: str) -> Decimal:
        body = json.dumps(IMAGE).replace('"total_cost": 0.04', f'"total_cost": {text}').encode()
        total: Decimal = ask(reply(200, body), image).value.usage.total_cost
        assert isinstance(total, Decimal)
        return total

    assert str(cost("0.30000000000000004")) == "0.300000"
    assert str(cost("0.0000005")) == "0.000000"  # half to even
    assert str(cost("0.0000015")) == "0.000002"
    assert (
        str(cost("123456789.123456")) == "123456789.123456"
    )  # more digits than a float holds with certainty
    for impossible in ("NaN", "Infinity", "-1", "1e999", "null"):
        with pytest.raises(MaybeSent, match=r"cannot be read: .*about req-1|no JSON number"):
            cost(impossible)


@pytest.mark.parametrize("lacking", ["id", "data", "usage"])
def test_an_image_without_id_file_or_cost_is_in_doubt(lacking: str) -> None:
    partial = {name: value for name, value in IMAGE.items() if name != lacking}
    with pytest.raises(MaybeSent, match=f"cannot be read: {lacking}: Field required"):
        ask(json_reply(partial), image)
    with pytest.raises(MaybeSent, match="data"):
        ask(json_reply({**IMAGE, "data": []}), image)


@pytest.mark.parametrize(
    "answer",
    [{"id": "req-2", "status": "pending"}, {"id": "req-2"}, {"id": "req-2", "status": 7, "usage": "?"}],
)
def test_a_video_with_an_id_is_accepted_whatever_else_is_said(answer: Any) -> None:
    answered = ask(json_reply(answer, 202, {**RATE, "X-RateLimit-Limit": "many"}), video)
    assert answered.value == Pending("req-2")
    assert answered.rate is None


def test_a_video_is_polled_to_its_end() -> None:
    async def poll(client: Client) -> list[Any]:
        return [await client.video("req/2") for _ in range(4)]

    completed = {
        "id": "req-2",
        "status": "completed",
        "model": "m",
        "data": [VIDEO, VIDEO],
        "usage": IMAGE["usage"],
    }
    failed = {"id": "req-2", "status": "failed", "error": {"message": "Upstream.", "code": "server_error"}}
    with serve(
        json_reply({"id": "req-2", "status": "pending", "data": None}),
        json_reply(failed),
        json_reply({"id": "req-2", "status": "failed", "error": None}),
        json_reply(completed),
    ) as server:
        pending, failure, mute, generation = run(server.url, poll)
    assert server.requests[0].startswith(b"GET /v2/videos/generations/req%2F2 HTTP/1.1\r\n")
    assert pending == Pending("req/2")
    assert failure == Failed("req/2", "server_error", "Upstream.")
    assert mute == Failed("req/2", "unknown", "no reason was given")
    assert [media.mime_type for media in generation.media] == ["video/mp4"]
    assert (generation.media[0].duration, generation.media[0].fps, generation.media[0].has_sound) == (
        5,
        24,
        False,
    )


def test_a_poll_in_a_state_that_the_interface_does_not_know_is_to_be_repeated() -> None:
    with pytest.raises(MaybeSent) as caught:
        ask(json_reply({"id": "req-2", "status": "queued"}), lambda client: client.video("req-2"))
    assert verdicts.poll(caught.value) is Verdict.AGAIN


MODEL = {
    "id": "m",
    "name": "M",
    "type": "image",
    "supported_aspect_ratios": ["1:1"],
    "supported_durations": [],
    "supported_resolutions": ["1K"],
    "supports_sound": False,
    "supported_references": {"reference_image": 4},
    "pricing": {
        "currency": "USD",
        "rates": [
            {"resolution": "1K", "sound": "not_applicable", "billable_unit": "image", "unit_price": "0.0400"}
        ],
    },
    "created_at": "2025-01-01T00:00:00Z",
}


def test_the_catalogue_is_read_with_exact_prices() -> None:
    with serve(json_reply([MODEL]), json_reply([]), json_reply(MODEL)) as server:

        async def read(client: Client) -> Any:
            return await client.models(), await client.models(Kind.VIDEO), await client.model("m/1")

        every, videos, one = run(server.url, read)
    assert str(every["m"].pricing.rates[0].unit_price) == "0.0400"
    assert videos == {}
    assert one == every["m"]
    paths = [request.split(b" ")[1] for request in server.requests]
    assert paths == [b"/v2/models", b"/v2/models?type=video", b"/v2/models/m%2F1"]


def test_balance_and_costs_are_exact() -> None:
    costs = {
        "currency": "USD",
        "data": [{"date": "2026-01-01", "cost": 0.1}, {"date": "2026-01-02", "cost": 0.20000000000000001}],
        "total_cost": 0.30000000000000004,
        "start": "2026-01-01T00:00:00Z",
        "end": "2026-01-02T12:00:00Z",
    }
    with serve(json_reply({"currency": "USD", "balance": "12.3456"}), json_reply(costs)) as server:

        async def read(client: Client) -> Any:
            day = datetime(2026, 1, 1, tzinfo=UTC)
            return await client.balance(), await client.costs(day, day.replace(hour=12))

        balance, read_costs = run(server.url, read)
    assert str(balance) == "12.3456"
    assert [str(day.cost) for day in read_costs.data] == ["0.100000", "0.200000"]
    assert str(read_costs.total_cost) == "0.300000"
    query = httpx.URL(server.requests[1].split(b" ")[1].decode()).params
    assert (query["start"], query["end"]) == ("2026-01-01T00:00:00+00:00", "2026-01-01T12:00:00+00:00")


# ---- downloads


async def fetch(client: Client, url: str) -> tuple[bytes, int | None, str]:
    async with client.download(url) as file:
        return b"".join([chunk async for chunk in file.chunks]), file.length, file.mime_type


def test_a_download_goes_to_its_url_as_given_and_without_the_key() -> None:
    content = bytes(range(256)) * 1000
    signed = "/v2/downloads/req-1/0?exp=1&sig=a%2Fb%2Bc+d/e~f=="
    with serve(reply(200, content, {"Content-Type": "Image/JPEG; q=1"})) as server:
        got = run(server.url, lambda client: fetch(client, server.url + signed))
    assert got == (content, len(content), "image/jpeg")
    assert server.requests[0].split(b" ")[1] == signed.encode()
    assert b"uthorization" not in server.requests[0]
    assert KEY.encode() not in server.requests[0]


def test_a_download_follows_redirects_and_a_submission_does_not() -> None:
    with (
        serve(reply(200, b"file")) as store,
        serve(reply(307, b"", {"Location": store.url + "/x"})) as server,
    ):
        assert run(server.url, lambda client: fetch(client, server.url + "/f"))[0] == b"file"
        with pytest.raises(UnexpectedAnswer):
            run(server.url, image)
    assert len(store.requests) == 1
    assert KEY.encode() not in store.requests[0]


def test_a_download_that_breaks_off_says_so() -> None:
    with pytest.raises(MaybeSent), serve(raw(LONG)) as server:
        run(server.url, lambda client: fetch(client, server.url))
    with pytest.raises(NotSent):
        run(server.url, lambda client: fetch(client, server.url))
    with pytest.raises(NotSent):
        run(server.url, lambda client: fetch(client, "no address"))


def test_a_refused_download_keeps_its_status_and_its_signature_to_itself() -> None:
    with serve(reply(403, HTML, PAGE)) as server, pytest.raises(UnexpectedAnswer) as caught:
        run(server.url, lambda client: fetch(client, server.url + "/f?sig=hidden"))
    assert verdicts.download(caught.value) is Verdict.GONE
    assert "hidden" not in str(caught.value)


def test_what_the_reader_of_a_download_raises_is_its_own() -> None:
    async def full_disk(client: Client) -> None:
        async with client.download(server.url) as file:
            async for _ in file.chunks:
                raise OSError("disk full")

    with serve(reply(200, b"file")) as server, pytest.raises(OSError, match="disk full"):
        run(server.url, full_disk)


# ---- the key


@pytest.mark.parametrize("key", ["", "sk_a b", "sk_a\n", "sk_ä"])
def test_what_cannot_be_a_key_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Client("http://127.0.0.1", key)
    assert key == "" or key not in caught.value.message + caught.value.hint


def test_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serve(json_reply(IMAGE)) as server:
        run(server.url, image)
    assert [record for record in caplog.records if record.name.startswith(("httpx", "httpcore"))] == []


def test_an_address_that_is_none_is_a_config_error() -> None:
    with pytest.raises(CallsheetError, match=r"service\.base_url"):
        Client("http://127.0.0.1:port", KEY)
