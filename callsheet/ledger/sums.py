"""What the ledger's attempts come to: running totals of batches and days, kept and read.

A row of the table `totals` has the money of one batch, day and purse, so that a sum costs the same for ten
jobs and for a million. It is changed in the transaction that changes an attempt (`writing.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import sqlalchemy as sa

from callsheet.ledger.tables import AMOUNTS, Money, Values, attempts, claims, settlements, totals
from callsheet.records import IN_FLIGHT, NOT_BOUGHT, PAID, State, Totals

RESERVED = sa.and_(attempts.c.state == State.PLANNED, attempts.c.run_id.is_not(None))
"""Whether a run has reserved an attempt."""

_ADD = (
    totals.update()
    .where(
        totals.c.batch == sa.bindparam("the_batch"),
        totals.c.day == sa.bindparam("the_day"),
        totals.c.purse == sa.bindparam("the_purse"),
    )
    .values(
        {name: totals.c[name] + sa.bindparam(f"more_{name}", type_=totals.c[name].type) for name in AMOUNTS}
    )
)


def count(connection: sa.Connection, changes: Iterable[tuple[Values, Values]]) -> None:
    """Adds to the totals by how much attempts count more than before; one that is not there is empty."""
    differences: defaultdict[tuple[str, str, str], dict[str, Decimal]] = defaultdict(
        lambda: dict.fromkeys(AMOUNTS, Decimal(0))
    )
    for row_before, row_after in changes:
        for attempt, sign in ((row_before, -1), (row_after, 1)):
            if attempt:
                counted = differences[attempt["batch"], _day(attempt), attempt["purse"]]
                for name, amount in _amounts(attempt):
                    counted[name] += sign * amount
    for (batch, day, purse), difference in differences.items():
        if not any(difference.values()):
            continue
        added = {f"more_{name}": amount for name, amount in difference.items()}
        key = {"the_batch": batch, "the_day": day, "the_purse": purse}
        if connection.execute(_ADD, key | added).rowcount == 0:
            connection.execute(totals.insert().values(batch=batch, day=day, purse=purse, **difference))


def _day(attempt: Values) -> str:
    """The UTC day of its submission; empty before that."""
    sent = attempt.get("submitted_at")
    return "" if sent is None else sent.astimezone(UTC).date().isoformat()


def _amounts(attempt: Values) -> Iterable[tuple[str, Decimal]]:
    """What an attempt counts, in dollars, and as what.

    The same is said once more in SQL, on purpose: `by_attempts` checks what comes of it.
    """
    state = attempt["state"]
    if (quoted := attempt["quoted"]) is not None:
        if not attempt["superseded"]:
            yield "quoted", quoted
        if state == State.PLANNED and attempt["run_id"] is not None:
            yield "reserved", quoted
        elif state in IN_FLIGHT:
            yield "in_flight", quoted
        elif state == State.IN_DOUBT:
            yield "in_doubt", quoted
    if (cost := attempt.get("cost")) is not None:
        yield "spent", cost
        if quoted is None:
            yield "unpriced", cost


def total(amount: sa.ColumnElement[Any], *conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[Decimal]:
    """The sum of an amount over the rows that meet all conditions, exact; zero of nothing."""
    counted = sa.case((sa.and_(*conditions), amount)) if conditions else amount
    return sa.func.coalesce(sa.func.sum(counted), 0, type_=Money)


_SENT = totals.c.in_flight + totals.c.in_doubt + totals.c.spent
_ALL_SENT = sa.select(total(_SENT), total(_SENT - totals.c.unpriced)).where(
    totals.c.batch == sa.bindparam("the_batch")
)


def of_batch(connection: sa.Connection, batch: str) -> Totals:
    """The batch so far: jobs by state, and money."""
    of_batch = attempts.c.batch == batch
    newest = sa.select(attempts.c.state, sa.func.count()).where(of_batch, ~attempts.c.superseded)
    states, states_of_gone = (
        Counter({State(state): count for state, count in connection.execute(jobs.group_by(attempts.c.state))})
        for jobs in (newest, newest.where(_is_gone(of_batch)))
    )
    amounts = (total(totals.c[name]).label(name) for name in AMOUNTS)
    money = connection.execute(sa.select(*amounts).where(totals.c.batch == batch)).one()
    return Totals(
        states=states - states_of_gone,
        spent=money.spent,
        in_doubt_exposure=money.in_doubt,
        exposure=money.reserved + money.in_flight + money.in_doubt + money.spent,
        reserved=money.reserved,
        credits=credits_of(connection, batch),
    )


def _is_gone(of_batch: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Whether a job is none of the batch's any more: its row is gone, it is not bought now, and no attempt
    at it has cost money, whatever became of that. `counts` in a standing says the opposite of the same jobs.

    It is asked apart: the states of all jobs are counted in an index alone, however large the batch is.
    """
    # Of the attempts at a job that is not bought now, the last one has cost something only where it failed.
    # The database finds the few others in the index, and looks at no cost besides theirs.
    is_another = sa.or_(attempts.c.superseded, attempts.c.state == State.FAILED)
    has_cost = sa.select(attempts.c.job_key).where(of_batch, is_another, attempts.c.cost > 0).correlate(None)
    is_free = attempts.c.state.in_(NOT_BOUGHT)
    return sa.and_(is_free, attempts.c.current.is_(False), attempts.c.job_key.not_in(has_cost))


