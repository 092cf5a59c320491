"""Limits: as fast as the account allows, almost without a 429, and every lane and send accounted for.

All of it runs in virtual time, against the simulated service of `benchmarks/bench_limits.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial, wraps
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.bench_limits import (
    BEGIN,
    METERS,
    QUICK,
    SHAPES,
    SLOW,
    Crew,
    FixedWindow,
    Scenario,
    Service,
    VirtualClock,
    run_virtual,
    simulate,
)
from callsheet.limits.limits import FIRST_LANES, PROBE, RAMP_MOST, Lanes, Learned, Limits, Turn
from callsheet.limits.pace import UNTOLD
from callsheet.records import ModelType

IMAGE, VIDEO = ModelType.IMAGE, ModelType.VIDEO
FIXED = [shape for shape in SHAPES if shape.startswith("fixed")]


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs an async test in virtual time."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        run_virtual(test(*args, **kwargs))

    return run


def now() -> float:
    return asyncio.get_running_loop().time()


async def settle() -> None:
    """Lets everyone who can go on do so; no time passes."""
    for _ in range(20):
        await asyncio.sleep(0)


def lines_up(
    limits: Limits, model_type: ModelType, times: list[float], *, lasts: float = 0.0
) -> asyncio.Task[None]:
    """A caller who notes when its turn comes."""

    async def caller() -> None:
        async with limits.turn(model_type):
            times.append(now())
            await asyncio.sleep(lasts)

    return asyncio.create_task(caller())


# As fast as the account allows


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("rpm", "concurrency", "seconds"),
    [({IMAGE: 60}, 50, SLOW), ({IMAGE: 600, VIDEO: 60}, 50, QUICK), ({IMAGE: 600}, 10, QUICK)],
    ids=["window is short", "images and videos", "lanes are short"],
)
def test_a_cold_run_comes_within_5_percent_of_the_ideal_with_a_handful_of_429s(
    shape: str, rpm: dict[ModelType, int], concurrency: int, seconds: tuple[float, float]
) -> None:
    [run] = simulate(Scenario(shape, rpm, concurrency, seconds, duration=300), runs=1)
    assert run.ratio >= 0.95
    assert run.refused["lanes"] <= 10  # the ramp's overshoot, and three probes
    assert run.refused["window"] <= (20 if shape.startswith("bucket") else 1)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_remembered_makes_the_next_run_begin_without_429s(shape: str) -> None:
    scenario = Scenario(shape, {IMAGE: 600, VIDEO: 60}, 50, QUICK, duration=240)
    cold, again = simulate(scenario, idle=5)
    assert cold.learned == Learned(**json.loads(json.dumps(asdict(cold.learned))))
    assert again.refused["window"] <= 1
    assert again.refused["lanes"] <= 3  # its own probes
    assert again.ratio >= 0.95


@pytest.mark.parametrize("late", [20.0, -20.0])
@pytest.mark.parametrize("shape", FIXED)
def test_a_wrong_clock_of_ours_is_put_right_by_the_services_date(shape: str, late: float) -> None:
    [run] = simulate(Scenario(shape, {IMAGE: 600}, 100, SLOW, wrong_clock=late), runs=1)
    assert run.ratio >= 0.95
    assert run.refused["window"] <= 1


@pytest.mark.parametrize("late", [20.0, -20.0])
def test_a_wrong_clock_without_a_date_is_learned_at_the_first_edge(late: float) -> None:
    scenario = Scenario(SHAPES[0], {IMAGE: 600}, 200, SLOW, wrong_clock=late, dated=False)
    [run] = simulate(scenario, runs=1)
    assert run.ratio >= 0.9
    assert run.refused["window"] <= 40  # nine more edges would cost some 200 each


@pytest.mark.parametrize("shape", FIXED)
@pytest.mark.parametrize("round_up", [True, False])
def test_a_reset_rounded_to_the_second_either_way_costs_no_429_at_the_windows_edge(
    shape: str, round_up: bool
) -> None:
    [run] = simulate(Scenario(shape, {IMAGE: 600}, 100, QUICK, round_up=round_up, duration=300), runs=1)
    assert run.refused["window"] == 0


def test_others_who_use_the_same_workspace_are_counted() -> None:
    [run] = simulate(Scenario(SHAPES[0], {IMAGE: 600}, 50, QUICK, others=200), runs=1)
    assert run.ratio >= 0.95
    assert run.refused["window"] <= 0.01 * 10 * 400  # of some 4,000 sends


@pytest.mark.parametrize("window", [10.0, 300.0])
def test_a_window_that_is_not_a_minute_is_followed_by_its_reset(
    window: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METERS, "odd", partial(FixedWindow, window=window))
    [run] = simulate(Scenario("odd", {IMAGE: 200}, 50, QUICK), runs=1)
    assert run.ratio >= 0.95
    assert run.refused["window"] <= 3


@virtual
async def test_no_more_than_a_few_leave_before_the_first_answer_tells_the_limit() -> None:
    limits, times = Limits(clock=VirtualClock()), []
    callers = [lines_up(limits, IMAGE, times, lasts=20) for _ in range(300)]
    await asyncio.sleep(15)
    assert len(times) == UNTOLD
    for caller in callers:
        caller.cancel()


# Windows


@virtual
async def test_the_count_is_the_services_and_a_window_begins_anew_at_its_reset() -> None:
    limits, times = Limits(clock=VirtualClock()), []
    async with limits.turn(IMAGE) as turn:
        turn.answered(100, 97, int(BEGIN) + 30)  # two of the three are someone else's
    for _ in range(200):
        lines_up(limits, IMAGE, times)
    await asyncio.sleep(25)
    assert len(times) == 97
    await asyncio.sleep(6)
    assert len(times) > 97


@virtual
async def test_of_answers_in_the_wrong_order_the_one_to_the_last_send_counts() -> None:
    limits, times = Limits(clock=VirtualClock()), []
    async with limits.turn(IMAGE) as first, limits.turn(IMAGE) as second:
        second.answered(10, 2, int(BEGIN) + 30)
        first.answered(10, 9, int(BEGIN) + 30)
        for _ in range(5):
            lines_up(limits, IMAGE, times)
        await asyncio.sleep(20)
        assert len(times) == 2


@virtual
async def test_what_was_not_sent_is_given_back_and_what_was_cut_off_is_not() -> None:
    limits, times = Limits(image_rpm=2, clock=VirtualClock()), []
    async with limits.turn(IMAGE) as turn:
        turn.unsent()
    with pytest.raises(ConnectionError):
        async with limits.turn(IMAGE):
            raise ConnectionError
    lines_up(limits, IMAGE, times)
    lines_up(limits, IMAGE, times)
    await asyncio.sleep(50)
    assert (len(times), limits.submissions) == (1, 2)
    await asyncio.sleep(15)
    assert len(times) == 2


@virtual
async def test_a_send_that_comes_back_unsent_after_minutes_is_given_back_all_the_same() -> None:
    limits, times = Limits(clock=VirtualClock()), []
    async with limits.turn(IMAGE) as turn:
        await asyncio.sleep(500)
        await lines_up(limits, IMAGE, times)
        turn.unsent()
    assert (len(times), limits.submissions, limits.lanes.in_use) == (1, 1, 0)


@virtual
async def test_a_full_window_waits_as_told_and_longer_when_that_was_not_enough() -> None:
    limits, times = Limits(clock=VirtualClock()), []
    for _ in range(2):
        async with limits.turn(IMAGE) as turn:
            times.append(now())
            turn.window_full(retry_after=7)
    lines_up(limits, IMAGE, times)
    await asyncio.sleep(60)
    assert times == pytest.approx([0, 7, 7 + 14], abs=0.01)
    assert (limits.rate_limited, limits.submissions) == (2, 3)


@virtual
async def test_a_kind_that_waits_for_its_window_does_not_block_the_other() -> None:
    limits, images, videos = Limits(clock=VirtualClock()), [], []
    async with limits.turn(VIDEO) as turn:
        turn.window_full(retry_after=40)
    lines_up(limits, VIDEO, videos)
    await settle()
    lines_up(limits, IMAGE, images)
    await asyncio.sleep(60)
    assert (images, videos) == (pytest.approx([0.0]), pytest.approx([40.0]))


@pytest.mark.parametrize("shape", SHAPES)
def test_configured_numbers_are_never_passed(shape: str) -> None:
    async def main() -> tuple[Counter[ModelType], int, int]:
        scenario = Scenario(shape, {IMAGE: 600, VIDEO: 600}, 100, QUICK, duration=300)
        service = scenario.service()
        limits = Limits(image_rpm=30, video_rpm=12, concurrency=5, clock=VirtualClock())
        await Crew(scenario, service, limits, seed=1).work(until=300)
        return service.accepted, service.most_at_work, limits.rate_limited

    accepted, most_at_work, rate_limited = run_virtual(main())
    assert 5 * 28 <= accepted[IMAGE] <= 6 * 30  # five minutes touch six windows
    assert 5 * 11 <= accepted[VIDEO] <= 6 * 12
    assert (most_at_work, rate_limited) == (5, 0)


# Lanes


@virtual
async def test_lanes_ramp_only_while_somebody_waits() -> None:
    limits, times = Limits(clock=VirtualClock()), []
    for _ in range(FIRST_LANES - 1):
        lines_up(limits, IMAGE, times, lasts=100)
    await asyncio.sleep(10)
    assert limits.learned().lanes == FIRST_LANES
    for _ in range(20):
        lines_up(limits, IMAGE, times, lasts=100)
    await asyncio.sleep(3)
    assert len(times) == FIRST_LANES - 1 + 20
    assert limits.learned().lanes < len(times) + RAMP_MOST


def test_lanes_latch_at_what_was_accepted_and_probe_by_one_a_minute() -> None:
    lanes = Lanes(size=55, in_use=55)  # 50 fit, five more have just been sent
    for _ in range(5):
        lanes.full(0.0)
        lanes.in_use -= 1
    assert (lanes.size, lanes.in_use, lanes.latched) == (50, 50, True)
    assert lanes.wait(0.0) == PROBE
    lanes.take(PROBE)
    assert lanes.size == 51
    lanes.full(PROBE)
    lanes.in_use -= 1
    assert lanes.wait(PROBE) == 2 * PROBE  # refused: the next probe comes later
    lanes.take(3 * PROBE)
    assert lanes.wait(3 * PROBE) == PROBE  # accepted: the next one is larger
    lanes.take(4 * PROBE)
    assert lanes.size == 53


@virtual
async def test_a_video_holds_its_lane_until_it_is_released() -> None:
    limits, times = Limits(concurrency=3, clock=VirtualClock()), []
    limits.adopt(2)
    async with limits.turn(VIDEO) as turn:
        turn.keep()
    lines_up(limits, IMAGE, times)
    await asyncio.sleep(300)
    assert times == []
    limits.release()
    await settle()
    assert times == [300.0]


@virtual
async def test_a_video_that_is_given_up_holds_its_lane_of_a_configured_share_only() -> None:
    for cap, turns in (2, 0), (3, 1), (None, 1):
        limits, times = Limits(concurrency=cap, clock=VirtualClock()), []
        limits.adopt(2)
        limits.give_up()
        limits.give_up()
        assert not limits.blocked(0), "nobody waits"
        waiting = lines_up(limits, IMAGE, times)
        await settle()
        assert (len(times), limits.blocked(1e9)) == (turns, turns == 0)
        waiting.cancel()


@virtual
async def test_waiting_is_hopeless_when_others_have_held_every_lane_for_long() -> None:
    limits, tries = Limits(clock=VirtualClock()), []

    async def refused_until(moment: float) -> None:
        while True:
            async with limits.turn(IMAGE) as turn:
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
    assert not limits.blocked(300), "one was let in meanwhile"
    assert len(tries) < 100
    waiting.cancel()


@virtual
async def test_waiting_for_the_window_is_never_hopeless() -> None:
    limits, times = Limits(image_rpm=1, clock=VirtualClock()), []
    for _ in range(3):
        lines_up(limits, IMAGE, times)
    await asyncio.sleep(59)
    assert (len(times), limits.blocked(0)) == (1, False)


@virtual
async def test_a_refusal_while_videos_hold_every_other_lane_waits_for_one_of_them() -> None:
    limits, times = Limits(clock=VirtualClock()), []
    limits.adopt(20)
    for _ in range(2):
        lines_up(limits, IMAGE, times)
        await asyncio.sleep(1)
    async with limits.turn(IMAGE) as turn:
        turn.lanes_full()
    lines_up(limits, IMAGE, times)
    await asyncio.sleep(PROBE / 2)
    assert len(times) == 2
    limits.release()
    await settle()
    assert len(times) == 3


@virtual
async def test_while_others_hold_every_lane_one_try_is_made_now_and_then() -> None:
    limits, times = Limits(clock=VirtualClock()), []
    for _ in range(4):
        async with limits.turn(IMAGE) as turn:
            times.append(now())
            turn.lanes_full()
    assert times == pytest.approx([0, 1, 3, 7])
    async with limits.turn(IMAGE):
        assert now() == pytest.approx(15)  # let in: the next refusal is a new story
    async with limits.turn(IMAGE) as turn:
        turn.lanes_full()
    async with limits.turn(IMAGE):
        assert now() == pytest.approx(16)


# Turns


@virtual
async def test_within_a_kind_the_first_to_ask_is_the_first_to_go() -> None:
    limits, order = Limits(concurrency=1, clock=VirtualClock()), []

    async def caller(number: int) -> None:
        async with limits.turn(IMAGE):
            order.append(number)
            await asyncio.sleep(0.1)

    await asyncio.gather(*(caller(number) for number in range(20)))
    assert order == list(range(20))


@virtual
async def test_a_lane_goes_to_the_kind_that_has_waited_longer() -> None:
    limits, images, videos = Limits(concurrency=1, clock=VirtualClock()), [], []
    for _ in range(5):
        lines_up(limits, IMAGE, images, lasts=1)
    await settle()
    lines_up(limits, VIDEO, videos, lasts=1)
    for _ in range(5):
        lines_up(limits, IMAGE, images, lasts=1)
    await asyncio.sleep(30)
    assert videos == [pytest.approx(images[4] + 1)]
    assert len(images) == 10


@virtual
async def test_whoever_is_cancelled_while_waiting_takes_neither_a_lane_nor_a_send_along() -> None:
    limits, times = Limits(image_rpm=3, concurrency=1, clock=VirtualClock()), []
    holder = lines_up(limits, IMAGE, times, lasts=10)
    await settle()
    waiting = [lines_up(limits, IMAGE, times) for _ in range(5)]
    await settle()
    for caller in (waiting[0], waiting[2], waiting[4]):  # the first of the queue among them
        caller.cancel()
    await asyncio.gather(holder, *waiting, return_exceptions=True)
    assert times == pytest.approx([0, 10, 10])
    assert limits.submissions == 3
    late = lines_up(limits, VIDEO, times)
    await late
    assert len(times) == 4


class Counted(Limits):
    """Counts for itself the lanes that its callers hold."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock=clock)
        self.held = 0
        self.differences: set[tuple[int, int]] = set()

    @asynccontextmanager
    async def turn(self, model_type: ModelType) -> AsyncGenerator[Turn, None]:
        async with super().turn(model_type) as turn:
            self.hold(1)
            try:
                yield turn
            finally:
                self.held -= not turn.kept

    def release(self) -> None:
        super().release()
        self.hold(-1)

    def hold(self, lanes: int) -> None:
        self.held += lanes
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
def test_lanes_in_use_are_those_that_callers_hold_and_honest_headers_are_never_outrun(
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
        await Crew(scenario, service, limits, seed).work(until=150)
        return service, limits

    service, limits = run_virtual(main())
    assert limits.differences == set()
    assert (limits.held, limits.lanes.in_use) == (0, 0)
    assert service.most_at_work <= concurrency
    assert service.refused.total() == limits.rate_limited
    # Only what leaves before the first answers may be too much, and a lane now and then.
    assert service.refused["window"] <= 2 * 20
    assert service.refused["lanes"] <= 20
