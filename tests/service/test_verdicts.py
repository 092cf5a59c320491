"""The table of `docs/architecture.md, "Verdicts"`, row by row, through the real transport."""

from __future__ import annotations

import json
import socket
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from callsheet.errors import (
    CallsheetError,
    GatewayAnswer,
    InvalidApiKey,
    MaybeSent,
    MediaError,
    NotFound,
    NotSent,
    QuotaExceeded,
    RateLimit,
    Refusal,
    ServerError,
    ServiceError,
)
from callsheet.records import ModelType
from callsheet.service import verdicts
from callsheet.service.answers import WINDOW, transport_failures
from callsheet.service.client import Client
from callsheet.service.transport import Unsent
from callsheet.service.verdicts import Backoff, Verdict
from tests.servers.sockets import (
    Behaviour,
    certificate,
    close,
    error_reply,
    full_backlog,
    json_reply,
    page,
    raw,
    reply,
    reset,
    serve,
    silence,
    unused_port,
)
from tests.service.asking import IMAGE, KEY, RATE, ask, fetched, image, run, video
from tests.waiting import LONGEST

# ---- a submission

CUT_OFF = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + json.dumps(IMAGE).encode()[:100]
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CASES: dict[str, tuple[Behaviour, Verdict]] = {
    "closed after the request was read": (close, Verdict.IN_DOUBT),
    "reset after the request was read": (reset, Verdict.IN_DOUBT),
    "read timed out": (silence, Verdict.IN_DOUBT),
    "garbled status line": (raw(b"HTTTP!\r\n\r\n"), Verdict.IN_DOUBT),
    "half a head": (raw(b"HTTP/1.1 200 OK\r\n"), Verdict.IN_DOUBT),
    "a head without end": (raw(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 40_000), Verdict.IN_DOUBT),
    "no length that can be read": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{}"), Verdict.IN_DOUBT),
    "101": (raw(b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"), Verdict.IN_DOUBT),
    "2xx cut off in the body": (raw(CUT_OFF), Verdict.IN_DOUBT),
    "2xx without its last chunk": (raw(CHUNKED + b"2\r\n{}\r\n"), Verdict.IN_DOUBT),
    "2xx that is not JSON": (reply(200, b"{"), Verdict.IN_DOUBT),
    "2xx nested without end": (reply(200, b"[" * 100_000), Verdict.IN_DOUBT),
    "2xx that is not UTF-8": (reply(200, b'{"id": "\xff"}'), Verdict.IN_DOUBT),
    "2xx without a body": (reply(204), Verdict.IN_DOUBT),
    "2xx with a page": (page(200), Verdict.IN_DOUBT),
    "2xx that cannot be unpacked": (reply(200, b"?", {"Content-Encoding": "gzip"}), Verdict.IN_DOUBT),
    "2xx without an id": (json_reply({"status": "pending"}), Verdict.IN_DOUBT),
    "2xx with a number out of range": (
        reply(200, json.dumps(IMAGE).replace("0.04", "1e9999999999999999999", 1).encode()),
        Verdict.IN_DOUBT,
    ),
    **{f"{code} with a page": (page(code), Verdict.IN_DOUBT) for code in (408, 500, 502, 503, 504, 520)},
    **{
        f"{status} with the error body": (error_reply(status, "server_error"), verdict)
        for status, verdict in [
            (408, Verdict.IN_DOUBT),
            (500, Verdict.SAYS_NO),
            (502, Verdict.IN_DOUBT),
            (503, Verdict.SAYS_NO),
            (504, Verdict.IN_DOUBT),
        ]
    },
    "429": (error_reply(429, "rate_limit"), Verdict.LANES_FULL),
    "429 with Retry-After": (error_reply(429, "rate_limit", {"Retry-After": "7"}), Verdict.WINDOW_FULL),
    "429 with Retry-After: 0": (error_reply(429, "rate_limit", {"Retry-After": "0"}), Verdict.WINDOW_FULL),
    "429 with a page": (page(429), Verdict.LANES_FULL),
    "400": (error_reply(400, "invalid_parameter"), Verdict.REFUSED),
    "401": (error_reply(401, "invalid_api_key"), Verdict.STOP_KEY),
    "402": (error_reply(402, "quota_exceeded"), Verdict.STOP_BALANCE),
    "404": (error_reply(404, "not_found"), Verdict.REFUSED),
    "409": (error_reply(409, "brand_new"), Verdict.REFUSED),
    "422": (error_reply(422, "content_policy_violation"), Verdict.REFUSED),
    "redirect": (reply(302, b"", {"Location": "/elsewhere"}), Verdict.GATEWAY),
    **{f"{status} with a page": (page(status), Verdict.GATEWAY) for status in (400, 403, 404, 413, 431)},
}


BY_TLS = [*CASES][:10]  # what differs there: how an answer ends


@pytest.mark.parametrize(
    ("submit", "tls", "case"),
    [*((image, False, case) for case in CASES), *((video, True, case) for case in BY_TLS)],
    ids=[*CASES, *(f"a video by TLS, {case}" for case in BY_TLS)],
)
def test_verdict_on_a_submission(
    case: str,
    tls: bool,
    submit: Callable[[Client], Awaitable[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    behaviour, verdict = CASES[case]
    pem = certificate(tmp_path) if tls else None
    if pem:
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    with serve(behaviour, tls=pem) as server, pytest.raises(ServiceError) as caught:
        run(server.url, submit, generation_timeout=0.2 if behaviour is silence else LONGEST)
    assert verdicts.submit(caught.value) is verdict
    assert len(server.requests) == 1, "a submission is sent once"
    assert KEY not in repr(caught.value) + caught.value.hint


def test_garbled_tls_after_the_handshake_is_in_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pem = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))

    def garble(channel: Any) -> bool:
        with socket.socket(fileno=channel.fileno()) as under:
            under.sendall(b"this is not a TLS record")
            under.shutdown(socket.SHUT_WR)
            under.detach()
        return silence(channel)

    with serve(garble, tls=pem) as server, pytest.raises(MaybeSent):
        run(server.url, image, generation_timeout=2)


def test_without_a_connection_nothing_was_sent(tmp_path: Path) -> None:
    with unused_port() as port:
        with pytest.raises(NotSent, match="POST /v2/images/generations: not sent") as caught:
            run(f"http://127.0.0.1:{port}", image)
        assert f"http://127.0.0.1:{port}" in caught.value.hint
        assert "service.base_url" in caught.value.hint
        assert "CALLSHEET_BASE_URL" in caught.value.hint
    with pytest.raises(NotSent):
        run("http://no-such-host.invalid", image)
    with full_backlog() as port, pytest.raises(NotSent):
        run(f"http://127.0.0.1:{port}", image, connect_timeout=0.2)
    with (
        serve(json_reply(IMAGE), tls=certificate(tmp_path)) as untrusted,
        pytest.raises(NotSent, match="SSLCertVerificationError") as caught,
    ):
        run(untrusted.url, image)
    said, variable, address = caught.value.hint.partition("SSL_CERT_FILE")
    assert said.startswith("The server's certificate is not trusted: self-signed certificate.")
    assert variable
    assert untrusted.url in address, "only then"
    assert untrusted.requests == []
    with serve(json_reply(IMAGE)) as plain, pytest.raises(NotSent):
        run(plain.url.replace("http:", "https:"), image, connect_timeout=0.5)


@pytest.mark.parametrize(
    "error", [OSError("boom"), ConnectionRefusedError(), TimeoutError(), httpx.ReadError("boom")]
)
def test_an_error_of_the_transport_means_not_sent_only_where_the_transport_says_so(error: Exception) -> None:
    with pytest.raises(MaybeSent), transport_failures("GET /x"):
        raise error
    with pytest.raises(NotSent, match=type(error).__name__), transport_failures("GET /x"):
        raise Unsent from error


# ---- what is read


def test_a_poll_goes_on_unless_the_key_or_the_generation_is_unknown() -> None:
    wanted = {"401": Verdict.STOP_KEY, "404": Verdict.NOT_FOUND}
    cases = ["read timed out", *(case for case in CASES if case[0].isdigit() or case == "redirect")]
    cases.remove("2xx without an id")  # the id is the caller's
    for case in cases:
        with serve(CASES[case][0]) as server, pytest.raises(ServiceError) as caught:
            run(server.url, lambda client: client.video("v"), read_timeout=0.2 if case[0] == "r" else LONGEST)
        assert verdicts.poll(caught.value) is wanted.get(case, Verdict.AGAIN), case


def test_only_403_404_and_410_say_that_a_file_is_gone_and_a_video_has_another_url_to_try() -> None:
    for status in (400, 401, 402, 403, 404, 408, 410, 429, 500, 503):
        for answer in error_reply(status, "not_found"), page(status):
            with serve(answer) as server, pytest.raises(Refusal) as caught:
                fetched(server.url)
            gone = status in {403, 404, 410}
            of_image = Verdict.GONE if gone else Verdict.AGAIN
            of_video = Verdict.RENEW if status in {400, 401, 402} else of_image
            assert verdicts.download(caught.value, ModelType.IMAGE) is of_image
            assert verdicts.download(caught.value, ModelType.VIDEO) is of_video
    for error in NotSent("x"), MaybeSent("x"), MediaError("short"):
        assert {verdicts.download(error, model_type) for model_type in ModelType} == {Verdict.AGAIN}


def test_a_file_is_late_by_the_clock_of_the_service() -> None:
    deleted, now = datetime(2026, 1, 1, tzinfo=UTC), datetime.now(UTC)
    by_service = Refusal("no", status=404)
    by_service.date = deleted.timestamp() - 1
    assert not verdicts.is_late(by_service, deleted)
    by_service.date += 1
    assert verdicts.is_late(by_service, deleted)
    assert verdicts.is_late(by_service, None) is False, "nobody knows when it is deleted"
    without_date = Refusal("no", status=404)
    assert verdicts.is_late(without_date, now - timedelta(seconds=1))
    assert not verdicts.is_late(without_date, now + timedelta(hours=1))


def test_backoff_doubles_up_to_a_minute_and_half_of_it_is_random() -> None:
    for tries, whole in [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (8, 60), (10_000, 60)]:
        waits = [Backoff()(tries) for _ in range(100)]
        assert whole / 2 <= min(waits) < whole * 0.6
        assert whole * 0.9 < max(waits) <= whole


# ---- each failure has its error type, and no error shows a secret


def test_each_status_and_code_has_its_error_type() -> None:
    types: list[tuple[int, str, type[Refusal]]] = [
        (400, "invalid_parameter", Refusal),
        (422, "parameter_missing", Refusal),
        (401, "invalid_api_key", InvalidApiKey),
        (402, "quota_exceeded", QuotaExceeded),
        (404, "not_found", NotFound),
        (429, "rate_limit", RateLimit),
        (501, "server_error", ServerError),
        (409, "brand_new", Refusal),
    ]
    for status, code, error_type in types:
        with pytest.raises(Refusal) as caught:
            ask(error_reply(status, code, RATE, param="model"), image)
        error = caught.value
        assert type(error) is error_type
        assert (error.status, error.code) == (status, code)
        assert error.rate == (60, 59, 1700000060, None)
        assert f"POST /v2/images/generations: No. ({status} {code}, model)" in str(error)


def test_an_error_shows_where_to_read_more() -> None:
    """Only an address, and not the key in it."""
    said = [("https://help.example/codes#blocked", " See https://help.example/codes#blocked"), (None, "")]
    said += [("file:///etc/passwd", ""), (f"https://help.example/{KEY}", " See https://help.example/sk_...")]
    for doc_url, see in said:
        with pytest.raises(Refusal) as caught:
            ask(error_reply(422, "content_policy_violation", doc_url=doc_url), image)
        wanted = f"POST /v2/images/generations: No.{see} (422 content_policy_violation)"
        assert caught.value.message == wanted


def test_what_a_person_can_do_is_said_and_no_key() -> None:
    with pytest.raises(NotFound) as unknown:
        ask(error_reply(404, "not_found"), lambda client: client.video("req-1"))
    assert "another project" in unknown.value.hint
    assert "service.base_url" in unknown.value.hint
    with pytest.raises(InvalidApiKey, match=r"Incorrect key: sk_\.\.\."):
        ask(error_reply(401, "invalid_api_key", message=f"Incorrect key: {KEY}"), image)
    with pytest.raises(GatewayAnswer) as proxy:
        ask(page(407), image)
    assert proxy.value.hint.startswith(
        "A proxy asks for a user name and a password: http://NAME:PASSWORD@HOST"
    )


def test_a_service_that_is_down_is_not_a_wrong_config() -> None:
    down = [*(error_reply(status, "any") for status in (401, 402, 429, 500)), page(502), json_reply("?")]
    wrong = [page(404), error_reply(400, "invalid_parameter")]
    for exit_code, answers in ((4, down), (2, wrong)):
        for answer in answers:
            with pytest.raises(CallsheetError) as caught:
                ask(answer, lambda client: client.video("req-1"))
            assert caught.value.exit_code == exit_code


def test_retry_after_is_read_on_every_status_and_an_unreadable_one_means_a_whole_window() -> None:
    """As a date too, by the clock of the answer itself."""
    unreadable = [(text, WINDOW) for text in ("soon", "", "-1", "3601", "9" * 400)]
    for header, seconds in [("0", 0.0), ("30", 30.0), ("3600", 3600.0), *unreadable, (None, None)]:
        headers = {} if header is None else {"Retry-After": header}
        with pytest.raises(RateLimit) as limited:
            ask(error_reply(429, "rate_limit", headers), image)
        assert limited.value.retry_after == seconds, header
    headers = {"Retry-After": "Wed, 21 Oct 2026 07:28:45 GMT", "Date": "Wed, 21 Oct 2026 07:28:00 GMT"}
    for status in (400, 404, 500, 503):
        with pytest.raises(Refusal) as caught:
            ask(error_reply(status, "server_error", headers), image)
        assert (caught.value.retry_after, caught.value.date) == (45, 1792567680)


def test_an_answer_without_the_interfaces_error_body_is_a_gateways_and_its_status_is_the_code() -> None:
    for body in (
        b"404 page not found",
        b'{"message": "no Route matched with those values"}',
        b'{"error": {"message": "no route", "code": "ROUTE_NOT_FOUND"}}',
        b'{"error": {"message": "no route", "code": 404, "status": "NOT_FOUND"}}',
        b'{"error": "not_found"}',
        b'[{"error": 1e9999999999999999999}]',
    ):
        with pytest.raises(GatewayAnswer, match="404 Whatever, without the service's error") as caught:
            ask(reply(404, body, {"Content-Type": "application/json"}), image)
        assert (caught.value.code, caught.value.rate) == ("http_404", None)
        assert "CALLSHEET_BASE_URL" in caught.value.hint


@pytest.mark.parametrize(
    "location, hint",
    [
        (
            "https://api.service.test/v2/images/generations",
            "; https://api.service.test may be the right address.",
        ),
        (
            "/new/v2/images/generations",
            "{url}/new/v2/images/generations; {url}/new may be the right address.",
        ),
        ("https://login.test/start?from=/v2/hidden", "It redirects to https://login.test/start."),
    ],
    ids=["https", "path", "login"],
)
def test_a_redirect_of_the_api_says_where_to_and_only_then_the_address(location: str, hint: str) -> None:
    with serve(reply(301, b"", {"Location": location})) as server, pytest.raises(GatewayAnswer) as caught:
        run(server.url, image)
    said, address, _ = caught.value.hint.partition(f"Is {server.url} the service's address?")
    assert hint.format(url=server.url) in said
    assert address
    assert "hidden" not in said
    assert len(said) < 300
    assert len(server.requests) == 1
