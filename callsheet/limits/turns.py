"""Turns: each submission waits for one, and reports what became of it (INTERFACE 8).

`Limits` has a `Pace` for each model type, which counts requests per window, and `Lanes`, which count the
generations at work of both types. A turn needs both. A 429 is not a failed attempt: the limits are learned
from it.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

from callsheet.limits.lanes import PROBE, Lanes
from callsheet.limits.pace import Pace, Window
from callsheet.records import ModelType


class Clock(Protocol):
    """The source of time, as the module `time` is; the event loop's timers must go by it."""

    def time(self) -> float:
        """Unix seconds."""

    def monotonic(self) -> float:
        """Seconds that never jump."""


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

    Report that the request leaves, and the answer before the turn ends. Without an answer it counts in the
    window, because it may have been carried out.
    """

    def __init__(self, limits: Limits, pace: Pace, sent_at: float) -> None:
        self._limits, self._pace, self._sent_at = limits, pace, sent_at
        self.sent = self.counts = self.kept = False

    def leaves(self) -> None:
        """Reports that the request is about to leave."""
        self.sent = self.counts = True
        self._limits.lanes.unsent -= 1
        self._limits.look()

    def unsent(self) -> None:
        """Reports that the request did not leave this machine after all: it does not count in the window."""
        self._limits.lanes.unsent += self.sent
        self.sent = self.counts = False

    def answered(
        self, limit: int | None, remaining: int | None, reset: int | None, date: float | None = None
    ) -> None:
        """Reports an answer of any status, before `window_full` or `lanes_full`.

        Args:
            limit: `X-RateLimit-Limit`; None where the answer has none, as for the next two.
            remaining: `X-RateLimit-Remaining`.
            reset: `X-RateLimit-Reset`, in Unix seconds.
            date: the answer's `Date` in Unix seconds: `reset` is by the service's clock, not by ours.
        """
        if limit is not None and remaining is not None and reset is not None:
            self._limits.lanes.proven = True
            ends = math.inf if date is None else self._limits.to_monotonic(reset, date)
            self._pace.learn(self._sent_at, limit=limit, remaining=remaining, ends=ends)
        self._limits.look()

    def window_full(self, retry_after: float) -> None:
        """Reports a 429 with `Retry-After` (seconds): this type waits that long."""
        self._refused()
        self._pace.hold(self._sent_at, self._limits.now(), retry_after)

    def lanes_full(self) -> None:
        """Reports a 429 without `Retry-After`: one lane fewer exists."""
        self._refused()
        self._limits.lanes.refused(self._limits.now())

    def accepted(self) -> None:
        """Reports that the service has carried the request out, whatever headers its answer has."""
        self._limits.lanes.proven = True

    def keep(self) -> None:
        """Reports an accepted video: its lane stays taken after this turn, until `Limits.release`."""
        self.kept = True

    def end(self) -> None:
        """Ends the turn; called once, by `Limits.turn`."""
        self._pace.end(self._sent_at, counts=self.counts)
        if self.counts:
            self._limits.lanes.accepted()
        self._limits.lanes.in_use -= not self.kept
        self._limits.lanes.unsent -= not self.sent
        self._limits.submissions += self.sent
        self._limits.look()

    def _refused(self) -> None:
        self.counts = False
        self._limits.rate_limited += 1


@dataclass(frozen=True, slots=True, order=True)
class _Waiter:
    """A caller that waits for its turn; the one with the lower ticket came first."""

    ticket: int
    future: asyncio.Future[Turn] = field(compare=False)


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
        clock: Clock = time,
    ) -> None:
        self._clock = clock
        self._offset = -math.inf  # the service's Unix time minus our monotonic time
        self.submissions = self.rate_limited = 0
        self.lanes = Lanes(cap=concurrency)
        self.paces = {ModelType.IMAGE: Pace(cap=image_rpm), ModelType.VIDEO: Pace(cap=video_rpm)}
        if remembered:
            self._recall(remembered)
        self._queues: dict[ModelType, deque[_Waiter]] = {model_type: deque() for model_type in ModelType}
        self._tickets = itertools.count()
        self._timer: asyncio.TimerHandle | None = None  # for the next look

    def _recall(self, remembered: Learned) -> None:
        now, unix = self.now(), self._clock.time()
        self.lanes.size, self.lanes.latched = remembered.lanes, remembered.latched
        if self.lanes.latched:
            self.lanes.grows_at = now + PROBE
        for model_type, window in remembered.windows.items():
            self.paces[ModelType(model_type)].recall(window, now, unix)

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
        self.look()

    def give_up(self) -> None:
        """Leaves the video of a kept or adopted lane to the next run.

        The service still counts its lane. It also counts for `concurrency`, this run's share; whether the
        service allows another lane, the answers will tell.
        """
        self.lanes.given_up += 1
        self.release()

    def blocked(self, patience: float) -> bool:
        """Whether somebody waits for a lane that will not come free: see `Lanes.blocked`."""
        return bool(self._first_in_line()) and self.lanes.blocked(self.now(), patience)

    def learned(self) -> Learned:
        """The limits to remember for the next run."""
        now, unix = self.now(), self._clock.time()
        windows = {str(model_type): pace.remember(now, unix) for model_type, pace in self.paces.items()}
        known_windows = {model_type: window for model_type, window in windows.items() if window}
        return Learned(self.lanes.size, self.lanes.latched, known_windows)

    def now(self) -> float:
        """Monotonic seconds."""
        return self._clock.monotonic()

    def to_monotonic(self, unix: float, date: float) -> float:
        """The service's Unix time in monotonic seconds.

        Args:
            unix: the time to convert.
            date: the `Date` of the answer that has just come, in Unix seconds.
        """
        # A Date is rounded down to the second and is old on arrival: the largest offset is the closest.
        self._offset = max(self._offset, date - self.now())
        return unix - self._offset

    def look(self) -> None:
        """Gives turns to those who may go now, and looks again when the next one may."""
        while (seconds := self._give_one()) == 0:
            pass
        if self._timer:
            self._timer.cancel()
        if seconds < math.inf:
            self._timer = asyncio.get_running_loop().call_later(seconds, self.look)

    def _give_one(self) -> float:
        """Gives a turn to the caller that has waited longest, of those whose window has a place.

        Returns:
            0 if it has; otherwise the seconds until it may, or infinity if something must change first.
        """
        if not any(self._queues.values()):
            return math.inf
        now = self.now()
        seconds = self.lanes.wait(now)
        if seconds > 0:
            return seconds
        soonest = math.inf
        for waiter, model_type in self._first_in_line():
            pace = self.paces[model_type]
            seconds = pace.wait(now)
            if seconds == 0:
                self._queues[model_type].popleft()
                self.lanes.take(now)
                waiter.future.set_result(Turn(self, pace, pace.send(now)))
                return 0.0
            soonest = min(soonest, seconds)
        return soonest

    def _first_in_line(self) -> list[tuple[_Waiter, ModelType]]:
        """The first caller of each type, in the order in which they came."""
        first = []
        for model_type, queue in self._queues.items():
            while queue and queue[0].future.done():  # cancelled
                queue.popleft()
            if queue:
                first.append((queue[0], model_type))
        return sorted(first) if len(first) > 1 else first

    async def _next_turn(self, model_type: ModelType) -> Turn:
        waiter = _Waiter(next(self._tickets), asyncio.get_running_loop().create_future())
        self._queues[model_type].append(waiter)
        self.look()
        try:
            return await waiter.future
        except asyncio.CancelledError:
            if not waiter.future.cancelled():  # the turn came at the same moment
                waiter.future.result().end()
            raise
