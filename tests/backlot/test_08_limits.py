"""INTERFACE 8: rate windows, concurrency, their headers, and the guard of the other endpoints."""

from __future__ import annotations

import asyncio
import math
import time

import httpx
import pytest

from backlot.accounts import Window
from backlot.errors import Refused
from backlot.server import Backlot, serve
from backlot.settings import Settings

from .conftest import Account, Clock, draw, film, refused


def rate(answer: httpx.Response) -> tuple[int, int, int]:
    limit, remaining, reset = (
        answer.headers[f"X-RateLimit-{name}"] for name in ("Limit", "Remaining", "Reset")
    )
    return int(limit), int(remaining), int(reset)


def test_8_a_window_counts_down_refuses_and_opens_again(account: Account, clock: Clock) -> None:
    clock.now = math.ceil(clock.now / 60) * 60 + 12.25
    end = math.ceil(clock.now / 60) * 60
    api = account(image_rpm=3)
    assert [rate(draw(api)) for _ in range(3)] == [(3, 2, end), (3, 1, end), (3, 0, end)]
    answer = draw(api)
    refused(answer, 429, "rate_limit")
    assert rate(answer) == (3, 0, end)
    assert answer.headers["Retry-After"] == "48"  # 47.75 seconds, rounded up
    clock.now = end - 0.01
    assert draw(api).headers["Retry-After"] == "1"
    clock.now = end
    assert rate(draw(api)) == (3, 2, end + 60)


def test_8_images_and_videos_have_windows_of_their_own(account: Account) -> None:
    api = account(image_rpm=1, video_rpm=1)
    assert draw(api).status_code == 200
    assert film(api).status_code == 202
    refused(draw(api), 429, "rate_limit")
    refused(film(api), 429, "rate_limit")


@pytest.mark.parametrize("seconds", [1, 2, 7, 60])
@pytest.mark.parametrize("start", [0.0, 0.001, 12.5, 59.999, 1773144000.75])
def test_8_who_waits_as_told_is_never_early(seconds: int, start: float) -> None:
    for wait in ("Retry-After", "X-RateLimit-Reset"):
        window = Window(limit=1, seconds=seconds)
        window.check(start)
        window.used = 1
        with pytest.raises(Refused) as full:
            window.check(start)
        told = int((full.value.headers | window.headers(start))[wait])
        window.check(told if wait == "X-RateLimit-Reset" else start + told)


def test_8_full_lanes_give_429_without_retry_after(account: Account, clock: Clock) -> None:
    api = account(concurrency=2)
    film(api)
    film(api)
    answer = film(api)
    error = refused(answer, 429, "rate_limit")
    assert "Retry-After" not in answer.headers
    assert "oncurrent" in error["message"]
    assert rate(answer)[1] == rate(film(api))[1]  # a refusal takes no place in the window
    clock.now += 10
    assert film(api).status_code == 202


def test_8_parallel_requests_pass_neither_the_window_nor_the_lanes() -> None:
    """60 videos at once, four times, against 25 a window and 10 lanes that are free again each time."""

    async def burst(base_url: str) -> list[httpx.Response]:
        headers = {"Authorization": "Bearer sk_backlot"}
        async with httpx.AsyncClient(base_url=base_url, headers=headers) as api:
            body = {"model": "reel-1", "prompt": "a fox"}
            return await asyncio.gather(*(api.post("/v2/videos/generations", json=body) for _ in range(60)))

    clock = Clock()
    with serve(Settings(port=0, video_seconds=5, video_rpm=25, concurrency=10), clock) as running:
        accepted = []
        for _ in range(4):
            answers = asyncio.run(burst(running.base_url))
            accepted.append(sum(answer.status_code == 202 for answer in answers))
            clock.now += 5
    assert accepted == [10, 10, 5, 0]


def test_8_reads_do_not_count_against_generations_and_are_guarded_generously() -> None:
    with serve(Settings(port=0, read_rpm=5, image_seconds=0)) as running:
        api = httpx.Client(base_url=running.base_url, headers={"Authorization": "Bearer sk_backlot"})
        while time.time() % 60 > 58:  # do not straddle two windows
            time.sleep(0.1)
        before = rate(draw(api))[1]
        answers = [api.get("/v2/billing/balance") for _ in range(8)]
        assert [answer.status_code for answer in answers] == [200] * 5 + [429] * 3
        refused(answers[-1], 429, "rate_limit")
        assert 0 < int(answers[-1].headers["Retry-After"]) <= 60
        assert rate(draw(api))[1] == before - 1


def test_8_a_server_at_work_answers_others_at_once(backlot: Backlot, account: Account) -> None:
    """While a 4K picture and a film are being made in the workers, the balance is read in milliseconds."""
    api = account()
    picture = draw(api, resolution="4K", prompt=f"a mountain {time.time()}").json()["data"][0]["url"]

    async def both() -> list[float]:
        async with httpx.AsyncClient(headers=api.headers, timeout=60) as client:
            drawing = asyncio.create_task(client.get(picture))
            waits = []
            while not drawing.done():
                start = time.perf_counter()
                await client.get(f"{backlot.base_url}/v2/billing/balance")
                waits.append(time.perf_counter() - start)
                await asyncio.sleep(0.002)
            assert drawing.result().status_code == 200
            return waits

    waits = sorted(asyncio.run(both()))
    assert waits[len(waits) // 2] < 0.05
