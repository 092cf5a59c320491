"""Every change of a job's state, and which states may precede it (`docs/architecture.md, "States of a job"`).

Each function is part of a ledger transaction, on the connection it is given, and changes many jobs at once,
all or none (`group_commit.Change`). A change is refused when a job is in another state or belongs to another
run. What the service and the storage did is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from callsheet.errors import LedgerError
from callsheet.ledger import approvals, budgets, leases
from callsheet.ledger.budgets import Budget, Wall
from callsheet.ledger.journal import Answer
from callsheet.ledger.names import FreeNames
from callsheet.ledger.policy import CHARGED, NOT_CHARGED, UNKNOWN_STATUS
from callsheet.ledger.same_ids import SameGeneration, of_other_jobs
from callsheet.ledger.tables import attempts, media, settlements
from callsheet.records import Attempt, CostSource, Doubt, File, State, StoredFile
from callsheet.storage.names import folded

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


def _may_follow(before: State) -> sa.ColumnElement[bool]:
    """Whether an attempt is in a state that a step may lead out of.

    Of the doubts only one with an id: a video that is asked for again. Any other doubt waits for a decision
    (`settle`), or for the journal of a dead run (`recover`).
    """
    is_before = attempts.c.state == before
    return (
        sa.and_(is_before, attempts.c.generation_id.is_not(None)) if before is State.IN_DOUBT else is_before
    )


# Built once; the columns to set are those that are named in the parameters.
_THE_ATTEMPT = sa.and_(
    attempts.c.job_key == sa.bindparam("the_job"), attempts.c.attempt == sa.bindparam("the_attempt")
)
_MOVES: dict[State, sa.Update] = {
    state: attempts.update().where(
        _THE_ATTEMPT,
        sa.or_(*(_may_follow(before) for before in _BEFORE[state])),
        attempts.c.run_id == sa.bindparam("the_run"),
    )
    for state in State
}
_DOUBT = _MOVES[State.IN_DOUBT].values(
    generation_id=sa.func.coalesce(sa.bindparam("the_id"), attempts.c.generation_id)
)
_SETTLE = attempts.update().where(
    _THE_ATTEMPT,
    attempts.c.state == sa.bindparam("the_state"),
    attempts.c.generation_id.is_not_distinct_from(sa.bindparam("the_id")),
)
_SAYS = attempts.update().where(
    _THE_ATTEMPT, attempts.c.state == State.PENDING, attempts.c.run_id == sa.bindparam("the_run")
)
_FILE = media.update().where(
    media.c.job_key == sa.bindparam("the_job"),
    media.c.attempt == sa.bindparam("the_attempt"),
    media.c.index == sa.bindparam("the_index"),
    sa.exists().where(
        attempts.c.job_key == media.c.job_key,
        attempts.c.attempt == media.c.attempt,
        attempts.c.run_id == sa.bindparam("the_run"),
    ),
)
_STORAGE = sa.select(media.c.storage).where(
    media.c.job_key == sa.bindparam("the_job"),
    media.c.attempt == sa.bindparam("the_attempt"),
    media.c.index == sa.bindparam("the_index"),
)
_NEW_FILES = {
    dialect.dialect.name: dialect.insert(media)
    .on_conflict_do_nothing(index_elements=[media.c.storage, media.c.folded_name])
    .execution_options(preserve_rowcount=True)
    for dialect in (postgresql, sqlite)
}
_NO_FILES = media.delete().where(
    media.c.job_key == sa.bindparam("the_job"), media.c.attempt == sa.bindparam("the_attempt")
)
_OF_ATTEMPT = sa.and_(media.c.job_key == attempts.c.job_key, media.c.attempt == attempts.c.attempt)
# Where every file is stored.
_STORED = _MOVES[State.STORED].where(~sa.exists().where(_OF_ATTEMPT, media.c.stored_at.is_(None)))
_UNFINISHED = sa.and_(media.c.stored_at.is_(None), media.c.lost_at.is_(None))
_ENDS = (
    sa.select(
        media.c.job_key,
        media.c.attempt,
        sa.func.count(sa.case((_UNFINISHED, 1))).label("unfinished"),
        sa.func.count(media.c.lost_at).label("lost"),
    )
    .where(media.c.job_key.in_(sa.bindparam("the_jobs", expanding=True)))
    .group_by(media.c.job_key, media.c.attempt)
)
_COPY = tuple(field.name for field in fields(StoredFile))  # columns of `media`, too
_RECOVER = attempts.update().where(_THE_ATTEMPT)


class Intent(NamedTuple):
    """An attempt that is about to be sent.

    Attributes:
        attempt: what is reserved.
        budget: what its batch may spend.
        rates: the catalogue's entries of the models that the run buys, by id.
    """

    attempt: Attempt
    budget: Budget
    rates: Mapping[str, Any]


def intend(connection: sa.Connection, run_id: str, intents: Sequence[Intent]) -> Sequence[Wall | None]:
    """The POSTs are about to leave: looks at the budget once more, which answers may have used up since.

    Returns:
        For each, None where it may leave; otherwise the wall that it does not fit. Such a job is no longer
        reserved.
    """
    budget, rates = intents[0].budget, intents[0].rates  # a run has one of each
    room = budgets.to_send(connection, budget)
    walls = [room.take(intent.attempt.quoted or Decimal(0)) for intent in intents]
    of_intents = list(zip(intents, walls, strict=True))
    if fitting := [intent.attempt for intent, wall in of_intents if wall is None]:
        _move(connection, run_id, State.SUBMITTING, fitting, {"submitted_at": _now()})
        approvals.buys_at(connection, budget.batch, rates)
    if keys := [intent.attempt.job_key for intent, wall in of_intents if wall]:
        leases.free(connection, run_id, keys)
    return walls


def release(connection: sa.Connection, run_id: str, attempts_: Sequence[Attempt]) -> Sequence[None]:
    """The service took nothing: the jobs are planned again, and still reserved by the run."""
    return _move(connection, run_id, State.PLANNED, attempts_)


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
    if same := of_other_jobs(connection, answers):
        doubt(connection, run_id, [(answers[index].attempt, known.what) for index, known in same.items()])
    own = [answer for index, answer in enumerate(answers) if index not in same]
    files = iter(_own_answers(connection, run_id, own))
    return [same[index] if index in same else next(files) for index in range(len(answers))]


def _own_answers(connection: sa.Connection, run_id: str, answers: Sequence[Answer]) -> list[list[File]]:
    if not answers:
        return []
    rows = [_of_answer(answer) for answer in answers]
    _move_rows(connection, run_id, rows[0]["state"], rows, [answer.attempt for answer in answers])
    return _new_files(connection, answers)


def recover(connection: sa.Connection, run_id: str, answer: Answer, submitted_at: datetime) -> None:
    """Records an answer that a dead run could not write, whatever the attempt's state is.

    Args:
        connection: the transaction.
        run_id: the run that the job belongs to from now on.
        answer: its answer.
        submitted_at: when the request left, as far as that is known.
    """
    taken_over = {"run_id": run_id, "submitted_at": submitted_at}
    if same := of_other_jobs(connection, [answer]):
        in_doubt = _in_doubt(answer.attempt, same[0].what) | {"state": State.IN_DOUBT}
        connection.execute(_RECOVER, in_doubt | taken_over)
        return
    connection.execute(_RECOVER, _of_answer(answer) | taken_over)
    _new_files(connection, [answer])


def _of_answer(answer: Answer) -> dict[str, Any]:
    """The attempt, and the columns that its answer sets."""
    row = _the_attempt(answer.attempt) | {
        "state": State.PENDING,
        "generation_id": answer.generation_id,
        # Of a doubt, or of a person's decision about it, that the answer supersedes.
        "error_code": None,
        "error_message": None,
        "finished_at": None,
        "cost": None,
        "cost_source": None,
    }
    if answer.generation is None:
        return row
    usage = answer.generation.usage
    cost, source = usage.cost(answer.attempt.quoted)
    return row | {
        "state": State.GENERATED,
        "cost": cost,
        "cost_source": source,
        "billable_unit": usage.billable_unit,
        "unit_price": usage.unit_price,
        "quantity": usage.quantity,
    }


def _new_files(connection: sa.Connection, answers: Sequence[Answer]) -> list[list[File]]:
    """Enters the files of answers, each under a free name: the wanted one, unless that is taken."""
    files = [_files(answer, answer.names) for answer in answers]
    if not _entered(connection, answers, files):
        connection.execute(_NO_FILES, [_the_attempt(answer.attempt) for answer in answers])
        free = FreeNames(connection, [(answer.storage, name) for answer in answers for name in answer.names])
        files = [
            _files(answer, [free.take(answer.storage, file.name, file.attempt, file.index) for file in of_it])
            for answer, of_it in zip(answers, files, strict=True)
        ]
        _entered(connection, answers, files)
    return files


def _files(answer: Answer, names: Sequence[str]) -> list[File]:
    media_ = answer.generation.media if answer.generation else ()
    attempt = replace(answer.attempt, generation_id=answer.generation_id)
    named = zip(media_, names, strict=True)
    return [File(attempt, index, name, item) for index, (item, name) in enumerate(named)]


def _entered(connection: sa.Connection, answers: Sequence[Answer], files: Sequence[Sequence[File]]) -> bool:
    """Enters the files of answers; whether all of their names were free."""
    of_answers = zip(answers, files, strict=True)
    rows = [_of_new_file(file, answer.storage) for answer, its_files in of_answers for file in its_files]
    if not rows:
        return True
    return connection.execute(_NEW_FILES[connection.dialect.name], rows).rowcount == len(rows)


def _of_new_file(file: File, storage: str) -> dict[str, Any]:
    return file.media.model_dump(exclude={"url"}) | {
        "job_key": file.attempt.job_key,
        "attempt": file.attempt.number,
        "index": file.index,
        "storage": storage,
        "name": file.name,
        "folded_name": folded(file.name),
        "source_url": file.media.url,
    }


def failed(
    connection: sa.Connection, run_id: str, failures: Sequence[tuple[Attempt, str, str]]
) -> Sequence[None]:
    """The service refused the jobs or gave them up: each with a code and a message. They cost nothing."""
    ended = {"cost": Decimal(0), "finished_at": _now()}
    rows = [
        _the_attempt(attempt) | ended | {"error_code": code, "error_message": message}
        for attempt, code, message in failures
    ]
    return _move_rows(connection, run_id, State.FAILED, rows, [attempt for attempt, *_ in failures])


def doubt(connection: sa.Connection, run_id: str, doubts: Sequence[tuple[Attempt, str]]) -> Sequence[None]:
    """What became of the jobs is not known: each with a message, and with its id where an answer had one."""
    ended = {"error_code": "in_doubt", "finished_at": _now()}
    rows = [
        _the_attempt(attempt) | ended | {"error_message": message, "the_id": attempt.generation_id}
        for attempt, message in doubts
    ]
    if _moved(connection, run_id, _DOUBT, State.IN_DOUBT, rows) != len(rows):
        raise _refused(doubts[0][0], State.IN_DOUBT)
    return [None] * len(rows)


def says(connection: sa.Connection, run_id: str, words: Sequence[tuple[Attempt, str]]) -> Sequence[None]:
    """What the service says of pending videos, where that is no status that is known; empty: nothing odd."""
    connection.execute(
        _SAYS,
        [
            _the_attempt(attempt)
            | {
                "the_run": run_id,
                "error_code": UNKNOWN_STATUS if said else None,
                "error_message": said or None,
            }
            for attempt, said in words
        ],
    )
    return [None] * len(words)


def refreshed(
    connection: sa.Connection, run_id: str, files: Sequence[tuple[File, str, datetime | None]]
) -> Sequence[None]:
    """The service gave new URLs for files, each with its `deletes_at`."""
    rows = [_the_file(file, run_id) | {"source_url": url, "deletes_at": until} for file, url, until in files]
    connection.execute(_FILE, rows)
    return [None] * len(files)


def renamed(connection: sa.Connection, run_id: str, files: Sequence[tuple[File, str]]) -> Sequence[str]:
    """The files get other names: their own are taken in storage by other bytes, or end as another type.

    Returns:
        Their names from now on: those that are wanted, unless another file of the ledger has them.
    """
    names = []
    for file, wanted in files:  # rarely more than one
        storage = connection.scalar(_STORAGE, _the_file(file, run_id)) or ""
        name = FreeNames(connection, [(storage, wanted)]).take(storage, wanted, file.attempt, file.index)
        connection.execute(_FILE, _the_file(file, run_id) | {"name": name, "folded_name": folded(name)})
        names.append(name)
    return names


def stored(
    connection: sa.Connection, run_id: str, files: Sequence[tuple[File, StoredFile]]
) -> Sequence[State | None]:
    """Files are verified and in storage. Returns the end state of each job whose last file it was."""
    rows = [_the_file(file, run_id) | {name: getattr(copy, name) for name in _COPY} for file, copy in files]
    if connection.execute(_FILE, rows).rowcount != len(rows):
        raise _refused(files[0][0].attempt, State.STORED)
    ended = [_the_attempt(file.attempt) | {"finished_at": _now()} for file, _ in files]
    moved = _moved(connection, run_id, _STORED, State.STORED, ended)
    if moved == len(files):  # each job had one file, as most have
        return [State.STORED] * moved
    return _end_attempts(connection, run_id, [(file.attempt, {}) for file, _ in files], stored=moved)


def lost(connection: sa.Connection, run_id: str, files: Sequence[tuple[File, str]]) -> Sequence[State | None]:
    """Files can no longer be had: each with a reason. Returns as `stored` does."""
    rows = [_the_file(file, run_id) | {"lost_at": _now()} for file, _ in files]
    if connection.execute(_FILE, rows).rowcount != len(rows):
        raise _refused(files[0][0].attempt, State.LOST)
    errors = [(file.attempt, {"error_code": "lost", "error_message": message}) for file, message in files]
    return _end_attempts(connection, run_id, errors, stored=0)


def _end_attempts(
    connection: sa.Connection, run_id: str, ended: Sequence[tuple[Attempt, dict[str, Any]]], *, stored: int
) -> list[State | None]:
    """The ends of the attempts of which every file has ended; an attempt may come once for each of its files.

    Those with a lost file are lost from now on. The others are stored already: so many.
    """
    keys = {attempt.job_key for attempt, _ in ended}
    ends = {
        (row.job_key, row.attempt): State.LOST if row.lost else State.STORED
        for row in connection.execute(_ENDS, {"the_jobs": list(keys)})
        if not row.unfinished
    }
    results = [ends.pop((attempt.job_key, attempt.number), None) for attempt, _ in reversed(ended)][::-1]
    if results.count(State.STORED) != stored:
        raise _refused(ended[0][0], State.STORED)
    now = _now()
    lost = [pair for pair, end in zip(ended, results, strict=True) if end is State.LOST]
    rows = [_the_attempt(attempt) | {"finished_at": now} | error for attempt, error in lost]
    _move_rows(connection, run_id, State.LOST, rows, [attempt for attempt, _ in lost])
    return results


def carries(connection: sa.Connection, cells: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Sets what jobs carry of the batch file's other columns: of each its key, and the cells by column."""
    of_job = attempts.update().where(attempts.c.job_key == sa.bindparam("the_job"))
    connection.execute(of_job, [{"the_job": key, "carried": carried} for key, carried in cells])


