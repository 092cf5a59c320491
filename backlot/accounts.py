"""Workspaces: balance, rate windows and concurrency (INTERFACE 5, 8). No I/O; the time is a parameter.

A generation is admitted in one step, so that parallel requests can exceed neither a limit nor the balance:
window, concurrency and balance are all checked, and then all taken. A refused request takes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from backlot.errors import Refused
from backlot.traffic import Traffic

ModelType = Literal["image", "video"]


@dataclass(slots=True)
class Window:
    """A fixed rate window: `limit` requests in each `seconds` of the clock, counted from the Unix epoch."""

    limit: int
    seconds: int
    index: int = -1
    used: int = 0

    def roll(self, now: float) -> None:
        """Begins a new window when its time has come."""
        if (index := int(now // self.seconds)) > self.index:
            self.index, self.used = index, 0

    def headers(self, now: float) -> dict[str, str]:
        """The `X-RateLimit-*` headers: strings of digits; the reset in whole Unix seconds (INTERFACE 8)."""
        self.roll(now)
        return {
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Remaining": str(max(self.limit - self.used, 0)),  # the limit may have been lowered
            "X-RateLimit-Reset": str(self.reset(now)),
        }

    def reset(self, now: float) -> int:
        """When the next window begins, in Unix seconds."""
        self.roll(now)
        return (self.index + 1) * self.seconds

    def change(self, limit: int, seconds: int, now: float) -> None:
        """Sets another limit. What was used in this window stays used; another length begins a new window."""
        self.roll(now)
        if seconds != self.seconds:
            self.index, self.used = int(now // seconds), 0
        self.limit, self.seconds = limit, seconds

    def check(self, now: float) -> None:
        """Raises `Refused` 429 with `Retry-After` when the window is full; takes nothing."""
        self.roll(now)
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


@dataclass(slots=True)
class Workspace:
    """A workspace's money and limits.

    Attributes:
        opening: the balance in dollars before any charge, with all top-ups.
        spent: the sum of all charges.
        reserved: what the accepted generations in progress will cost.
        busy: accepted generations in progress, images and videos together.
        traffic: what was asked with the workspace's keys since the server began, and how it was answered.
    """

    name: str
    opening: Decimal
    windows: dict[ModelType, Window]
    reads: Window
    concurrency: int
    spent: Decimal = Decimal(0)
    reserved: Decimal = Decimal(0)
    busy: int = field(default=0)
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

    def read(self, now: float) -> None:
        """Counts a request that is not a generation, against a generous limit (INTERFACE 8)."""
        self.reads.check(now)
        self.reads.used += 1


@dataclass(slots=True)
class ApiKey:
    """A key of a project. The key itself is not kept: it is shown once, when it is created.

    Attributes:
        digest: its SHA-256, in hex.
        hint: its beginning and its last characters, to tell keys apart.
        created_at: Unix milliseconds; None for a key of the settings.
        revoked_at: Unix milliseconds; None while it is valid.
    """

    digest: str
    hint: str
    workspace: Workspace
    project: str
    created_at: int | None = None
    revoked_at: int | None = None
