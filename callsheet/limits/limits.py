"""Turns: each submission waits for one, and reports what became of it (INTERFACE 8).

`AccountLimits` has a `Pace` for each type of model, which counts requests per window, and `Lanes`, which
count the generations at work of both types. A turn needs both. A 429 is not a failed attempt: the limits are
learned from it.

The interface names a window of 60 seconds and does not say how it moves. The count may restart at a reset,
each request may count for 60 seconds, or the count may fall steadily. Two things are true of all three:

- by the log: of any 60 seconds, no more than the limit counts, requests of others included;
- by an answer: what was left with its request is still left, but for what has left since.

The one that leaves more room is used. When neither leaves any, one request asks after the reset: its answer
says what is left then. A 429 costs nothing, so nothing here is meant to avoid the last of them.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Protocol, TypedDict

from callsheet.records import ModelType

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
        own_sends = self._sent_after(now - COUNTED_FOR)
        if self.cap is not None and own_sends >= self.cap:
            return max(self._forgotten(own_sends - self.cap + 1, own_sends) - now, SHORTEST_WAIT)
        if self.limit is None:
            return 0.0
        others_until = self._counted_at + COUNTED_FOR
        by_log = self.limit - own_sends - (self._others if now < others_until else 0)
        by_answer = self._left - self._sent_after(self._left_at)
        asks_at = self._resets + ROUNDED
        asks = now >= asks_at and not self._sent_after(max(self._resets, self._left_at))
        if asks or max(by_log, by_answer) > 0:
            return 0.0
        moments = [
            self._forgotten(1 - by_log, own_sends),
            *(at for at in (asks_at, others_until) if at > now),
        ]
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
        wait, own_sends = self.wait(now), self._sent_after(now - COUNTED_FOR)
        room = max(0, limit - own_sends) if not wait else 0
        if sends <= room:
            return 0.0
        if not wait and own_sends:  # the room is used up at once; then the oldest of these must be forgotten
            wait = max(0.0, self._sends[-own_sends] + COUNTED_FOR - now)
        is_told = own_sends or now < self._hold_until
        first = wait if is_told and math.isfinite(wait) else WINDOW
        return first + (sends - room - 1) // limit * WINDOW

    def known_limit(self) -> int | None:
        """Requests a minute that config and service allow; None while neither says."""
        return min((limit for limit in (self.cap, self.limit) if limit is not None), default=None)

    def learn(self, sent_at: float, *, limit: int, remaining: int, ends: float) -> None:
        """Takes in an answer's headers; answers may come in any order.

        `sent_at` is what `send` returned, `ends` the moment of the reset: infinity where that is not known.
        """
        self.limit = limit
        own_sends, later = self._sent_after(sent_at - COUNTED_FOR), self._sent_after(sent_at)
        if sent_at > self._counted_at:  # the count may be of the answer's moment: the later ones may be in it
            self._others, self._counted_at = max(0, limit - remaining - own_sends), sent_at
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
        return Window(
            limit=self.limit, sent=[[second, len(list(sends))] for second, sends in groupby(seconds)]
        )

    def recall(self, window: Window, now: float, unix: float) -> None:
        """Begins with what an earlier run has remembered."""
        self.limit = window["limit"]
        self._sends = [
            min(second - unix, 0.0) + now for second, count in window["sent"] for _ in range(count)
        ]

    def _sent_after(self, moment: float) -> int:
        return len(self._sends) - bisect_right(self._sends, moment)

    def _forgotten(self, sends: int, own_sends: int) -> float:
        """When so many more of the `own_sends` of the last minute no longer count; infinity if never."""
        return self._sends[sends - own_sends - 1] + COUNTED_FOR if sends <= own_sends else math.inf


FIRST_LANES = 8
RAMP = 0.1  # seconds between two steps of the ramp, each of a tenth, but at least one lane
RAMP_MOST = 3  # lanes that a step adds at most: that many may be too many before the first 429 comes back
PROBE = 60.0  # seconds between two probes of latched lanes
RETRY = (1.0, 10.0)  # seconds between two tries while others have every lane: at least, and at most


class Clock(Protocol):
    """The source of time, as the module `time` is; the event loop's timers must go by it."""

    def time(self) -> float: ...  # noqa: D102
    def monotonic(self) -> float: ...  # noqa: D102


