"""Every change of a job's state, and which states may precede it (`docs/architecture.md, "States of a job"`).

Each function is part of a ledger transaction, on the connection it is given, and changes many jobs at once,
all or none (`group_commit.Change`). A change is refused when a job is in another state or belongs to another
run. What the service and the storage did is decided elsewhere.

A change that is made a second time is seen to be done: the same run has the job in that state already, with
the same values, times too. So a commit whose answer was lost is made again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import sqlalchemy as sa

from callsheet.errors import LedgerError
from callsheet.ledger import approvals, budgets, leases, queries, writing
from callsheet.ledger.budgets import Budget, Wall
from callsheet.ledger.journal import Answer
from callsheet.ledger.names import FreeNames
from callsheet.ledger.policy import CHARGED, NOT_CHARGED, UNKNOWN_STATUS
from callsheet.ledger.same_ids import SameGeneration, of_other_jobs
from callsheet.ledger.tables import media, settlements
from callsheet.ledger.writing import Key, Values
from callsheet.records import Attempt, CostSource, Doubt, File, State
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

_FILE = media.update().where(
    media.c.job_key == sa.bindparam("the_job"),
    media.c.attempt == sa.bindparam("the_attempt"),
    media.c.index == sa.bindparam("the_index"),
)


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


class FileEnd(NamedTuple):
    """A file is in storage, or lost.

    Attributes:
        file: the file.
        values: the columns of `media` that say so.
        lost: why it is lost; empty where it is stored.
        at: when. For the last file of a job that is when the job has ended.
    """

    file: File
    values: Values
    lost: str
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
        counted = _is_made(rows.get(_key(intent.attempt)), run_id, State.SUBMITTING, sent)
        wall = None if counted else room.take(intent.attempt.quoted or Decimal(0))
        walls.append(wall)
        if wall is None:
            moves.append((intent.attempt, sent))
    if moves:
        _move(connection, run_id, State.SUBMITTING, moves)
        approvals.buys_at(connection, budget.batch, rates)
    return walls


def free(connection: sa.Connection, run_id: str, attempts: Sequence[Attempt]) -> Sequence[None]:
    """The jobs do not fit the budget any more: they are no longer reserved."""
    leases.free(connection, run_id, [attempt.job_key for attempt in attempts])
    return [None] * len(attempts)


def release(connection: sa.Connection, run_id: str, attempts: Sequence[Attempt]) -> Sequence[None]:
    """The service took nothing: the jobs are planned again, and still reserved by the run."""
    _move(connection, run_id, State.PLANNED, [(attempt, {}) for attempt in attempts])
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
    made = _move(connection, run_id, to, [(answer.attempt, _of_answer(answer)) for answer in own])
    files = _known_files(connection, [answer for answer in own if _key(answer.attempt) in made])
    files |= _new_files(connection, [answer for answer in own if _key(answer.attempt) not in made])
    keys = [_key(answer.attempt) for answer in answers]
    return [same[index] if index in same else files[key] for index, key in enumerate(keys)]


def recover(connection: sa.Connection, run_id: str, answer: Answer, submitted_at: datetime) -> None:
    """Records an answer that a dead run could not write, whatever the attempt's state is.

    Args:
        connection: the transaction.
        run_id: the run that the job belongs to from now on.
        answer: its answer.
        submitted_at: when the request left, as far as that is known.
    """
    row = writing.found(connection, [answer.attempt.job_key])[_key(answer.attempt)]
    taken_over: Values = {"run_id": run_id, "submitted_at": submitted_at}
    if same := of_other_jobs(connection, [answer]):
        in_doubt = {"state": State.IN_DOUBT} | _of_end(_of_same_id(answer, same[0]))
        writing.change(connection, [(row, taken_over | in_doubt)])
        return
    state = State.GENERATED if answer.generation else State.PENDING
    writing.change(connection, [(row, taken_over | {"state": state} | _of_answer(answer))])
    _new_files(connection, [answer])


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


def _new_files(connection: sa.Connection, answers: Sequence[Answer]) -> dict[Key, list[File]]:
    """Enters the files of answers, each under a free name: the wanted one, unless that is taken."""
    free_names = FreeNames(
        connection, [(answer.storage, name) for answer in answers for name in answer.names]
    )
    files: dict[Key, list[File]] = {}
    rows: list[Values] = []
    for answer in answers:
        attempt = replace(answer.attempt, generation_id=answer.generation_id)
        items = answer.generation.media if answer.generation else ()
        files[_key(attempt)] = []
        for index, (item, wanted) in enumerate(zip(items, answer.names, strict=True)):
            file = File(attempt, index, free_names.take(answer.storage, wanted, attempt, index), item)
            files[_key(attempt)].append(file)
            rows.append(_of_new_file(file, answer.storage))
    if rows:
        connection.execute(media.insert(), rows)
    return files


def _of_new_file(file: File, storage: str) -> Values:
    return file.media.model_dump(exclude={"url"}) | {
        "job_key": file.attempt.job_key,
        "attempt": file.attempt.number,
        "index": file.index,
        "storage": storage,
        "name": file.name,
        "folded_name": folded(file.name),
        "source_url": file.media.url,
    }


def _known_files(connection: sa.Connection, answers: Sequence[Answer]) -> dict[Key, list[File]]:
    """The files of answers that were entered before."""
    known = _files_of(connection, [answer.attempt for answer in answers])
    attempts = [replace(answer.attempt, generation_id=answer.generation_id) for answer in answers]
    return {
        _key(attempt): [queries.file_of(row, attempt) for row in known[_key(attempt)].values()]
        for attempt in attempts
    }


def failed(connection: sa.Connection, run_id: str, ends: Sequence[End]) -> Sequence[None]:
    """The service refused the jobs or gave them up. They cost nothing."""
    moves = [(end.attempt, _of_end(end) | {"cost": Decimal(0)}) for end in ends]
    _move(connection, run_id, State.FAILED, moves)
    return [None] * len(ends)


def doubt(connection: sa.Connection, run_id: str, ends: Sequence[End]) -> Sequence[None]:
    """What became of the jobs is not known."""
    _move(connection, run_id, State.IN_DOUBT, [(end.attempt, _of_end(end)) for end in ends])
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
        if (row := rows.get(_key(attempt))) and (row["state"], row["run_id"]) == (State.PENDING, run_id)
    ]
    writing.change(connection, said)
    return [None] * len(words)


def refreshed(
    connection: sa.Connection, run_id: str, files: Sequence[tuple[File, str, datetime | None]]
) -> Sequence[None]:
    """The service gave new URLs for files, each with its `deletes_at`."""
    for file, url, until in files:  # rarely more than one
        _set(connection, run_id, file, {"source_url": url, "deletes_at": until})
    return [None] * len(files)


def renamed(connection: sa.Connection, run_id: str, files: Sequence[tuple[File, str]]) -> Sequence[str]:
    """The files get other names: their own are taken in storage by other bytes, or end as another type.

    Returns:
        Their names from now on: those that are wanted, unless another file of the ledger has them.
    """
    names = []
    for file, wanted in files:  # rarely more than one
        own, name = _files_of(connection, [file.attempt])[_key(file.attempt)][file.index], wanted
        if folded(wanted) != own.folded_name:
            free_names = FreeNames(connection, [(own.storage, wanted)])
            name = free_names.take(own.storage, wanted, file.attempt, file.index)
        _set(connection, run_id, file, {"name": name, "folded_name": folded(name)})
        names.append(name)
    return names


def _set(connection: sa.Connection, run_id: str, file: File, values: Values) -> None:
    """Sets columns of a file, where its job is the run's."""
    row = writing.found(connection, [file.attempt.job_key]).get(_key(file.attempt))
    if row and row["run_id"] == run_id:
        connection.execute(_FILE, _the_file(file) | values)


