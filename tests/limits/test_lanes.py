"""Lanes: they ramp, latch and probe, and videos keep theirs until they are finished."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.simulated_service import VirtualClock
from callsheet.limits.limits import FIRST_LANES, PROBE, RAMP_MOST, AccountLimits, Lanes
from tests.limits.virtual_time import IMAGE, VIDEO, let_others_run, now, sent, start_caller, virtual


@virtual
async def test_before_the_first_answer_the_ramp_does_not_begin() -> None:
    """A gateway that loses every answer costs the first lanes, not the batch."""
    limits, times = AccountLimits(clock=VirtualClock()), []
    for _ in range(20):
        start_caller(limits, IMAGE, times, lasts=100)
    await asyncio.sleep(90)
    assert len(times) == FIRST_LANES


@virtual
async def test_lanes_ramp_only_while_a_caller_waits_for_one() -> None:
    limits, times = AccountLimits(clock=VirtualClock()), []
    limits.lanes.proven = True
    for _ in range(FIRST_LANES - 1):
        start_caller(limits, IMAGE, times, lasts=100)
    await asyncio.sleep(10)
    assert limits.learned().lanes == FIRST_LANES
    for _ in range(20):
        start_caller(limits, IMAGE, times, lasts=100)
    await asyncio.sleep(3)
    assert len(times) == FIRST_LANES - 1 + 20
    assert limits.learned().lanes < len(times) + RAMP_MOST


@virtual
async def test_the_ramp_waits_for_requests_that_have_not_left() -> None:
    """On a busy machine a request waits for the ledger before it leaves."""
    limits, left = AccountLimits(clock=VirtualClock()), []
    limits.lanes.proven = True

    async def caller() -> None:
        async with limits.turn(IMAGE) as turn:
            await asyncio.sleep(5)
            left.append(now())
            turn.leaves()
            await asyncio.sleep(100)

    callers = [asyncio.create_task(caller()) for _ in range(50)]
    await asyncio.sleep(4)
    assert (len(left), limits.lanes.in_use) == (0, FIRST_LANES)
    await asyncio.sleep(5)
    assert (len(left), limits.lanes.in_use) == (FIRST_LANES, FIRST_LANES + RAMP_MOST)
    for each in callers:
        each.cancel()


def test_lanes_latch_at_the_number_that_was_accepted_and_probe_once_a_minute() -> None:
    lanes = Lanes(size=55, in_use=55)  # 50 fit, five more have just been sent
    for _ in range(5):
        lanes.refused(0.0)
        lanes.in_use -= 1
    assert (lanes.size, lanes.in_use, lanes.latched) == (50, 50, True)
    assert lanes.wait(0.0) == PROBE
    lanes.take(PROBE)
    assert lanes.size == 51
    lanes.refused(PROBE)
    lanes.in_use -= 1
    assert lanes.wait(PROBE) == 2 * PROBE  # refused: the next probe comes later
    lanes.take(3 * PROBE)
    assert lanes.wait(3 * PROBE) == PROBE  # accepted: the next one is larger
    lanes.take(4 * PROBE)
    assert lanes.size == 53


@virtual
async def test_a_video_keeps_its_lane_until_it_is_released() -> None:
    limits, times = AccountLimits(concurrency=3, clock=VirtualClock()), []
    limits.adopt(2)
    async with sent(limits, VIDEO) as turn:
        turn.keep()
    start_caller(limits, IMAGE, times)
    await asyncio.sleep(300)
    assert times == []
    limits.release()
    await let_others_run()
    assert times == [300.0]


@virtual
async def test_a_video_that_is_given_up_keeps_its_lane_only_where_the_config_limits_them() -> None:
    for cap, turns in (2, 0), (3, 1), (None, 1):
        limits, times = AccountLimits(concurrency=cap, clock=VirtualClock()), []
        limits.adopt(2)
        limits.give_up()
        limits.give_up()
        assert not limits.blocked(0), "no caller waits"
        waiting = start_caller(limits, IMAGE, times)
        await let_others_run()
        assert (len(times), limits.blocked(1e9)) == (turns, turns == 0)
        waiting.cancel()


@virtual
async def test_a_caller_is_blocked_when_others_have_had_every_lane_for_long() -> None:
    limits, tries = AccountLimits(clock=VirtualClock()), []

    async def refused_until(moment: float) -> None:
        while True:
            async with sent(limits, IMAGE) as turn:
                tries.append(now())
                if now() >= moment:
                    return
                turn.lanes_full()

    caller = asyncio.create_task(refused_until(400))
    await asyncio.sleep(299)
    assert not limits.blocked(300)
    await asyncio.sleep(2)
    assert limits.blocked(300)
    await caller
    waiting = asyncio.create_task(refused_until(1000))
    await asyncio.sleep(299)
    assert not limits.blocked(300), "one was accepted in between"
    assert len(tries) < 100
    waiting.cancel()


@virtual
async def test_a_caller_that_waits_for_its_window_is_not_blocked() -> None:
    limits, times = AccountLimits(image_rpm=1, clock=VirtualClock()), []
    for _ in range(3):
        start_caller(limits, IMAGE, times)
    await asyncio.sleep(59)
    assert (len(times), limits.blocked(0)) == (1, False)


@virtual
async def test_after_a_refusal_the_next_caller_waits_until_one_of_our_videos_is_finished() -> None:
    limits, times = AccountLimits(clock=VirtualClock()), []
    limits.adopt(20)
    for _ in range(2):
        start_caller(limits, IMAGE, times)
        await asyncio.sleep(1)
    async with sent(limits, IMAGE) as turn:
        turn.lanes_full()
    start_caller(limits, IMAGE, times)
    await asyncio.sleep(PROBE / 2)
    assert len(times) == 2
    limits.release()
    await let_others_run()
    assert len(times) == 3


@virtual
async def test_while_others_have_every_lane_one_try_is_made_after_growing_waits() -> None:
    limits, times = AccountLimits(clock=VirtualClock()), []
    for _ in range(4):
        async with sent(limits, IMAGE) as turn:
            times.append(now())
            turn.lanes_full()
    assert times == pytest.approx([0, 1, 2, 4])
    async with sent(limits, IMAGE):
        assert now() == pytest.approx(8)  # accepted: the waits begin again
    async with sent(limits, IMAGE) as turn:
        turn.lanes_full()
    async with sent(limits, IMAGE):
        assert now() == pytest.approx(9)