def settle(
    connection: sa.Connection, batch: str, doubts: Sequence[Doubt], *, charged: bool, by: str, why: str | None
) -> None:
    """Records a person's decision: charged is paid for and lost, not charged is free to buy again.

    Raises:
        LedgerError: one of them is no longer as the person saw it, or a run at work asks the service for it.
    """
    _refuse_polled(connection, batch, doubts)
    decision: dict[str, Any] = (
        {
            "state": State.LOST,
            "cost": attempts.c.quoted,
            "cost_source": CostSource.QUOTED,
            "error_code": CHARGED,
        }
        if charged
        else {"state": State.FAILED, "cost": Decimal(0), "error_code": NOT_CHARGED}
    )
    verb = "charged" if charged else "not charged"
    now = _now()
    ended = attempts.c.finished_at
    decision["finished_at"] = sa.func.coalesce(ended, sa.literal(now, ended.type))
    record = {"charged": charged, "settled_by": by, "settled_at": now, "why": why}
    for doubt in doubts:
        message = f"{doubt.what.rstrip('.')}; settled as {verb} by {by}"
        update = _SETTLE.values(decision | {"error_message": message})
        which = {
            "the_job": doubt.job_key,
            "the_attempt": doubt.attempt,
            "the_state": doubt.state,
            "the_id": doubt.generation_id,
        }
        if connection.execute(update, which).rowcount != 1:
            raise LedgerError(
                f"row {doubt.row_id} is no longer {doubt.state.replace('_', ' ')}; nothing was settled",
                hint="List what is in doubt again: a run or a person has settled it.",
            )
        row = record | {"job_key": doubt.job_key, "attempt": doubt.attempt}
        connection.execute(settlements.insert(), row)


