"""What batches and days have cost so far: running totals, which cost the same for ten jobs and for a million.

A row of the table `totals` has the money of one batch and day. `writing.py` changes it in the transaction
that changes an attempt; here it is only read. `summed` adds the attempts up anew, for a view of them that is
not in a table, and `differences` to check the totals.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from callsheet.ledger.tables import Money, attempts, runs, totals
from callsheet.records import State, Totals

_SENT = totals.c.in_flight + totals.c.in_doubt + totals.c.spent


def of_batch(connection: sa.Connection, batch: str) -> Totals:
    """The batch so far: jobs by state, and money."""
    return _of_batch(connection, batch, sa.select(totals), attempts)


def summed(connection: sa.Connection, batch: str, table: sa.FromClause) -> Totals:
    """What `of_batch` returns, added up over a query with the columns of `attempts`."""
    return _of_batch(connection, batch, _sums(table), table)


def of_ledger(connection: sa.Connection) -> dict[str, Totals]:
    """Every batch of the ledger so far, by name."""
    batches = connection.scalars(sa.select(totals.c.batch).distinct().order_by(totals.c.batch)).all()
    found = {batch: of_batch(connection, batch) for batch in batches}
    return {batch: total for batch, total in found.items() if total.states}


def exposure(connection: sa.Connection, batch: str, *, reserved: bool) -> Decimal:
    """What counts against the budget of a batch, in dollars: spent, in flight and in doubt.

    Args:
        connection: the transaction.
        batch: the batch.
        reserved: whether what is reserved counts too.
    """
    counted = _SENT + totals.c.reserved if reserved else _SENT
    return _sum(connection, counted, totals.c.batch == batch)


def exposure_of_day(
    connection: sa.Connection, day: datetime, reserved_by: Collection[str] | None = None
) -> Decimal:
    """What counts against the budget of a UTC day in dollars, over the whole ledger.

    That is spent, in flight and in doubt of what was sent since `day` began, and what is reserved: it may be
    sent on this day.

    Args:
        connection: the transaction.
        day: a moment of that day.
        reserved_by: the runs whose reservations count; None for all.
    """
    sent = _sum(connection, _SENT, totals.c.day >= f"{day.astimezone(UTC):%Y-%m-%d}")
    if reserved_by is None:
        return sent + _sum(connection, totals.c.reserved)
    if not reserved_by:
        return sent
    with_open_runs = attempts.c.batch.in_(sa.select(runs.c.batch).where(runs.c.ended_at.is_(None)))
    by_runs = attempts.c.run_id.in_(reserved_by)
    return sent + _sum(connection, attempts.c.quoted, with_open_runs, is_reserved(), by_runs)


def spent(connection: sa.Connection, without: Collection[str] = ()) -> Decimal:
    """What all batches of the ledger but these together have cost, in dollars."""
    return _sum(connection, totals.c.spent, totals.c.batch.not_in(without))


def is_reserved(table: sa.FromClause = attempts) -> sa.ColumnElement[bool]:
    """Whether a run has reserved an attempt, and not sent it yet."""
    return sa.and_(table.c.state == State.PLANNED, table.c.run_id.is_not(None))


def differences(connection: sa.Connection, batch: str | None = None) -> list[str]:
    """The batches whose running totals are not the sums of their attempts. There should be none.

    Args:
        connection: the transaction.
        batch: checks this batch only.
    """
    wrong: set[tuple[Any, ...]] = set()
    for query in (sa.select(totals), _sums(attempts)):
        wanted = query if batch is None else query.where(query.selected_columns.batch == batch)
        wrong ^= {tuple(row) for row in connection.execute(wanted) if any(row[2:])}
    return sorted({row[0] for row in wrong})


def _of_batch(connection: sa.Connection, batch: str, sums: sa.Select[Any], table: sa.FromClause) -> Totals:
    newest = sa.and_(table.c.batch == batch, ~table.c.superseded)
    counts = sa.select(table.c.state, sa.func.count()).where(newest).group_by(table.c.state)
    money: defaultdict[str, Decimal] = defaultdict(Decimal)
    for row in connection.execute(sums.where(sums.selected_columns.batch == batch)).mappings():
        for name in ("quoted", "reserved", "in_flight", "in_doubt", "spent"):
            money[name] += row[name]
    return Totals(
        states={State(state): count for state, count in connection.execute(counts)},
        quoted=money["quoted"],
        spent=money["spent"],
        in_doubt_exposure=money["in_doubt"],
        exposure=money["reserved"] + money["in_flight"] + money["in_doubt"] + money["spent"],
        reserved=money["reserved"],
    )


def _sums(table: sa.FromClause) -> sa.Select[Any]:
    """The rows of `totals`, as they follow from the attempts."""
    state, quoted = table.c.state, table.c.quoted
    day = sa.func.coalesce(sa.func.substr(sa.type_coerce(table.c.submitted_at, sa.String), 1, 10), "")
    amounts = {
        "quoted": sa.case((~table.c.superseded, quoted)),
        "reserved": sa.case((is_reserved(table), quoted)),
        "in_flight": sa.case((state.in_((State.SUBMITTING, State.PENDING)), quoted)),
        "in_doubt": sa.case((state == State.IN_DOUBT, quoted)),
        "spent": table.c.cost,
    }
    summed_up = (_total(amount).label(name) for name, amount in amounts.items())
    return sa.select(table.c.batch, day.label("day"), *summed_up).group_by(table.c.batch, sa.text("2"))


def _sum(
    connection: sa.Connection, amount: sa.ColumnElement[Any], *conditions: sa.ColumnElement[bool]
) -> Decimal:
    return connection.scalar(sa.select(_total(amount)).where(*conditions)) or Decimal(0)


def _total(amount: sa.ColumnElement[Any]) -> sa.ColumnElement[Decimal]:
    """The sum of an amount, exact; zero of nothing."""
    return sa.func.coalesce(sa.func.sum(amount), 0, type_=Money)
