"""DESIGN's table of verdicts, row by row, for errors as the client raises them (see `test_client`)."""

from __future__ import annotations

import random

import pytest

from callsheet.errors import (
    ContentPolicyViolation,
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
from callsheet.service import verdicts
from callsheet.service.verdicts import Verdict


def refusal(kind: type[Refusal], status: int) -> Refusal:
    return kind("no", status=status)


def rate_limit(retry_after: float | None) -> RateLimit:
    error = RateLimit("slower", status=429)
    error.retry_after = retry_after
    return error


ALL = [
    NotSent("x"),
    MaybeSent("x"),
    rate_limit(None),
    rate_limit(2.0),
    rate_limit(0.0),
    refusal(InvalidParameter, 400),
    refusal(ParameterMissing, 400),
    refusal(InvalidApiKey, 401),
    refusal(QuotaExceeded, 402),
    refusal(NotFound, 404),
    refusal(ContentPolicyViolation, 422),
    refusal(ServerError, 500),
    refusal(ServerError, 503),
    *(
        refusal(UnexpectedAnswer, status)
        for status in (302, 400, 403, 404, 405, 408, 409, 410, 413, 500, 502, 504, 520)
    ),
]


@pytest.mark.parametrize(
    "error, verdict",
    list(
        zip(
            ALL,
            [
                Verdict.NOT_SENT,
                Verdict.IN_DOUBT,
                Verdict.LANES_FULL,
                Verdict.WINDOW_FULL,
                Verdict.WINDOW_FULL,
                Verdict.REFUSED,
                Verdict.REFUSED,
                Verdict.STOP_KEY,
                Verdict.STOP_BALANCE,
                Verdict.REFUSED,
                Verdict.REFUSED,
                Verdict.SAYS_NO,
                Verdict.SAYS_NO,
                *[Verdict.REFUSED] * 5,
                Verdict.IN_DOUBT,  # 408
                *[Verdict.REFUSED] * 3,
                *[Verdict.IN_DOUBT] * 4,
            ],
            strict=True,
        )
    ),
)
def test_submit(error: ServiceError, verdict: Verdict) -> None:
    assert verdicts.submit(error) is verdict


def test_a_poll_goes_on_unless_the_key_or_the_generation_is_unknown() -> None:
    special = {InvalidApiKey: Verdict.STOP_KEY, NotFound: Verdict.NOT_FOUND}
    assert [verdicts.poll(error) for error in ALL] == [
        special.get(type(error), Verdict.AGAIN) for error in ALL
    ]


def test_a_download_goes_on_unless_the_url_is_gone() -> None:
    for error in ALL:
        gone = isinstance(error, Refusal) and error.status in {403, 404, 410}
        other = Verdict.STOP_KEY if isinstance(error, InvalidApiKey) else Verdict.AGAIN
        assert verdicts.download(error) is (Verdict.GONE if gone else other)
    assert verdicts.download(MediaError("short")) is Verdict.AGAIN


def test_backoff_doubles_up_to_a_minute_and_half_of_it_is_chance() -> None:
    jitter = random.Random(7)
    for tries, whole in [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (8, 60), (10_000, 60)]:
        waits = [verdicts.backoff(tries, jitter) for _ in range(200)]
        assert whole / 2 <= min(waits) < whole * 0.55
        assert whole * 0.95 < max(waits) <= whole
