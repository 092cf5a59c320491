"""How fast to send: a pace for each kind and lanes for both, learned from the service's answers (INTERFACE 8).

`Pace` counts requests per window for one kind, `Lanes` counts generations at work for both kinds together.
Both are plain state on a clock that is handed in: they never wait. `Limits` is what waits, and what callers
use: one `turn` per submission. Nothing here sends, retries or reads a body; a 429 is no failed attempt, it is
how the limits are learned.

The interface names a 60 second window and does not say how it moves. What the answers show decides:

- fixed: the count starts anew at `X-RateLimit-Reset`; then a whole window may be sent at once;
- sliding: each request counts for 60 seconds;
- bucket: the count falls steadily.

Until they show it, the most careful reading (sliding) is followed, and one request alone goes past a reset to
see what the window does.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time as machine
from bisect import bisect_right
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypedDict

from callsheet.records import Kind

WINDOW = 60.0  # seconds (INTERFACE 8)
UNTOLD = 60  # requests of a kind that may leave before the first answer tells its limit
SHORTEST = 5.0  # seconds: a reset that is never further off is that of a bucket's next token
SAME = 2  # seconds by which two resets may differ and still be one window's: rounding, and no more
FIRST_LANES = 8
RAMP = 0.1  # seconds between two steps of the ramp
RAMP_MOST = 3  # lanes that one step adds at the most: what is overshot is answered 429
TICK = 0.001  # seconds that are waited at the least
PAD = 0.25  # seconds that a request counts beyond its 60: its way to the service took some time
PROBE = 60.0  # seconds between two probes of latched lanes


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


class Shape(StrEnum):
    """How a window moves, as far as the answers have shown it."""

    UNKNOWN = "unknown"
    FIXED = "fixed"
    SLIDING = "sliding"
    BUCKET = "bucket"


class Window(TypedDict):
    """What is remembered of one kind's pace: `reset` is the service's Unix time, `margin` seconds."""

    limit: int
    used: int
    reset: int
    shape: str
    margin: float


@dataclass(frozen=True)
class Learned:
    """What a run has learned, for the next one: JSON by `dataclasses.asdict`, and back by `Learned(**json)`."""

    lanes: int
    latched: bool
    windows: Mapping[str, Window]


@dataclass(slots=True, eq=False)
class Send:
    """A request that left at `at`. `counted` of ours had been answered then, of the last 58 seconds: whatever the
    window's shape, a service that forgets nothing early counts at least these. `reset` is from its answer.
    """

    at: float
    counted: int
    reset: int | None = None


@dataclass(frozen=True, slots=True)
class Count:
    """The service's count, from the answer to the send that left at `at`; the window ends at `ends` (monotonic)."""

    at: float
    used: int
    ends: float


