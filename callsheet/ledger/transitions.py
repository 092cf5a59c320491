"""Every change of a job's state, and which states may precede it (`docs/architecture.md, "States of a job"`).

Each function is part of a ledger transaction, on the connection it is given. A change is refused as a whole
when the job is in another state or belongs to another run. What the service and the storage did is decided
elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from callsheet.errors import LedgerError
from callsheet.ledger import queries
from callsheet.ledger.journal import Answer
from callsheet.ledger.names import free_name
from callsheet.ledger.policy import CHARGED, NOT_CHARGED
from callsheet.ledger.tables import attempts, media, settlements
from callsheet.records import Attempt, Doubt, File, State, StoredFile
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
_SETTLE = attempts.update().where(_THE_ATTEMPT, attempts.c.state == State.IN_DOUBT)
_FILE = media.update().where(
    media.c.job_key == sa.bindparam("the_job"),
    media.c.attempt == sa.bindparam("the_attempt"),
    media.c.index == sa.bindparam("the_index"),
)
_FILES = (
    sa.select(media)
    .where(media.c.job_key == sa.bindparam("the_job"), media.c.attempt == sa.bindparam("the_attempt"))
    .order_by(media.c.index)
)
_ANSWERED = sa.select(
    attempts.c.batch, attempts.c.run_id, attempts.c.state, attempts.c.generation_id, attempts.c.error_code
).where(_THE_ATTEMPT)
_RECOVER = attempts.update().where(_THE_ATTEMPT)


def intend(connection: sa.Connection, run_id: str, attempt: Attempt) -> None:
    """The POST is about to leave."""
    _move(connection, run_id, attempt, State.SUBMITTING, submitted_at=_now())


def release(connection: sa.Connection, run_id: str, attempt: Attempt) -> None:
    """The service took nothing: the job is planned again, and still reserved by the run."""
    _move(connection, run_id, attempt, State.PLANNED)


def answered(connection: sa.Connection, run_id: str, answer: Answer) -> list[File]:
    """The job is accepted: records its id, and when it is finished its cost and its files.

    Idempotent: the commit of an earlier try may have succeeded although its connection was lost.

    Returns:
        The files of a finished generation, each with a free name in storage.
    """
    attempt = answer.attempt
    which = _the_attempt(attempt.job_key, attempt.number) | {"the_run": run_id}
    state, values = _of_answer(answer)
    if connection.execute(_MOVES[state], which | values).rowcount == 1:
        return _new_files(connection, answer)
    row = connection.execute(_ANSWERED, which).one_or_none()
    if row is None or (row.state, row.generation_id, row.run_id) != (state, answer.generation_id, run_id):
        raise _refused(attempt, state)
    return _known_files(connection, attempt)


def recover(connection: sa.Connection, run_id: str, batch: str, answer: Answer) -> bool:
    """Records an answer that a dead run could not write; the job belongs to `run_id` from now on.

    It counts more than a doubt, and more than a person's decision about that doubt: the service has answered.

    Returns:
        Whether the ledger has the answer now: false where it does not know the attempt.
    """
    which = _the_attempt(answer.attempt.job_key, answer.attempt.number)
    row = connection.execute(_ANSWERED, which).one_or_none()
    if row is None or row.batch != batch:
        return False
    undecided = row.state in (State.SUBMITTING, State.IN_DOUBT) or row.error_code in (CHARGED, NOT_CHARGED)
    if answer.generation is None:
        open_ = undecided and row.generation_id is None
    else:
        open_ = undecided or row.state == State.PENDING
    if open_:
        _, values = _of_answer(answer)
        connection.execute(_RECOVER, which | values | {"run_id": run_id})
        _new_files(connection, answer)
    return True


def _of_answer(answer: Answer) -> tuple[State, dict[str, Any]]:
    """The state that an answer leads to, and the columns that it sets."""
    # Of a doubt, or of a person's decision about it, that the answer supersedes.
    ended = {"error_code": None, "error_message": None, "finished_at": None, "cost": None}
    accepted = ended | {"generation_id": answer.generation_id}
    if answer.generation is None:
        return State.PENDING, accepted | {"state": State.PENDING}
    usage = answer.generation.usage
    return State.GENERATED, accepted | {
        "state": State.GENERATED,
        "cost": usage.total_cost,
        "billable_unit": usage.billable_unit,
        "unit_price": usage.unit_price,
        "quantity": usage.quantity,
    }


def _new_files(connection: sa.Connection, answer: Answer) -> list[File]:
    """Enters the files of an answer, each under a free name."""
    files = []
    attempt, storage = answer.attempt, answer.storage
    media_of = answer.generation.media if answer.generation else ()
    for index, (item, wanted) in enumerate(zip(media_of, answer.names, strict=True)):
        name = free_name(connection, storage, wanted, attempt, index)
        row = item.model_dump(exclude={"url"}) | {
            "job_key": attempt.job_key,
            "attempt": attempt.number,
            "index": index,
            "storage": storage,
            "name": name,
            "folded_name": folded(name),
            "source_url": item.url,
        }
        connection.execute(media.insert(), row)
        files.append(File(attempt, index, name, item))
    return files


def _known_files(connection: sa.Connection, attempt: Attempt) -> list[File]:
    rows = connection.execute(_FILES, _the_attempt(attempt.job_key, attempt.number))
    return [queries.file_of(row, attempt) for row in rows]


def failed(connection: sa.Connection, run_id: str, attempt: Attempt, code: str, message: str) -> None:
    """The service refused the job or gave it up; it costs nothing."""
    error = {"error_code": code, "error_message": message}
    _move(connection, run_id, attempt, State.FAILED, cost=Decimal(0), finished_at=_now(), **error)


def doubt(connection: sa.Connection, run_id: str, attempt: Attempt, message: str) -> None:
    """No answer says whether the job was accepted."""
    error = {"error_code": "in_doubt", "error_message": message}
    _move(connection, run_id, attempt, State.IN_DOUBT, finished_at=_now(), **error)


def refreshed(connection: sa.Connection, file: File, source_url: str, deletes_at: datetime) -> None:
    """The service gave a new URL for a file."""
    connection.execute(_FILE, _the_file(file) | {"source_url": source_url, "deletes_at": deletes_at})


def renamed(connection: sa.Connection, file: File, name: str) -> None:
    """The file's name is taken in storage by other bytes; `name` is used instead."""
    connection.execute(_FILE, _the_file(file) | {"name": name, "folded_name": folded(name)})


