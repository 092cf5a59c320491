"""The table of `docs/architecture.md, "Verdicts"`, row by row: by error, and through the real transport."""

from __future__ import annotations

import asyncio
import json
import random
import socket
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from callsheet.errors import (
    ContentPolicyViolation,
    GatewayAnswer,
    InvalidApiKey,
    InvalidParameter,
    MaybeSent,
    MediaError,
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
from callsheet.records import ModelType
from callsheet.service import verdicts
from callsheet.service.client import Client
from callsheet.service.failures import transport_failures
from callsheet.service.transport import Unsent
from callsheet.service.verdicts import Verdict
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
from tests.service.asking import IMAGE, KEY, image, video
from tests.waiting import LONGEST

# ---- each error


def refusal(error_type: type[Refusal], status: int, retry_after: float | None = None) -> Refusal:
    error = error_type("no", status=status)
    if isinstance(error, RateLimit):
        error.retry_after = retry_after
    return error


SUBMIT: list[tuple[ServiceError, Verdict]] = [
    (NotSent("x"), Verdict.NOT_SENT),
    (MaybeSent("x"), Verdict.IN_DOUBT),
    (refusal(RateLimit, 429), Verdict.LANES_FULL),
    (refusal(RateLimit, 429, 0.0), Verdict.WINDOW_FULL),
    (refusal(RateLimit, 429, 2.0), Verdict.WINDOW_FULL),
    (refusal(InvalidParameter, 400), Verdict.REFUSED),
    (refusal(ParameterMissing, 400), Verdict.REFUSED),
    (refusal(InvalidApiKey, 401), Verdict.STOP_KEY),
    (refusal(QuotaExceeded, 402), Verdict.STOP_BALANCE),
    (refusal(NotFound, 404), Verdict.REFUSED),
    (refusal(ContentPolicyViolation, 422), Verdict.REFUSED),
    (refusal(ServerError, 500), Verdict.SAYS_NO),
    (refusal(ServerError, 503), Verdict.SAYS_NO),
    *((refusal(UnexpectedAnswer, n), Verdict.REFUSED) for n in (400, 403, 404, 409, 410, 413)),
    *((refusal(GatewayAnswer, n), Verdict.GATEWAY) for n in (302, 400, 403, 404, 409, 410, 413, 431)),
    *((refusal(GatewayAnswer, n), Verdict.IN_DOUBT) for n in (408, 500, 502, 503, 504, 520)),
    *((refusal(UnexpectedAnswer, n), Verdict.IN_DOUBT) for n in (408, 500, 502, 504, 520)),
]
ERRORS = [error for error, _ in SUBMIT]


@pytest.mark.parametrize("error, verdict", SUBMIT)
def test_verdict_on_the_error_of_a_submission(error: ServiceError, verdict: Verdict) -> None:
    assert verdicts.submit(error) is verdict


def test_a_poll_goes_on_unless_the_key_or_the_generation_is_unknown() -> None:
    verdict_of = {InvalidApiKey: Verdict.STOP_KEY, NotFound: Verdict.NOT_FOUND}
    for error in ERRORS:
        assert verdicts.poll(error) is verdict_of.get(type(error), Verdict.AGAIN)


DOWNLOAD_ERRORS: list[ServiceError | MediaError] = [*ERRORS, MediaError("short")]


@pytest.mark.parametrize("model_type", ModelType)
def test_only_403_404_and_410_say_that_a_file_is_gone(model_type: ModelType) -> None:
    for error in DOWNLOAD_ERRORS:
        gone = isinstance(error, Refusal) and error.status in {403, 404, 410}
        assert (verdicts.download(error, model_type) is Verdict.GONE) == gone


def test_a_video_is_polled_for_a_fresh_url_when_its_url_is_refused() -> None:
    for error in DOWNLOAD_ERRORS:
        refused = isinstance(error, Refusal) and error.status in {400, 401, 402}
        assert (verdicts.download(error, ModelType.VIDEO) is Verdict.RENEW) == refused
        assert verdicts.download(error, ModelType.IMAGE) is not Verdict.RENEW


def test_a_file_is_late_by_the_clock_of_the_service() -> None:
    deleted, now = datetime(2026, 1, 1, tzinfo=UTC), datetime.now(UTC)
    by_service = refusal(UnexpectedAnswer, 404)
    by_service.date = deleted.timestamp() - 1
    assert not verdicts.is_late(by_service, deleted)
    by_service.date += 1
    assert verdicts.is_late(by_service, deleted)
    assert verdicts.is_late(by_service, None) is False, "nobody knows when it is deleted"
    without_date = refusal(UnexpectedAnswer, 404)
    assert verdicts.is_late(without_date, now - timedelta(seconds=1))
    assert not verdicts.is_late(without_date, now + timedelta(hours=1))


def test_tests_need_not_wait_for_a_backoff() -> None:
    verdicts.set_backoff(first=0.01, longest=0.02)
    try:
        assert max(verdicts.backoff(tries, random.Random(7)) for tries in range(1, 50)) <= 0.02
    finally:
        verdicts.set_backoff()
    assert verdicts.backoff(1, random.Random(7)) >= 0.5


def test_backoff_doubles_up_to_a_minute_and_half_of_it_is_random() -> None:
    jitter = random.Random(7)
    for tries, whole in [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (8, 60), (10_000, 60)]:
        waits = [verdicts.backoff(tries, jitter) for _ in range(200)]
        assert whole / 2 <= min(waits) < whole * 0.55
        assert whole * 0.95 < max(waits) <= whole


@pytest.mark.parametrize(
    "error", [OSError("boom"), ConnectionRefusedError(), TimeoutError(), httpx.ReadError("boom")]
)
def test_an_error_of_the_transport_means_not_sent_only_where_the_transport_says_so(error: Exception) -> None:
    with pytest.raises(MaybeSent), transport_failures("GET /x"):
        raise error
    with pytest.raises(NotSent, match=type(error).__name__), transport_failures("GET /x"):
        raise Unsent from error


# ---- a submission to a real server

CUT_OFF = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + json.dumps(IMAGE).encode()[:100]
CASES: dict[str, tuple[Behaviour, Verdict]] = {
    "closed after the request was read": (close, Verdict.IN_DOUBT),
    "reset after the request was read": (reset, Verdict.IN_DOUBT),
    "read timed out": (silence, Verdict.IN_DOUBT),
    "garbled status line": (raw(b"HTTTP!\r\n\r\n"), Verdict.IN_DOUBT),
    "2xx cut off in the body": (raw(CUT_OFF), Verdict.IN_DOUBT),
    "2xx that is not JSON": (reply(200, b"{"), Verdict.IN_DOUBT),
    "2xx nested without end": (reply(200, b"[" * 100_000), Verdict.IN_DOUBT),
    "2xx that is not UTF-8": (reply(200, b'{"id": "\xff"}'), Verdict.IN_DOUBT),
    "2xx without a body": (reply(204), Verdict.IN_DOUBT),
    "2xx with a page": (page(200), Verdict.IN_DOUBT),
    "2xx that cannot be unpacked": (reply(200, b"?", {"Content-Encoding": "gzip"}), Verdict.IN_DOUBT),
    "2xx without an id": (json_reply({"status": "pending"}), Verdict.IN_DOUBT),
    "502 with a page": (page(502), Verdict.IN_DOUBT),
    "502 with the error body": (error_reply(502, "server_error"), Verdict.IN_DOUBT),
    "504 with a page": (page(504), Verdict.IN_DOUBT),
    "500 with a page": (page(500), Verdict.IN_DOUBT),
    "500 with the error body": (error_reply(500, "server_error"), Verdict.SAYS_NO),
    "503 with a page": (page(503), Verdict.IN_DOUBT),
    "503 with the error body": (error_reply(503, "server_error"), Verdict.SAYS_NO),
    "429": (error_reply(429, "rate_limit"), Verdict.LANES_FULL),
    "429 with Retry-After": (error_reply(429, "rate_limit", {"Retry-After": "7"}), Verdict.WINDOW_FULL),
    "400": (error_reply(400, "invalid_parameter"), Verdict.REFUSED),
    "401": (error_reply(401, "invalid_api_key"), Verdict.STOP_KEY),
    "402": (error_reply(402, "quota_exceeded"), Verdict.STOP_BALANCE),
    "404": (error_reply(404, "not_found"), Verdict.REFUSED),
    "422": (error_reply(422, "content_policy_violation"), Verdict.REFUSED),
    "redirect": (reply(302, b"", {"Location": "/elsewhere"}), Verdict.GATEWAY),
    "403 with a page": (page(403), Verdict.GATEWAY),
    "404 with a page": (page(404), Verdict.GATEWAY),
    "408 with a page": (page(408), Verdict.IN_DOUBT),
    "429 with a page": (page(429), Verdict.LANES_FULL),
}


def run(url: str, use: Callable[[Client], Awaitable[Any]], **timeouts: float) -> Any:
    async def scenario() -> Any:
        async with Client(url, KEY, **timeouts) as client:
            return await use(client)

    return asyncio.run(scenario())


@pytest.mark.parametrize("submit", [image, video])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("case", CASES)
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


def test_verdict_on_a_second_submission_over_the_same_connection() -> None:
    """A connection that worked once and breaks during the next request leaves that one in doubt."""

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


def test_a_proxy_that_refuses_to_connect_means_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(reply(403)) as proxy, pytest.raises(NotSent):
        monkeypatch.setenv("https_proxy", proxy.url)
        run("https://service.test", image)


def test_a_proxy_that_answers_502_leaves_the_submission_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(page(502)) as proxy, pytest.raises(UnexpectedAnswer) as caught:
        monkeypatch.setenv("http_proxy", proxy.url)
        run("http://service.test", image)
    assert verdicts.submit(caught.value) is Verdict.IN_DOUBT
