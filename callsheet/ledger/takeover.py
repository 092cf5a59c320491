"""How a run takes over what dead runs of its batch left: when it begins, and from those that die beside it.

Their journals come first: an answer in one of them decides what would otherwise be in doubt. All of it is one
transaction, on the connection that is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

import sqlalchemy as sa

from callsheet.errors import CallsheetError
from callsheet.ledger import leases, queries, running_totals, services, transitions
from callsheet.ledger.group_commit import explain_values
from callsheet.ledger.journal import Answer, Left
from callsheet.records import Attempt, File


class Recovered(NamedTuple):
    """What dead runs left.

    Attributes:
        journals: those whose answers the ledger has now, to be removed when this is committed.
        notes: what a person should know of the other journals, in words.
        doubts: what was being submitted, and is in doubt from now on.
    """

    journals: list[Left]
    notes: list[str]
    doubts: list[Attempt]


def begin_run(
    connection: sa.Connection,
    run_id: str,
    batch: str,
    *,
    service: str | None,
    balance: Decimal | None,
    journals: Sequence[Left],
) -> Recovered:
    """Enters a run, and takes over what dead runs of the batch left.

    Args:
        connection: the transaction.
        run_id: the new run.
        batch: the batch that it buys.
        service: the base URL of its service; None where the ledger knows one service only.
        balance: what the workspace had just before, in dollars; None where that is not known.
        journals: what lies in the folder of the batch's journals, of whichever runs.
    """
    elsewhere = services.elsewhere(connection, service) if service else ()
    leases.enter(connection, run_id, batch, balance, running_totals.spent(connection, without=elsewhere))
    return _take_over(connection, run_id, batch, journals)


def take_over(
    connection: sa.Connection, run_id: str, batch: str, journals: Sequence[Left]
) -> tuple[list[Attempt], list[File], Recovered]:
    """Takes over what runs of the batch left that have died since this one began.

    Args:
        connection: the transaction.
        run_id: a run that is at work.
        batch: the batch that it buys.
        journals: as for `begin_run`.

    Returns:
        The videos and the files that are this run's from now on, and were not before.
    """
    videos, files = queries.unfinished(connection, batch, run_id)
    before = {(one.job_key, one.number) for one in (*videos, *(file.attempt for file in files))}
    recovered = _take_over(connection, run_id, batch, journals)
    videos, files = queries.unfinished(connection, batch, run_id)
    return (
        [video for video in videos if (video.job_key, video.number) not in before],
        [file for file in files if (file.attempt.job_key, file.attempt.number) not in before],
        recovered,
    )


def _take_over(connection: sa.Connection, run_id: str, batch: str, journals: Sequence[Left]) -> Recovered:
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
    doubts = leases.take_over(connection, run_id, batch)
    return Recovered(recovered, notes, doubts)


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
