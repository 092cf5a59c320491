"""What comes of the answers of the service and of persons: the changes of jobs' states.

Each function is part of a ledger transaction, on the connection it is given, and changes many jobs at once,
all or none (`group_commit.Change`). A change is refused when a job is in another state or belongs to another
run; one that is made a second time is seen to be done (`moves.py`). What the service and the storage did is
decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import sqlalchemy as sa

from callsheet.errors import LedgerError
from callsheet.ledger import approvals, budgets, leases, media, writing
from callsheet.ledger.budgets import Budget, Wall
from callsheet.ledger.journal import Answer
from callsheet.ledger.moves import is_made, key_of, move
from callsheet.ledger.policy import CHARGED, NOT_CHARGED, UNKNOWN_STATUS
from callsheet.ledger.same_ids import SameGeneration, of_other_jobs
from callsheet.ledger.tables import settlements
from callsheet.ledger.writing import Values
from callsheet.records import Attempt, CostSource, Doubt, File, State


class Intent(NamedTuple):
    """An attempt that is about to be sent.

    Attributes:
        attempt: what is reserved.
        budget: what its batch may spend.
        rates: the catalogue's entries of the models that the run buys, by id.
        at: when.
    """

    attempt: Attempt
    budget: Budget
    rates: Mapping[str, Any]
    at: datetime


class End(NamedTuple):
    """An attempt has failed, or is in doubt: the error's code, the reason, and when."""

    attempt: Attempt
    code: str
    message: str
    at: datetime


def intend(connection: sa.Connection, run_id: str, intents: Sequence[Intent]) -> Sequence[Wall | None]:
    """The POSTs are about to leave: looks at the budget once more, which answers may have used up since.

    Returns:
        For each, None where it may leave; otherwise the wall that it does not fit, and it stays as it was.
    """
    budget, rates = intents[0].budget, intents[0].rates  # a run has one of each
    rows = writing.found(connection, [intent.attempt.job_key for intent in intents])
    room = budgets.to_send(connection, budget, intents[0].at)
    walls: list[Wall | None] = []
    moves: list[tuple[Attempt, Values]] = []
    for intent in intents:
        sent = {"submitted_at": intent.at}
        counted = is_made(rows.get(key_of(intent.attempt)), run_id, State.SUBMITTING, sent)
        wall = None if counted else room.take(intent.attempt.quoted or Decimal(0))
        walls.append(wall)
        if wall is None:
            moves.append((intent.attempt, sent))
    if moves:
        move(connection, run_id, State.SUBMITTING, moves, rows)
        approvals.buys_at(connection, budget.batch, rates)
    return walls


def free(connection: sa.Connection, run_id: str, attempts: Sequence[Attempt]) -> Sequence[None]:
    """The jobs do not fit the budget any more: they are no longer reserved."""
    leases.free(connection, run_id, [attempt.job_key for attempt in attempts])
    return [None] * len(attempts)


def release(connection: sa.Connection, run_id: str, attempts: Sequence[Attempt]) -> Sequence[None]:
    """The service took nothing: the jobs are planned again, and still reserved by the run."""
    move(connection, run_id, State.PLANNED, [(attempt, {}) for attempt in attempts])
    return [None] * len(attempts)


def answered(
    connection: sa.Connection, run_id: str, answers: Sequence[Answer]
) -> Sequence[list[File] | SameGeneration]:
    """The jobs are accepted: records their ids, and when they are finished their costs and files.

    An id says which generation a job is. Where another job has it already, the answer is none for this job.

    Args:
        connection: the transaction.
        run_id: the run that they belong to.
        answers: all of accepted videos, or all of finished generations.

    Returns:
        The files of each finished generation, each with a free name in storage; or why it is in doubt.
    """
    same = of_other_jobs(connection, answers)
    doubt(connection, run_id, [_of_same_id(answers[index], same[index]) for index in same])
    own = [answer for index, answer in enumerate(answers) if index not in same]
    to = State.GENERATED if answers[0].generation else State.PENDING
    made = move(connection, run_id, to, [(answer.attempt, _of_answer(answer)) for answer in own])
    files = media.known(connection, [answer for answer in own if key_of(answer.attempt) in made])
    files |= media.enter(connection, [answer for answer in own if key_of(answer.attempt) not in made])
    keys = [key_of(answer.attempt) for answer in answers]
    return [same[index] if index in same else files[key] for index, key in enumerate(keys)]


