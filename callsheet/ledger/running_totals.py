"""What batches and days have cost so far: running totals, which cost the same for ten jobs and for a million.

A row of the table `totals` has the money of one batch, day and approval. `writing.py` changes it in the
transaction that changes an attempt; here it is only read, and checked (`differences`).
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from callsheet.ledger.tables import AMOUNTS, Money, attempts, totals
from callsheet.records import State, Totals

_SENT = totals.c.in_flight + totals.c.in_doubt + totals.c.spent


def of_batch(connection: sa.Connection, batch: str) -> Totals:
    """The batch so far: jobs by state, and money."""
    newest = sa.and_(attempts.c.batch == batch, ~attempts.c.superseded)
    counts = sa.select(attempts.c.state, sa.func.count()).where(newest).group_by(attempts.c.state)
    sums = (total(totals.c[name]).label(name) for name in AMOUNTS)
    money = connection.execute(sa.select(*sums).where(totals.c.batch == batch)).one()
    return Totals(
        states={State(state): count for state, count in connection.execute(counts)},
        quoted=money.quoted,
        spent=money.spent,
        in_doubt_exposure=money.in_doubt,
        exposure=money.reserved + money.in_flight + money.in_doubt + money.spent,
        reserved=money.reserved,
    )


def of_ledger(connection: sa.Connection) -> dict[str, Totals]:
    """Every batch of the ledger so far, by name."""
    batches = connection.scalars(sa.select(totals.c.batch).distinct().order_by(totals.c.batch)).all()
    found = {batch: of_batch(connection, batch) for batch in batches}
    return {batch: total for batch, total in found.items() if total.states}


def exposure(connection: sa.Connection, batch: str, *, reserved: bool) -> Decimal:
    """What counts against the budget of a batch, in dollars: spent, in flight and in doubt.

    `reserved`: what is reserved counts too.
    """
    counted = _SENT + totals.c.reserved if reserved else _SENT
    return _sum(connection, counted, totals.c.batch == batch)


def exposure_by(connection: sa.Connection, approval: str, *, reserved: bool) -> Decimal:
    """The same of what is bought by an approval."""
    counted = _SENT + totals.c.reserved if reserved else _SENT
    return _sum(connection, counted, totals.c.approval == approval)


def sent_since(connection: sa.Connection, day: datetime) -> Decimal:
    """What was sent since the UTC day of a moment began, over the whole ledger, in dollars.

    That is spent, in flight and in doubt.
    """
    return _sum(connection, _SENT, totals.c.day >= f"{day.astimezone(UTC):%Y-%m-%d}")


def spent(connection: sa.Connection, without: Collection[str] = ()) -> Decimal:
    """What all batches of the ledger but these together have cost, in dollars."""
    return _sum(connection, totals.c.spent, totals.c.batch.not_in(without))


def differences(connection: sa.Connection, batch: str | None = None) -> list[str]:
    """The batches, or this one, whose totals are not the sums of their attempts. There should be none."""
    wrong: set[tuple[Any, ...]] = set()
    for query in (sa.select(totals), _sums()):
        wanted = query if batch is None else query.where(query.selected_columns.batch == batch)
        wrong ^= {tuple(row) for row in connection.execute(wanted) if any(row[3:])}
    return sorted({row[0] for row in wrong})


def _sums() -> sa.Select[Any]:
    """The rows of `totals`, as they follow from the attempts."""
    state, quoted = attempts.c.state, attempts.c.quoted
    day = sa.func.coalesce(sa.func.substr(sa.type_coerce(attempts.c.submitted_at, sa.String), 1, 10), "")
    is_reserved = sa.and_(state == State.PLANNED, attempts.c.run_id.is_not(None))
    amounts = {
        "quoted": sa.case((~attempts.c.superseded, quoted)),
        "reserved": sa.case((is_reserved, quoted)),
        "in_flight": sa.case((state.in_((State.SUBMITTING, State.PENDING)), quoted)),
        "in_doubt": sa.case((state == State.IN_DOUBT, quoted)),
        "spent": attempts.c.cost,
    }
    summed_up = (total(amount).label(name) for name, amount in amounts.items())
    by = (attempts.c.batch, day.label("day"), attempts.c.approval)
    return sa.select(*by, *summed_up).group_by(attempts.c.batch, sa.text("2"), attempts.c.approval)


def _sum(
    connection: sa.Connection, amount: sa.ColumnElement[Any], *conditions: sa.ColumnElement[bool]
) -> Decimal:
    return connection.scalar(sa.select(total(amount)).where(*conditions)) or Decimal(0)


def total(amount: sa.ColumnElement[Any], *conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[Decimal]:
    """The sum of an amount over the rows that meet all conditions, exact; zero of nothing."""
    counted = sa.case((sa.and_(*conditions), amount)) if conditions else amount
    return sa.func.coalesce(sa.func.sum(counted), 0, type_=Money)