def ever_paid_jobs(connection: sa.Connection, batch: str) -> int:
    """How many jobs of the batch were ever among its `Totals.paid_jobs`, at the most: it never gets smaller.

    Only a settlement leads to a paid job that is none any more. It was settled as charged, and an answer came
    after it; or that has an id, and was settled a second time.
    """
    is_settled = sa.and_(
        settlements.c.job_key == attempts.c.job_key, settlements.c.attempt == attempts.c.attempt
    )
    was_charged = sa.or_(settlements.c.charged, attempts.c.generation_id.is_not(None))
    settled = sa.select(attempts.c.job_key).join(settlements, is_settled)
    settled_jobs = settled.where(attempts.c.batch == batch, was_charged).correlate(None)
    is_paid = sa.or_(attempts.c.state.in_(PAID), attempts.c.job_key.in_(settled_jobs))
    count = sa.select(sa.func.count()).where(attempts.c.batch == batch, ~attempts.c.superseded, is_paid)
    return connection.scalar(count) or 0


def credits_of(connection: sa.Connection, batch: str) -> Decimal:
    """The money that came back for the batch, as persons have entered it, in dollars."""
    return connection.scalar(sa.select(total(claims.c.credit)).where(claims.c.batch == batch)) or Decimal(0)


def of_ledger(connection: sa.Connection) -> dict[str, Totals]:
    """Every batch of the ledger so far, by name."""
    batches = connection.scalars(sa.select(totals.c.batch).distinct().order_by(totals.c.batch)).all()
    by_batch = {batch: of_batch(connection, batch) for batch in batches}
    return {batch: total for batch, total in by_batch.items() if total.states}


class Sent(NamedTuple):
    """What was sent of a batch, in dollars.

    Attributes:
        amount: spent, in flight and in doubt.
        with_price: the part of it of the jobs with a price.
    """

    amount: Decimal
    with_price: Decimal


def all_sent(connection: sa.Connection, batch: str) -> Sent:
    """What was sent of a batch: with what its runs have reserved, its exposure (`Totals.exposure`)."""
    return Sent(*connection.execute(_ALL_SENT, {"the_batch": batch}).one())


def sent_since(connection: sa.Connection, day: datetime) -> Decimal:
    """What was sent since the UTC day of a moment began, over the whole ledger, in dollars.

    That is spent, in flight and in doubt.
    """
    return _sum(connection, _SENT, totals.c.day >= f"{day.astimezone(UTC):%Y-%m-%d}")


def sent(connection: sa.Connection) -> Decimal:
    """What was ever sent, over the whole ledger, in dollars: spent, in flight and in doubt."""
    return _sum(connection, _SENT)


def sent_by(connection: sa.Connection, purse: str) -> Decimal:
    """What was ever sent by a purse, in dollars."""
    return _sum(connection, _SENT, totals.c.purse == purse)


def batches_sent(connection: sa.Connection) -> set[str]:
    """The batches to which something of that belongs."""
    return set(connection.scalars(sa.select(totals.c.batch).where(_SENT != 0).distinct()))


def spent(connection: sa.Connection, but_of: Collection[str] = ()) -> Decimal:
    """What all batches of the ledger but these together have cost, in dollars."""
    return _sum(connection, totals.c.spent, totals.c.batch.not_in(but_of))


def differences(connection: sa.Connection, batch: str | None = None) -> list[str]:
    """The batches, or this one, whose totals are not the sums of their attempts. There should be none."""
    differing: set[tuple[Any, ...]] = set()
    for query in (sa.select(totals), by_attempts()):
        selected = query if batch is None else query.where(query.selected_columns.batch == batch)
        differing ^= {tuple(row) for row in connection.execute(selected) if any(row[3:])}
    return sorted({row[0] for row in differing})


def by_attempts() -> sa.Select[Any]:
    """The rows of `totals`, as they follow from the attempts: by the rules of `_amounts`."""
    state, quoted = attempts.c.state, attempts.c.quoted
    day = sa.func.coalesce(sa.func.substr(sa.type_coerce(attempts.c.submitted_at, sa.String), 1, 10), "")
    amounts = {
        "quoted": sa.case((~attempts.c.superseded, quoted)),
        "reserved": sa.case((RESERVED, quoted)),
        "in_flight": sa.case((state.in_(IN_FLIGHT), quoted)),
        "in_doubt": sa.case((state == State.IN_DOUBT, quoted)),
        "spent": attempts.c.cost,
        "unpriced": sa.case((quoted.is_(None), attempts.c.cost)),
    }
    summed_up = (total(amount).label(name) for name, amount in amounts.items())
    by = (attempts.c.batch, day.label("day"), attempts.c.purse)
    return sa.select(*by, *summed_up).group_by(attempts.c.batch, sa.text("2"), attempts.c.purse)


def _sum(
    connection: sa.Connection, amount: sa.ColumnElement[Any], *conditions: sa.ColumnElement[bool]
) -> Decimal:
    return connection.scalar(sa.select(total(amount)).where(*conditions)) or Decimal(0)
