"""Turns: each submission waits for one, and reports what became of it (INTERFACE 8).

`Limits` has a `Pace` for each model type, which counts requests per window, and `Lanes`, which count the
generations at work of both types. A turn needs both. A 429 is not a failed attempt: the limits are learned
from it.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time as system
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from callsheet.limits.lanes import PROBE, Lanes
from callsheet.limits.pace import Pace, Send, Window
from callsheet.records import ModelType


class Clock(Protocol):
    """The source of time, so that tests need not wait."""

    def time(self) -> float:
        """Unix seconds."""

    def monotonic(self) -> float:
        """Seconds that never jump."""

    async def sleep(self, seconds: float) -> None:
        """Waits."""


class SystemClock:
    """The machine's clock."""

    time = staticmethod(system.time)
    monotonic = staticmethod(system.monotonic)
    sleep = staticmethod(asyncio.sleep)


SYSTEM_CLOCK = SystemClock()


@dataclass(frozen=True)
class Learned:
    """The limits that a run has learned, for the next run. `dataclasses.asdict` of it can be stored as JSON.

    Attributes:
        lanes: `Lanes.size`.
        latched: `Lanes.latched`.
        windows: the window of each model type.
    """

    lanes: int
    latched: bool
    windows: Mapping[str, Window]


class Turn:
    """The permission for one submission: a place in the window of its type, and a lane.

    Report the answer before the turn ends. A turn without a report counts as sent, because it may have been.
    """

    def __init__(self, limits: Limits, pace: Pace, send: Send) -> None:
        self._limits, self._pace, self._send = limits, pace, send
        self.sent = self.counts = True
        self.kept = False

    def unsent(self) -> None:
        """Nothing left this machine: the submission does not count in the window."""
        self.sent = self.counts = False

    def answered(
        self, limit: int | None, remaining: int | None, reset: int | None, date: float | None = None
    ) -> None:
        """Reports an answer of any status, before `window_full` or `lanes_full`.

        Args:
            limit: `X-RateLimit-Limit`; None where the answer has none, as for the next two.
            remaining: `X-RateLimit-Remaining`.
            reset: `X-RateLimit-Reset`, in Unix seconds.
            date: the answer's `Date` in Unix seconds; with it, `reset` is compared with the service's clock.
        """
        self._pace.answered = True
        if limit is not None and remaining is not None and reset is not None:
            self._limits.lanes.proven = True
            self._pace.learn(self._send, limit, remaining, reset, self._limits.to_monotonic(reset, date))
        self._limits.wake()

    def window_full(self, retry_after: float) -> None:
        """Reports a 429 with `Retry-After` (seconds): this type waits that long."""
        self._refused()
        self._pace.hold(self._send, self._limits.now(), retry_after)

    def lanes_full(self) -> None:
        """Reports a 429 without `Retry-After`: one lane fewer exists."""
        self._refused()
        self._limits.lanes.refused(self._limits.now())

    def leaves(self) -> None:
        """Reports that the request is about to leave, after an `unsent` for the time before."""
        self.sent = self.counts = True

    def accepted(self) -> None:
        """Reports that the service has carried the request out, whatever headers its answer has."""
        self._limits.lanes.proven = True

    def keep(self) -> None:
        """Reports an accepted video: its lane stays taken after this turn, until `Limits.release`."""
        self.kept = True

    def end(self) -> None:
        """Ends the turn; called once, by `Limits.turn`."""
        self._pace.end(self._send, counts=self.counts)
        if self.counts:
            self._limits.lanes.accepted()
        self._limits.lanes.in_use -= not self.kept
        self._limits.submissions += self.sent
        self._limits.wake()

    def _refused(self) -> None:
        self.counts = False
        self._limits.rate_limited += 1


