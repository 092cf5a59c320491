"""How close `callsheet.limits` gets to the ideal, against a simulated service, in virtual time.

    python benchmarks/bench_limits.py

Each line is ten minutes of endless demand. The ideal client knows the service's state, and sends at the
very moment at which a request would be accepted and a round trip has freed a lane; the ratio is of accepted
submissions. `cold` begins without knowledge, `again` with the limits that the first run learned, half a
minute after its end; `told` is no run of ours, but a semaphore with fixed pacing that is told the limits
(`told_limits.py`). Last come two runs that share a workspace. The machine's speed has no influence: the same
seed gives the same figures everywhere.
"""

from __future__ import annotations

import asyncio
import copy
import heapq
import random
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.figures import options, save
from benchmarks.simulated_service import (
    SHAPES,
    WINDOW,
    Client,
    Scenario,
    Service,
    VirtualClock,
    next_other,
    run_virtual,
    unix,
)
from benchmarks.told_limits import ToldLimits
from callsheet.limits.turns import Learned, Limits
from callsheet.records import ModelType


def ideal(scenario: Scenario, service: Service, begins: float, seed: int = 1) -> int:
    """Requests that a client with full knowledge of the service gets accepted; it tries every 10 ms."""
    service, chance = copy.deepcopy(service), random.Random(seed)
    busy: list[float] = []
    others = {model_type: next_other(scenario, chance) for model_type in scenario.rpm}
    types = deque(scenario.rpm)
    accepted = 0
    for tick in range(int(scenario.duration * 100)):
        now = tick / 100
        while busy and busy[0] <= now:
            heapq.heappop(busy)
            service.finish()
        for model_type, at in others.items():
            if at <= now:
                others[model_type] += next_other(scenario, chance)
                service.other(model_type, begins + now)
        refused = 0
        while refused < len(types):
            types.rotate()
            refused += 1
            if service.fits(types[0], begins + now):
                service.submit(types[0], begins + now)
                round_trip = chance.uniform(0.02, 0.08) + chance.uniform(0.02, 0.08)
                heapq.heappush(busy, now + chance.uniform(*scenario.seconds) + round_trip)
                accepted, refused = accepted + 1, 0
    return accepted


@dataclass(frozen=True)
class Outcome:
    """What the service accepted, as a ratio to the ideal and with the Unix times; what it refused, by why."""

    ratio: float
    refused: Counter[str]
    learned: Learned
    accepted_at: list[float]


def simulate(scenario: Scenario, *, seed: int = 1, runs: int = 2, idle: float = 30) -> list[Outcome]:
    """Runs one after the other against one service, each with the limits that the one before it learned."""

    async def main() -> list[Outcome]:
        service = scenario.service()
        outcomes: list[Outcome] = []
        for number in range(runs):
            learned = outcomes[-1].learned if outcomes else None
            limits = Limits(remembered=learned, clock=VirtualClock(scenario.wrong_clock))
            [client], ratio = await work(scenario, service, [limits], seed + number)
            outcomes.append(Outcome(ratio, service.refused, limits.learned(), client.accepted_at))
            await asyncio.sleep(idle)
        return outcomes

    return run_virtual(main())


async def work(
    scenario: Scenario, service: Service, limits: Sequence[Limits | ToldLimits], seed: int
) -> tuple[list[Client], float]:
    """Runs side by side, one for each of `limits`, and what they got together, as a ratio to the ideal."""
    service.accepted, service.refused = Counter(), Counter()
    best = ideal(scenario, service, unix())
    until = asyncio.get_running_loop().time() + scenario.duration
    clients = [Client(scenario, service, each, seed + n) for n, each in enumerate(limits)]
    await asyncio.gather(*(client.work(until) for client in clients))
    return clients, service.accepted.total() / best


def told(scenario: Scenario) -> tuple[float, Counter[str], list[float]]:
    """The same for a semaphore with fixed pacing that is told the limits: ratio, refusals, times."""

    async def main() -> tuple[float, Counter[str], list[float]]:
        service = scenario.service()
        limits = ToldLimits(scenario.rpm, scenario.concurrency)
        [client], ratio = await work(scenario, service, [limits], 1)
        return ratio, service.refused, client.accepted_at

    return run_virtual(main())


def shared(scenario: Scenario) -> tuple[float, Counter[str], list[list[float]]]:
    """Two runs that begin together, and know nothing: ratio, refusals, times of each."""

    async def main() -> tuple[float, Counter[str], list[list[float]]]:
        service = scenario.service()
        limits = [Limits(clock=VirtualClock(scenario.wrong_clock)) for _ in range(2)]
        clients, ratio = await work(scenario, service, limits, 1)
        return ratio, service.refused, [client.accepted_at for client in clients]

    return run_virtual(main())


IMAGES, VIDEOS = ModelType.IMAGE, ModelType.VIDEO
QUICK, SLOW = (0.3, 3.0), (5.0, 10.0)  # seconds that a generation takes, at least and at most
USUAL = Scenario(SHAPES[0], {IMAGES: 600}, 200, SLOW)
LIMITS = (60, 300, 600, 1500)  # images a minute
ONE, OTHER = "one of two runs that share", "the other of them"
WAYS = ("cold", "again", "told")


