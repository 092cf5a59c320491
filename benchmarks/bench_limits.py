"""How near `callsheet.limits` comes to the ideal, against a simulated service, in virtual time.

    python benchmarks/bench_limits.py

Each line is ten minutes of endless demand. The ideal knows the service's state, and sends at the very moment
at which a request would be accepted and a round trip has freed a lane; the ratio is of accepted submissions.
`cold` begins without knowledge, `again` with what that run learned, half a minute after its end. Nothing here
measures the machine: the same seed gives the same figures everywhere.
"""

from __future__ import annotations

import asyncio
import copy
import heapq
import math
import random
import selectors
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from callsheet.limits.limits import Learned, Limits
from callsheet.records import ModelType

T = TypeVar("T")
BEGIN = 1_800_000_017.3  # Unix seconds at which virtual time begins: some way into a minute
WINDOW = 60.0


# Virtual time


class Jump(selectors.SelectSelector):
    """Instead of waiting for the next timer, time jumps to it."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("every task waits for something that cannot happen any more")
        self.now += timeout
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jump = Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now


class VirtualClock:
    """The clock of a `VirtualLoop`; `wrong` is by how many seconds its Unix time is late."""

    def __init__(self, wrong: float = 0.0) -> None:
        self.wrong = wrong

    def time(self) -> float:
        return BEGIN + self.monotonic() - self.wrong

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


# The service


class Meter(Protocol):
    """One kind's window at the service; `now` is the service's Unix time."""

    limit: int

    def used(self, now: float) -> int: ...
    def take(self, now: float) -> None: ...
    def resets_at(self, now: float) -> float: ...
    def opens_at(self, now: float) -> float: ...


@dataclass
class FixedWindow:
    """The count starts anew each minute: of the clock, or from the first request after the last one's end."""

    limit: int
    by_the_clock: bool = True
    window: float = WINDOW
    ends: float = -math.inf
    count: int = 0

    def used(self, now: float) -> int:
        if now >= self.ends:
            self.count = 0
        return self.count

    def take(self, now: float) -> None:
        self.count, self.ends = self.used(now) + 1, self.resets_at(now)

    def resets_at(self, now: float) -> float:
        if now < self.ends:
            return self.ends
        return (now // self.window + 1) * self.window if self.by_the_clock else now + self.window

    opens_at = resets_at


@dataclass
class SlidingWindow:
    """Each request counts for a minute. The reset is when the oldest one goes, or when all will have gone."""

    limit: int
    reset_of_oldest: bool = True
    log: deque[float] = field(default_factory=deque)

    def used(self, now: float) -> int:
        while self.log and self.log[0] <= now - WINDOW:
            self.log.popleft()
        return len(self.log)

    def take(self, now: float) -> None:
        self.log.append(now)

    def resets_at(self, now: float) -> float:
        return self.log[0] + WINDOW if self.log and self.reset_of_oldest else now + WINDOW

    def opens_at(self, now: float) -> float:
        return self.log[0] + WINDOW


@dataclass
class TokenBucket:
    """A minute's tokens that flow back evenly. The reset is when all are back, or when the next one is."""

    limit: int
    reset_when_full: bool = True
    spent: float = 0.0
    at: float = 0.0

    def level(self, now: float) -> float:
        self.spent = max(0.0, self.spent - (now - self.at) * self.limit / WINDOW)
        self.at = now
        return self.spent

    def used(self, now: float) -> int:
        return math.ceil(self.level(now) - 1e-9)

    def take(self, now: float) -> None:
        self.spent = self.level(now) + 1

    def opens_at(self, now: float) -> float:
        return now + max(0.0, self.level(now) + 1 - self.limit) * WINDOW / self.limit

    def resets_at(self, now: float) -> float:
        return (
            now + self.level(now) * WINDOW / self.limit if self.reset_when_full else self.opens_at(now) + 1e-3
        )


METERS: dict[str, Callable[[int], Meter]] = {
    "fixed, by the clock": FixedWindow,
    "fixed, from the first": partial(FixedWindow, by_the_clock=False),
    "sliding, reset of oldest": SlidingWindow,
    "sliding, reset of newest": partial(SlidingWindow, reset_of_oldest=False),
    "bucket, reset when full": TokenBucket,
    "bucket, reset of next": partial(TokenBucket, reset_when_full=False),
}
SHAPES = tuple(METERS)


@dataclass(frozen=True)
class Answer:
    accepted: bool
    limit: int
    remaining: int
    reset: int
    date: int
    retry_after: int | None


@dataclass
class Service:
    """Windows per kind and lanes for both (INTERFACE 8). A refused request counts nowhere."""

    meters: dict[ModelType, Meter]
    concurrency: int
    round_up: bool = False
    at_work: int = 0
    most_at_work: int = 0
    accepted: Counter[ModelType] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def submit(self, kind: ModelType, now: float) -> Answer:
        """A generation request that arrives at the service's Unix time `now`; if accepted, it is at work."""
        meter, retry_after = self.meters[kind], None
        accepted = True
        if meter.used(now) >= meter.limit:
            accepted, retry_after = False, math.ceil(max(1.0, meter.opens_at(now) - now))
            self.refused["window"] += 1
        elif self.at_work >= self.concurrency:
            accepted = False
            self.refused["lanes"] += 1
        else:
            meter.take(now)
            self.accepted[kind] += 1
            self.at_work += 1
            self.most_at_work = max(self.most_at_work, self.at_work)
        rounded = math.ceil if self.round_up else math.floor
        remaining = max(0, meter.limit - meter.used(now))
        return Answer(accepted, meter.limit, remaining, rounded(meter.resets_at(now)), int(now), retry_after)

    def fits(self, kind: ModelType, now: float) -> bool:
        meter = self.meters[kind]
        return meter.used(now) < meter.limit and self.at_work < self.concurrency

    def finish(self) -> None:
        self.at_work -= 1

    def other(self, kind: ModelType, now: float) -> None:
        """Someone else's request."""
        if self.meters[kind].used(now) < self.meters[kind].limit:
            self.meters[kind].take(now)


# Its users


@dataclass(frozen=True)
class Scenario:
    shape: str
    rpm: dict[ModelType, int]  # the kinds that are wanted, and their limits
    concurrency: int
    seconds: tuple[float, float]  # a generation takes between these
    round_up: bool = False
    wrong_clock: float = 0.0  # seconds by which the client's clock is late
    dated: bool = True  # the client reads `Date`
    others: float = 0.0  # requests a minute that others send, of each kind
    duration: float = 600.0

    def service(self) -> Service:
        return Service(
            {k: METERS[self.shape](n) for k, n in self.rpm.items()}, self.concurrency, self.round_up
        )


class Crew:
    """Callsheet's side: endless demand through one `Limits`."""

    def __init__(self, scenario: Scenario, service: Service, limits: Limits, seed: int) -> None:
        self.scenario, self.service, self.limits = scenario, service, limits
        self.random = random.Random(seed)
        self.tasks: set[asyncio.Task[None]] = set()

    async def work(self, until: float) -> None:
        workers = 2 * self.scenario.concurrency + 20
        for kind in self.scenario.rpm:
            for _ in range(workers):
                self.start(self.endlessly(kind))
            if self.scenario.others:
                self.start(self.others(kind))
        await asyncio.sleep(until - asyncio.get_running_loop().time())
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def endlessly(self, kind: ModelType) -> None:
        while True:
            await self.submit(kind)

    async def submit(self, kind: ModelType) -> None:
        transit = self.random.uniform
        seconds = transit(*self.scenario.seconds)
        async with self.limits.turn(kind) as turn:
            await asyncio.sleep(transit(0.02, 0.08))
            answer = self.service.submit(kind, unix())
            if answer.accepted and kind is ModelType.IMAGE:
                await self.finish(seconds)
            await asyncio.sleep(transit(0.02, 0.08))
            date = answer.date if self.scenario.dated else None
            turn.answered(answer.limit, answer.remaining, answer.reset, date)
            if answer.retry_after is not None:
                turn.window_full(answer.retry_after)
            elif not answer.accepted:
                turn.lanes_full()
            elif kind is ModelType.VIDEO:
                turn.keep()
                self.start(self.film(seconds))

    async def finish(self, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
        finally:
            self.service.finish()

    async def film(self, seconds: float) -> None:
        try:
            await self.finish(seconds)
        finally:
            self.limits.release()

    async def others(self, kind: ModelType) -> None:
        while True:
            await asyncio.sleep(next_other(self.scenario, self.random))
            self.service.other(kind, unix())


def unix() -> float:
    """The service's time."""
    return BEGIN + asyncio.get_running_loop().time()


def ideal(scenario: Scenario, service: Service, begins: float, seed: int = 1) -> int:
    """How many requests one who knows everything gets accepted; it looks every 10 ms."""
    service, chance = copy.deepcopy(service), random.Random(seed)
    busy: list[float] = []
    others = {k: next_other(scenario, chance) for k in scenario.rpm}
    kinds = deque(scenario.rpm)
    accepted = 0
    for tick in range(int(scenario.duration * 100)):
        now = tick / 100
        while busy and busy[0] <= now:
            heapq.heappop(busy)
            service.finish()
        for kind, at in others.items():
            if at <= now:
                others[kind] += next_other(scenario, chance)
                service.other(kind, begins + now)
        refused = 0
        while refused < len(kinds):
            kinds.rotate()
            refused += 1
            if service.fits(kinds[0], begins + now):
                service.submit(kinds[0], begins + now)
                round_trip = chance.uniform(0.02, 0.08) + chance.uniform(0.02, 0.08)
                heapq.heappush(busy, now + chance.uniform(*scenario.seconds) + round_trip)
                accepted, refused = accepted + 1, 0
    return accepted


def next_other(scenario: Scenario, chance: random.Random) -> float:
    """Seconds until someone else sends the next request."""
    return chance.expovariate(scenario.others / WINDOW) if scenario.others else math.inf


@dataclass(frozen=True)
class Run:
    ratio: float
    refused: Counter[str]
    learned: Learned


def simulate(scenario: Scenario, *, seed: int = 1, runs: int = 2, idle: float = 30) -> list[Run]:
    """Runs one after the other against one service, each with what the one before it learned."""

    async def main() -> list[Run]:
        service = scenario.service()
        outcomes: list[Run] = []
        for number in range(runs):
            service.accepted, service.refused = Counter(), Counter()
            best = ideal(scenario, service, unix())
            learned = outcomes[-1].learned if outcomes else None
            limits = Limits(remembered=learned, clock=VirtualClock(scenario.wrong_clock))
            began = asyncio.get_running_loop().time()
            await Crew(scenario, service, limits, seed + number).work(began + scenario.duration)
            outcomes.append(Run(service.accepted.total() / best, service.refused, limits.learned()))
            await asyncio.sleep(idle)
        return outcomes

    return run_virtual(main())


IMAGES, VIDEOS = ModelType.IMAGE, ModelType.VIDEO


QUICK, SLOW = (0.3, 3.0), (5.0, 10.0)


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
    odd = [
        replace(usual, round_up=True),
        replace(usual, wrong_clock=20.0),
        replace(usual, wrong_clock=-20.0),
        replace(usual, wrong_clock=20.0, dated=False),
        replace(usual, wrong_clock=-20.0, dated=False),
        replace(usual, others=200.0),
    ]
    return plain + odd


def line(scenario: Scenario) -> str:
    rpm = " + ".join(f"{n} {kind}" for kind, n in scenario.rpm.items())
    least, most = scenario.seconds
    oddities = {
        "reset rounded up": scenario.round_up,
        f"clock {scenario.wrong_clock:+g} s": scenario.wrong_clock,
        "no Date": not scenario.dated,
        f"others {scenario.others:g} rpm": scenario.others,
    }
    figures = "".join(
        f"{run.ratio:8.1%}{run.refused['window']:6}{run.refused['lanes']:6}" for run in simulate(scenario)
    )
    oddity = ", ".join(name for name, present in oddities.items() if present)
    return f"{scenario.shape:26}{rpm:22}{scenario.concurrency:5}{least:6g}-{most:<4g}{figures}  {oddity}"


if __name__ == "__main__":
    run = f"{'ratio':>8}{'429 w':>6}{'429 l':>6}"
    print(f"{'':64}{'cold: 429s of window, lanes':^20}{'again':^20}")
    print(f"{'window':26}{'rpm':22}{'lanes':>5}{'seconds':>11}{run}{run}")
    for scenario in scenarios():
        print(line(scenario), flush=True)
