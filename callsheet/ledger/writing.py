"""How attempts are written, and with them what they come to (`sums.py`): the only place that does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from callsheet.errors import LedgerError
from callsheet.ledger import queries, sums
from callsheet.ledger.tables import Values, attempts
from callsheet.records import Attempt, Job, State, canonical

Key = tuple[str, int]
"""The key of an attempt's job, and its number."""

_BEFORE: dict[State, tuple[State, ...]] = {
    State.PLANNED: (State.SUBMITTING,),
    State.SUBMITTING: (State.PLANNED,),
    State.PENDING: (State.SUBMITTING,),
    State.GENERATED: (State.SUBMITTING, State.PENDING, State.IN_DOUBT),
    State.STORED: (State.GENERATED,),
    State.FAILED: (State.SUBMITTING, State.PENDING, State.IN_DOUBT),
    State.IN_DOUBT: (State.SUBMITTING, State.PENDING),
    State.LOST: (State.GENERATED,),
}
_LARGE = ("prompt", "request", "carried")  # no rule looks at them
_COLUMNS = [column for column in attempts.c if column.name not in _LARGE]

# Statements that every job needs several times are made once: SQLAlchemy takes ten times as long to make one
# as SQLite to carry it out.
_THE_ATTEMPT = sa.and_(
    attempts.c.job_key == sa.bindparam("the_job"), attempts.c.attempt == sa.bindparam("the_attempt")
)
_SELECT = sa.select(*_COLUMNS).where(_THE_ATTEMPT)
_INSERT = attempts.insert()
_UPDATE = attempts.update().where(_THE_ATTEMPT)
_DELETE = attempts.delete().where(_THE_ATTEMPT)


def which(
    connection: sa.Connection, *conditions: sa.ColumnElement[bool], also: Sequence[sa.ColumnElement[Any]] = ()
) -> list[Values]:
    """The attempts that meet all conditions, without what their requests say; `also`: more, with labels."""
    rows = connection.execute(sa.select(*_COLUMNS, *also).where(*conditions)).mappings()
    return [dict(row) for row in rows]


def rows_of(connection: sa.Connection, keys: Sequence[str]) -> dict[Key, Values]:
    """Every attempt at these jobs, by job and number."""
    rows = (row for condition in queries.of_jobs(keys) for row in which(connection, condition))
    return {(row["job_key"], row["attempt"]): row for row in rows}


def row_of(connection: sa.Connection, attempt: Attempt) -> Values | None:
    """An attempt as the ledger has it."""
    row = connection.execute(_SELECT, key_of(attempt)).mappings().first()
    return None if row is None else dict(row)


def values_of(job: Job) -> Values:
    """What an attempt at a job has of it."""
    return {
        "job_key": job.key,
        "row_id": job.row_id,
        "sample": job.sample,
        "type": job.type,
        "model": job.model,
        "prompt": job.request["prompt"],
        "request": canonical(dict(job.request)),
        "carried": dict(job.carried),
        "request_key": job.request_key,
        "quoted": job.price.total if job.price else None,
        "currency": job.price.currency if job.price else "USD",
        "billable_unit": job.price.billable_unit if job.price else None,
        "unit_price": job.price.unit_price if job.price else None,
        "quantity": Decimal(job.price.quantity) if job.price else None,
    }


def insert_attempts(connection: sa.Connection, rows: Sequence[Values]) -> None:
    """Enters new attempts, all with the same columns."""
    rows = [{"superseded": False, "current": True, "purse": ""} | row for row in rows]
    if rows:
        connection.execute(_INSERT, rows)
        sums.count(connection, (({}, row) for row in rows))


def change_attempt(connection: sa.Connection, row: Values, values: Values) -> None:
    """Sets columns of an attempt, which is given as it was read in this transaction."""
    connection.execute(_UPDATE, _key(row) | values)
    sums.count(connection, [(row, row | values)])


def remove(connection: sa.Connection, row: Values) -> None:
    """Removes an attempt, which is given as it was read in this transaction."""
    connection.execute(_DELETE, _key(row))
    sums.count(connection, [(row, {})])


def adopt(
    connection: sa.Connection,
    _: str,
    carried: Sequence[tuple[str, Values]],
    current: Mapping[bool, Sequence[str]],
) -> None:
    """Sets what a plan says anew of jobs that the ledger has, at each attempt.

    Args:
        carried: what they carry of the batch file's other columns: of each its key, and the cells by column.
        current: the keys of the jobs that the plan has again, and of those that it no longer has.
    """
    if carried:
        of_job = attempts.update().where(attempts.c.job_key == sa.bindparam("the_job"))
        connection.execute(of_job, [{"the_job": key, "carried": cells} for key, cells in carried])
    for is_current, keys in current.items():
        for condition in queries.of_jobs(keys):
            connection.execute(attempts.update().where(condition).values(current=is_current))


def move(
    connection: sa.Connection, run_id: str, to: State, attempt: Attempt, values: Values
) -> Values | None:
    """Moves an attempt of a run to a state, and sets columns of it.

    Returns:
        The attempt as it was; None where this was done before.

    Raises:
        LedgerError: it may not move there.
    """
    row = to_move(connection, run_id, to, attempt, values)
    if row is not None:
        change_attempt(connection, row, {"state": to} | values)
    return row


def to_move(
    connection: sa.Connection, run_id: str, to: State, attempt: Attempt, values: Values
) -> Values | None:
    """The attempt that `move` would move; it returns and raises the same, and changes nothing."""
    row = row_of(connection, attempt)
    if row is None or row["run_id"] != run_id:
        raise refused(attempt, to)
    if row["state"] == to and all(row[name] == value for name, value in values.items()):
        return None
    if not may_move(row, to):
        raise refused(attempt, to)
    return row


def may_move(row: Values, to: State) -> bool:
    """Whether a step leads from an attempt's state to another one.

    Of the doubts only from one with an id: a video that is asked for again. Any other doubt waits for a
    decision (`settle`), or for the journal of a dead run (`recover`).
    """
    asked_again = row["state"] != State.IN_DOUBT or row["generation_id"] is not None
    return row["state"] in _BEFORE[to] and asked_again


def refused(attempt: Attempt, to: State) -> LedgerError:
    """The error for an attempt that may not move to a state."""
    return LedgerError(
        f"row {attempt.row_id}: the ledger refuses the step to {to}: "
        "the job is in another state, or another run has taken it over"
    )


def key_of(attempt: Attempt) -> Values:
    """What the statements of one attempt, or of its files, find it by."""
    return {"the_job": attempt.job_key, "the_attempt": attempt.number}


def _key(row: Values) -> Values:
    return {"the_job": row["job_key"], "the_attempt": row["attempt"]}
