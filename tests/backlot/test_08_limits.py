"""INTERFACE 8: rate windows, concurrency, their headers, and the limit of the other endpoints."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import Any

import httpx
import pytest

from backlot.accounts import Window
from backlot.errors import Refused
from backlot.server import serve
from backlot.settings import Settings
from tests.servers import http

from .conftest import Account, Clock, client, make_image, make_video, refused


def rate(answer: httpx.Response) -> tuple[int, int, int]:
    limit, remaining, reset = (
        answer.headers[f"X-RateLimit-{name}"] for name in ("Limit", "Remaining", "Reset")
    )
    return int(limit), int(remaining), int(reset)


def test_8_a_full_window_refuses_until_it_resets(account: Account, clock: Clock) -> None:
    clock.now = math.ceil(clock.now / 60) * 60 + 12.25
    end = math.ceil(clock.now / 60) * 60
    api = account(image_rpm=3)
    assert [rate(make_image(api)) for _ in range(3)] == [(3, 2, end), (3, 1, end), (3, 0, end)]
    answer = make_image(api)
    refused(answer, 429, "rate_limit")
    assert rate(answer) == (3, 0, end)
    assert answer.headers["Retry-After"] == "48"  # 47.75 seconds, rounded up
    clock.now = end - 0.01
    assert make_image(api).headers["Retry-After"] == "1"
    clock.now = end
    assert rate(make_image(api)) == (3, 2, end + 60)


def test_8_images_and_videos_have_separate_windows(account: Account) -> None:
    api = account(image_rpm=1, video_rpm=1)
    assert make_image(api).status_code == 200
    assert make_video(api).status_code == 202
    refused(make_image(api), 429, "rate_limit")
    refused(make_video(api), 429, "rate_limit")


@pytest.mark.parametrize("start", [0.0, 0.001, 12.5, 59.999, 1773144000.75])
def test_8_a_client_that_waits_as_the_headers_say_is_never_early(start: float) -> None:
    for seconds in (1, 2, 7, 60):
        window = Window(limit=1, seconds=seconds)
        window.check(start)
        window.used = 1
        with pytest.raises(Refused) as full:
            window.check(start)
        for opens in (
            start + int(full.value.headers["Retry-After"]),
            int(window.headers(start)["X-RateLimit-Reset"]),
        ):
            replace(window).check(opens)


def test_8_the_concurrency_limit_gives_429_without_retry_after(account: Account, clock: Clock) -> None:
    """A pending video takes a concurrent place, which images need too, until it is finished."""
    api = account(concurrency=2)
    make_video(api)
    make_video(api)
    answer = make_video(api)
    error = refused(answer, 429, "rate_limit")
    assert "Retry-After" not in answer.headers
    assert "oncurrent" in error["message"]
    assert rate(answer)[1] == rate(make_video(api))[1]  # a refusal takes no place in the window
    refused(make_image(api), 429, "rate_limit")
    clock.now += 10
    assert make_image(api).status_code == 200
    assert make_video(api).status_code == 202


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"video_rpm": 25, "concurrency": 10}, [10, 10, 5, 0]),
        ({"balance": "4.9900", "video_rpm": 1000, "concurrency": 1000}, [19, 0, 0, 0]),  # at 0.25
    ],
    ids=["window-and-concurrency", "balance"],
)
def test_8_parallel_requests_exceed_no_limit(limits: dict[str, Any], expected: list[int]) -> None:
    """60 videos at once, four times, which are finished each time."""

    async def burst(base_url: str) -> list[httpx.Response]:
        headers = {"Authorization": "Bearer sk_backlot"}
        async with http.AsyncClient(base_url=base_url, headers=headers) as api:
            body = {"model": "reel-1", "prompt": "a fox"}
            return await asyncio.gather(*(api.post("/v2/videos/generations", json=body) for _ in range(60)))

    clock = Clock()
    with serve(Settings(port=0, video_seconds=5, **limits), clock) as running:
        accepted = []
        for _ in range(4):
            answers = asyncio.run(burst(running.base_url))
            accepted.append(sum(answer.status_code == 202 for answer in answers))
            clock.now += 5
    assert accepted == expected


def test_8_reads_do_not_count_as_generations_and_have_a_generous_limit() -> None:
    with serve(Settings(port=0, read_rpm=5, image_seconds=0), Clock()) as running:
        api = client(running.base_url)
        before = rate(make_image(api))[1]
        answers = [api.get("/v2/billing/balance") for _ in range(8)]
        assert [answer.status_code for answer in answers] == [200] * 5 + [429] * 3
        refused(answers[-1], 429, "rate_limit")
        assert answers[-1].headers["Retry-After"] == "60"
        assert rate(make_image(api))[1] == before - 1
