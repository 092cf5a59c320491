"""What was asked of the service since it began, and how it was answered. No I/O; the time is a parameter.

It is counted where every answer passes (`app.CountAnswers`), so it is what the clients saw.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["accepted", "read", "window", "lanes", "refused", "failed"]
"""A generation was accepted; another request was answered; 429 of a full window; 429 of the concurrency
limit; another refusal (4xx); a failure (5xx, or a connection that was closed without an answer)."""

SECONDS = 120  # that are remembered one by one
REFUSALS = 50


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that was not carried out. `at` is in Unix seconds; without an answer the status is 0."""

    at: float
    method: str
    path: str
    status: int
    code: str
    message: str


@dataclass(slots=True)
class Traffic:
    """The answers to the keys of one workspace, or to requests without a key.

    Attributes:
        totals: answers by outcome, since the server began.
        seconds: the same, for each of the last seconds that had any; by Unix second.
        refusals: the last requests that were not carried out.
    """

    totals: Counter[Outcome] = field(default_factory=Counter)
    seconds: deque[tuple[int, Counter[Outcome]]] = field(default_factory=lambda: deque(maxlen=SECONDS))
    refusals: deque[Refusal] = field(default_factory=lambda: deque(maxlen=REFUSALS))

    def count(self, outcome: Outcome, now: float) -> None:
        """Counts one answer."""
        second = int(now)
        if not self.seconds or self.seconds[-1][0] != second:
            self.seconds.append((second, Counter()))
        self.seconds[-1][1][outcome] += 1
        self.totals[outcome] += 1


def outcome_of(method: str, status: int, *, retry_after: bool) -> Outcome:
    """The outcome of a request; a status of 0 means that the connection was closed without an answer."""
    if status == 429:
        return "window" if retry_after else "lanes"
    if status == 0 or status >= 500:
        return "failed"
    if status >= 400:
        return "refused"
    return "accepted" if method == "POST" else "read"
