"""How a run begins: it enters, reads the journals of dead runs, and takes over what these left.

The journals come first: an answer in one of them decides what would otherwise be in doubt. All of it is one
transaction, on the connection that is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import sqlalchemy as sa

from callsheet.errors import CallsheetError
from callsheet.ledger import leases, transitions
from callsheet.ledger.group_commit import explain_values
from callsheet.ledger.journal import Answer, Left


def begin_run(
    connection: sa.Connection, run_id: str, batch: str, balance: Decimal | None, journals: Sequence[Left]
) -> tuple[list[Left], list[str]]:
    """Enters a run, and takes over what dead runs of the batch left.

    Args:
        connection: the transaction.
        run_id: the new run.
        batch: the batch that it buys.
        balance: what the workspace had just before, in dollars; None where that is not known.
        journals: what lies in the folder of the batch's journals, of whichever runs.

    Returns:
        The journals whose answers the ledger has now, to be removed when this is committed; and what a person
        should know of the others, in words.
    """
    leases.enter(connection, run_id, batch, balance)
    recovered, notes = [], []
    for journal in journals:
        if not leases.is_left(connection, batch, journal.run_id):
            continue  # of a run that is alive, of another batch, or of another ledger
        problems = [_recover(connection, run_id, batch, answer) for answer in journal.answers]
        problems += [f"{journal.unreadable} lines cannot be read"] if journal.unreadable else []
        if any(problems):
            notes += [f"{journal.path}: {problem}" for problem in problems if problem]
        else:
            recovered.append(journal)
    leases.take_over(connection, run_id, batch)
    return recovered, notes


def _recover(connection: sa.Connection, run_id: str, batch: str, answer: Answer) -> str:
    """Writes a journal's answer to the ledger; what is wrong where that is not possible, in words."""
    try:
        with connection.begin_nested(), explain_values():
            if transitions.recover(connection, run_id, batch, answer):
                return ""
    except CallsheetError as error:
        return f"row {answer.attempt.row_id}: {error}"
    return (
        f"row {answer.attempt.row_id}: the ledger does not know attempt {answer.attempt.number} of this job"
    )