def _refuse_polled(connection: sa.Connection, batch: str, doubts: Sequence[Doubt]) -> None:
    """Leaves alone what a run asks the service for: it would end where its job is no longer what it was.

    Raises:
        LedgerError: a run at work has one of these videos.
    """
    at_work = {run.run_id: run for run in leases.others(connection, batch, None)}
    whose = sa.select(attempts.c.run_id).where(_THE_ATTEMPT)
    for doubt in doubts:
        if not doubt.is_accepted:
            continue
        run = connection.scalar(whose, {"the_job": doubt.job_key, "the_attempt": doubt.attempt})
        if run in at_work:
            raise LedgerError(
                f"row {doubt.row_id}: a run at work asks the service for this video: {at_work[run].line()}; "
                "nothing was settled",
                hint="Wait until that run has ended, or end it (Ctrl-C); then the same command.",
            )


def _in_doubt(attempt: Attempt, message: str) -> dict[str, Any]:
    """The attempt, and the columns that a doubt sets."""
    why = {"error_code": "in_doubt", "error_message": message, "finished_at": _now()}
    return _the_attempt(attempt) | why


def _move(
    connection: sa.Connection,
    run_id: str,
    to: State,
    attempts_: Sequence[Attempt],
    values: dict[str, Any] | None = None,
) -> Sequence[None]:
    """Moves attempts to a state, and sets the same columns of each."""
    rows = [_the_attempt(attempt) | (values or {}) for attempt in attempts_]
    return _move_rows(connection, run_id, to, rows, attempts_)


