"""How many requests of one type may be sent now: a count per window, learned from answers (INTERFACE 8).

Plain state: it never waits and never sends. `turns.py` passes the time in and waits.

The interface names a window of 60 seconds and does not define how it moves. The answers show it:

- fixed: the count restarts at `X-RateLimit-Reset`, and then a whole window may be sent at once;
- sliding: each request counts for 60 seconds;
- bucket: the count falls steadily.

Until the shape is known, the most careful one is assumed, sliding. Only one request at a time goes past a
reset, to see what the count is then.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby
from typing import NotRequired, TypedDict

WINDOW = 60.0  # seconds (INTERFACE 8)
LATE = 0.25  # seconds by which the service may count a request later than it left
COUNTED_FOR = WINDOW + LATE  # seconds after it left during which a request may count
UNCOUNTED = 1.0  # seconds before an answer in which requests may have left that it does not count
SHORTEST_WAIT = 0.001  # seconds, so that rounding never makes a wait of 0
SAME_RESET = 2  # seconds by which two resets of one window may differ, because of rounding
EARLY = 3  # seconds: a reset that moves this long before it is due shows that the window is not fixed
SHORTEST_WINDOW = 5.0  # seconds; a reset that is nearer is not a window's end, but the next token of a bucket
BEFORE_FIRST_ANSWER = 60  # requests of a type that may leave before an answer has its limit


class Shape(StrEnum):
    """How a window moves, as far as the answers have shown it."""

    UNKNOWN = "unknown"
    FIXED = "fixed"
    SLIDING = "sliding"
    BUCKET = "bucket"


class Window(TypedDict):
    """The window of one type, as it is remembered between runs. `margin` is in seconds.

    `reset` is by the service's clock. `sent` has pairs: a Unix second by our clock, and how many requests
    left in it.
    """

    limit: int
    used: int
    reset: int
    shape: str
    margin: float
    counted_late: NotRequired[bool | None]
    sent: list[list[int]]


@dataclass(frozen=True, slots=True)
class Send:
    """A request that left at the moment `at`.

    `counted` requests of the last 58 seconds were answered by then, so the service's count for this one is at
    least that, unless its window forgets earlier.
    """

    at: float
    counted: int


@dataclass(frozen=True, slots=True)
class Count:
    """The service's count at the moment `seen`, with each send until `at`; its window ends at `ends`."""

    at: float
    seen: float
    used: int
    ends: float


