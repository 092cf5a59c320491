"""Workspaces: balance, rate windows and concurrency (INTERFACE 5, 8), and what was asked with their keys.

A generation is admitted in one step, so that parallel requests can exceed neither a limit nor the balance:
window, concurrency and balance are all checked, and then all taken. A refused request takes nothing.
No I/O; the time is a parameter.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal, NamedTuple

from backlot.errors import Refused

ModelType = Literal["image", "video"]
Outcome = Literal["accepted", "read", "window", "lanes", "refused", "failed"]
"""A generation was accepted; another request was answered; 429 of a full window; 429 of the concurrency
limit; another refusal (4xx); a failure (5xx, or a connection that was closed without an answer)."""

SECONDS = 120  # of traffic that are remembered one by one
REFUSALS = 50


@dataclass(slots=True)
class Window:
    """A fixed rate window: `limit` requests in each `seconds` of the clock, counted from the Unix epoch.

    Both may be changed at any time: what was used stays used, and another length begins a new window.
    """

    limit: int
    seconds: int
    index: int = -1
    used: int = 0

    def reset(self, now: float) -> int:
        """When the next window begins, in Unix seconds. Begins a new one when its time has come."""
        if (index := int(now // self.seconds)) != self.index:
            self.index, self.used = index, 0
        return (index + 1) * self.seconds

    def headers(self, now: float) -> dict[str, str]:
        """The `X-RateLimit-*` headers: strings of digits; the reset in whole Unix seconds (INTERFACE 8)."""
        reset = self.reset(now)
        return {
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Remaining": str(max(self.limit - self.used, 0)),  # the limit may have been lowered
            "X-RateLimit-Reset": str(reset),
        }

    def check(self, now: float) -> None:
        """Raises `Refused` 429 with `Retry-After` when the window is full; takes nothing."""
        self.reset(now)
        if self.used >= self.limit:
            raise self.full(now)

    def full(self, now: float) -> Refused:
        """The 429 of a full window. After `Retry-After` seconds the window is open again, never later."""
        wait = math.ceil(self.reset(now) - now)
        message = f"Rate limit reached: {self.limit} requests per {self.seconds} seconds."
        return Refused("rate_limit", message, headers={"Retry-After": str(max(wait, 1))})


def lanes_full(limit: int) -> Refused:
    """The 429 of the concurrency limit. It has no `Retry-After`: the time is not known (INTERFACE 7)."""
    return Refused("rate_limit", f"Concurrent request limit reached: {limit} generations at once.")


class Refusal(NamedTuple):
    """A request that was not carried out. `at` is in Unix seconds; without an answer the status is 0."""

    at: float
    method: str
    path: str
    status: int
    code: str
    message: str


@dataclass(slots=True)
class Traffic:
    """The answers to the keys of one workspace, or to requests without a key, since the server began.

    `seconds` counts them for each of the last Unix seconds that had any.
    """

    totals: Counter[Outcome] = field(default_factory=Counter)
    seconds: deque[tuple[int, Counter[Outcome]]] = field(default_factory=lambda: deque(maxlen=SECONDS))
    refusals: deque[Refusal] = field(default_factory=lambda: deque(maxlen=REFUSALS))

    def count(self, now: float, method: str, path: str, status: int, error: Refused | None = None) -> None:
        """Counts one answer; a status of 0 means that the connection was closed without one."""
        outcome: Outcome = "accepted" if method == "POST" else "read"
        if error and status == 429:
            outcome = "window" if "Retry-After" in error.headers else "lanes"
        elif status == 0 or status >= 500:
            outcome = "failed"
        elif status >= 400:
            outcome = "refused"
        if not self.seconds or self.seconds[-1][0] != int(now):
            self.seconds.append((int(now), Counter()))
        self.seconds[-1][1][outcome] += 1
        self.totals[outcome] += 1
        if outcome not in {"accepted", "read"}:
            code, message = (error.code, error.detail) if error else ("", "")
            self.refusals.append(Refusal(now, method, path, status, code, message))


@dataclass(slots=True)
class Workspace:
    """A workspace's money, in dollars, and limits.

    `opening` is the balance before any charge, with all top-ups; `reserved` is what the `busy` accepted
    generations in progress will cost.
    """

    name: str
    opening: Decimal
    windows: dict[ModelType, Window]
    reads: Window
    concurrency: int
    spent: Decimal = Decimal(0)
    reserved: Decimal = Decimal(0)
    busy: int = 0
    traffic: Traffic = field(default_factory=Traffic)

    @property
    def balance(self) -> Decimal:
        """What the balance endpoint answers: charges count when they are made, not when they are reserved."""
        return max(self.opening - self.spent, Decimal(0))

    def admit(self, model_type: ModelType, cost: Decimal, now: float) -> None:
        """Takes a place in the window, a concurrent place and the money, or none of them.

        Raises:
            Refused: 429 for the window, 429 for concurrency, 402 for the balance, in this order.
        """
        window = self.windows[model_type]
        window.check(now)
        if self.busy >= self.concurrency:
            raise lanes_full(self.concurrency)
        if self.spent + self.reserved + cost > self.opening:
            raise Refused("quota_exceeded", f"Insufficient balance: this generation costs {cost} USD.")
        window.used += 1
        self.take(cost)

    def take(self, cost: Decimal) -> None:
        """Takes a concurrent place, and reserves the money of a generation until it is finished."""
        self.busy += 1
        self.reserved += cost

    def finish(self, reserved: Decimal, charged: Decimal) -> None:
        """Frees the concurrent place and the reserved money; charges `charged` (zero for a failure)."""
        self.busy -= 1
        self.reserved -= reserved
        self.spent += charged


@dataclass(slots=True)
class ApiKey:
    """A key of a project. Of the key itself only its SHA-256 is kept, in hex, and a hint to tell keys apart.

    Times are Unix milliseconds; a key of the settings has no `created_at`, a valid one no `revoked_at`.
    """

    digest: str
    hint: str
    workspace: Workspace
    project: str
    created_at: int | None = None
    revoked_at: int | None = None