@dataclass(frozen=True)
class Learned:
    """The limits that a run has learned, for the next run. Its `dataclasses.asdict` can be stored as JSON."""

    lanes: int  # `Lanes.size`
    latched: bool
    windows: Mapping[str, Window]  # by model type


class Turn:
    """The permission for one submission: a place in the window of its type, and a lane.

    Report that the request leaves, and the answer before the turn ends. Without an answer it counts in the
    window, because it may have been carried out.
    """

    def __init__(self, limits: AccountLimits, pace: Pace, sent_at: float) -> None:
        self._limits, self._pace, self._sent_at = limits, pace, sent_at
        self.sent = self.counts = self.kept = False

    def leaves(self) -> None:
        """Reports that the request is about to leave."""
        self.sent = self.counts = True
        self._limits.lanes.unsent -= 1
        self._limits.give_turns()

    def unsent(self) -> None:
        """Reports that the request did not leave this machine after all: it does not count in the window."""
        self._limits.lanes.unsent += self.sent
        self.sent = self.counts = False

    def answered(self, rate: tuple[int, int, int, float | None] | None) -> None:
        """Reports an answer of the service, of any status, before `window_full` or `lanes_full`.

        `rate`: its `X-RateLimit-*` headers (`service.models.RateHeaders`); None where it has none.
        """
        self._limits.lanes.proven = True
        if rate is not None:
            limit, remaining, reset, date = rate
            ends = math.inf if date is None else self._limits.to_monotonic(reset, date)
            self._pace.learn(self._sent_at, limit=limit, remaining=remaining, ends=ends)
        self._limits.give_turns()

    def window_full(self, retry_after: float) -> None:
        """Reports a 429 with `Retry-After` (seconds): this type waits that long."""
        self._refused()
        self._pace.hold(self._sent_at, self._limits.now(), retry_after)

    def lanes_full(self) -> None:
        """Reports a 429 without `Retry-After`: one lane fewer exists."""
        self._refused()
        self._limits.lanes.refused(self._limits.now())

    def keep_lane(self) -> None:
        """Reports an accepted video: its lane stays taken after this turn, until `AccountLimits.release`."""
        self.kept = True

    def end(self) -> None:
        """Ends the turn; called once, by `AccountLimits.turn`."""
        lanes = self._limits.lanes
        self._pace.end(self._sent_at, counts=self.counts)
        if self.counts:
            lanes.accepted()
            self._limits.accepted()
        lanes.in_use -= not self.kept
        lanes.unsent -= not self.sent
        self._limits.submissions += self.sent
        self._limits.give_turns()

    def _refused(self) -> None:
        self.counts = False
        self._limits.refused()


