"""How many requests of one type may be sent now: a window's count, learned from answers (INTERFACE 8).

Plain state: it is told the time, never waits and never sends. `callsheet.limits` is what waits for it.

The interface names a window of 60 seconds and does not say how it moves; the answers show it:

- fixed: the count starts anew at `X-RateLimit-Reset`, and then a whole window may be sent at once;
- sliding: each request counts for 60 seconds;
- bucket: the count falls steadily.

Until then the most careful reading is followed, sliding, and one request alone goes past a reset to see what
the window does there.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import TypedDict

WINDOW = 60.0  # seconds (INTERFACE 8)
PAD = 0.25  # seconds by which a request may count later than it left
KEEPS = WINDOW + PAD  # seconds after its leaving for which a request may count
TICK = 0.001  # seconds that are waited at the least, whatever the rounding
SAME = 2  # seconds by which the resets of one window may differ: rounding
SHORTEST = 5.0  # seconds: a reset that is never further off is not a window's but a bucket's next token's
UNTOLD = 60  # requests of a type that may leave before the first answer tells its limit


class Shape(StrEnum):
    """How a window moves, as far as the answers have shown it."""

    UNKNOWN = "unknown"
    FIXED = "fixed"
    SLIDING = "sliding"
    BUCKET = "bucket"


class Window(TypedDict):
    """What is remembered of one type's pace, with `margin` in seconds.

    `reset` is by the service's clock; `sent` are pairs of a Unix second by ours and how many left before it.
    """

    limit: int
    used: int
    reset: int
    shape: str
    margin: float
    sent: list[list[int]]


@dataclass(frozen=True, slots=True)
class Send:
    """A request that left at `at`, when the service had answered `counted` of those of the last 58 seconds.

    Unless its window forgets, a service that answers this one counts at least these.
    """

    at: float
    counted: int


@dataclass(frozen=True, slots=True)
class Count:
    """The service's count, from the answer to the send that left at `at`; its window ends at `ends`."""

    at: float
    used: int
    ends: float