@dataclass(slots=True, eq=False)
class Pace:
    """Requests of one kind per window. Every `now` is in monotonic seconds."""

    cap: int | None = None
    limit: int | None = None
    shape: Shape = Shape.UNKNOWN
    margin: float = 1.05  # seconds after a reset until a request is sure to count in the next window
    reset: int | None = None  # the current window, by the service's clock
    count: Count | None = None
    held_until: float = -math.inf
    told: bool = False  # some answer has come, with or without a limit
    _rolls: bool = False  # a reset moved before it was due: the windows are not fixed
    _own: int = 0  # sends answered, or given up, in the current window
    _others: int = 0  # requests of others that are certain to count in it
    _since: float = -math.inf  # a send after this moment may count in the current window
    _log: list[float] = field(default_factory=list)  # when sends left, oldest first, for two windows
    _flying: list[float] = field(default_factory=list)  # those without an answer
    _refusals: int = 0  # rounds of 429 since the last accepted send

    def wait(self, now: float) -> float:
        """Seconds until one more may be sent; 0 for now, infinity if only an answer can tell."""
        if now < self.held_until:
            return self.held_until - now
        own = self._own_used(now)
        limit = self.limit
        if limit is None and self.cap is None and not self.told:
            limit = UNTOLD
        if (self.cap is None or own < self.cap) and (
            limit is None or self._used(now, own) < limit or self._may_look(now)
        ):
            return 0.0
        return self._next_room(now) - now

    def send(self, now: float) -> Send:
        """Count one that leaves now."""
        at = max(now, self._log[-1] + 1e-6) if self._log else now  # a send's time is its name
        del self._log[: bisect_right(self._log, now - 2 * WINDOW)]
        counted = max(0, self._within(now, WINDOW - SAME) - len(self._flying))
        self._log.append(at)
        self._flying.append(at)
        return Send(at, counted)

    def learn(self, send: Send, limit: int, remaining: int, reset: int, ends: float) -> None:
        """Take in the headers of an answer; `ends` is `reset` in monotonic seconds. Answers come in any order."""
        self.told = True
        send.reset = reset
        if self.reset is None:
            self.reset = reset
        moved = abs(reset - self.reset) > SAME
        if reset < self.reset - SAME and not self._rolls:
            return  # of a window that is over
        if self.count and send.at < self.count.at and (self._rolls or not moved):
            return  # a later send has told more
        used = max(0, limit - remaining)
        if moved:
            self._turn_over(send, used, limit, reset, ends)
        elif not self._rolls:
            # Sent after the reset and yet counted before it: the clocks differ by that much.
            self.margin = min(max(self.margin, send.at - ends + 0.5), WINDOW)
        if self.shape is Shape.FIXED:
            self._others = max(self._others, used - self._own - len(self._flying))
        self.limit, self.count = limit, Count(send.at, used, ends)

    def _turn_over(self, send: Send, used: int, limit: int, reset: int, ends: float) -> None:
        """The reset has moved: see from the count which shape the window has."""
        ended = self.count.ends if self.count else -math.inf
        self._rolls = self._rolls or send.at < ended - 3
        if used < send.counted - 1:  # it has forgotten some: most of them at once, or a few at a time?
            since = bisect_right(self._log, send.at) - bisect_right(self._log, ended - SAME)
            fixed = not self._rolls and used - since < send.counted / 2 and ends - send.at > SHORTEST
            self.shape = Shape.FIXED if fixed else Shape.BUCKET
        elif self.shape is not Shape.BUCKET and (self._rolls or send.counted > limit / 4):
            self.shape = Shape.SLIDING
        self.reset, self._own, self._since = reset, 0, ended - SAME
        self._others = 0

    def hold(self, send: Send, now: float, retry_after: float) -> None:
        """429 with `Retry-After`: wait as told, and twice as long each time that was not enough."""
        self.told = True
        if send.at >= self.held_until:
            self._refusals += 1
        if self.count and self.count.at == send.at >= self.count.ends and not self._rolls:
            self.margin = min(
                max(self.margin, now + retry_after - self.count.ends), WINDOW
            )  # the clocks differ
        again = min(2 ** (self._refusals - 1), WINDOW)
        self.held_until = max(self.held_until, now + max(retry_after, 1.0) * again)

    def done(self, send: Send) -> None:
        """The send is over: answered, or given up without an answer (then it counts, because it may have)."""
        self._flying.remove(send.at)
        self._refusals = 0
        if send.reset is None or (self.reset is not None and abs(send.reset - self.reset) <= SAME):
            self._own += 1

    def give_back(self, send: Send) -> None:
        """The send did not count: it never left, or was refused by a 429."""
        self._flying.remove(send.at)
        self._log.remove(send.at)

    def remember(self, now: float) -> Window | None:
        """What the next run should know; None if no answer has told a limit."""
        if self.limit is None or self.reset is None:
            return None
        used = math.ceil(self._used(now, self._own_used(now)))
        return Window(limit=self.limit, used=used, reset=self.reset, shape=self.shape, margin=self.margin)

    def recall(self, window: Window, now: float, ends: float) -> None:
        """Begin with what an earlier run has learned; `ends` is the window's reset in monotonic seconds."""
        self.limit, self.reset = window["limit"], window["reset"]
        self.shape, self.margin = Shape(window["shape"]), window["margin"]
        self.count, self._others = Count(now, window["used"], ends), window["used"]

    def _within(self, now: float, seconds: float) -> int:
        return len(self._log) - bisect_right(self._log, now - seconds)

    def _over(self, now: float) -> bool:
        """Whether the counted window has ended for certain."""
        return self.count is not None and now >= self.count.ends + self.margin

    def _own_used(self, now: float) -> int:
        """Our own sends that the service may be counting."""
        if self.shape is not Shape.FIXED or self.count is None:
            return self._within(now, WINDOW + PAD)
        if self._over(now):
            return sum(at > self.count.ends - SAME for at in self._flying)
        return self._own + sum(at > self._since for at in self._flying)

    def _used(self, now: float, own: int) -> float:
        """The most that the service may be counting, other users of the workspace included."""
        count = self.count
        if count is None:
            return own
        used = count.used + sum(at > count.at for at in self._flying)
        if self.shape is Shape.BUCKET:
            return math.ceil(used - max(0.0, now - count.at - PAD) * (self.limit or 0) / WINDOW)
        if self._over(now):
            return own
        if self.shape is not Shape.FIXED:
            gone = bisect_right(self._log, now - WINDOW - PAD)
            used -= max(0, gone - bisect_right(self._log, count.at - WINDOW))
        return max(own + self._others, used)

    def _may_look(self, now: float) -> bool:
        """Whether one send alone may go past a reset, to see what the window does there."""
        ends = self.count.ends if self.count else math.inf
        return self.shape is Shape.UNKNOWN and self._over(now) and all(at < ends for at in self._flying)

    def _next_room(self, now: float) -> float:
        """The next moment at which there may be room without an answer."""
        moments = []
        if self.count and not self._over(now):
            moments.append(self.count.ends + self.margin)
        if self.shape is Shape.BUCKET and self.limit:
            excess = self._used(now, 0) - self.limit + 1
            moments.append(now + excess * WINDOW / self.limit)
        if self.shape is not Shape.FIXED:
            keeps = WINDOW + PAD
            oldest = bisect_right(self._log, now - keeps)
            moments += [at + keeps for at in self._log[oldest : oldest + 1]]
        return max(min(moments, default=math.inf), now + TICK)


