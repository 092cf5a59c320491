"""What batches and days have cost so far: running totals, which the database keeps by itself.

Triggers on `attempts` change the table `totals` in the transaction of each change, so no write can forget
them, and reading them costs the same for ten jobs and for a million. A total counts the attempts of one
batch, day, state and kind.

`summed` adds the attempts up anew: for a view of them that is not in a table, and to check the totals
(`differences`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from callsheet.ledger.tables import Money, attempts, runs, totals
from callsheet.records import State, Totals

_UNDECIDED = (State.SUBMITTING, State.PENDING, State.IN_DOUBT)

_KEY = "batch, day, state, superseded, reserved"
_ADD = f"""
    ON CONFLICT ({_KEY}) DO UPDATE SET jobs = totals.jobs + excluded.jobs,
    quoted = totals.quoted + excluded.quoted, cost = totals.cost + excluded.cost"""


def _columns(row: str) -> str:
    """The key of a row of `totals` for an attempt. `row` comes before each column: empty, or `new.`."""
    return (
        f"{row}batch, COALESCE(substr({row}submitted_at, 1, 10), ''), {row}state, {row}superseded, "
        f"({row}state = 'planned' AND {row}run_id IS NOT NULL)"
    )


def _sqlite_add(row: str, sign: str) -> str:
    amounts = f"{sign}1, {sign}COALESCE({row}.quoted, 0), {sign}COALESCE({row}.cost, 0)"
    return f"INSERT INTO totals VALUES ({_columns(f'{row}.')}, {amounts}) {_ADD};"  # noqa: S608 - constants


def _grouped(table: str, sign: str) -> str:
    amounts = f"{sign}COUNT(*), {sign}SUM(COALESCE(quoted, 0)), {sign}SUM(COALESCE(cost, 0))"
    rows = f"SELECT {_columns('')}, {amounts} FROM {table} GROUP BY 1, 2, 3, 4, 5"  # noqa: S608 - constants
    return f"INSERT INTO totals {rows}"


_COUNTED = "superseded, batch, run_id, state, quoted, cost, submitted_at"
_SQLITE = (
    f"CREATE TRIGGER totals_insert AFTER INSERT ON attempts BEGIN {_sqlite_add('new', '')} END",
    f"CREATE TRIGGER totals_delete AFTER DELETE ON attempts BEGIN {_sqlite_add('old', '-')} END",
    f"CREATE TRIGGER totals_update AFTER UPDATE OF {_COUNTED} ON attempts "
    f"BEGIN {_sqlite_add('old', '-')} {_sqlite_add('new', '')} END",
)
_POSTGRESQL = (
    f"""CREATE OR REPLACE FUNCTION callsheet_totals() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF TG_OP <> 'INSERT' THEN {_grouped("old_attempts", "-")} {_ADD}; END IF;
    IF TG_OP <> 'DELETE' THEN {_grouped("new_attempts", "")} {_ADD}; END IF;
    RETURN NULL; END $$""",
    "CREATE TRIGGER totals_insert AFTER INSERT ON attempts REFERENCING NEW TABLE AS new_attempts "
    "FOR EACH STATEMENT EXECUTE FUNCTION callsheet_totals()",
    "CREATE TRIGGER totals_delete AFTER DELETE ON attempts REFERENCING OLD TABLE AS old_attempts "
    "FOR EACH STATEMENT EXECUTE FUNCTION callsheet_totals()",
    "CREATE TRIGGER totals_update AFTER UPDATE ON attempts REFERENCING OLD TABLE AS old_attempts "
    "NEW TABLE AS new_attempts FOR EACH STATEMENT EXECUTE FUNCTION callsheet_totals()",
)


def keep(connection: sa.Connection) -> None:
    """Makes the triggers that keep the new table `totals`."""
    for statement in _SQLITE if connection.dialect.name == "sqlite" else _POSTGRESQL:
        connection.exec_driver_sql(statement)


def of_batch(connection: sa.Connection, batch: str) -> Totals:
    """The batch so far: jobs by state, and money."""
    return _totals(connection.execute(sa.select(totals).where(totals.c.batch == batch)).all())


def of_ledger(connection: sa.Connection) -> dict[str, Totals]:
    """Every batch of the ledger so far, by name."""
    rows: dict[str, list[Any]] = {}
    for row in connection.execute(_kept().order_by(totals.c.batch)):
        rows.setdefault(row.batch, []).append(row)
    return {batch: _totals(of_it) for batch, of_it in rows.items()}


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
    sent = sa.and_(totals.c.day >= f"{day.astimezone(UTC):%Y-%m-%d}", totals.c.state != State.PLANNED)
    if reserved_by is None:
        sent, reserved = sa.or_(sent, totals.c.reserved), Decimal(0)
    else:
        reserved = _reserved(connection, reserved_by)
    return _totals(connection.execute(sa.select(totals).where(sent)).all()).exposure + reserved


def _reserved(connection: sa.Connection, by: Collection[str]) -> Decimal:
    if not by:
        return Decimal(0)
    with_open_runs = attempts.c.batch.in_(sa.select(runs.c.batch).where(runs.c.ended_at.is_(None)))
    by_runs = attempts.c.run_id.in_(by)
    quoted = sa.func.coalesce(sa.func.sum(attempts.c.quoted), 0, type_=Money)
    return connection.scalar(sa.select(quoted).where(with_open_runs, is_reserved(), by_runs)) or Decimal(0)


def spent(connection: sa.Connection, without: Collection[str] = ()) -> Decimal:
    """What all batches of the ledger but these together have cost, in dollars."""
    summed_cost = sa.func.coalesce(sa.func.sum(totals.c.cost), 0, type_=Money)
    counted = totals.c.batch.not_in(without)
    return connection.scalar(sa.select(summed_cost).where(counted)) or Decimal(0)


def is_reserved(table: sa.FromClause = attempts) -> sa.ColumnElement[bool]:
    """Whether a run has reserved an attempt, and not sent it yet."""
    return sa.and_(table.c.state == State.PLANNED, table.c.run_id.is_not(None))


def summed(connection: sa.Connection, batch: str, table: sa.FromClause = attempts) -> Totals:
    """What `of_batch` returns, added up over a table or a query with the columns of `attempts`."""
    return _totals(connection.execute(_sums(table).where(table.c.batch == batch)).all())


def differences(connection: sa.Connection, batch: str | None = None) -> list[str]:
    """The batches whose running totals are not the sums of their attempts. There should be none.

    Args:
        connection: the transaction.
        batch: checks this batch only.
    """
    kept, summed_up = _kept(), _sums(attempts)
    if batch is not None:
        kept, summed_up = kept.where(totals.c.batch == batch), summed_up.where(attempts.c.batch == batch)
    rows = [{tuple(row) for row in connection.execute(query)} for query in (kept, summed_up)]
    return sorted({row[0] for row in rows[0] ^ rows[1]})


def _kept() -> sa.Select[Any]:
    """The totals that are not zero."""
    return sa.select(totals).where(sa.or_(*(totals.c[name] != 0 for name in ("jobs", "quoted", "cost"))))


def _sums(table: sa.FromClause) -> sa.Select[Any]:
    """The totals, as they follow from the attempts."""
    day = sa.func.coalesce(sa.func.substr(sa.type_coerce(table.c.submitted_at, sa.String), 1, 10), "")
    reserved = sa.case((is_reserved(table), sa.true()), else_=sa.false())
    key = (table.c.batch, day.label("day"), table.c.state, table.c.superseded, reserved.label("reserved"))
    return sa.select(
        *key,
        sa.func.count().label("jobs"),
        sa.func.sum(sa.func.coalesce(table.c.quoted, 0), type_=Money).label("quoted"),
        sa.func.sum(sa.func.coalesce(table.c.cost, 0), type_=Money).label("cost"),
    ).group_by(*(sa.literal_column(str(number)) for number in range(1, 6)))


def _totals(rows: Collection[Any]) -> Totals:
    """Rows of `totals` added up: of what is undecided or reserved the quote counts, of the rest the cost."""
    states: Counter[State] = Counter()
    for row in rows:
        states[State(row.state)] += 0 if row.superseded else row.jobs
    return Totals(
        states=dict(+states),
        quoted=_added(row.quoted for row in rows if not row.superseded),
        spent=_added(row.cost for row in rows),
        in_doubt_exposure=_added(row.quoted for row in rows if row.state == State.IN_DOUBT),
        exposure=_added(row.quoted if row.reserved or row.state in _UNDECIDED else row.cost for row in rows),
        reserved=_added(row.quoted for row in rows if row.reserved),
    )


def _added(amounts: Iterable[Decimal]) -> Decimal:
    return sum(amounts, Decimal(0))
