"""What a run may still reserve: the walls of the budget, exact with any number of runs at once.

Each function is part of a ledger transaction, on the connection it is given. With PostgreSQL, a part of what
is left is set aside for a run. While the walls hold all that is reserved and all that is set aside, runs
reserve from their parts at the same time. A run whose part is used up, or no longer fits, waits for the
others, and adds up what is left. So near a wall reservations are made one after the other, up to the last
cent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_DOWN, Decimal
from enum import StrEnum
from typing import NamedTuple

import sqlalchemy as sa

from callsheet.ledger import databases, leases, running_totals
from callsheet.ledger.tables import Money, allotments

_PART = 16  # one in so many parts of what is left is set aside for a run
_MICRO = Decimal("0.000001")


def _sum(*which: sa.ColumnElement[bool]) -> sa.ColumnElement[Decimal]:
    return sa.func.coalesce(sa.func.sum(allotments.c.amount).filter(*which), 0, type_=Money)


_OF_RUN = allotments.c.run_id == sa.bindparam("the_run")
_AMOUNTS = sa.select(
    _sum(_OF_RUN).label("of_run"),
    _sum(allotments.c.batch == sa.bindparam("the_batch")).label("of_batch"),
    _sum(sa.true()).label("of_all"),
)
_TAKE = allotments.update().where(_OF_RUN).values(amount=allotments.c.amount - sa.bindparam("taken"))
_GIVE_BACK = allotments.delete().where(_OF_RUN)


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
        limit: what the batch may spend: spent, reserved, in flight and in doubt.
        per_day: what all batches of the ledger together may spend in a UTC day. A job counts for the day on
            which it is sent; until then it counts for today.
    """

    limit: Decimal
    per_day: Decimal | None = None


class Room:
    """What a run may reserve in one transaction: from `room` to `close`."""

    def __init__(
        self, run_id: str, batch: str, left: Mapping[Wall, Decimal], of_others: Mapping[Wall, Decimal] | None
    ) -> None:
        self._run_id, self._batch = run_id, batch
        self._left = left
        self._of_others = of_others  # what is set aside for them; None where `left` is the run's own part
        self._taken = Decimal(0)

    def take(self, amount: Decimal) -> Wall | None:
        """Takes an amount, in dollars; or returns the first wall that it does not fit."""
        for wall, left in self._left.items():
            if amount > left:
                return wall
        self._left = {wall: left - amount for wall, left in self._left.items()}
        self._taken += amount
        return None

    def close(self, connection: sa.Connection) -> None:
        """Writes what is set aside for the run from now on."""
        if self._of_others is None:
            connection.execute(_TAKE, {"the_run": self._run_id, "taken": self._taken})
        elif databases.has_many_writers(connection):
            free = min(left - self._of_others[wall] for wall, left in self._left.items())
            part = (free / _PART).quantize(_MICRO, ROUND_DOWN)
            connection.execute(_GIVE_BACK, {"the_run": self._run_id})
            if part > self._taken:  # enough for a reservation like this one
                row = {"run_id": self._run_id, "batch": self._batch, "amount": part}
                connection.execute(allotments.insert(), row)


class _SetAside(NamedTuple):
    """What is set aside, in dollars: for the run, and within each wall, the run's included."""

    run: Decimal
    within: Mapping[Wall, Decimal]


def room(
    connection: sa.Connection, run_id: str, batch: str, budget: Budget, wanted: Decimal, *, beside: bool
) -> Room:
    """What a run may reserve now; until the transaction ends, this stays true.

    Args:
        connection: the transaction.
        run_id: the run.
        batch: its batch.
        budget: the walls.
        wanted: what it wants to reserve at most, in dollars.
        beside: other reservations of the batch may be made meanwhile.

    Raises:
        databases.NotAlone: as `databases.alone`.
    """
    if beside and _set_aside(connection, run_id, batch).run > wanted:
        _lock(connection, batch, shared=True, day_shared=True)
        # Before what is left: what others reserve meanwhile then counts twice, and never not at all.
        aside = _set_aside(connection, run_id, batch)
        left = _left(connection, batch, budget)
        if aside.run > wanted and all(aside.within[wall] <= left[wall] for wall in left):
            return Room(run_id, batch, dict.fromkeys(left, aside.run), None)
        databases.alone(connection)
    _lock(connection, batch, shared=False, day_shared=budget.per_day is None)
    if budget.per_day is not None and leases.has_dead_reservations(connection):
        databases.alone(connection)
        leases.free_dead_reservations(connection)
    left, aside = _left(connection, batch, budget), _set_aside(connection, run_id, batch)
    of_others = {wall: amount - aside.run for wall, amount in aside.within.items()}
    return Room(run_id, batch, left, of_others)


def _lock(connection: sa.Connection, batch: str, *, shared: bool, day_shared: bool) -> None:
    databases.lock(connection, f"reservations of {batch}", shared=shared)
    databases.lock(connection, "reservations", shared=day_shared)


def _left(connection: sa.Connection, batch: str, budget: Budget) -> dict[Wall, Decimal]:
    """What is left within each wall, of which some is set aside."""
    left = {Wall.BATCH: budget.limit - running_totals.exposure(connection, batch)}
    if budget.per_day is not None:
        left[Wall.DAY] = budget.per_day - running_totals.exposure_of_day(connection, datetime.now(UTC))
    return left


def _set_aside(connection: sa.Connection, run_id: str, batch: str) -> _SetAside:
    of_run, of_batch, of_all = connection.execute(_AMOUNTS, {"the_run": run_id, "the_batch": batch}).one()
    return _SetAside(of_run, {Wall.BATCH: of_batch, Wall.DAY: of_all})
