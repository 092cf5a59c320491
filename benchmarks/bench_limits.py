"""How close `callsheet.limits` gets to the ideal, against a simulated service, in virtual time.

    python benchmarks/bench_limits.py

Each line is ten minutes of endless demand. The ideal client knows the service's state, and sends at the very
moment at which a request would be accepted and a round trip has freed a lane; the ratio is of accepted
submissions. `cold` begins without knowledge, `again` with the limits that the first run learned, half a
minute after its end. The machine's speed has no influence: the same seed gives the same figures everywhere.
"""

from __future__ import annotations

import asyncio
import copy
import heapq
import random
from collections import Counter, deque
from dataclasses import dataclass, replace

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
    ratio: float
    refused: Counter[str]
    learned: Learned


def simulate(scenario: Scenario, *, seed: int = 1, runs: int = 2, idle: float = 30) -> list[Outcome]:
    """Runs one after the other against one service, each with the limits that the one before it learned."""

    async def main() -> list[Outcome]:
        service = scenario.service()
        outcomes: list[Outcome] = []
        for number in range(runs):
            service.accepted, service.refused = Counter(), Counter()
            best = ideal(scenario, service, unix())
            learned = outcomes[-1].learned if outcomes else None
            limits = Limits(remembered=learned, clock=VirtualClock(scenario.wrong_clock))
            began = asyncio.get_running_loop().time()
            await Client(scenario, service, limits, seed + number).work(began + scenario.duration)
            outcomes.append(Outcome(service.accepted.total() / best, service.refused, limits.learned()))
            await asyncio.sleep(idle)
        return outcomes

    return run_virtual(main())


IMAGES, VIDEOS = ModelType.IMAGE, ModelType.VIDEO
QUICK, SLOW = (0.3, 3.0), (5.0, 10.0)  # seconds that a generation takes, at least and at most


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
    usual = Scenario(SHAPES[0], {IMAGES: 600}, 200, SLOW)
    unusual = [
        replace(usual, round_up=True),
        replace(usual, wrong_clock=20.0),
        replace(usual, wrong_clock=-20.0),
        replace(usual, wrong_clock=20.0, dated=False),
        replace(usual, wrong_clock=-20.0, dated=False),
        replace(usual, others=200.0),
    ]
    return plain + unusual


def line(scenario: Scenario) -> str:
    rpm = " + ".join(f"{n} {model_type}" for model_type, n in scenario.rpm.items())
    least, most = scenario.seconds
    conditions = {
        "reset rounded up": scenario.round_up,
        f"clock {scenario.wrong_clock:+g} s": scenario.wrong_clock,
        "no Date": not scenario.dated,
        f"others {scenario.others:g} rpm": scenario.others,
    }
    figures = "".join(
        f"{run.ratio:8.1%}{run.refused['window']:6}{run.refused['lanes']:6}" for run in simulate(scenario)
    )
    unusual = ", ".join(name for name, present in conditions.items() if present)
    return f"{scenario.shape:26}{rpm:22}{scenario.concurrency:5}{least:6g}-{most:<4g}{figures}  {unusual}"


if __name__ == "__main__":
    run = f"{'ratio':>8}{'429 w':>6}{'429 l':>6}"
    print(f"{'':64}{'cold: 429s of window, lanes':^20}{'again':^20}")
    print(f"{'window':26}{'rpm':22}{'lanes':>5}{'seconds':>11}{run}{run}")
    for scenario in scenarios():
        print(line(scenario), flush=True)