class AccountLimits:
    """Gives out turns as fast as the service's limits allow; for one event loop.

    Args:
        image_rpm, video_rpm: this run may submit at most so many a minute, whatever the service allows.
        concurrency: this run may take at most so many lanes.
        remembered: the limits that an earlier run has learned.
        clock: the source of time.

    `submissions` left this machine, and `rate_limited` of them were answered 429.
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
        self._refusals = 0  # 429s since the last submission that was not one
        self._refused_at = 0.0  # the first of these
        self.lanes = Lanes(cap=concurrency)
        self.paces = {ModelType.IMAGE: Pace(cap=image_rpm), ModelType.VIDEO: Pace(cap=video_rpm)}
        if remembered:
            self.lanes.size, self.lanes.latched = remembered.lanes, remembered.latched
            if self.lanes.latched:
                self.lanes.grows_at = self.now() + PROBE
            for model_type, window in remembered.windows.items():
                self.paces[ModelType(model_type)].recall(window, self.now(), clock.time())
        self._tickets = itertools.count()  # the lower one came first
        self._queues: dict[ModelType, deque[tuple[int, asyncio.Future[Turn]]]] = {
            model_type: deque() for model_type in ModelType
        }
        self._timer: asyncio.TimerHandle | None = None  # for the next look

    @asynccontextmanager
    async def turn(self, model_type: ModelType) -> AsyncGenerator[Turn, None]:
        """Waits for a place in the type's window and for a lane. Within a type, first come, first served."""
        future: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()
        self._queues[model_type].append((next(self._tickets), future))
        self.give_turns()
        try:
            turn = await future
        except asyncio.CancelledError:
            if not future.cancelled():  # the turn came at the same moment
                future.result().end()
            raise
        try:
            yield turn
        finally:
            turn.end()

    def adopt(self, n: int) -> None:
        """Counts `n` lanes as taken: videos that an earlier run submitted and that are still pending."""
        self.lanes.in_use += n
        self.lanes.size = max(self.lanes.size, self.lanes.in_use)  # the service has accepted that many
        self.lanes.proven = self.lanes.proven or n > 0

    def release(self) -> None:
        """Frees a kept or adopted lane: its video is finished."""
        self.lanes.in_use -= 1
        self.give_turns()

    def give_up(self) -> None:
        """Leaves the video of a kept or adopted lane to the next run.

        The service still counts its lane. It also counts for `concurrency`, this run's share; whether the
        service allows another lane, the answers will tell.
        """
        self.lanes.given_up += 1
        self.release()

    def take_back(self, n: int) -> None:
        """Polls `n` videos again that were given up: their lanes are this run's."""
        self.lanes.given_up -= n
        self.lanes.in_use += n

    def allow(self, image_rpm: int | None, video_rpm: int | None, concurrency: int | None) -> None:
        """Other limits of this run's own, from now on; None for none."""
        self.paces[ModelType.IMAGE].cap, self.paces[ModelType.VIDEO].cap = image_rpm, video_rpm
        self.lanes.cap = concurrency
        self.give_turns()

    def blocked(self, patience: float) -> bool:
        """Whether somebody waits for a lane that will not come free: see `Lanes.blocked`."""
        return bool(self._first_in_line()) and self.lanes.blocked(self.now(), patience)

    def refused(self) -> None:
        """Counts a 429."""
        self.rate_limited += 1
        self._refusals += 1
        if self._refusals == 1:
            self._refused_at = self.now()

    def accepted(self) -> None:
        """A submission was not answered 429: the count begins again."""
        self._refusals = 0

    def refused_for(self) -> float:
        """Seconds for which submissions were answered 429 alone: three at the least, or it is 0."""
        return self.now() - self._refused_at if self._refusals >= 3 else 0.0

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
        """The service's Unix time in monotonic seconds; `date` is that of the answer that has just come."""
        # A Date is rounded down to the second and is old on arrival: the largest offset is the closest.
        self._offset = max(self._offset, date - self.now())
        return unix - self._offset

    def give_turns(self) -> None:
        """Gives turns to those who may go now, and looks again when the next one may."""
        while (seconds := self._give_one()) == 0:
            pass
        if self._timer:
            self._timer.cancel()
        if seconds < math.inf:
            self._timer = asyncio.get_running_loop().call_later(seconds, self.give_turns)

    def _give_one(self) -> float:
        """Gives a turn to the caller that has waited longest, of those whose window has a place.

        Returns 0 if it has; otherwise the seconds until it may: infinity if something must change first.
        """
        if not any(self._queues.values()):
            return math.inf
        now = self.now()
        seconds = self.lanes.wait(now)
        if seconds > 0:
            return seconds
        soonest = math.inf
        for model_type in self._first_in_line():
            pace = self.paces[model_type]
            seconds = pace.wait(now)
            if seconds == 0:
                _, future = self._queues[model_type].popleft()
                self.lanes.take(now)
                future.set_result(Turn(self, pace, pace.send(now)))
                return 0.0
            soonest = min(soonest, seconds)
        return soonest

    def _first_in_line(self) -> list[ModelType]:
        """The types that somebody waits for, the one first whose first caller has waited longest."""
        for queue in self._queues.values():
            while queue and queue[0][1].done():  # cancelled
                queue.popleft()
        waiting = (model_type for model_type, queue in self._queues.items() if queue)
        return sorted(waiting, key=lambda model_type: self._queues[model_type][0][0])


