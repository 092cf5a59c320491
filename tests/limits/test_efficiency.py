"""A run is as fast as the account allows, almost without a 429, against a simulated service."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest

from benchmarks.bench_limits import QUICK, SLOW, Outcome, ideal, simulate
from benchmarks.simulated_service import SHAPES, Client, Scenario, VirtualClock, run_virtual, unix
from callsheet.limits.limits import AccountLimits
from tests.limits.virtual_time import FIXED, IMAGE, VIDEO
from tests.long_form import mostly_soak

BUCKETS = [shape for shape in SHAPES if shape.startswith("bucket")]
DEFINED = [shape for shape in SHAPES if shape not in BUCKETS]  # windows that are fixed or slide
BY_THE_CLOCK, FROM_THE_FIRST, OF_OLDEST, OF_NEWEST = DEFINED
SHORT, TWO, LANES, SLOW_ACCOUNT = "window is short", "two types", "lanes are short", "slow account"
ACCOUNTS = {
    SHORT: ({IMAGE: 600}, 200, SLOW),
    TWO: ({IMAGE: 600, VIDEO: 60}, 50, QUICK),
    LANES: ({IMAGE: 600}, 10, QUICK),
    SLOW_ACCOUNT: ({IMAGE: 60}, 50, SLOW),
}


def refused(run: Outcome) -> float:
    """The part of the submissions that was answered 429."""
    return run.refused.total() / (run.refused.total() + len(run.accepted_at))


@pytest.mark.parametrize(
    "case",
    mostly_soak(
        product((SHORT, TWO, LANES), DEFINED),
        (SHORT, BY_THE_CLOCK),
        (TWO, OF_OLDEST),
        (LANES, FROM_THE_FIRST),
    ),
    ids=", ".join,
)
def test_in_ten_minutes_a_run_gets_97_percent_of_the_ideal_and_half_a_percent_is_refused(
    case: tuple[str, str],
) -> None:
    """Both a first run and the next one, with what the first has learned."""
    account, shape = case
    cold, warm = simulate(Scenario(shape, *ACCOUNTS[account]))
    assert min(cold.ratio, warm.ratio) >= 0.97
    assert max(refused(cold), refused(warm)) < 0.005


@pytest.mark.parametrize("shape", mostly_soak(BUCKETS, BUCKETS[0]))
@pytest.mark.parametrize("account", mostly_soak([SLOW_ACCOUNT, SHORT, LANES], SLOW_ACCOUNT))
def test_in_ten_minutes_of_any_other_window_a_run_is_within_one_window_of_the_ideal(
    shape: str, account: str
) -> None:
    limits, *rest = ACCOUNTS[account]
    for run in simulate(Scenario(shape, limits, *rest)):
        got = len(run.accepted_at)
        assert got / run.ratio - got <= limits[IMAGE]


@pytest.mark.parametrize("late", [0.0, 20.0, -20.0])
@pytest.mark.parametrize("shape", mostly_soak(DEFINED, BY_THE_CLOCK, OF_NEWEST))
def test_a_slow_account_is_used_up_too_whatever_this_machines_clock_says(shape: str, late: float) -> None:
    for run in simulate(Scenario(shape, *ACCOUNTS[SLOW_ACCOUNT], wrong_clock=late)):
        assert run.ratio >= 0.97
        assert run.refused["lanes"] <= 10  # the ramp's overshoot, and three probes
        assert run.refused["window"] <= 10  # one a window


@pytest.mark.parametrize("shape", mostly_soak(FIXED, BY_THE_CLOCK))
def test_without_a_date_no_reset_can_be_told_and_a_run_is_within_one_window_of_the_ideal(shape: str) -> None:
    for run in simulate(Scenario(shape, *ACCOUNTS[SHORT], dated=False)):
        got = len(run.accepted_at)
        assert got / run.ratio - got <= 600
        assert refused(run) < 0.005


def side_by_side(scenario: Scenario, runs: int) -> tuple[float, float, list[int]]:
    """Runs that know nothing of each other: the ratio of all, what was refused, and what each run got."""

    async def main() -> tuple[float, float, list[int]]:
        service = scenario.service()
        best = ideal(scenario, service, unix())
        clients = [
            Client(scenario, service, AccountLimits(clock=VirtualClock()), seed) for seed in range(runs)
        ]
        until = asyncio.get_running_loop().time() + scenario.duration
        await asyncio.gather(*(client.work(until) for client in clients))
        got = [len(client.accepted_at) for client in clients]
        return sum(got) / best, service.refused.total() / sum(got), got

    return run_virtual(main())


@pytest.mark.parametrize("shape", mostly_soak(DEFINED, OF_NEWEST))
def test_two_runs_on_one_account_find_their_parts_by_the_answers_alone(shape: str) -> None:
    ratio, refused_part, got = side_by_side(Scenario(shape, {IMAGE: 600}, 200, SLOW), runs=2)
    assert ratio >= 0.97
    assert refused_part < 0.06
    assert min(got) > 0.3 * sum(got)


@pytest.mark.parametrize("shape", mostly_soak(FIXED, FROM_THE_FIRST))
def test_what_others_send_on_the_same_account_is_seen_in_the_answers(shape: str) -> None:
    for run in simulate(Scenario(shape, {IMAGE: 300}, 100, SLOW, others=100)):
        assert run.ratio >= 0.95
        assert refused(run) < 0.02


@pytest.mark.parametrize("shape", mostly_soak(SHAPES, FROM_THE_FIRST, BUCKETS[0]))
def test_a_limit_that_changes_during_the_run_is_followed(shape: str) -> None:
    scenario = Scenario(shape, {IMAGE: 600}, 400, SLOW)

    async def main() -> list[float]:
        """After each change, when a window has passed: accepted in two minutes, as a part of the limit."""
        service, parts = scenario.service(), []
        client = Client(scenario, service, AccountLimits(clock=VirtualClock()), 1)
        working = asyncio.create_task(client.work(until=480))
        for begins, limit in (120, 300), (300, 1200):
            await asyncio.sleep(begins - asyncio.get_running_loop().time())
            service.meters[IMAGE].limit = limit
            await asyncio.sleep(60)
            service.accepted.clear()
            await asyncio.sleep(119)
            parts.append(service.accepted[IMAGE] / (2 * limit))
        await working
        return parts

    assert min(run_virtual(main())) >= 0.95