def recover(connection: sa.Connection, run_id: str, answer: Answer, submitted_at: datetime) -> None:
    """Records an answer that a dead run could not write, whatever the attempt's state is.

    Args:
        connection: the transaction.
        run_id: the run that the job belongs to from now on.
        answer: its answer.
        submitted_at: when the request left, as far as that is known.
    """
    row = writing.found(connection, [answer.attempt.job_key])[key_of(answer.attempt)]
    taken_over: Values = {"run_id": run_id, "submitted_at": submitted_at}
    if same := of_other_jobs(connection, [answer]):
        in_doubt = {"state": State.IN_DOUBT} | _of_end(_of_same_id(answer, same[0]))
        writing.change(connection, [(row, taken_over | in_doubt)])
        return
    state = State.GENERATED if answer.generation else State.PENDING
    writing.change(connection, [(row, taken_over | {"state": state} | _of_answer(answer))])
    media.enter(connection, [answer])


def _of_same_id(answer: Answer, same: SameGeneration) -> End:
    return End(answer.attempt, "in_doubt", same.what, answer.at)


def _of_answer(answer: Answer) -> Values:
    """The columns that an answer sets."""
    values: Values = {
        "generation_id": answer.generation_id,
        # Of a doubt, or of a person's decision about it, that the answer supersedes.
        "error_code": None,
        "error_message": None,
        "finished_at": None,
        "cost": None,
        "cost_source": None,
    }
    if answer.generation is None:
        return values
    usage = answer.generation.usage
    cost, source = usage.cost(answer.attempt.quoted)
    return values | {
        "cost": cost,
        "cost_source": source,
        "billable_unit": usage.billable_unit,
        "unit_price": usage.unit_price,
        "quantity": usage.quantity,
    }


def failed(connection: sa.Connection, run_id: str, ends: Sequence[End]) -> Sequence[None]:
    """The service refused the jobs or gave them up. They cost nothing."""
    moves = [(end.attempt, _of_end(end) | {"cost": Decimal(0)}) for end in ends]
    move(connection, run_id, State.FAILED, moves)
    return [None] * len(ends)


def doubt(connection: sa.Connection, run_id: str, ends: Sequence[End]) -> Sequence[None]:
    """What became of the jobs is not known."""
    move(connection, run_id, State.IN_DOUBT, [(end.attempt, _of_end(end)) for end in ends])
    return [None] * len(ends)


def _of_end(end: End) -> Values:
    """The columns that it sets; the id where an answer had one."""
    values = {"finished_at": end.at, "error_code": end.code, "error_message": end.message}
    known = end.attempt.generation_id
    return values if known is None else values | {"generation_id": known}


def says(connection: sa.Connection, run_id: str, words: Sequence[tuple[Attempt, str]]) -> Sequence[None]:
    """What the service says of pending videos, where that is no status that is known; empty: nothing odd."""
    rows = writing.found(connection, [attempt.job_key for attempt, _ in words])
    said = [
        (row, {"error_code": UNKNOWN_STATUS if text else None, "error_message": text or None})
        for attempt, text in words
        if (row := rows.get(key_of(attempt))) and (row["state"], row["run_id"]) == (State.PENDING, run_id)
    ]
    writing.change(connection, said)
    return [None] * len(words)


def settle(
    connection: sa.Connection, batch: str, doubts: Sequence[Doubt], *, charged: bool, by: str, why: str | None
) -> None:
    """Records a person's decision: charged is paid for and lost, not charged is free to buy again.

    Raises:
        LedgerError: one of them is no longer as the person saw it, or a run at work asks the service for it.
    """
    rows = writing.found(connection, [doubt.job_key for doubt in doubts])
    at_work = {run.run_id: run for run in leases.others(connection, batch, None)}
    now, verb = datetime.now(UTC), "charged" if charged else "not charged"
    record = {"charged": charged, "settled_by": by, "settled_at": now, "why": why}
    for doubt in doubts:
        row = rows[doubt.job_key, doubt.attempt]
        if (
            doubt.is_accepted and row["run_id"] in at_work
        ):  # it would end where its job is no longer what it was
            raise LedgerError(
                f"row {doubt.row_id}: a run at work asks the service for this video: "
                f"{at_work[row['run_id']].line()}; nothing was settled",
                hint="Wait until that run has ended, or end it (Ctrl-C); then the same command.",
            )
        if (row["state"], row["generation_id"]) != (doubt.state, doubt.generation_id):
            raise LedgerError(
                f"row {doubt.row_id} is no longer {doubt.state.replace('_', ' ')}; nothing was settled",
                hint="List what is in doubt again: a run or a person has settled it.",
            )
        decision: Values = {"state": State.FAILED, "cost": Decimal(0), "error_code": NOT_CHARGED}
        if charged:
            decision = {"state": State.LOST, "cost": row["quoted"], "error_code": CHARGED}
            decision["cost_source"] = CostSource.QUOTED
        decision["error_message"] = f"{doubt.what.rstrip('.')}; settled as {verb} by {by}"
        decision["finished_at"] = row["finished_at"] or now
        writing.change(connection, [(row, decision)])
        settled = record | {"job_key": doubt.job_key, "attempt": doubt.attempt}
        connection.execute(settlements.insert(), settled)
