"""How close `callsheet.limits` gets to the ideal, against a simulated service, in virtual time.

Each run has ten minutes of endless demand. The ideal client knows the service's state, and sends at the very
moment at which a request would be accepted and a round trip has freed a lane; the ratio is of accepted
submissions. The first run begins without knowledge, and the next one with the limits that the first has
learned, half a minute after its end. The machine's speed has no influence: the same seed gives the same
figures everywhere. `tests/limits` has the unusual cases: wrong clocks, other clients, late counts.
"""

from __future__ import annotations

import asyncio
import copy
import heapq
import random
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from benchmarks.measuring import Figure
from benchmarks.simulated_service import (
    SHAPES,
    Client,
    Scenario,
    Service,
    VirtualClock,
    next_other,
    run_virtual,
    unix,
)
from callsheet.limits.limits import AccountLimits, Learned
from callsheet.records import ModelType

IMAGES = ModelType.IMAGE
QUICK, SLOW = (0.3, 3.0), (5.0, 10.0)  # seconds that a generation takes, at least and at most
GOALS = {
    "fixed": "at least 97 %; under 0.5 %",
    "sliding": "at least 97 %; under 0.5 %",
    "bucket": "at least 90 %, which is all but one window",
}
"""By the first word of the names in `SHAPES`."""
ACCOUNTS = ((60, 50, SLOW), (600, 10, QUICK), (600, 200, SLOW))
"""Images a minute, how many at a time, and how long each takes."""


def ideal(scenario: Scenario, service: Service, begins: float) -> int:
    """Requests that a client with full knowledge of the service gets accepted; it tries every 10 ms."""
    service, chance = copy.deepcopy(service), random.Random(1)
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


def simulate(scenario: Scenario) -> list[Outcome]:
    """Two runs, 30 s apart, against one service; the second has the limits that the first has learned."""

    async def main() -> list[Outcome]:
        service = scenario.service()
        outcomes: list[Outcome] = []
        for number in range(2):
            learned = outcomes[-1].learned if outcomes else None
            limits = AccountLimits(remembered=learned, clock=VirtualClock(scenario.wrong_clock))
            service.accepted, service.refused = Counter(), Counter()
            best = ideal(scenario, service, unix())
            client = Client(scenario, service, limits, 1 + number)
            await client.work(asyncio.get_running_loop().time() + scenario.duration)
            ratio = service.accepted.total() / best
            outcomes.append(Outcome(ratio, service.refused, limits.learned(), client.accepted_at))
            await asyncio.sleep(30)
        return outcomes

    return run_virtual(main())


def of_accounts(shape: str, duration: float) -> list[tuple[Outcome, Outcome]]:
    """A first run and the next one, for each account with such a window."""
    scenarios = (
        Scenario(shape, {IMAGES: rpm}, concurrency, seconds, duration=duration)
        for rpm, concurrency, seconds in ACCOUNTS
    )
    return [(first, second) for first, second in map(simulate, scenarios)]


def measure(*, quick: bool) -> Iterator[Figure]:
    """For each type of window: the least share of the ideal of its accounts, and the refusals of all."""
    duration = 120.0 if quick else 600.0
    with ProcessPoolExecutor() as processes:  # time is virtual, so they may share the cores
        found = dict(zip(SHAPES, processes.map(of_accounts, SHAPES, [duration] * len(SHAPES)), strict=True))
    for window, goal in GOALS.items():
        pairs = [pair for shape, each in found.items() if shape.startswith(window) for pair in each]
        for run, outcomes in zip(("a first run", "the next run"), zip(*pairs, strict=True), strict=True):
            least = min(outcome.ratio for outcome in outcomes)
            accepted = sum(len(outcome.accepted_at) for outcome in outcomes)
            refused = sum(outcome.refused.total() for outcome in outcomes) / accepted
            yield Figure(
                f"simulated windows, {window}, {run}: accepted of the ideal; refused",
                f"{100 * least:.1f} %; {100 * refused:.1f} %",
                goal,
            )
