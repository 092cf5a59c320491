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

from callsheet.errors import MaybeSent, MediaError, NotSent, Refusal, ServiceError
from callsheet.records import ModelType
from callsheet.service import verdicts
from callsheet.service.answers import transport_failures
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
from tests.service.asking import IMAGE, KEY, fetched, image, run, video
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