@dataclass(slots=True, eq=False)
class Pace:
    """Requests of one type per window. All moments are in monotonic seconds; only `reset` is the service's.

    Attributes:
        cap: requests per window that the config allows this run; None for no limit.
        shared_by: so many runs share the service's limit, this one too.
        limit: requests per window that the service allows; None until an answer tells.
        shape: how the window moves.
        margin: seconds after a reset until a request certainly counts in the next window.
        reset: the end of the current window, by the service's clock.
        answered: an answer has come, with or without a limit.
        counted_late: an answer has the count of its own moment, not of its request's; None until it shows.
    """

    cap: int | None = None
    shared_by: int = 1
    limit: int | None = None
    shape: Shape = Shape.UNKNOWN
    margin: float = 1.05
    reset: int | None = None
    answered: bool = False
    counted_late: bool | None = None
    _count: Count | None = None  # from the last send that has an answer
    _hold_until: float = -math.inf
    _filled_by_others: bool = False  # of the runs that share the limit
    _holds: int = 0  # rounds of 429 since the last accepted send
    _resets_early: bool = False  # a reset has moved before it was due: the window is not fixed
    _window_begins: float = -math.inf  # sends after this moment count in the current fixed window
    _shared_at: float = -math.inf  # the moment since which so many runs share the limit as now
    _last_before: float = -math.inf  # the last send until then
    _shared_before: int = 1  # so many shared it until then
    _used_by_others: int = 0  # requests that count in it for certain and are not this run's
    _sends: list[float] = field(default_factory=list)  # moments of the sends that may count, oldest first
    _unanswered: int = 0

    def wait(self, now: float) -> float:
        """Seconds until one more may be sent: 0 for now, infinity if only an answer can tell."""
        if now < self._hold_until:
            return self._hold_until - now
        own = self._own_used(now)
        limit = self.limit
        if limit is None and self.cap is None and not self.answered:
            limit = BEFORE_FIRST_ANSWER
        fits = limit is None or self._used(now, own) + self._unseen() < limit
        allowed = self.cap is None or own < self.cap
        if allowed and (self._may_test_reset(now) or (fits and self._has_place(now, own))):
            return 0.0
        return self._next_chance(now) - now

    def send(self, now: float) -> Send:
        """Counts a request that leaves now."""
        counted = max(0, self._sent_after(now - WINDOW + SAME_RESET) - self._unanswered)
        del self._sends[: bisect_right(self._sends, now - 2 * WINDOW)]
        # No two at the same moment, so that each can be found again.
        self._sends.append(max(now, self._sends[-1] + 1e-6) if self._sends else now)
        self._unanswered += 1
        return Send(self._sends[-1], counted)

    def last_minute(self, now: float) -> int:
        """Requests of the last minute; those that the service refused with a 429 are not counted."""
        return self._sent_after(now - WINDOW)

    def known_limit(self) -> int | None:
        """Requests a minute that config and service allow; None while neither says."""
        return min((limit for limit in (self.cap, self.limit) if limit is not None), default=None)

    def wait_until(self, moment: float) -> None:
        """Sends nothing until then, or until `found` is called."""
        self._hold_until = moment

    def share(self, now: float, runs: int) -> None:
        """So many runs share the service's limit from now on, this one too."""
        self._shared_at = now
        self._last_before = self._sends[-1] if self._sends else -math.inf
        self._shared_before, self.shared_by = self.shared_by, runs
        self._filled_by_others = self._filled_by_others and runs > 1

    # ---- what an answer shows

    def learn(self, send: Send, *, now: float, limit: int, remaining: int, reset: int, ends: float) -> None:
        """Takes in an answer's headers. Answers may come in any order.

        Args:
            send: the request that was answered.
            now: the moment of the answer.
            limit: requests per window.
            remaining: requests left in it.
            reset: its end by the service's clock.
            ends: the same moment in monotonic seconds.
        """
        if self.reset is None:
            self.reset = reset
        if self._of_earlier_window(reset):
            self._window_begins = max(self._window_begins, send.at)  # so it does not count in this one
            return
        used = max(0, limit - remaining)
        self._see_when_it_counts(send, now, used, ends)
        at = max(send.at, now - UNCOUNTED) if self.counted_late else send.at
        moved = abs(reset - self.reset) > SAME_RESET
        if self._outdated(at, moved):
            return
        if moved:
            self._begin_window(now, reset)
            left = ends - (now if ends > now else send.at)  # one that is over now was counted earlier
            counted = send.counted
            if self.counted_late:
                counted = self._sent_after(now - WINDOW + SAME_RESET) - self._sent_after(at)
            self._learn_shape(counted, used, limit, left)
        self.limit, self._count = limit, Count(at, now if self.counted_late else at, used, ends)

    def _see_when_it_counts(self, send: Send, now: float, used: int, ends: float) -> None:
        """Does an answer have the count of its own moment or of its request's, which may be a minute before?

        Until the answers tell, the request's is assumed: of the two it leaves less room.
        """
        begins = ends - WINDOW
        before = bisect_right(self._sends, begins + UNCOUNTED)
        by_answer = bisect_right(self._sends, now - UNCOUNTED) - before
        by_request = max(0, bisect_right(self._sends, send.at) - before)
        began_since = send.at + SAME_RESET < begins <= now + UNCOUNTED
        if used < by_answer / 2:  # some may have been refused
            self.counted_late = False
        elif self.counted_late is None and (began_since or used >= by_answer > 2 * by_request):
            self.counted_late = True

    def _of_earlier_window(self, reset: int) -> bool:
        """Whether an answer is of a window before the current one. Only a reset that is never early tells."""
        return self.reset is not None and reset < self.reset - SAME_RESET and not self._resets_early

    def _outdated(self, at: float, moved: bool) -> bool:
        """Whether a later moment of the same window has been counted already."""
        later = self._count is not None and at < self._count.at
        return later and (self._resets_early or not moved)

    def _begin_window(self, now: float, reset: int) -> None:
        """The reset has moved, so another window has begun."""
        ended, last = (self._count.ends, self._count.at) if self._count else (-math.inf, -math.inf)
        self._resets_early = self._resets_early or now < ended - EARLY
        self._window_begins = max(ended - SAME_RESET, min(last, ended))
        self._used_by_others = 0
        self.reset = reset

    def _learn_shape(self, counted: int, used: int, limit: int, left: float) -> None:
        """Learns from the count after a reset, `left` seconds before the next one.

        Has the window forgotten all sends, a few, or none? Where runs share it, it may count others' anew.
        """
        if used < counted - 1:
            kept = used - self._sent_after(self._window_begins)
            forgot_most = kept < counted / 2 or self.shared_by > 1
            fixed = forgot_most and left > SHORTEST_WINDOW and not self._resets_early
            self.shape = Shape.FIXED if fixed else Shape.BUCKET
        elif self.shape is not Shape.BUCKET and (self._resets_early or counted > limit / 4):
            self.shape = Shape.SLIDING

    def hold(self, send: Send, now: float, retry_after: float) -> None:
        """429 with `Retry-After`: waits that long, and twice as long each time that it was not enough."""
        count = self._count
        if count and count.at == send.at >= count.ends and not self._resets_early:
            # It left after the reset and still met the old window: the clocks differ by that much.
            self.margin = min(max(self.margin, now + retry_after - count.ends), WINDOW)
        if send.at >= self._hold_until:
            self._holds += 1
        self._filled_by_others = self._filled_by_others or self.shared_by > 1
        seconds = max(retry_after, 1.0) * min(2 ** (self._holds - 1), WINDOW)
        self._hold_until = max(self._hold_until, now + seconds)

    def end(self, send: Send, *, counts: bool) -> None:
        """The send is over. It does not count if it never left, or was refused with a 429."""
        self._unanswered -= 1
        if counts:
            self._holds = 0
        elif send.at in self._sends:  # after minutes it may have been removed already
            self._sends.remove(send.at)

    # ---- between runs

    def remember(self, now: float, unix: float) -> Window | None:
        """The window for the next run, at our own Unix time `unix`; None if no answer has had a limit."""
        if self.limit is None or self.reset is None:
            return None
        seconds = (math.ceil(at - now + unix) for at in self._sends if at > now - COUNTED_FOR)
        return Window(
            limit=self.limit,
            used=math.ceil(self._used(now, self._own_used(now))),
            reset=self.reset,
            shape=self.shape,
            margin=self.margin,
            counted_late=self.counted_late,
            sent=[[second, len(list(sends))] for second, sends in groupby(seconds)],
        )

    def recall(self, window: Window, now: float, unix: float, ends: float) -> None:
        """Begins with the window of an earlier run, whose reset is at the moment `ends`."""
        self.limit, self.reset = window["limit"], window["reset"]
        self.shape, self.margin = Shape(window["shape"]), window["margin"]
        self.counted_late = window.get("counted_late")
        self._count = Count(now, now, window["used"], ends)
        self._sends = [
            min(second - unix, 0.0) + now for second, count in window["sent"] for _ in range(count)
        ]
        if self.shape is Shape.FIXED:
            self._window_begins, self._used_by_others = now, window["used"]

    def hear(self, window: Window) -> bool:
        """Takes in how the window moves and is counted, which another run at work has found out.

        Returns:
            Whether this run knows better: a bucket that fills can look like the others.
        """
        shape = Shape(window["shape"])
        if self.shape is Shape.UNKNOWN or (shape is Shape.BUCKET and self.shape is not shape):
            self.shape, self.margin = shape, window["margin"]
        if self.counted_late is None:
            self.counted_late = window.get("counted_late")
        return self.shape is Shape.BUCKET and shape is not self.shape

    def found(self, sent: Iterable[float]) -> None:
        """Takes in at which moments others have sent: the window may be fuller than an earlier run knew."""
        self._hold_until = -math.inf
        if count := self._count:
            used = sum(at > count.ends - WINDOW for at in sent)
            self._count = replace(count, used=max(count.used, used))

    # ---- the count at a moment

    def _sent_after(self, moment: float) -> int:
        return len(self._sends) - bisect_right(self._sends, moment)

    def _over(self, now: float) -> bool:
        """Whether the window of the last count has ended for certain."""
        return self._count is not None and now >= self._count.ends + self.margin

    def _own_used(self, now: float) -> int:
        """This run's sends that the service may be counting."""
        if self.shape is not Shape.FIXED or self._count is None:
            return self._sent_after(now - COUNTED_FOR)
        return self._sent_after(self._count.ends - SAME_RESET if self._over(now) else self._window_begins)

    def _used(self, now: float, own: int) -> float:
        """The most that the service may be counting, other clients' requests included."""
        count = self._count
        if count is None or (self._over(now) and self.shape is not Shape.BUCKET):
            return own
        used = count.used + self._sent_after(count.at)
        if self.shape is Shape.BUCKET:
            return math.ceil(used - max(0.0, now - count.seen - LATE) * (self.limit or 0) / WINDOW)
        if self.shape is Shape.SLIDING:
            used -= max(0, self._sent_after(count.at - WINDOW) - self._sent_after(now - COUNTED_FOR))
        return max(own + self._used_by_others, used)

    def _unseen(self) -> int:
        """Requests of the others that no answer has counted yet: each has as many on the wire as this run.

        Where each keeps to its part of a window, they need no room of their own.
        """
        return (self.shared_by - 1) * self._unanswered if self.shape is Shape.BUCKET else 0

    def _has_place(self, now: float, own: int) -> bool:
        """Whether this run's own sends leave room for one more in its part of the window.

        What was sent before these runs shared it is nobody's part. A bucket has no window to divide: there
        the parts begin once others have filled it, and come one by one.
        """
        if self.limit is None or self._shared_at == -math.inf:
            return True
        if self.shape is Shape.BUCKET:
            return now >= self._next_of_part()
        since, over = min(own, self._sent_after(self._last_before)), self._over(now)
        before: float = (own - since) * self._shared_before + (0 if over else self._used_by_others)
        counted = self._used(now, own) - since
        if self._count and self._count.seen > self._shared_at:  # the others may have sent less than this run
            before = min(before, counted)
        elif self._count and not over:  # or more; if nothing seems to be left, one request asks
            before = min(max(before, counted), max(counted, self.limit - 1))
        return since < math.ceil((self.limit - before) / self.shared_by)

    def _next_of_part(self) -> float:
        """When this run's part of a bucket has room for one more, once others have filled the bucket."""
        if not (self._filled_by_others and self._sends and self.limit):
            return -math.inf
        return self._sends[-1] + WINDOW * self.shared_by / self.limit

    def _may_test_reset(self, now: float) -> bool:
        """Whether one send may go past a reset alone, to learn the window's shape."""
        if self.shape is not Shape.UNKNOWN or not (self._count and self._over(now)):
            return False
        return not self._sends or self._sends[-1] < self._count.ends + self.margin

    def _next_chance(self, now: float) -> float:
        """The next moment at which the count may fall without an answer."""
        moments = [math.inf]
        if self._count and not self._over(now):
            moments.append(self._count.ends + self.margin)
        if self.shape is Shape.BUCKET and self.limit and (excess := self._used(now, 0) - self.limit + 1) > 0:
            moments.append(now + excess * WINDOW / self.limit)
        if self.shape is Shape.BUCKET and (part := self._next_of_part()) > now:
            moments.append(part)
        if self.shape is not Shape.FIXED:
            oldest = bisect_right(self._sends, now - COUNTED_FOR)
            moments += [at + COUNTED_FOR for at in self._sends[oldest : oldest + 1]]
        return max(min(moments), now + SHORTEST_WAIT)
