"""Turns, windows and lanes: first come, first served, the service's count, and every lane comes back."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.bench_limits import QUICK, SLOW
from benchmarks.simulated_service import (
    BEGIN,
    SHAPES,
    Client,
    Scenario,
    Service,
    VirtualClock,
    run_virtual,
    unix,
)
from callsheet.errors import Doubtful, InvalidApiKey, KeyRefused, ServiceError
from callsheet.limits import breaker
from callsheet.limits.breaker import Breaker, Trouble
from callsheet.limits.limits import FIRST_LANES, PROBE, RAMP_MOST, WINDOW, AccountLimits
from callsheet.records import ModelType
from tests.limits.virtual_time import FIXED, IMAGE, VIDEO, let_others_run, now, sent, start_caller, virtual
from tests.long_form import mostly_soak


@virtual
async def test_a_lane_goes_to_who_has_waited_longest_of_either_type() -> None:
    limits, order = AccountLimits(concurrency=1, clock=VirtualClock()), []

    async def caller(number: int) -> None:
        async with sent(limits, VIDEO if number in (5, 9) else IMAGE):
            order.append(number)
            await asyncio.sleep(1)

    await asyncio.gather(*(caller(number) for number in range(20)))
    assert order == list(range(20))


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


@settings(max_examples=10, deadline=None)
@given(
    shape=st.sampled_from(FIXED),
    images=st.integers(1, 400),
    videos=st.integers(1, 100),
    concurrency=st.integers(1, 60),
    seconds=st.sampled_from([QUICK, SLOW, (30.0, 90.0)]),
    round_up=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_every_lane_comes_back_and_correct_headers_are_never_exceeded(
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

    async def main() -> tuple[Service, AccountLimits]:
        service, limits = scenario.service(), AccountLimits(clock=VirtualClock())
        await Client(scenario, service, limits, seed).work(until=150)
        return service, limits

    service, limits = run_virtual(main())
    assert limits.lanes.in_use == 0
    assert service.most_at_work <= concurrency
    assert service.refused.total() == limits.rate_limited
    # Only requests before the first answers, and a probe now and then, may be too many.
    assert service.refused["window"] <= 2 * 20
    assert service.refused["lanes"] <= 20


# ---- requests per window: the count is the service's, and every send is accounted for


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
async def test_a_wait_is_never_longer_than_a_window_unless_the_service_says_so() -> None:
    for told, waits in ((60, [60] * 7), (90, [90] * 7), (4, [4, 8, 16, 32, 60, 60, 60])):
        limits, times = AccountLimits(clock=VirtualClock()), list[float]()
        for _ in range(8):
            async with sent(limits, IMAGE) as turn:
                times.append(now())
                turn.window_full(retry_after=told)
        assert [after - before for before, after in pairwise(times)] == pytest.approx(waits, abs=0.01)


@virtual
@pytest.mark.parametrize(("told", "left"), [(3600, 3600 + 4 * 60), (20, 20 + 4 * 60), (0, 1 + 4 * 60)])
async def test_the_time_left_counts_a_wait_that_the_service_has_told(told: float, left: float) -> None:
    """Of 41 jobs at 10 a minute, the first of which is refused; also where another one has left before."""
    for sent_before in (0, 1):
        limits = AccountLimits(image_rpm=10, clock=VirtualClock())
        pace = limits.paces[IMAGE]
        for _ in range(sent_before):
            async with sent(limits, IMAGE):
                pass
        async with sent(limits, IMAGE) as turn:
            turn.window_full(retry_after=told)
        assert pace.seconds_for(41, now()) == pytest.approx(left, abs=0.01)


@pytest.mark.parametrize("shape", mostly_soak(SHAPES, *SHAPES[::2]))
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


@pytest.mark.parametrize("cap", [None, 20], ids=["service's limit", "config's limit"])
@pytest.mark.parametrize("shape", mostly_soak(SHAPES, *SHAPES[::2]))
def test_at_no_moment_is_the_time_left_off_by_more_than_a_window(shape: str, cap: int | None) -> None:
    """The count that is shown beside it is never above the limit, and says why a run stands still."""
    jobs, limit = 100, 20
    looks: list[tuple[float, int, float | None, int]] = []
    waits: list[int] = []  # the counts that are shown while nothing may leave

    async def main() -> list[float]:
        scenario = Scenario(shape, {IMAGE: 600 if cap else limit}, 100, QUICK, duration=400)
        limits = AccountLimits(image_rpm=cap, clock=VirtualClock())
        client = Client(scenario, scenario.service(), limits, seed=1)

        async def look() -> None:
            while True:
                pace, at = limits.paces[IMAGE], limits.now()
                left = jobs - len(client.accepted_at)
                looks.append((unix(), left, pace.seconds_for(left, at), pace.in_window(at)))
                waits.extend([pace.in_window(at)] * (pace.wait(at) > 1))
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
    assert waits
    assert not cap or set(waits) == {limit}


# ---- lanes: they ramp, latch and probe, and videos keep theirs until they are finished


@virtual
async def test_before_the_first_answer_the_ramp_does_not_begin() -> None:
    """A gateway that loses every answer costs the first lanes, not the batch."""
    limits, times = AccountLimits(clock=VirtualClock()), []
    for _ in range(20):
        start_caller(limits, IMAGE, times, lasts=100)
    await asyncio.sleep(90)
    assert len(times) == FIRST_LANES


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


@virtual
async def test_a_video_keeps_its_lane_until_it_is_released() -> None:
    limits, times = AccountLimits(concurrency=3, clock=VirtualClock()), []
    limits.adopt(2)
    async with sent(limits, VIDEO) as turn:
        turn.keep_lane()
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


# ---- the breaker pauses the buying while the service fails, probes, and ends it if that does not help


class FreeRequests:
    """Answers free requests with these errors, one after another, and then well."""

    def __init__(self, *errors: ServiceError) -> None:
        self.errors = list(errors)
        self.asked = 0
        self.notes: list[str] = []

    async def ask(self) -> None:
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)

    def breaker(self, stop_after: int = 3) -> Breaker:
        return Breaker(stop_after, self.ask, self.notes.append, backoff=float)


@virtual
async def test_after_a_doubt_one_job_at_a_time_passes_and_only_after_a_free_answer() -> None:
    service, inside, most = FreeRequests(), 0, 0
    guard = service.breaker(stop_after=100)
    guard.wrong("doubt", "cut off")

    async def one() -> None:
        nonlocal inside, most
        async with guard.passing():
            inside, most = inside + 1, max(most, inside + 1)
            await asyncio.sleep(0)
            inside -= 1
            guard.wrong("doubt", "cut off")

    await asyncio.gather(*(one() for _ in range(5)))
    assert (most, service.asked) == (1, 5)


@virtual
async def test_when_a_job_is_accepted_those_that_wait_pass_together() -> None:
    service = FreeRequests()
    guard = service.breaker()
    guard.wrong("doubt", "cut off")
    gate, inside = asyncio.Event(), 0

    async def one() -> None:
        nonlocal inside
        async with guard.passing():
            inside += 1
            await gate.wait()

    jobs = [asyncio.create_task(one()) for _ in range(4)]
    while not inside:  # noqa: ASYNC110 - turns of the event loop, not time
        await asyncio.sleep(0)
    assert inside == 1
    guard.worked()
    while inside < 4:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*jobs)
    assert service.asked == 1


@pytest.mark.parametrize("name", ["doubt", "loss"])
@virtual
async def test_too_many_doubts_or_losses_in_a_row_pause_probe_once_and_stop(name: Trouble) -> None:
    service = FreeRequests()
    guard = service.breaker(stop_after=3)
    for _ in range(3):
        guard.wrong(name, "cut off")
    async with guard.passing():
        assert guard.stop is None, "one probe"
    guard.wrong(name, "cut off")
    async with guard.passing():
        assert isinstance(guard.stop, Doubtful)
        assert "4 jobs in a row" in str(guard.stop)
    assert len(service.notes) == 1


@virtual
async def test_a_probe_that_works_ends_the_pause_and_the_count_begins_again() -> None:
    service = FreeRequests()
    guard = service.breaker(stop_after=2)
    guard.wrong("doubt", "a")
    guard.wrong("doubt", "b")
    async with guard.passing():
        guard.worked()
    guard.wrong("doubt", "c")
    async with guard.passing():
        assert guard.stop is None
    assert service.notes[-1].startswith("the service works again")


@virtual
async def test_what_is_wrong_with_a_model_stops_that_one_and_what_is_wrong_with_all_stops_all() -> None:
    whole = FreeRequests().breaker(stop_after=3)
    broken, other = whole.of("broken"), whole.of("other")
    for _ in range(3):
        broken.wrong("doubt", "502")
        other.worked()
    async with other.passing():
        assert other.stop is None
    async with broken.passing():
        broken.wrong("doubt", "502")
    async with broken.passing():
        assert "of broken ended in doubt" in str(broken.stop)
    assert (other.stop, whole.stop, [*whole.stopped()]) == (None, None, ["broken"])
    for _ in range(2):  # and nothing works meanwhile: two of it are enough
        other.wrong("doubt", "502")
        third = whole.of("third")
        third.wrong("doubt", "502")
        for each in other, third:
            async with each.passing():
                pass
    assert isinstance(other.stop, Doubtful)
    assert isinstance(third.stop, Doubtful)


@virtual
async def test_a_key_that_is_refused_meanwhile_is_what_stops_the_buying() -> None:
    guard = FreeRequests(InvalidApiKey("no", status=401)).breaker()
    guard.wrong("doubt", "cut off")
    async with guard.passing():
        assert isinstance(guard.stop, KeyRefused)


@virtual
async def test_a_gateway_that_says_how_long_to_wait_is_asked_again_no_sooner() -> None:
    service = FreeRequests()
    guard = service.breaker()
    for _ in range(breaker.GATEWAY):
        guard.wrong("gateway", "403 blocked", retry_after=50.0)
    async with guard.passing():
        assert now() == 50