@dataclass(slots=True, eq=False)
class Pace:
    """Requests of one type per window. Moments are in monotonic seconds; only `reset` is the service's."""

    cap: int | None = None
    limit: int | None = None
    shape: Shape = Shape.UNKNOWN
    margin: float = 1.05  # seconds after a reset until a request is sure to count in the next window
    reset: int | None = None
    told: bool = False  # some answer has come, with or without a limit
    _count: Count | None = None  # from the last send that has an answer
    _held_until: float = -math.inf
    _refusals: int = 0  # rounds of 429 since the last accepted send
    _rolls: bool = False  # a reset has moved before it was due: the window is not fixed
    _begins: float = -math.inf  # sends after this moment count in the current fixed window
    _others: int = 0  # requests of others that are certain to count in it
    _log: list[float] = field(default_factory=list)  # when sends left that may count, oldest first
    _flying: int = 0  # sends without an answer

    def wait(self, now: float) -> float:
        """Seconds until one more may be sent; 0 for now, infinity if only an answer can tell."""
        if now < self._held_until:
            return self._held_until - now
        own = self._own_used(now)
        limit = self.limit
        if limit is None and self.cap is None and not self.told:
            limit = UNTOLD
        fits = limit is None or self._used(now, own) < limit or self._may_look(now)
        if fits and (self.cap is None or own < self.cap):
            return 0.0
        return self._next_room(now) - now

    def send(self, now: float) -> Send:
        """Count one that leaves now."""
        counted = max(0, self._sent_after(now - WINDOW + SAME) - self._flying)
        del self._log[: bisect_right(self._log, now - 2 * WINDOW)]
        self._log.append(max(now, self._log[-1] + 1e-6) if self._log else now)  # no two at the same moment
        self._flying += 1
        return Send(self._log[-1], counted)

    def learn(self, send: Send, limit: int, remaining: int, reset: int, ends: float) -> None:
        """Take in an answer's headers, where `ends` is the moment of `reset`. Answers come in any order."""
        used = max(0, limit - remaining)
        if self.reset is None:
            self.reset = reset
        elif reset < self.reset - SAME and not self._rolls:
            self._begins = max(self._begins, send.at)  # it counted in the window before
            return
        moved = abs(reset - self.reset) > SAME
        if self._count and send.at < self._count.at and (self._rolls or not moved):
            return  # a later send has told more
        if moved:
            self._turn_over(send, used, limit, reset, ends)
        self.limit, self._count = limit, Count(send.at, used, ends)

    def _turn_over(self, send: Send, used: int, limit: int, reset: int, ends: float) -> None:
        """The reset has moved: the count shows which shape the window has."""
        ended, last = (self._count.ends, self._count.at) if self._count else (-math.inf, -math.inf)
        self._rolls = self._rolls or send.at < ended - 3
        self.reset, self._others, self._begins = reset, 0, max(ended - SAME, min(last, ended))
        if used < send.counted - 1:  # it has forgotten some: most of them at once, or a few at a time?
            anew = used - self._sent_after(self._begins) < send.counted / 2
            fixed = anew and not self._rolls and ends - send.at > SHORTEST
            self.shape = Shape.FIXED if fixed else Shape.BUCKET
        elif self.shape is not Shape.BUCKET and (self._rolls or send.counted > limit / 4):
            self.shape = Shape.SLIDING

    def hold(self, send: Send, now: float, retry_after: float) -> None:
        """429 with `Retry-After`: wait as told, and twice as long each time that this was not enough."""
        count = self._count
        if count and count.at == send.at >= count.ends and not self._rolls:
            # It left after the reset and yet met the old window: the clocks differ by that much.
            self.margin = min(max(self.margin, now + retry_after - count.ends), WINDOW)
        if send.at >= self._held_until:
            self._refusals += 1
        seconds = max(retry_after, 1.0) * min(2 ** (self._refusals - 1), WINDOW)
        self._held_until = max(self._held_until, now + seconds)

    def end(self, send: Send, *, counts: bool) -> None:
        """The send is over. It does not count if it never left or was refused by a 429."""
        self._flying -= 1
        if counts:
            self._refusals = 0
        elif send.at in self._log:  # else it left so long ago that it is forgotten already
            self._log.remove(send.at)

    def remember(self, now: float, unix: float) -> Window | None:
        """What the next run should know, at our own Unix time; None if no answer has told a limit."""
        if self.limit is None or self.reset is None:
            return None
        recent = (math.ceil(at - now + unix) for at in self._log if at > now - KEEPS)
        return Window(
            limit=self.limit,
            used=math.ceil(self._used(now, self._own_used(now))),
            reset=self.reset,
            shape=self.shape,
            margin=self.margin,
            sent=[[second, len(list(sends))] for second, sends in groupby(recent)],
        )

    def recall(self, window: Window, now: float, unix: float, ends: float) -> None:
        """Begin with what an earlier run has learned, where `ends` is the moment of its reset."""
        self.limit, self.reset = window["limit"], window["reset"]
        self.shape, self.margin = Shape(window["shape"]), window["margin"]
        self._count = Count(now, window["used"], ends)
        self._log = [min(second - unix, 0.0) + now for second, sends in window["sent"] for _ in range(sends)]
        if self.shape is Shape.FIXED:
            self._begins, self._others = now, window["used"]

    def _sent_after(self, moment: float) -> int:
        return len(self._log) - bisect_right(self._log, moment)

    def _over(self, now: float) -> bool:
        """Whether the counted window has ended for certain."""
        return self._count is not None and now >= self._count.ends + self.margin

    def _own_used(self, now: float) -> int:
        """Our own sends that the service may be counting."""
        if self.shape is not Shape.FIXED or self._count is None:
            return self._sent_after(now - KEEPS)
        return self._sent_after(self._count.ends - SAME if self._over(now) else self._begins)

    def _used(self, now: float, own: int) -> float:
        """The most that the service may be counting, others' requests included."""
        count = self._count
        if count is None or (self._over(now) and self.shape is not Shape.BUCKET):
            return own
        used = count.used + self._sent_after(count.at)
        if self.shape is Shape.BUCKET:
            return math.ceil(used - max(0.0, now - count.at - PAD) * (self.limit or 0) / WINDOW)
        if self.shape is Shape.SLIDING:
            used -= max(0, self._sent_after(count.at - WINDOW) - self._sent_after(now - KEEPS))
        return max(own + self._others, used)

    def _may_look(self, now: float) -> bool:
        """Whether one send alone may go past a reset, to see what the window does there."""
        ends = self._count.ends if self._count else math.inf
        return self.shape is Shape.UNKNOWN and self._over(now) and not self._sent_after(ends + self.margin)

    def _next_room(self, now: float) -> float:
        """The next moment at which there may be room without an answer."""
        moments = [math.inf]
        if self._count and not self._over(now):
            moments.append(self._count.ends + self.margin)
        if self.shape is Shape.BUCKET and self.limit and (excess := self._used(now, 0) - self.limit + 1) > 0:
            moments.append(now + excess * WINDOW / self.limit)
        if self.shape is not Shape.FIXED:
            oldest = bisect_right(self._log, now - KEEPS)
            moments += [at + KEEPS for at in self._log[oldest : oldest + 1]]
        return max(min(moments), now + TICK)
