"""What may still be reserved and sent: the walls of the budget, exact with any number of runs.

Each function is part of a ledger transaction, on the connection it is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum

import sqlalchemy as sa

from callsheet.ledger import leases, running_totals


class Wall(StrEnum):
    """A limit of the budget that a job does not fit."""

    BATCH = "batch"
    """What the batch may spend."""

    DAY = "day"
    """What the whole ledger may spend in a UTC day."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The walls of a batch, in dollars.

    Attributes:
        batch: the batch.
        limit: what the batch may spend: spent, reserved, in flight and in doubt.
        per_day: what all batches of the ledger together may spend in a UTC day. A job counts for the day on
            which it is sent; until then it counts for today.
    """

    batch: str
    limit: Decimal
    per_day: Decimal | None = None


class Room:
    """What is left within each wall, in dollars."""

    def __init__(self, left: dict[Wall, Decimal]) -> None:
        self._left = left

    def take(self, amount: Decimal) -> Wall | None:
        """Takes an amount, in dollars; or returns the first wall that it does not fit."""
        for wall, left in self._left.items():
            if amount > left:
                return wall
        self._left = {wall: left - amount for wall, left in self._left.items()}
        return None


def to_reserve(connection: sa.Connection, budget: Budget) -> Room:
    """What may be reserved now; until the transaction ends, this stays true."""
    exposure = running_totals.exposure(connection, budget.batch, reserved=True)
    left = {Wall.BATCH: budget.limit - exposure}
    if budget.per_day is not None:
        leases.free_dead_reservations(connection)
        left[Wall.DAY] = budget.per_day - running_totals.exposure_of_day(connection, datetime.now(UTC))
    return Room(left)


def to_send(connection: sa.Connection, budget: Budget, at: datetime) -> Room:
    """What may be sent at a moment of what is reserved; until the transaction ends, this stays true.

    Other reservations do not count: each is looked at when it is about to be sent.
    """
    left = {Wall.BATCH: budget.limit - running_totals.exposure(connection, budget.batch, reserved=False)}
    if budget.per_day is not None:
        sent = running_totals.exposure_of_day(connection, at, reserved_by=())
        left[Wall.DAY] = budget.per_day - sent
    return Room(left)
