"""Requests per window: the count is the service's, and every send is accounted for."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from benchmarks.bench_limits import QUICK
from benchmarks.simulated_service import (
    BEGIN,
    SHAPES,
    Client,
    Scenario,
    VirtualClock,
    run_virtual,
    unix,
)
from callsheet.limits.limits import AccountLimits
from callsheet.limits.pace import WINDOW
from callsheet.records import ModelType
from tests.limits.virtual_time import IMAGE, VIDEO, let_others_run, now, sent, start_caller, virtual


@virtual
async def test_the_services_count_is_used_and_restarts_at_the_reset() -> None:
    limits, times = AccountLimits(clock=VirtualClock()), []
    async with sent(limits, IMAGE) as turn:
        turn.answered((100, 97, int(BEGIN) + 30, BEGIN))  # two of the three are of other clients
    for _ in range(200):
        start_caller(limits, IMAGE, times)
    await asyncio.sleep(25)
    assert len(times) == 97
    await asyncio.sleep(7)
    assert len(times) > 97


@virtual
async def test_of_answers_in_another_order_the_one_to_the_last_send_is_used() -> None:
    limits, times = AccountLimits(clock=VirtualClock()), []
    async with sent(limits, IMAGE) as first, sent(limits, IMAGE) as second:
        second.answered((10, 2, int(BEGIN) + 30, None))
        first.answered((10, 9, int(BEGIN) + 30, None))
        for _ in range(5):
            start_caller(limits, IMAGE, times)
        await asyncio.sleep(20)
        assert len(times) == 2


@virtual
async def test_an_unsent_request_does_not_count_and_one_that_was_cut_off_does() -> None:
    limits, times = AccountLimits(image_rpm=2, clock=VirtualClock()), []
    async with sent(limits, IMAGE) as turn:
        turn.unsent()
    with pytest.raises(ConnectionError):
        async with sent(limits, IMAGE):
            raise ConnectionError
    start_caller(limits, IMAGE, times)
    start_caller(limits, IMAGE, times)
    await asyncio.sleep(50)
    assert (len(times), limits.submissions) == (1, 2)
    await asyncio.sleep(15)
    assert len(times) == 2


@virtual
async def test_a_request_that_turns_out_unsent_after_minutes_does_not_count() -> None:
    limits, times = AccountLimits(clock=VirtualClock()), []
    async with sent(limits, IMAGE) as turn:
        await asyncio.sleep(500)
        await start_caller(limits, IMAGE, times)
        turn.unsent()
    assert (len(times), limits.submissions, limits.lanes.in_use) == (1, 1, 0)


@virtual
async def test_a_full_window_waits_for_retry_after_and_longer_when_that_was_not_enough() -> None:
    limits, times = AccountLimits(clock=VirtualClock()), []
    for _ in range(2):
        async with sent(limits, IMAGE) as turn:
            times.append(now())
            turn.window_full(retry_after=7)
    start_caller(limits, IMAGE, times)
    await asyncio.sleep(60)
    assert times == pytest.approx([0, 7, 7 + 14], abs=0.01)
    assert (limits.rate_limited, limits.submissions) == (2, 3)


@virtual
async def test_a_type_that_waits_for_its_window_does_not_block_the_other() -> None:
    limits, images, videos = AccountLimits(clock=VirtualClock()), [], []
    async with sent(limits, VIDEO) as turn:
        turn.window_full(retry_after=40)
    start_caller(limits, VIDEO, videos)
    await let_others_run()
    start_caller(limits, IMAGE, images)
    await asyncio.sleep(60)
    assert (images, videos) == (pytest.approx([0.0]), pytest.approx([40.0]))


@virtual
async def test_a_type_whose_window_ends_first_goes_first() -> None:
    limits, images, videos = AccountLimits(clock=VirtualClock()), [], []
    for model_type, seconds in ((VIDEO, 40), (IMAGE, 10)):
        async with sent(limits, model_type) as turn:
            turn.window_full(retry_after=seconds)
    start_caller(limits, VIDEO, videos)
    await let_others_run()
    start_caller(limits, IMAGE, images)
    await asyncio.sleep(60)
    assert (images, videos) == (pytest.approx([10.0]), pytest.approx([40.0]))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_limits_of_the_config_are_never_exceeded(shape: str) -> None:
    async def main() -> tuple[Counter[ModelType], int, int]:
        scenario = Scenario(shape, {IMAGE: 600, VIDEO: 600}, 100, QUICK, duration=300)
        service = scenario.service()
        limits = AccountLimits(image_rpm=30, video_rpm=12, concurrency=5, clock=VirtualClock())
        await Client(scenario, service, limits, seed=1).work(until=300)
        return service.accepted, service.most_at_work, limits.rate_limited

    accepted, most_at_work, rate_limited = run_virtual(main())
    assert 5 * 28 <= accepted[IMAGE] <= 6 * 30  # five minutes touch six windows
    assert 5 * 11 <= accepted[VIDEO] <= 6 * 12
    assert (most_at_work, rate_limited) == (5, 0)


@pytest.mark.parametrize("shape", SHAPES)
def test_at_no_moment_is_the_time_left_off_by_more_than_a_window(shape: str) -> None:
    """And the count that is shown beside it is never above the limit."""
    jobs, limit = 100, 20
    looks: list[tuple[float, int, float | None, int]] = []

    async def main() -> list[float]:
        scenario = Scenario(shape, {IMAGE: limit}, 100, QUICK, duration=400)
        limits = AccountLimits(clock=VirtualClock())
        client = Client(scenario, scenario.service(), limits, seed=1)

        async def look() -> None:
            while True:
                pace, at = limits.paces[IMAGE], limits.now()
                left = jobs - len(client.accepted_at)
                looks.append((unix(), left, pace.seconds_for(left, at), pace.in_window(at)))
                await asyncio.sleep(1)

        looking = asyncio.create_task(look())
        await client.work(until=400)
        looking.cancel()
        return client.accepted_at

    ended = run_virtual(main())[jobs - 1]
    known = [(at, left, seconds) for at, left, seconds, _ in looks if seconds is not None and left > 0]
    assert len(known) > 200
    assert (
        max(abs(at + seconds - ended) for at, _, seconds in known) <= WINDOW + 2
    )  # the answers take a while
    assert max(count for *_, count in looks) <= limit