def stored(connection: sa.Connection, run_id: str, file: File, copy: StoredFile) -> State | None:
    """A file is verified and in storage. Returns the job's end state when this was its last file."""
    values = {"url": copy.url, "sha256": copy.sha256, "bytes": copy.bytes, "stored_at": copy.stored_at}
    return _end_file(connection, run_id, file, values, {})


def lost(connection: sa.Connection, run_id: str, file: File, message: str) -> State | None:
    """A file can no longer be had. Returns the job's end state when this was its last file."""
    error = {"error_code": "lost", "error_message": message}
    return _end_file(connection, run_id, file, {"lost_at": _now()}, error)


def settle(
    connection: sa.Connection, doubts: Sequence[Doubt], *, charged: bool, by: str, why: str | None
) -> None:
    """Records a person's decision: charged is paid for and lost, not charged is free to buy again.

    Raises:
        LedgerError: one of them is no longer in doubt.
    """
    # The cost of an unpriced job is not known, so it stays empty.
    quoted = sa.case((attempts.c.unit_price.is_not(None), attempts.c.quoted))
    decision: dict[str, Any] = (
        {"state": State.LOST, "cost": quoted, "error_code": CHARGED}
        if charged
        else {"state": State.FAILED, "cost": Decimal(0), "error_code": NOT_CHARGED}
    )
    verb = "charged" if charged else "not charged"
    record = {"charged": charged, "settled_by": by, "settled_at": _now(), "why": why}
    for doubt in doubts:
        message = f"{doubt.what.rstrip('.')}; settled as {verb} by {by}"
        update = _SETTLE.values(decision | {"error_message": message})
        if connection.execute(update, _the_attempt(doubt.job_key, doubt.attempt)).rowcount != 1:
            raise LedgerError(
                f"row {doubt.row_id} is no longer in doubt; nothing was settled",
                hint="List what is in doubt again: somebody else has settled it.",
            )
        row = record | {"job_key": doubt.job_key, "attempt": doubt.attempt}
        connection.execute(settlements.insert(), row)


def _move(connection: sa.Connection, run_id: str, attempt: Attempt, to: State, **values: Any) -> None:
    which = _the_attempt(attempt.job_key, attempt.number) | {"the_run": run_id}
    if connection.execute(_MOVES[to], which | {"state": to} | values).rowcount != 1:
        raise _refused(attempt, to)


def _refused(attempt: Attempt, to: State) -> LedgerError:
    return LedgerError(
        f"row {attempt.row_id}: the ledger refuses the step to {to}: "
        "the job is in another state, or another run has taken it over"
    )


def _end_file(
    connection: sa.Connection, run_id: str, file: File, values: dict[str, Any], error: dict[str, Any]
) -> State | None:
    """Records the end of a file; with the last file of an attempt, the attempt's end too."""
    connection.execute(_FILE, _the_file(file) | values)
    attempt = file.attempt
    rows = connection.execute(_FILES, _the_attempt(attempt.job_key, attempt.number)).all()
    if any(row.stored_at is None and row.lost_at is None for row in rows):
        return None
    state = State.LOST if any(row.lost_at is not None for row in rows) else State.STORED
    _move(connection, run_id, attempt, state, finished_at=_now(), **error)
    return state


def _the_attempt(job_key: str, number: int) -> dict[str, Any]:
    return {"the_job": job_key, "the_attempt": number}


def _the_file(file: File) -> dict[str, Any]:
    return _the_attempt(file.attempt.job_key, file.attempt.number) | {"the_index": file.index}


def _now() -> datetime:
    return datetime.now(UTC)