def ended(connection: sa.Connection, run_id: str, ends: Sequence[FileEnd]) -> Sequence[State | None]:
    """Files are verified and in storage, or can no longer be had.

    A job ends with its last file: as lost where one of them is, otherwise as stored.

    Returns:
        For each the end of its job, where it was the job's last file.
    """
    attempts = [end.file.attempt for end in ends]
    rows = writing.found(connection, [attempt.job_key for attempt in attempts])
    files = {
        key: {index: dict(row._mapping) for index, row in its.items()}
        for key, its in _files_of(connection, attempts).items()
    }
    new: list[Values] = []
    last: dict[Key, FileEnd] = {}
    for end in ends:
        to, key = State.LOST if end.lost else State.STORED, _key(end.file.attempt)
        row, file = rows.get(key), files.get(key, {}).get(end.file.index)
        if row is None or file is None or row["run_id"] != run_id:
            raise _refused(end.file.attempt, to)
        if all(file[name] == value for name, value in end.values.items()):
            continue  # made before
        if row["state"] != State.GENERATED or _has_ended(file):
            raise _refused(end.file.attempt, to)
        files[key][end.file.index] = file | end.values
        new.append(_the_file(end.file) | end.values)
        last[key] = end
    if new:
        connection.execute(_FILE, new)
    moves: dict[State, list[tuple[Attempt, Values]]] = {State.STORED: [], State.LOST: []}
    for key, end in last.items():
        if all(map(_has_ended, files[key].values())):
            is_lost = any(file["lost_at"] is not None for file in files[key].values())
            error = {"error_code": "lost", "error_message": end.lost} if end.lost else {}
            values: Values = {"finished_at": end.at} | error
            moves[State.LOST if is_lost else State.STORED].append((end.file.attempt, values))
    for to, of_it in moves.items():
        _move(connection, run_id, to, of_it)
        rows |= {_key(attempt): {"state": to} | values for attempt, values in of_it}
    results: list[State | None] = [None] * len(ends)
    for (key, at), number in {(_key(end.file.attempt), end.at): n for n, end in enumerate(ends)}.items():
        if rows[key]["state"] in moves and rows[key]["finished_at"] == at:
            results[number] = rows[key]["state"]
    return results


