"""The bound of a batch: what may be spent is one rule, for all its runs together.

It is the smallest of the limit that a person has said last (`changes.said_limit`), what is approved
(`approvals.py`), what all batches may spend in a day, and what the workspace can pay. Without a limit, what a
run has quoted is the bound, as if it was approved. It is looked at where a job is reserved, and again in the
transaction that says that it is about to be sent. Money is in dollars.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

import sqlalchemy as sa

from callsheet.ledger import approvals, changes, charges, leases, running_totals


class Wall(StrEnum):
    """What a job does not fit, or why none may be sent."""

    LIMIT = "limit"
    """What the batch may spend: `budget.limit`, as it was said last."""

    APPROVED = "approved"
    """What was approved, or quoted where nobody had to approve it."""

    DAY = "day"
    """What the whole ledger may spend in a UTC day."""

    BALANCE = "balance"
    """What the workspace can pay."""

    PRICE = "price"
    """Jobs were charged more than was quoted, and nobody has accepted that (`charges.py`)."""


@dataclass(frozen=True, slots=True)
class SpendingLimit:
    """What bounds a run, besides the limit of its batch, in dollars.

    Attributes:
        affordable: what the batch may come to before the workspace cannot pay: spent, reserved, in flight and
            in doubt.
        per_day: what all batches of the ledger together may spend in a UTC day, by the database's clock
            (`leases.time_by_database`). A job counts for the day on which it is sent; until then for today.
        approval: the id of the approval that it buys by; empty where it has none.
    """

    batch: str
    affordable: Decimal
    per_day: Decimal | None = None
    approval: str = ""


class Room:
    """What is left within each wall at a moment, in dollars; until the transaction ends, this stays true.

    `reserved`: reservations count too; in the wall of a day, those of runs at work alone. A job that is about
    to be sent is looked at without the other reservations: each of them is looked at in its turn.
    """

    def __init__(
        self, connection: sa.Connection, budget: SpendingLimit, at: datetime, *, reserved: bool
    ) -> None:
        exposure = running_totals.exposure(connection, budget.batch, reserved=reserved)
        limit = changes.said_limit(connection, budget.batch)
        bound = limit  # of the whole batch
        self._left: dict[Wall, Decimal] = {}
        if limit is not None:
            self._left[Wall.LIMIT] = limit - exposure
        approved = approvals.bound(connection, budget.approval, is_limited=limit is not None)
        if approved is not None:
            used = running_totals.exposure_by(connection, budget.approval, reserved=reserved)
            self._left[Wall.APPROVED] = approved * charges.ROUNDING - used
            if limit is None:
                bound = exposure + approved - used
        self._left[Wall.BALANCE] = budget.affordable - exposure
        if budget.per_day is not None:
            today = leases.used_today if reserved else running_totals.sent_since
            self._left[Wall.DAY] = budget.per_day - today(connection, at)
        self._is_too_dear = charges.of_batch(connection, budget.batch).stops(bound)

    def left(self, wall: Wall) -> Decimal:
        """What is left within a wall, in dollars; nothing within that of the price."""
        return max(Decimal(0), self._left.get(wall, Decimal(0)))

    def take(self, amount: Decimal) -> Wall | None:
        """Takes an amount, in dollars; or returns the first wall that it does not fit."""
        if self._is_too_dear:
            return Wall.PRICE
        for wall, left in self._left.items():
            if amount > left:
                return wall
        self._left = {wall: left - amount for wall, left in self._left.items()}
        return None
