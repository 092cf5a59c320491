"""When the next submission may leave, learned from the service's answers (INTERFACE 8).

A `Pace` for each type counts requests per window, and `Lanes` count the generations at work of both types.
`Limits` waits for both, on a clock that is handed in; callers use one `turn` per submission. Nothing here
sends, retries or reads a body. A 429 is no failed attempt: it is how the limits are learned.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time as machine
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from callsheet.limits.pace import Pace, Send, Window
from callsheet.records import ModelType

FIRST_LANES = 8
RAMP = 0.1  # seconds between two steps of the ramp, each of 10 %
RAMP_MOST = 3  # lanes that a step adds at the most: as many may be too many before the first 429 is back
PROBE = 60.0  # seconds between two probes of latched lanes
ALONE = (1.0, 10.0)  # seconds between two tries while others hold every lane: the first, and the longest


class Clock(Protocol):
    """Where time comes from, so that tests need not wait for it."""

    def time(self) -> float:
        """Unix seconds."""

    def monotonic(self) -> float:
        """Seconds that never jump."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's clock."""

    time = staticmethod(machine.time)
    monotonic = staticmethod(machine.monotonic)
    sleep = staticmethod(asyncio.sleep)


SYSTEM = SystemClock()


@dataclass(frozen=True)
class Learned:
    """What a run has learned, for the next one; `dataclasses.asdict` of it is JSON, and makes it again."""

    lanes: int
    latched: bool
    windows: Mapping[str, Window]


