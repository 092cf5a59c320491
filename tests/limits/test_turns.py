"""Turns: first come, first served, and every lane that is taken comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.bench_limits import QUICK, SLOW
from benchmarks.simulated_service import Client, Scenario, Service, VirtualClock, run_virtual
from callsheet.limits.limits import AccountLimits, Turn
from callsheet.records import ModelType
from tests.limits.virtual_time import FIXED, IMAGE, VIDEO, let_others_run, now, sent, start_caller, virtual


@virtual
async def test_within_a_type_turns_are_first_come_first_served() -> None:
    limits, order = AccountLimits(concurrency=1, clock=VirtualClock()), []

    async def caller(number: int) -> None:
        async with sent(limits, IMAGE):
            order.append(number)
            await asyncio.sleep(0.1)

    await asyncio.gather(*(caller(number) for number in range(20)))
    assert order == list(range(20))


@virtual
async def test_a_lane_goes_to_the_type_that_has_waited_longer() -> None:
    limits, images, videos = AccountLimits(concurrency=1, clock=VirtualClock()), [], []
    for _ in range(5):
        start_caller(limits, IMAGE, images, lasts=1)
    await let_others_run()
    start_caller(limits, VIDEO, videos, lasts=1)
    for _ in range(5):
        start_caller(limits, IMAGE, images, lasts=1)
    await asyncio.sleep(30)
    assert videos == [pytest.approx(images[4] + 1)]
    assert len(images) == 10


@virtual
async def test_a_caller_that_is_cancelled_while_it_waits_uses_neither_a_lane_nor_the_window() -> None:
    limits, times = AccountLimits(image_rpm=3, concurrency=1, clock=VirtualClock()), []
    holder = start_caller(limits, IMAGE, times, lasts=10)
    await let_others_run()
    waiting = [start_caller(limits, IMAGE, times) for _ in range(5)]
    await let_others_run()
    for caller in (waiting[0], waiting[2], waiting[4]):  # the first of the queue among them
        caller.cancel()
    await asyncio.gather(holder, *waiting, return_exceptions=True)
    assert times == pytest.approx([0, 10, 10])
    assert limits.submissions == 3
    late = start_caller(limits, VIDEO, times)
    await late
    assert len(times) == 4


@virtual
async def test_a_caller_that_is_cancelled_at_the_moment_of_its_turn_gives_it_back() -> None:
    limits, times = AccountLimits(image_rpm=2, concurrency=1, clock=VirtualClock()), []
    async with sent(limits, IMAGE):
        caller = start_caller(limits, IMAGE, times)
        await let_others_run()
    assert limits.lanes.in_use == 1, "the turn is given, and the caller does not know it yet"
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    assert (limits.lanes.in_use, limits.submissions) == (0, 1)
    await start_caller(limits, IMAGE, times)
    assert times == [now()]


class Counted(AccountLimits):
    """Counts the lanes of its callers independently."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock=clock)
        self.held = 0
        self.differences: set[tuple[int, int]] = set()

    @asynccontextmanager
    async def turn(self, model_type: ModelType) -> AsyncGenerator[Turn, None]:
        async with super().turn(model_type) as turn:
            self.held += 1
            try:
                yield turn
            finally:
                self.held -= not turn.kept

    def release(self) -> None:
        super().release()
        self.held -= 1

    async def compare(self) -> None:
        """Compares twice a second, at ever other moments, when every caller that has its turn has begun."""
        while True:
            await asyncio.sleep(0.47)
            await let_others_run()
            if self.held != self.lanes.in_use:
                self.differences.add((self.held, self.lanes.in_use))


@settings(max_examples=25, deadline=None)
@given(
    shape=st.sampled_from(FIXED),
    images=st.integers(1, 400),
    videos=st.integers(1, 100),
    concurrency=st.integers(1, 60),
    seconds=st.sampled_from([QUICK, SLOW, (30.0, 90.0)]),
    round_up=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_lanes_in_use_are_those_of_the_callers_and_correct_headers_are_never_exceeded(
    shape: str,
    images: int,
    videos: int,
    concurrency: int,
    seconds: tuple[float, float],
    round_up: bool,
    seed: int,
) -> None:
    scenario = Scenario(
        shape, {IMAGE: images, VIDEO: videos}, concurrency, seconds, round_up=round_up, duration=150
    )

    async def main() -> tuple[Service, Counted]:
        service, limits = scenario.service(), Counted(clock=VirtualClock())
        comparing = asyncio.create_task(limits.compare())
        await Client(scenario, service, limits, seed).work(until=150)
        comparing.cancel()
        return service, limits

    service, limits = run_virtual(main())
    assert limits.differences == set()
    assert (limits.held, limits.lanes.in_use) == (0, 0)
    assert service.most_at_work <= concurrency
    assert service.refused.total() == limits.rate_limited
    # Only requests before the first answers, and a probe now and then, may be too many.
    assert service.refused["window"] <= 2 * 20
    assert service.refused["lanes"] <= 20