def _files_of(connection: sa.Connection, attempts: Sequence[Attempt]) -> dict[Key, dict[int, Any]]:
    """By attempt and index, every file of these attempts' jobs."""
    files: dict[Key, dict[int, Any]] = defaultdict(dict)
    of_jobs = media.c.job_key.in_({attempt.job_key for attempt in attempts})
    row: Any
    for row in connection.execute(sa.select(media).where(of_jobs).order_by(media.c.index)):
        files[row.job_key, row.attempt][row.index] = row
    return files


def _has_ended(file: Values) -> bool:
    return file["stored_at"] is not None or file["lost_at"] is not None


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


def _move(
    connection: sa.Connection, run_id: str, to: State, moves: Sequence[tuple[Attempt, Values]]
) -> set[Key]:
    """Moves attempts to a state, and sets columns of each.

    Returns:
        Those for which this was done before.

    Raises:
        LedgerError: one of them may not move there.
    """
    rows = writing.found(connection, [attempt.job_key for attempt, _ in moves])
    made: set[Key] = set()
    changes: list[tuple[Values, Values]] = []
    for attempt, values in moves:
        key = _key(attempt)
        row = rows.get(key)
        if _is_made(row, run_id, to, values):
            made.add(key)
        elif row is None or row["run_id"] != run_id or not _may_move(row, to):
            raise _refused(attempt, to)
        else:
            changes.append((row, {"state": to} | values))
            rows[key] = row | changes[-1][1]
    writing.change(connection, changes)
    return made


def _is_made(row: Values | None, run_id: str, to: State, values: Values) -> bool:
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


def _refused(attempt: Attempt, to: State) -> LedgerError:
    return LedgerError(
        f"row {attempt.row_id}: the ledger refuses the step to {to}: "
        "the job is in another state, or another run has taken it over"
    )


def _key(attempt: Attempt) -> Key:
    return attempt.job_key, attempt.number


def _the_file(file: File) -> Values:
    return {"the_job": file.attempt.job_key, "the_attempt": file.attempt.number, "the_index": file.index}
