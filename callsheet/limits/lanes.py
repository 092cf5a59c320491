"""How many generations may be at work at once, learned from answers (INTERFACE 8, concurrent requests).

Plain state: it never waits and never sends. `turns.py` passes the time in and waits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FIRST_LANES = 8
RAMP = 0.1  # seconds between two steps of the ramp, each of 10 %
RAMP_MOST = 3  # lanes that a step adds at most: that many may be too many before the first 429 comes back
PROBE = 60.0  # seconds between two probes of latched lanes
SETTLING = 15.0  # seconds until runs that share the lanes have no more than their parts of them
RETRY = (1.0, 10.0)  # seconds between two tries while others have every lane: the first wait, and the longest


@dataclass(slots=True, eq=False)
class Lanes:
    """Generations at work at once, of both types. Every `now` is in monotonic seconds.

    The size grows only when every lane is taken and one more is wanted. Until the first 429 it grows fast
    (the ramp). The first 429 latches it: from then on it grows by a probe a minute. After a probe that is
    refused the next one waits twice as long, up to four minutes; after one that is accepted the next one is
    twice as large.

    Attributes:
        size: lanes that the service is believed to allow.
        cap: lanes that the config allows this run; None for no limit.
        latched: a 429 has ended the ramp.
        proven: the service has answered a submission. Before that the ramp does not begin: a gateway that
            loses every answer would cost a whole batch.
        in_use: lanes that are taken.
        unsent: lanes whose request has not left.
        given_up: lanes of videos that this run no longer polls; not in `in_use`, but they count for `cap`.
        grows_at: the moment of the next step of the ramp, or of the next probe.
        shared_by: how many runs share the lanes, this one too.
    """

    size: int = FIRST_LANES
    cap: int | None = None
    latched: bool = False
    proven: bool = False
    in_use: int = 0
    unsent: int = 0
    given_up: int = 0
    grows_at: float = -math.inf
    shared_by: int = 1
    _leaving: int = 0  # requests that must leave before the ramp's next step
    _probe_size: int = 1
    _probe_wait: float = PROBE
    # While this run has no lane and is refused, others have them all:
    _others_since: float = math.inf
    # Of lanes that are shared, this run's part: it has some of it at once, and all of it at `_settled_at`:
    _part: int = 0
    _at_once: int = 0
    _settled_at: float = -math.inf
    _retry_at: float = -math.inf
    _retry_wait: float = RETRY[0]

    def share(self, now: float, runs: int) -> None:
        """So many runs share the service's lanes from now on, this one too.

        A run that still looks for their number goes on. Another one has its part of it from now on; but what
        the others give up of theirs comes free little by little, and so it is taken. Together they
        probe as often as one run does.
        """
        before, self.shared_by = self.shared_by, runs
        if self.latched:
            self.grows_at = now + (self.grows_at - now) * runs / before
            self._part = self.size = max(1, max(self.size, self._part) * before // runs)
            self._at_once = min(self.in_use, self._part)
            self._settled_at = now + SETTLING if runs > before else now

    def blocked(self, now: float, patience: float) -> bool:
        """Whether this run can free no lane, and others have had every lane for `patience` seconds."""
        if self.cap is not None and self.given_up >= self.cap:
            return True
        return now - self._others_since > patience

    def wait(self, now: float) -> float:
        """Seconds until one more may be taken: 0 for now, infinity if one must be freed first."""
        if now < self._retry_at:
            return self._retry_at - now
        if now >= self._settled_at:
            self.size, self._part = max(self.size, self._part), 0
        elif self.size <= self.in_use < self._part:
            return self._settled_at - now
        elif self._at_once <= self.in_use < self._part:
            left = (self._part - self.in_use - 1) / (self._part - self._at_once)
            if now < self._settled_at - left * SETTLING:
                return self._settled_at - left * SETTLING - now
        if self.in_use > self.size or (self.cap is not None and self.in_use + self.given_up >= self.cap):
            return math.inf
        if self.in_use < self.size:
            return 0.0
        may_grow = self.latched or (self.proven and not self._leaving)
        return max(0.0, self.grows_at - now) if may_grow else math.inf

    def take(self, now: float) -> None:
        """Takes a lane. Call it only when `wait` returns 0."""
        if self.in_use == self.size:
            if self.latched:
                self._grow_by_probe(now)
            else:
                step = max(1, min(self.size // 10, RAMP_MOST // self.shared_by))
                self.size += step
                self.grows_at = now + RAMP
                self._leaving = self.unsent + step
        self.in_use += 1
        self.unsent += 1

    def left(self) -> None:
        """A request leaves, or never will."""
        self.unsent -= 1
        self._leaving = max(0, self._leaving - 1)

    def _grow_by_probe(self, now: float) -> None:
        accepted_before = self._probe_size > 1
        self._probe_wait = PROBE if accepted_before else min(2 * self._probe_wait, 4 * PROBE)
        self.size += self._probe_size
        self._probe_size *= 1 if self.shared_by > 1 else 2
        self.grows_at = now + PROBE * self.shared_by  # together they look as often as one

    def accepted(self) -> None:
        """A submission was not refused for its lane: others do not have every lane."""
        self._retry_wait, self._others_since = RETRY[0], math.inf

    def refused(self, now: float) -> None:
        """429 without `Retry-After` for a submission whose lane is still taken: one lane fewer exists."""
        self.size = max(1, min(self.size, self.in_use) - 1)
        self.latched, self._probe_size = True, 1
        self.grows_at = now + self._probe_wait * self.shared_by
        if self.in_use == 1:  # this run has no other lane that could come free
            self._others_since = min(self._others_since, now)
            self._retry_at = now + self._retry_wait
            self._retry_wait = min(2 * self._retry_wait, RETRY[1])