def scenarios() -> list[Scenario]:
    plain = [
        Scenario(shape, rpm, concurrency, seconds)
        for shape in SHAPES
        for rpm, concurrency, seconds in (
            ({IMAGES: 60}, 50, SLOW),
            ({IMAGES: 600}, 10, QUICK),
            ({IMAGES: 600}, 200, SLOW),
            ({IMAGES: 3000}, 200, QUICK),
            ({IMAGES: 600, VIDEOS: 60}, 50, QUICK),
        )
    ]
    unusual = [
        replace(USUAL, round_up=True),
        replace(USUAL, wrong_clock=20.0),
        replace(USUAL, wrong_clock=-20.0),
        replace(USUAL, wrong_clock=20.0, dated=False),
        replace(USUAL, wrong_clock=-20.0, dated=False),
        replace(USUAL, others=200.0),
        replace(USUAL, counted_late=True),
    ]
    return plain + unusual


def conditions(scenario: Scenario) -> str:
    """What is unusual in a scenario."""
    names = {
        "reset rounded up": scenario.round_up,
        f"clock {scenario.wrong_clock:+g} s": scenario.wrong_clock,
        "no Date": not scenario.dated,
        "counted when it answers": scenario.counted_late,
        f"others {scenario.others:g} rpm": scenario.others,
    }
    return ", ".join(name for name, present in names.items() if present)


def case(scenario: Scenario) -> dict[str, Any]:
    """The figures of one scenario."""
    cold, again = simulate(scenario)
    ratio, refused, _ = told(scenario)
    ways = {
        "cold": (cold.ratio, cold.refused),
        "again": (again.ratio, again.refused),
        "told": (ratio, refused),
    }
    least, most = scenario.seconds
    return {
        "window": scenario.shape,
        "rpm": " + ".join(f"{n} {model_type}" for model_type, n in scenario.rpm.items()),
        "lanes": scenario.concurrency,
        "seconds": f"{least:g}-{most:g}",
        "conditions": conditions(scenario),
        **{
            name: {"ratio": got, "window": no["window"], "lanes": no["lanes"]}
            for name, (got, no) in ways.items()
        },
    }


def of_each_minute(accepted_at: list[float]) -> list[int]:
    """How many were accepted in each minute of the service's clock; not the last, which is not whole."""
    minutes = Counter(int(at // WINDOW) for at in accepted_at)
    return [minutes[minute] for minute in range(min(minutes), max(minutes))]


def of_limit(limit: int) -> dict[str, Any]:
    """For one limit: the ratio to the ideal, and the submissions of each minute, in each way to buy."""
    scenario = replace(USUAL, rpm={IMAGES: limit})
    cold, again = simulate(scenario, idle=WINDOW)  # so that both begin at the same second of a minute
    ratio, _, accepted_at = told(scenario)
    both, refused, times = shared(scenario)
    return {
        "limit": limit,
        "ratios": {"cold": cold.ratio, "again": again.ratio, "told": ratio, "two": both},
        "minutes": {
            "a first run": of_each_minute(cold.accepted_at),
            "the next run": of_each_minute(again.accepted_at),
            "told the limits, fixed pacing": of_each_minute(accepted_at),
            ONE: of_each_minute(times[0]),
            OTHER: of_each_minute(times[1]),
        },
        "refused to two": refused.total(),
    }


def show(figures: dict[str, Any]) -> None:
    """Prints one line of the table."""
    ways = "".join("{ratio:8.1%}{window:6}{lanes:6}".format(**figures[way]) for way in WAYS)
    scenario = "{window:26}{rpm:22}{lanes:5}{seconds:>11}".format(**figures)
    print(f"{scenario}{ways}  {figures['conditions']}", flush=True)


def measure() -> dict[str, Any]:
    """All figures; prints them as they come."""
    head = f"{'ratio':>8}{'429 w':>6}{'429 l':>6}"
    print(f"{'':64}{'cold: 429s of window, lanes':^20}{'again':^20}{'told, fixed pacing':^20}")
    print(f"{'window':26}{'rpm':22}{'lanes':>5}{'seconds':>11}{head * 3}")
    cases, limits = [], []
    with ProcessPoolExecutor() as processes:  # time is virtual, so they may share the cores
        for figures in processes.map(case, scenarios()):
            show(figures)
            cases.append(figures)
        print("two runs that share a workspace")
        for figures in processes.map(of_limit, LIMITS):
            one, other = (sum(figures["minutes"][name]) for name in (ONE, OTHER))
            shares = f"{one} and {other}, {figures['refused to two']} refused"
            print(f"  {figures['limit']:5} a minute: {figures['ratios']['two']:.1%}, {shares}", flush=True)
            limits.append(figures)
    return {"cases": cases, "limits": limits}


if __name__ == "__main__":
    save(options(__doc__).parse_args(), measure())