@dataclass(slots=True, eq=False)
class Lanes:
    """Generations at work at once, of both types (INTERFACE 8). Every `now` is in monotonic seconds.

    The size grows only when every lane is taken and one more is wanted. Until the first 429 it grows fast
    (the ramp). The first 429 latches it: from then on it grows by a probe a minute. After a probe that is
    accepted the next one is twice as large; after a refusal it is one lane again.

    The ramp begins when the service has answered a submission: a gateway that loses every answer would cost a
    whole batch. It waits for requests that have not left: on a busy machine they wait for the ledger, and the
    ramp would be far beyond the first 429 when that comes.
    """

    size: int = FIRST_LANES  # lanes that the service is believed to allow
    cap: int | None = None  # lanes that the config allows this run; None for no limit
    latched: bool = False  # a 429 has ended the ramp
    proven: bool = False  # the service has answered a submission
    in_use: int = 0
    unsent: int = 0  # lanes whose request has not left
    given_up: int = 0  # of videos that this run no longer polls; not in `in_use`, but they count for `cap`
    grows_at: float = -math.inf  # the moment of the next step of the ramp, or of the next probe
    _probe: int = 1  # lanes of the next probe
    _probe_wait: float = PROBE  # seconds until it, after a refusal
    _others_since: float = math.inf  # others have every lane: this run has none and is refused
    _retry_at: float = -math.inf

    def blocked(self, now: float, patience: float) -> bool:
        """Whether this run can free no lane, and others have had every lane for `patience` seconds."""
        if self.cap is not None and self.given_up >= self.cap:
            return True
        return now - self._others_since > patience

    def wait(self, now: float) -> float:
        """Seconds until one more may be taken: 0 for now, infinity if one must be freed first."""
        if now < self._retry_at:
            return self._retry_at - now
        if self.in_use > self.size or (self.cap is not None and self.in_use + self.given_up >= self.cap):
            return math.inf
        if self.in_use < self.size:
            return 0.0
        may_grow = self.latched or (self.proven and self.unsent < RAMP_MOST)
        return max(0.0, self.grows_at - now) if may_grow else math.inf

    def take(self, now: float) -> None:
        """Takes a lane. Call it only when `wait` returns 0."""
        if self.in_use == self.size and self.latched:
            self._probe_wait = PROBE if self._probe > 1 else min(2 * self._probe_wait, 4 * PROBE)
            self.size += self._probe
            self._probe *= 2
            self.grows_at = now + PROBE
        elif self.in_use == self.size:
            self.size += max(1, min(self.size // 10, RAMP_MOST))
            self.grows_at = now + RAMP
        self.in_use += 1
        self.unsent += 1

    def accepted(self) -> None:
        """A submission was not refused for its lane: others do not have every lane."""
        self._others_since = math.inf

    def refused(self, now: float) -> None:
        """429 without `Retry-After` for a submission whose lane is still taken: one lane fewer exists."""
        self.size = max(1, min(self.size, self.in_use) - 1)
        self.latched, self._probe, self.grows_at = True, 1, now + self._probe_wait
        if self.in_use == 1:  # this run has no other lane that could come free
            self._others_since = min(self._others_since, now)
            shortest, longest = RETRY
            self._retry_at = now + min(max(now - self._others_since, shortest), longest)