@dataclass(slots=True, eq=False)
class Lanes:
    """Generations at work at once, of both kinds. Every `now` is in monotonic seconds.

    The size grows only when every lane is taken and one more is wanted: fast until the first refusal, then by
    one a minute, and by twice as much each time that nothing was refused.
    """

    size: int = FIRST_LANES
    cap: int | None = None
    latched: bool = False
    in_use: int = 0
    grows_at: float = -math.inf
    _probe: int = 1
    _patience: float = PROBE
    _blocked_until: float = -math.inf
    _pause: float = 1.0

    def wait(self, now: float) -> float:
        """Seconds until one more may be taken; 0 for now, infinity if one must be freed first."""
        if now < self._blocked_until:
            return self._blocked_until - now
        if self.in_use > self.size or (self.cap is not None and self.in_use >= self.cap):
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

    def full(self, now: float) -> None:
        """429 without `Retry-After`, for a send whose lane is still taken: one fewer fits."""
        self.size = max(1, min(self.size, self.in_use) - 1)
        self.latched, self._probe, self.grows_at = True, 1, now + self._patience
        if self.in_use == 1:  # none of ours is left to wait for: others fill the workspace
            self._blocked_until = now + self._pause
            self._pause = min(2 * self._pause, PROBE)

    def accepted(self) -> None:
        """A send was not refused."""
        self._pause = 1.0


