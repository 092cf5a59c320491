"""A service with rate windows and lanes, and the clients that use it, simulated in virtual time.

`bench_limits.py` measures `callsheet.limits` with it, and `tests/limits` tests it. Time jumps to the next
timer instead of passing, so the same seed gives the same figures on every machine.
"""

from __future__ import annotations

import asyncio
import math
import random
import selectors
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from callsheet.limits.limits import AccountLimits
from callsheet.records import ModelType

T = TypeVar("T")
BEGIN = 1_800_000_017.3  # Unix seconds at which virtual time begins: some way into a minute
WINDOW = 60.0


# Virtual time


class Jump(selectors.SelectSelector):
    """Jumps to the time of the next timer instead of waiting for it."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("every task waits for something that cannot happen")
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


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


# The service


class Meter(Protocol):
    """The window of one model type at the service; `now` is the service's Unix time."""

    limit: int

    def used(self, now: float) -> int: ...
    def take(self, now: float) -> None: ...
    def resets_at(self, now: float) -> float: ...
    def opens_at(self, now: float) -> float: ...


@dataclass
class FixedWindow:
    """The count restarts each minute: of the clock, or from the first request after the last window's end."""

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
    """Each request counts for a minute. The reset is when the oldest one stops counting, or when all have."""

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
    """A minute's tokens, which come back evenly. The reset is when all are back, or when the next one is."""

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
    """A window for each model type, and lanes for both (INTERFACE 8). A refused request counts in neither."""

    meters: dict[ModelType, Meter]
    concurrency: int
    round_up: bool = False
    at_work: int = 0
    most_at_work: int = 0
    accepted: Counter[ModelType] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def submit(self, model_type: ModelType, now: float) -> Answer:
        """A generation request that arrives at the service's Unix time `now`; if accepted, it is at work.

        Returns:
            The answer, with the count as it is on arrival.
        """
        meter, retry_after = self.meters[model_type], None
        accepted = True
        if meter.used(now) >= meter.limit:
            accepted, retry_after = False, math.ceil(max(1.0, meter.opens_at(now) - now))
            self.refused["window"] += 1
        elif self.at_work >= self.concurrency:
            accepted = False
            self.refused["lanes"] += 1
        else:
            meter.take(now)
            self.accepted[model_type] += 1
            self.at_work += 1
            self.most_at_work = max(self.most_at_work, self.at_work)
        return self.answer(model_type, now, accepted=accepted, retry_after=retry_after)

    def answer(
        self, model_type: ModelType, now: float, *, accepted: bool, retry_after: int | None = None
    ) -> Answer:
        """An answer with the count of this moment."""
        meter = self.meters[model_type]
        rounded = math.ceil if self.round_up else math.floor
        remaining = max(0, meter.limit - meter.used(now))
        return Answer(accepted, meter.limit, remaining, rounded(meter.resets_at(now)), int(now), retry_after)

    def fits(self, model_type: ModelType, now: float) -> bool:
        meter = self.meters[model_type]
        return meter.used(now) < meter.limit and self.at_work < self.concurrency

    def finish(self) -> None:
        self.at_work -= 1

    def other(self, model_type: ModelType, now: float) -> None:
        """A request of another client."""
        if self.meters[model_type].used(now) < self.meters[model_type].limit:
            self.meters[model_type].take(now)


# Its clients


@dataclass(frozen=True)
class Scenario:
    shape: str
    rpm: dict[ModelType, int]  # the model types that are wanted, and their limits
    concurrency: int
    seconds: tuple[float, float]  # a generation takes between these
    round_up: bool = False
    wrong_clock: float = 0.0  # seconds by which the client's clock is late
    dated: bool = True  # the client reads `Date`
    counted_late: bool = False  # an answer has the count of its own moment, not of the request's
    others: float = 0.0  # requests a minute that others send, of each type
    duration: float = 600.0

    def service(self) -> Service:
        return Service(
            {model_type: METERS[self.shape](limit) for model_type, limit in self.rpm.items()},
            self.concurrency,
            self.round_up,
        )


class Client:
    """One run: endless demand through one `AccountLimits`.

    `accepted_at` has the Unix time of each submission that the service accepted.
    """

    def __init__(self, scenario: Scenario, service: Service, limits: AccountLimits, seed: int) -> None:
        self.scenario, self.service, self.limits = scenario, service, limits
        self.random = random.Random(seed)
        self.accepted_at: list[float] = []
        self.tasks: set[asyncio.Task[None]] = set()

    async def work(self, until: float) -> None:
        workers = 2 * self.scenario.concurrency + 20
        for model_type in self.scenario.rpm:
            for _ in range(workers):
                self.start(self.endlessly(model_type))
            if self.scenario.others:
                self.start(self.others(model_type))
        await asyncio.sleep(until - asyncio.get_running_loop().time())
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def endlessly(self, model_type: ModelType) -> None:
        while True:
            await self.submit(model_type)

    async def submit(self, model_type: ModelType) -> None:
        transit = self.random.uniform
        seconds = transit(*self.scenario.seconds)
        async with self.limits.turn(model_type) as turn:
            turn.leaves()
            await asyncio.sleep(transit(0.02, 0.08))
            answer = self.service.submit(model_type, unix())
            if answer.accepted:
                self.accepted_at.append(unix())
            if answer.accepted and model_type is ModelType.IMAGE:
                await self.finish(seconds)
                if self.scenario.counted_late:
                    answer = self.service.answer(model_type, unix(), accepted=True)
            await asyncio.sleep(transit(0.02, 0.08))
            date = answer.date if self.scenario.dated else None
            turn.answered((answer.limit, answer.remaining, answer.reset, date))
            if answer.retry_after is not None:
                turn.window_full(answer.retry_after)
            elif not answer.accepted:
                turn.lanes_full()
            elif model_type is ModelType.VIDEO:
                turn.keep_lane()
                self.start(self.video(seconds))

    async def finish(self, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
        finally:
            self.service.finish()

    async def video(self, seconds: float) -> None:
        try:
            await self.finish(seconds)
        finally:
            self.limits.release()

    async def others(self, model_type: ModelType) -> None:
        while True:
            await asyncio.sleep(next_other(self.scenario, self.random))
            self.service.other(model_type, unix())


def unix() -> float:
    """The service's Unix time."""
    return BEGIN + asyncio.get_running_loop().time()


def next_other(scenario: Scenario, chance: random.Random) -> float:
    """Seconds until someone else sends the next request."""
    return chance.expovariate(scenario.others / WINDOW) if scenario.others else math.inf
