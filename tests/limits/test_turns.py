"""Turns: first come, first served, and every lane that is taken comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.bench_limits import QUICK, SLOW
from benchmarks.simulated_service import (
    Client,
    Scenario,
    Service,
    VirtualClock,
    run_virtual,
    unix,
)
from callsheet.limits.lanes import PROBE, SETTLING
from callsheet.limits.pace import COUNTED_FOR, Shape, Window
from callsheet.limits.turns import Learned, Limits, Turn
from callsheet.records import ModelType
from tests.limits.virtual_time import FIXED, IMAGE, VIDEO, let_others_run, now, sent, start_caller, virtual


@virtual
async def test_within_a_type_turns_are_first_come_first_served() -> None:
    limits, order = Limits(concurrency=1, clock=VirtualClock()), []

    async def caller(number: int) -> None:
        async with sent(limits, IMAGE):
            order.append(number)
            await asyncio.sleep(0.1)

    await asyncio.gather(*(caller(number) for number in range(20)))
    assert order == list(range(20))


@virtual
async def test_a_lane_goes_to_the_type_that_has_waited_longer() -> None:
    limits, images, videos = Limits(concurrency=1, clock=VirtualClock()), [], []
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
    limits, times = Limits(image_rpm=3, concurrency=1, clock=VirtualClock()), []
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
    limits, times = Limits(image_rpm=2, concurrency=1, clock=VirtualClock()), []
    async with sent(limits, IMAGE):
        caller = start_caller(limits, IMAGE, times)
        await let_others_run()
    assert limits.lanes.in_use == 1, "the turn is given, and the caller does not know it yet"
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    assert (limits.lanes.in_use, limits.submissions) == (0, 1)
    await start_caller(limits, IMAGE, times)
    assert times == [now()]


class Counted(Limits):
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


@virtual
async def test_runs_that_share_the_limits_use_their_part_of_them() -> None:
    limits, times = Limits(clock=VirtualClock()), []
    limits.lanes.size, limits.lanes.latched = 40, True
    async with sent(limits, IMAGE) as turn:
        turn.answered(13, 12, int(unix()) + 60)
    limits.share(4)
    callers = [start_caller(limits, IMAGE, times, lasts=1) for _ in range(12)]
    await let_others_run()
    assert len(times) == 0, "of the lanes that others have had until now, none is free yet"
    await asyncio.sleep(SETTLING)
    assert len(times) == 3, "a quarter of the window"
    assert (limits.lanes.size, limits.learned().lanes) == (10, 40)
    for caller in callers:
        caller.cancel()
    limits.share(1)
    async with sent(limits, IMAGE) as turn:
        callers = [start_caller(limits, IMAGE, times, lasts=1) for _ in range(8)]
        await let_others_run()
        assert len(times) == 3, "the others may have sent theirs: one asks"
        turn.answered(13, 13 - 5, int(unix()) + 60)
    await asyncio.gather(*callers)
    assert len(times) == 3 + 8, "the others have ended"


@virtual
async def test_what_was_sent_before_the_runs_shared_the_window_is_nobodys_part() -> None:
    limits, times = Limits(clock=VirtualClock()), []
    limits.paces[IMAGE].limit, limits.paces[IMAGE].answered = 12, True
    callers = [start_caller(limits, IMAGE, times, lasts=1) for _ in range(4)]
    await asyncio.gather(*callers)
    limits.share(2)
    callers = [start_caller(limits, IMAGE, times, lasts=1) for _ in range(8)]
    await let_others_run()
    assert len(times) == 4 + 4, "half of the eight that are left"
    limits.share(3)
    await let_others_run()
    assert len(times) == 4 + 4, "the other run has sent as many, unless an answer says otherwise"
    await asyncio.sleep(2 * COUNTED_FOR)
    assert len(times) == 4 + 4 + 4, "a third of a new window"
    for caller in callers:
        caller.cancel()


@virtual
async def test_what_runs_that_have_ended_did_not_use_is_for_the_others() -> None:
    limits, times = Limits(clock=VirtualClock()), []
    limits.paces[IMAGE].limit, limits.paces[IMAGE].answered = 12, True
    limits.share(3)
    callers = [start_caller(limits, IMAGE, times, lasts=1) for _ in range(3)]
    await let_others_run()
    async with sent(limits, IMAGE) as turn:
        turn.answered(12, 12 - 6, int(unix()) + 60)
    callers += [start_caller(limits, IMAGE, times, lasts=1) for _ in range(8)]
    await let_others_run()
    assert len(times) == 3, "with the turn, a third of the window"
    limits.share(2)
    await let_others_run()
    assert len(times) == 3 + 3, "half of what is left"
    for caller in callers:
        caller.cancel()


@virtual
async def test_how_a_window_moves_is_heard_from_another_run() -> None:
    first, other = Limits(clock=VirtualClock()), Limits(clock=VirtualClock())
    ends, times = int(unix()) + 30, []
    for limits in (first, other):
        limits.paces[IMAGE].limit, limits.paces[IMAGE].reset = 4, ends
    async with sent(other, IMAGE) as turn:
        turn.answered(4, 3, ends)
    callers = [start_caller(other, IMAGE, times) for _ in range(8)]
    await let_others_run()
    assert len(times) == 3
    first.paces[IMAGE].shape = Shape.FIXED
    other.hear(first.learned())
    await asyncio.sleep(35)
    assert len(times) == 3 + 4, "a window later, not 60 s after the first four"
    for caller in callers:
        caller.cancel()


@virtual
async def test_a_run_that_took_a_bucket_for_a_sliding_window_hears_that_it_is_one() -> None:
    first, other, times = Limits(clock=VirtualClock()), Limits(clock=VirtualClock()), []
    for limits, shape in ((first, Shape.BUCKET), (other, Shape.SLIDING)):
        limits.paces[IMAGE].limit, limits.paces[IMAGE].shape = 4, shape
        limits.paces[IMAGE].reset = int(unix()) + 60
    async with sent(other, IMAGE) as turn:
        turn.answered(4, 3, int(unix()) + 60)
    callers = [start_caller(other, IMAGE, times) for _ in range(8)]
    await asyncio.sleep(10)
    assert len(times) == 3
    assert first.hear(other.learned()), "it knows better"
    assert not other.hear(first.learned())
    await asyncio.sleep(35)
    assert len(times) == 3 + 2, "one each 15 s, and not four after a minute"
    for caller in callers:
        caller.cancel()


@virtual
async def test_a_runs_part_of_a_bucket_that_others_have_filled_comes_one_by_one() -> None:
    limits, times = Limits(clock=VirtualClock()), []
    limits.paces[IMAGE].shape = Shape.BUCKET
    limits.share(2)
    async with sent(limits, IMAGE) as turn:
        turn.answered(60, 0, int(unix()) + 60)
        turn.window_full(1)
    callers = [start_caller(limits, IMAGE, times) for _ in range(30)]
    await asyncio.sleep(20)
    assert len(times) > 8
    assert min(later - earlier for earlier, later in pairwise(times)) >= 2, "half of one a second"
    for caller in callers:
        caller.cancel()


@virtual
async def test_a_run_that_joins_takes_its_part_of_what_the_others_have_left() -> None:
    """What the first run remembers is seconds old; the ledger has what all have sent since."""
    times, minute = [], int(unix())
    begun = Window(limit=200, used=80, reset=minute + 50, shape=Shape.FIXED, margin=1.05, sent=[[minute, 80]])
    limits = Limits(remembered=Learned(200, latched=True, windows={IMAGE: begun}), clock=VirtualClock())
    before, since = [(IMAGE, minute - 10.5)] * 50, [(IMAGE, minute - 1.0)] * 181
    limits.found(before + since)
    limits.share(4)
    limits.lanes.size = 200
    callers = [start_caller(limits, IMAGE, times, lasts=100) for _ in range(40)]
    await asyncio.sleep(20)
    assert len(times) == 5, "a quarter of the 19 that are left"
    for caller in callers:
        caller.cancel()


@virtual
async def test_a_run_that_joins_when_the_window_is_full_asks_after_the_reset_and_sees_that_it_restarts() -> (
    None
):
    ends, times = int(unix()) + 20, []
    full = Window(
        limit=200, used=200, reset=ends, shape=Shape.UNKNOWN, margin=1.05, sent=[[int(unix()), 200]]
    )
    limits = Limits(remembered=Learned(200, latched=True, windows={IMAGE: full}), clock=VirtualClock())
    limits.share(4)
    callers = []
    async with sent(limits, IMAGE) as turn:
        assert 20 < now() < 25
        callers += [start_caller(limits, IMAGE, times, lasts=100) for _ in range(5)]
        await asyncio.sleep(2)
        assert times == [], "one alone asks"
        turn.answered(200, 200 - 130, ends + 60)  # the others have been quicker
    await let_others_run()
    assert limits.paces[IMAGE].shape is Shape.FIXED
    assert len(times) == 5
    for caller in callers:
        caller.cancel()


@virtual
async def test_lanes_that_others_give_up_are_taken_little_by_little() -> None:
    limits, times = Limits(clock=VirtualClock()), []
    limits.lanes.size, limits.lanes.latched = 40, True
    limits.share(4)
    callers = [start_caller(limits, IMAGE, times, lasts=100) for _ in range(10)]
    for lanes in range(1, 11):
        await asyncio.sleep(SETTLING / 10)
        await let_others_run()
        assert len(times) == lanes
    limits.share(5)
    await asyncio.gather(*callers)
    assert len(times) == 10, "those that it has are its own"


@virtual
async def test_runs_that_share_the_lanes_look_for_one_more_at_a_time() -> None:
    limits, times = Limits(clock=VirtualClock()), []
    limits.lanes.size, limits.lanes.latched = 4, True
    limits.share(4)
    callers = [start_caller(limits, IMAGE, times, lasts=1000) for _ in range(9)]
    await asyncio.sleep(SETTLING + (4 * 3 + 2) * PROBE)
    assert limits.lanes.size == 1 + 4, "one at once, and one in four minutes"
    for caller in callers:
        caller.cancel()


@virtual
async def test_lanes_that_others_still_have_are_this_runs_a_little_later() -> None:
    limits = Limits(clock=VirtualClock())
    limits.lanes.size, limits.lanes.latched = 40, True
    limits.share(4)
    for later in (10, 1):  # the second refusal is long after the others have given them back
        async with sent(limits, IMAGE) as turn:
            turn.lanes_full()
        assert limits.lanes.size == 1
        await asyncio.sleep(20)
        async with sent(limits, IMAGE) as turn:
            turn.unsent()
        assert limits.lanes.size == later


@virtual
async def test_a_refusal_before_others_have_given_their_lanes_back_makes_no_part_smaller() -> None:
    limits = Limits(clock=VirtualClock())
    limits.lanes.size, limits.lanes.latched = 48, True
    limits.share(2)
    async with sent(limits, IMAGE) as turn:
        turn.lanes_full()
    assert limits.lanes.size == 1
    limits.share(4)
    await asyncio.sleep(SETTLING)
    async with sent(limits, IMAGE) as turn:
        turn.unsent()
    assert limits.lanes.size == 12, "a quarter"
