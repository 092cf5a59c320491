"""How many requests of one type may leave now: a log of this run's sends, and what answers say (INTERFACE 8).

Plain state: it never waits and never sends. `limits.py` passes the time in and waits.

The interface names a window of 60 seconds and does not say how it moves. The count may restart at a reset,
each request may count for 60 seconds, or the count may fall steadily. Two things are true of all three:

- by the log: of any 60 seconds, no more than the limit counts, requests of others included;
- by an answer: what was left with its request is still left, but for what has left since.

The one that leaves more room is used. When neither leaves any, one request asks after the reset: its answer
says what is left then. A 429 costs nothing, so nothing here is meant to avoid the last of them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypedDict

WINDOW = 60.0  # seconds (INTERFACE 8)
LATE = 0.25  # seconds by which the service may count a request later than it left
COUNTED_FOR = WINDOW + LATE  # seconds after it left in which a request may count
ROUNDED = 1.05  # seconds after `X-RateLimit-Reset` until it is surely over: it may be rounded down
SHORTEST_WAIT = 0.001  # seconds, so that rounding never makes a wait of 0


class Window(TypedDict):
    """What is remembered of one type between runs."""

    limit: int
    sent: list[list[int]]  # pairs: a Unix second by our clock, and how many of the last minute left in it


@dataclass(slots=True, eq=False)
class Pace:
    """Requests of one type per window. All moments are in monotonic seconds."""

    cap: int | None = None  # requests a minute that the config allows this run; None for no limit
    limit: int | None = None  # requests per window that the service allows; None until an answer tells
    _sends: list[float] = field(default_factory=list)  # moments of the sends that may count, oldest first
    _left: int = 0  # in the window that ends at `_resets`, with the send of the moment `_left_at`
    _left_at: float = -math.inf
    _resets: float = -math.inf
    _others: int = 0  # counted with the send of the moment `_counted_at`, and not sent by this run
    _counted_at: float = -math.inf
    _hold_until: float = -math.inf
    _holds: int = 0  # rounds of 429 since the last accepted send

    def wait(self, now: float) -> float:
        """Seconds until one more may be sent: 0 for now, infinity if only an answer can tell."""
        if now < self._hold_until:
            return self._hold_until - now
        own = self._sent_after(now - COUNTED_FOR)
        if self.cap is not None and own >= self.cap:
            return max(self._forgotten(own - self.cap + 1, own) - now, SHORTEST_WAIT)
        if self.limit is None:
            return 0.0
        others_until = self._counted_at + COUNTED_FOR
        by_log = self.limit - own - (self._others if now < others_until else 0)
        by_answer = self._left - self._sent_after(self._left_at)
        asks_at = self._resets + ROUNDED
        asks = now >= asks_at and not self._sent_after(max(self._resets, self._left_at))
        if asks or max(by_log, by_answer) > 0:
            return 0.0
        moments = [self._forgotten(1 - by_log, own), *(at for at in (asks_at, others_until) if at > now)]
        return max(min(moments) - now, SHORTEST_WAIT)

    def send(self, now: float) -> float:
        """Counts a request that leaves now; returns the moment by which it is found again."""
        del self._sends[: bisect_right(self._sends, now - 2 * WINDOW)]
        self._sends.append(max(now, self._sends[-1] + 1e-6) if self._sends else now)  # no two at one moment
        return self._sends[-1]

    def in_window(self, now: float) -> int:
        """Requests that count against the limit now, and never more than it.

        Where the config's limit is the lower one, these are the requests of the last minute. Otherwise they
        are those since the service's last reset.

        Those that it refused with a 429 are not counted. A bucket that is full lets more than a limit through
        in a minute, and counts down.
        """
        if self.cap is not None and self.cap == self.known_limit():
            return min(self._sent_after(now - COUNTED_FOR), self.cap)
        began = self._resets if self._resets <= now else self._resets - WINDOW
        sent = self._sent_after(max(now - WINDOW, began if math.isfinite(began) else -math.inf))
        return min(sent, self.known_limit() or sent)

    def seconds_for(self, sends: int, now: float) -> float | None:
        """Seconds until so many more may have left: whole windows, after what may leave now.

        None while the limit is not known. It is off by less than a window, however that moves.
        """
        limit = self.known_limit()
        if not limit:
            return None
        wait, own = self.wait(now), self._sent_after(now - COUNTED_FOR)
        room = max(0, limit - own) if not wait else 0
        if sends <= room:
            return 0.0
        if not wait and own:  # the room is used up at once; then the oldest of these must be forgotten
            wait = max(0.0, self._sends[-own] + COUNTED_FOR - now)
        first = wait if own and math.isfinite(wait) else WINDOW
        return first + (sends - room - 1) // limit * WINDOW

    def known_limit(self) -> int | None:
        """Requests a minute that config and service allow; None while neither says."""
        return min((limit for limit in (self.cap, self.limit) if limit is not None), default=None)

    def learn(self, sent_at: float, *, limit: int, remaining: int, ends: float) -> None:
        """Takes in an answer's headers; answers may come in any order.

        `sent_at` is what `send` returned, `ends` the moment of the reset: infinity where that is not known.
        """
        self.limit = limit
        own, later = self._sent_after(sent_at - COUNTED_FOR), self._sent_after(sent_at)
        if sent_at > self._counted_at:  # the count may be of the answer's moment: the later ones may be in it
            self._others, self._counted_at = max(0, limit - remaining - own), sent_at
        if sent_at >= self._resets:
            just_before = self._sent_after(sent_at - LATE) - later - 1  # these may be counted after it
            self._left, self._left_at, self._resets = remaining - just_before, sent_at, ends

    def hold(self, sent_at: float, now: float, retry_after: float) -> None:
        """429 with `Retry-After`: waits that long, and twice as long each time that it was not enough.

        But no longer than a window, unless the service says so: by then every request of before is forgotten.
        """
        if sent_at >= self._hold_until:
            self._holds += 1
        seconds = max(retry_after, min(max(retry_after, 1.0) * 2 ** min(self._holds - 1, 6), WINDOW))
        self._hold_until = max(self._hold_until, now + seconds)
        self._left, self._left_at, self._resets = 0, sent_at, self._hold_until - ROUNDED

    def end(self, sent_at: float, *, counts: bool) -> None:
        """The send is over. It does not count if it never left, or was refused with a 429."""
        if counts:
            self._holds = 0
        elif sent_at in self._sends:  # after minutes it may have been removed already
            self._sends.remove(sent_at)

    def remember(self, now: float, unix: float) -> Window | None:
        """What the next run should know, at our own Unix time `unix`; None if no answer has had a limit."""
        if self.limit is None:
            return None
        seconds = (math.ceil(at - now + unix) for at in self._sends if at > now - COUNTED_FOR)
        return Window(limit=self.limit, sent=[[second, len(list(of))] for second, of in groupby(seconds)])

    def recall(self, window: Window, now: float, unix: float) -> None:
        """Begins with what an earlier run has remembered."""
        self.limit = window["limit"]
        self._sends = [min(second - unix, 0.0) + now for second, of in window["sent"] for _ in range(of)]

    def _sent_after(self, moment: float) -> int:
        return len(self._sends) - bisect_right(self._sends, moment)

    def _forgotten(self, sends: int, own: int) -> float:
        """When so many more of the `own` sends of the last minute no longer count; infinity if never."""
        return self._sends[sends - own - 1] + COUNTED_FOR if sends <= own else math.inf
