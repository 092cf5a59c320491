"""Which state may follow which (`docs/architecture.md, "States of a job"`), and the one way there.

A move that is made a second time is seen to be done: the same run has the job in that state already, with the
same values, times too. So a commit whose answer was lost is made again.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from callsheet.errors import LedgerError
from callsheet.ledger import writing
from callsheet.ledger.writing import Key, Values
from callsheet.records import Attempt, State

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


def move(
    connection: sa.Connection,
    run_id: str,
    to: State,
    moves: Sequence[tuple[Attempt, Values]],
    rows: dict[Key, Values] | None = None,
) -> set[Key]:
    """Moves attempts to a state, and sets columns of each.

    Args:
        connection: the transaction.
        run_id: the run that they belong to.
        to: the state.
        moves: the attempts, each with the columns to set besides.
        rows: the attempts as they are, where this transaction has read them already (`writing.found`).

    Returns:
        Those for which this was done before.

    Raises:
        LedgerError: one of them may not move there.
    """
    rows = writing.found(connection, [attempt.job_key for attempt, _ in moves]) if rows is None else {**rows}
    made: set[Key] = set()
    changes: list[tuple[Values, Values]] = []
    for attempt, values in moves:
        key = key_of(attempt)
        row = rows.get(key)
        if is_made(row, run_id, to, values):
            made.add(key)
        elif row is None or row["run_id"] != run_id or not _may_move(row, to):
            raise refused(attempt, to)
        else:
            changes.append((row, {"state": to} | values))
            rows[key] = row | changes[-1][1]
    writing.change(connection, changes)
    return made


def is_made(row: Values | None, run_id: str, to: State, values: Values) -> bool:
    """Whether an attempt has come into a state by this run already, and with these values."""
    if row is None or (row["run_id"], row["state"]) != (run_id, to):
        return False
    return all(row[name] == value for name, value in values.items())


def _may_move(row: Values, to: State) -> bool:
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


def key_of(attempt: Attempt) -> Key:
    """What finds an attempt in the ledger."""
    return attempt.job_key, attempt.number