@dataclass(slots=True, eq=False)
class Lanes:
    """Generations at work at once, of both types. Every `now` is in monotonic seconds.

    The size grows only when every lane is taken and one more is wanted: fast until the first refusal, then
    by one after a minute. A probe that is refused makes the next one wait twice as long, up to four minutes;
    one that is not makes the next one twice as large.
    """

    size: int = FIRST_LANES
    cap: int | None = None
    latched: bool = False
    in_use: int = 0
    given_up: int = 0  # beside these: held by videos that this run asks after no more; they count for the cap
    grows_at: float = -math.inf
    _probe: int = 1
    _patience: float = PROBE
    _alone: float = ALONE[0]
    _blocked_until: float = -math.inf
    _alone_since: float = math.inf

    def blocked(self, now: float, patience: float) -> bool:
        """Whether none of ours can free a lane, and others have held them all for `patience` seconds."""
        if self.cap is not None and self.given_up >= self.cap:
            return True
        return now - self._alone_since > patience

    def wait(self, now: float) -> float:
        """Seconds until one more may be taken; 0 for now, infinity if one must be freed first."""
        if now < self._blocked_until:
            return self._blocked_until - now
        if self.in_use > self.size or (self.cap is not None and self.in_use + self.given_up >= self.cap):
            return math.inf
        return 0.0 if self.in_use < self.size else max(0.0, self.grows_at - now)

    def take(self, now: float) -> None:
        """Take one; `wait` has said that it may be."""
        if self.in_use == self.size:
            if self.latched:
                self._patience = PROBE if self._probe > 1 else min(2 * self._patience, 4 * PROBE)
                self.size, self._probe, self.grows_at = self.size + self._probe, 2 * self._probe, now + PROBE
            else:
                self.size += max(1, min(self.size // 10, RAMP_MOST))
                self.grows_at = now + RAMP
        self.in_use += 1

    def fitted(self) -> None:
        """A send was let in: whoever held every lane has let go of one."""
        self._alone, self._alone_since = ALONE[0], math.inf

    def full(self, now: float) -> None:
        """429 without `Retry-After`, for a send whose lane is still taken: one fewer fits."""
        self.size = max(1, min(self.size, self.in_use) - 1)
        self.latched, self._probe, self.grows_at = True, 1, now + self._patience
        if self.in_use == 1:  # none of ours is left to wait for
            self._alone_since = min(self._alone_since, now)
            self._blocked_until = now + self._alone
            self._alone = min(2 * self._alone, ALONE[1])


class Turn:
    """One submission: a place in its type's window and a lane. Say what became of it before it ends.

    A turn that ends without a word counts as sent, because it may have been.
    """

    def __init__(self, limits: Limits, pace: Pace, send: Send) -> None:
        self._limits, self._pace, self._send = limits, pace, send
        self.sent = self.counts = True
        self.kept = False

    def unsent(self) -> None:
        """Nothing left this machine: the send is given back to the window."""
        self.sent = self.counts = False

    def answered(
        self, limit: int | None, remaining: int | None, reset: int | None, date: float | None = None
    ) -> None:
        """Take in the `X-RateLimit-*` of an answer of any status (None where it had none), before `..._full`.

        Args:
            date: the answer's `Date` in Unix seconds; with it, `reset` is read by the service's clock.
        """
        self._pace.told = True
        if limit is not None and remaining is not None and reset is not None:
            self._pace.learn(self._send, limit, remaining, reset, self._limits.moment(reset, date))
        self._limits.changed()

    def window_full(self, retry_after: float) -> None:
        """429 with `Retry-After` (seconds): this type waits as told."""
        self._refused()
        self._pace.hold(self._send, self._limits.now(), retry_after)

    def lanes_full(self) -> None:
        """429 without `Retry-After`: one lane fewer, and no more ramp."""
        self._refused()
        self._limits.lanes.full(self._limits.now())

    def keep(self) -> None:
        """A video was accepted: its lane stays taken after this turn, until `Limits.release`."""
        self.kept = True

    def end(self) -> None:
        """Settle it, once."""
        self._pace.end(self._send, counts=self.counts)
        if self.counts:
            self._limits.lanes.fitted()
        self._limits.lanes.in_use -= not self.kept
        self._limits.submissions += self.sent
        self._limits.changed()

    def _refused(self) -> None:
        self.counts = False
        self._limits.rate_limited += 1


class Limits:
    """Turns at the service, as fast as its limits allow; for one event loop.

    Args:
        image_rpm, video_rpm, concurrency: hard upper bounds, this run's share of the workspace's limits.
            None means that only the answers tell.
        remembered: what an earlier run has `learned`.
        clock: where time comes from.

    Attributes:
        submissions: requests that left this machine.
        rate_limited: those answered 429.
    """

    def __init__(
        self,
        *,
        image_rpm: int | None = None,
        video_rpm: int | None = None,
        concurrency: int | None = None,
        remembered: Learned | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        self._clock = clock
        self._ahead: float | None = None  # the service's Unix time less our monotonic time
        self.submissions = self.rate_limited = 0
        self.lanes = Lanes(cap=concurrency)
        self.paces = {ModelType.IMAGE: Pace(cap=image_rpm), ModelType.VIDEO: Pace(cap=video_rpm)}
        if remembered:
            self.lanes.size, self.lanes.latched = remembered.lanes, remembered.latched
            if self.lanes.latched:
                self.lanes.grows_at = self.now() + PROBE
            for model_type, window in remembered.windows.items():
                ends = self.moment(window["reset"])
                self.paces[ModelType(model_type)].recall(window, self.now(), clock.time(), ends)
        self._queues = {model_type: asyncio.Lock() for model_type in ModelType}
        self._tickets = itertools.count()
        self._heads: dict[ModelType, int] = {}
        self._change = asyncio.Event()

    @asynccontextmanager
    async def turn(self, model_type: ModelType) -> AsyncGenerator[Turn, None]:
        """Wait for room in the type's window and for a lane, and hold both; FIFO within a type."""
        turn = await self._next_turn(model_type)
        try:
            yield turn
        finally:
            turn.end()

    def adopt(self, n: int = 1) -> None:
        """Count `n` lanes as taken: videos that an earlier run submitted and that are still pending."""
        self.lanes.in_use += n
        self.lanes.size = max(self.lanes.size, self.lanes.in_use)  # the service has let in so many

    def release(self) -> None:
        """Free a kept or adopted lane: its video is finished."""
        if not self.lanes.in_use:
            raise ValueError("release() without a kept or adopted lane")
        self.lanes.in_use -= 1
        self.changed()

    def give_up(self) -> None:
        """The video of a kept or adopted lane is left to the next run.

        It still holds its lane at the service: it goes on counting for the cap, this run's share; whether
        there is room beside it is for the answers to tell.
        """
        self.lanes.given_up += 1
        self.release()

    def blocked(self, patience: float) -> bool:
        """Whether somebody waits for a lane that will not come free: see `Lanes.blocked`."""
        return bool(self._heads) and self.lanes.blocked(self.now(), patience)

    def learned(self) -> Learned:
        """What to remember for the next run."""
        now, unix = self.now(), self._clock.time()
        windows = {str(model_type): pace.remember(now, unix) for model_type, pace in self.paces.items()}
        return Learned(self.lanes.size, self.lanes.latched, {k: w for k, w in windows.items() if w})

    def now(self) -> float:
        """Monotonic seconds."""
        return self._clock.monotonic()

    def moment(self, unix: float, date: float | None = None) -> float:
        """The service's Unix time as a monotonic moment; by our own clock until some answer had a `Date`."""
        now = self.now()
        if date is not None:
            # A Date is cut to the second and was some way under way: the greatest difference is the nearest.
            self._ahead = max(date - now, self._ahead or -math.inf)
        ahead = self._clock.time() - now if self._ahead is None else self._ahead
        return unix - ahead

    def changed(self) -> None:
        """Let those who wait look again."""
        self._change.set()
        self._change = asyncio.Event()

    async def _next_turn(self, model_type: ModelType) -> Turn:
        ticket = next(self._tickets)
        async with self._queues[model_type]:  # a lock serves in the order of asking
            self._heads[model_type] = ticket
            try:
                while (seconds := self._wait(model_type)) > 0:
                    await self._sleep(seconds)
                now, pace = self.now(), self.paces[model_type]
                self.lanes.take(now)
                return Turn(self, pace, pace.send(now))
            finally:
                del self._heads[model_type]
                self.changed()

    def _wait(self, model_type: ModelType) -> float:
        """Seconds until the first of this type may go; infinity if something must change first."""
        now = self.now()
        seconds = self.paces[model_type].wait(now) or self.lanes.wait(now)
        if seconds == 0 and any(
            self._heads[other] < self._heads[model_type] and self.paces[other].wait(now) == 0
            for other in self._heads
        ):
            return math.inf  # the other type has waited longer for a lane: it goes first, and says so
        return seconds

    async def _sleep(self, seconds: float) -> None:
        """Until something changes, `seconds` at the most."""
        waits: list[asyncio.Future[object]] = [asyncio.ensure_future(self._change.wait())]
        if seconds < math.inf:
            waits.append(asyncio.ensure_future(self._clock.sleep(seconds)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