class Turn:
    """One submission: a place in its kind's window and a lane. Say what became of it before it ends.

    A turn that ends without a word counts as sent, because it may have been.
    """

    def __init__(self, limits: Limits, pace: Pace, send: Send) -> None:
        self._limits, self._pace, self._send = limits, pace, send
        self.left = self.counts = True
        self.kept = False

    def unsent(self) -> None:
        """Nothing left this machine: the send is given back to the window."""
        self.counts = self.left = False

    def answered(
        self, limit: int | None, remaining: int | None, reset: int | None, date: float | None = None
    ) -> None:
        """Take in the `X-RateLimit-*` of an answer of any status; None where it had none.

        Args:
            date: the answer's `Date` in Unix seconds; with it, `reset` is read by the service's clock.
        """
        self._pace.told = True
        if limit is not None and remaining is not None and reset is not None:
            ends = self._limits.moment(reset, date)
            self._pace.learn(self._send, limit, remaining, reset, ends)
        self._limits.changed()

    def window_full(self, retry_after: float) -> None:
        """429 with `Retry-After` (seconds): this kind waits as told; the other kind and the lanes do not."""
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
        """Settle the send with its window, once."""
        self._limits.submissions += self.left
        if self.counts:
            self._pace.done(self._send)
            self._limits.lanes.accepted()
        else:
            self._pace.give_back(self._send)

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
        self.paces = {Kind.IMAGE: Pace(cap=image_rpm), Kind.VIDEO: Pace(cap=video_rpm)}
        if remembered:
            self.lanes.size, self.lanes.latched = remembered.lanes, remembered.latched
            if self.lanes.latched:
                self.lanes.grows_at = self.now() + PROBE
            for kind, window in remembered.windows.items():
                self.paces[Kind(kind)].recall(window, self.now(), self.moment(window["reset"]))
        self._queues = {kind: asyncio.Lock() for kind in Kind}
        self._tickets = itertools.count()
        self._heads: dict[Kind, int] = {}
        self._change = asyncio.Event()

    @asynccontextmanager
    async def turn(self, kind: Kind) -> AsyncGenerator[Turn, None]:
        """Wait for room in the kind's window and for a lane, and hold both; first come, first served per kind."""
        turn = await self._next_turn(kind)
        try:
            yield turn
        finally:
            turn.end()
            if not turn.kept:
                self.lanes.in_use -= 1
            self.changed()

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

    def learned(self) -> Learned:
        """What to remember for the next run."""
        windows = {str(kind): pace.remember(self.now()) for kind, pace in self.paces.items()}
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

    async def _next_turn(self, kind: Kind) -> Turn:
        ticket = next(self._tickets)
        async with self._queues[kind]:  # a lock serves in the order of asking, and forgets who is cancelled
            self._heads[kind] = ticket
            try:
                while (seconds := self._wait(kind)) > 0:
                    await self._sleep(seconds)
                now, pace = self.now(), self.paces[kind]
                self.lanes.take(now)
                return Turn(self, pace, pace.send(now))
            finally:
                del self._heads[kind]
                self.changed()

    def _wait(self, kind: Kind) -> float:
        """Seconds until the first of this kind may go; infinity if something must change first."""
        now = self.now()
        seconds = self.paces[kind].wait(now) or self.lanes.wait(now)
        if seconds == 0 and any(
            self._heads[other] < self._heads[kind] and self.paces[other].wait(now) == 0
            for other in self._heads
        ):
            return math.inf  # the other kind has waited longer for a lane: it goes first, and says so
        return seconds

    async def _sleep(self, seconds: float) -> None:
        """Until something changes, `seconds` at the most."""
        waits: list[asyncio.Future[object]] = [asyncio.ensure_future(self._change.wait())]
        if seconds < math.inf:
            waits.append(asyncio.ensure_future(self._clock.sleep(max(seconds, TICK))))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
