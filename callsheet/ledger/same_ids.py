"""Answers with an id that another job has already: an id says which generation a job is.

Each function is part of a ledger transaction, on the connection it is given. Nothing here writes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from callsheet.ledger import services
from callsheet.ledger.journal import Answer
from callsheet.ledger.tables import attempts


@dataclass(frozen=True, slots=True)
class SameGeneration:
    """An answer has an id that is another job's. Which of them it is, nobody knows: the job is in doubt.

    Attributes:
        what: both rows and the id, in words.
    """

    what: str


def of_other_jobs(connection: sa.Connection, answers: Sequence[Answer]) -> dict[int, SameGeneration]:
    """By their number, the answers with an id that another attempt has: in the ledger, or before them here.

    Another service's ids say nothing, and what is reused has the id of what it reuses.
    """
    ids = {answer.generation_id for answer in answers}
    named = (attempts.c[name] for name in ("generation_id", "job_key", "attempt", "row_id", "batch"))
    known = sa.select(*named).where(attempts.c.generation_id.in_(ids), attempts.c.reused_key.is_(None))
    elsewhere: Collection[str] = ()
    others: dict[str, list[tuple[str, int, str, str]]] = defaultdict(list)
    for row in connection.execute(known):
        others[row.generation_id].append(tuple(row[1:]))
    if others and (service := services.of_batch(connection, answers[0].batch)):
        elsewhere = services.elsewhere(connection, service)
    same: dict[int, SameGeneration] = {}
    for index, answer in enumerate(answers):
        of_id, attempt = others[answer.generation_id], answer.attempt
        its_own = (attempt.job_key, attempt.number)
        for job_key, number, row_id, batch in of_id:
            if (job_key, number) != its_own and batch not in elsewhere:
                of_batch = "" if batch == answer.batch else f" of the batch {batch}"
                same[index] = SameGeneration(
                    f"row {attempt.row_id} was answered with the id {answer.generation_id}, "
                    f"which row {row_id}{of_batch} has already"
                )
                break
        else:
            of_id.append((*its_own, attempt.row_id, answer.batch))
    return same