class Limits:
    """Gives out turns as fast as the service's limits allow; for one event loop.

    Args:
        image_rpm: this run may submit at most so many images a minute, whatever the service allows. None for
            no limit of its own, as for the next two.
        video_rpm: the same for videos.
        concurrency: this run may take at most so many lanes.
        remembered: the limits that an earlier run has learned.
        clock: the source of time.

    Attributes:
        submissions: requests that left this machine.
        rate_limited: requests that were answered 429.
    """

    def __init__(
        self,
        *,
        image_rpm: int | None = None,
        video_rpm: int | None = None,
        concurrency: int | None = None,
        remembered: Learned | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._offset: float | None = None  # the service's Unix time minus our monotonic time
        self.submissions = self.rate_limited = 0
        self.lanes = Lanes(cap=concurrency)
        self.paces = {ModelType.IMAGE: Pace(cap=image_rpm), ModelType.VIDEO: Pace(cap=video_rpm)}
        if remembered:
            self._recall(remembered)
        self._queues = {model_type: asyncio.Lock() for model_type in ModelType}
        self._tickets = itertools.count()
        self._first: dict[ModelType, int] = {}  # the ticket of the caller that is first in each queue
        self._change = asyncio.Event()

    def _recall(self, remembered: Learned) -> None:
        now = self.now()
        self.lanes.size, self.lanes.latched = remembered.lanes, remembered.latched
        if self.lanes.latched:
            self.lanes.grows_at = now + PROBE
        for model_type, window in remembered.windows.items():
            ends = self.to_monotonic(window["reset"])
            self.paces[ModelType(model_type)].recall(window, now, self._clock.time(), ends)

    @asynccontextmanager
    async def turn(self, model_type: ModelType) -> AsyncGenerator[Turn, None]:
        """Waits for a place in the type's window and for a lane. Within a type, first come, first served."""
        turn = await self._next_turn(model_type)
        try:
            yield turn
        finally:
            turn.end()

    def adopt(self, n: int = 1) -> None:
        """Counts `n` lanes as taken: videos that an earlier run submitted and that are still pending."""
        self.lanes.in_use += n
        self.lanes.size = max(self.lanes.size, self.lanes.in_use)  # the service has accepted that many
        self.lanes.proven = self.lanes.proven or n > 0

    def release(self) -> None:
        """Frees a kept or adopted lane: its video is finished."""
        if not self.lanes.in_use:
            raise ValueError("release() without a kept or adopted lane")
        self.lanes.in_use -= 1
        self.wake()

    def give_up(self) -> None:
        """Leaves the video of a kept or adopted lane to the next run.

        The service still counts its lane. It also counts for `concurrency`, this run's share; whether the
        service allows another lane, the answers will tell.
        """
        self.lanes.given_up += 1
        self.release()

    def blocked(self, patience: float) -> bool:
        """Whether somebody waits for a lane that will not come free: see `Lanes.blocked`."""
        return bool(self._first) and self.lanes.blocked(self.now(), patience)

    def learned(self) -> Learned:
        """The limits to remember for the next run."""
        now, unix = self.now(), self._clock.time()
        windows = {str(model_type): pace.remember(now, unix) for model_type, pace in self.paces.items()}
        known_windows = {model_type: window for model_type, window in windows.items() if window}
        return Learned(self.lanes.size, self.lanes.latched, known_windows)

    def now(self) -> float:
        """Monotonic seconds."""
        return self._clock.monotonic()

    def to_monotonic(self, unix: float, date: float | None = None) -> float:
        """The service's Unix time in monotonic seconds; by our own clock until an answer has had a `Date`.

        Args:
            unix: the time to convert.
            date: the `Date` of the answer that has just come, in Unix seconds.
        """
        now = self.now()
        if date is not None:
            # A Date is rounded down to the second and is old on arrival: the largest offset is the closest.
            self._offset = max(date - now, self._offset or -math.inf)
        offset = self._clock.time() - now if self._offset is None else self._offset
        return unix - offset

    def wake(self) -> None:
        """Lets everyone who waits check again."""
        self._change.set()
        self._change = asyncio.Event()

    async def _next_turn(self, model_type: ModelType) -> Turn:
        ticket = next(self._tickets)
        async with self._queues[model_type]:  # an asyncio lock is first come, first served
            self._first[model_type] = ticket
            try:
                while (seconds := self._wait(model_type)) > 0:
                    await self._sleep(seconds)
                now, pace = self.now(), self.paces[model_type]
                self.lanes.take(now)
                return Turn(self, pace, pace.send(now))
            finally:
                del self._first[model_type]
                self.wake()

    def _wait(self, model_type: ModelType) -> float:
        """Seconds until the first of this type may go; infinity if something must change first."""
        now = self.now()
        seconds = self.paces[model_type].wait(now) or self.lanes.wait(now)
        if seconds == 0 and any(
            self._first[other] < self._first[model_type] and self.paces[other].wait(now) == 0
            for other in self._first
        ):
            return math.inf  # the other type has waited longer for a lane: it goes first, and then wakes us
        return seconds

    async def _sleep(self, seconds: float) -> None:
        """Waits until something changes, at most `seconds`."""
        waits: list[asyncio.Future[object]] = [asyncio.ensure_future(self._change.wait())]
        if seconds < math.inf:
            waits.append(asyncio.ensure_future(self._clock.sleep(seconds)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
