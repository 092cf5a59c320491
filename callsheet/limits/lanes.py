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
RETRY = (1.0, 10.0)  # seconds between two tries while others have every lane: at least, and at most


@dataclass(slots=True, eq=False)
class Lanes:
    """Generations at work at once, of both types. Every `now` is in monotonic seconds.

    The size grows only when every lane is taken and one more is wanted. Until the first 429 it grows fast
    (the ramp). The first 429 latches it: from then on it grows by a probe a minute. After a probe that is
    accepted the next one is twice as large; after a refusal it is one lane again.

    Attributes:
        size: lanes that the service is believed to allow.
        cap: lanes that the config allows this run; None for no limit.
        latched: a 429 has ended the ramp.
        proven: the service has answered a submission. Before that the ramp does not begin: a gateway that
            loses every answer would cost a whole batch.
        in_use: lanes that are taken.
        unsent: lanes whose request has not left. On a busy machine they wait for the ledger, and so the ramp
            waits for them: it would be far beyond the first 429 when that comes.
        given_up: lanes of videos that this run no longer polls; not in `in_use`, but they count for `cap`.
        grows_at: the moment of the next step of the ramp, or of the next probe.
    """

    size: int = FIRST_LANES
    cap: int | None = None
    latched: bool = False
    proven: bool = False
    in_use: int = 0
    unsent: int = 0
    given_up: int = 0
    grows_at: float = -math.inf
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
            least, most = RETRY
            self._retry_at = now + min(max(now - self._others_since, least), most)