def _move_rows(
    connection: sa.Connection,
    run_id: str,
    to: State,
    rows: Sequence[dict[str, Any]],
    attempts_: Sequence[Attempt],
) -> Sequence[None]:
    """Moves attempts to a state, and sets the columns of each row.

    Raises:
        LedgerError: one of them may not move there. Of several it is not known which one.
    """
    if rows and _moved(connection, run_id, _MOVES[to], to, rows) != len(rows):
        raise _refused(attempts_[0], to)
    return [None] * len(rows)


def _moved(
    connection: sa.Connection, run_id: str, statement: sa.Update, to: State, rows: Sequence[dict[str, Any]]
) -> int:
    """How many of the attempts could be moved."""
    return connection.execute(statement, [row | {"the_run": run_id, "state": to} for row in rows]).rowcount


def _refused(attempt: Attempt, to: State) -> LedgerError:
    return LedgerError(
        f"row {attempt.row_id}: the ledger refuses the step to {to}: "
        "the job is in another state, or another run has taken it over"
    )


def _the_attempt(attempt: Attempt) -> dict[str, Any]:
    return {"the_job": attempt.job_key, "the_attempt": attempt.number}


def _the_file(file: File, run_id: str) -> dict[str, Any]:
    return _the_attempt(file.attempt) | {"the_index": file.index, "the_run": run_id}


def _now() -> datetime:
    return datetime.now(UTC)
