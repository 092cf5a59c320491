"""How a job and its files move from state to state: the intent, the answer, the end of each file.

No two files of the ledger have the same name in storage; it does not look into storage. A change that is
made a second time, because the answer of its commit was lost, changes nothing and returns the same
(`writing.move`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import sqlalchemy as sa

from callsheet.ledger import charges, queries, spending, words, writing
from callsheet.ledger.charges import Charge
from callsheet.ledger.gate import Buyer, Counting, Gate, Obstacle
from callsheet.ledger.journal import PaidAnswer
from callsheet.ledger.tables import attempts, media, runs
from callsheet.ledger.writing import Key, Values, is_made, key_of, move, refused
from callsheet.records import (
    UNKNOWN_STATUS,
    Attempt,
    CostSource,
    File,
    State,
    StoredFile,
    Usage,
)
from callsheet.storage.names import folded


class Intent(NamedTuple):
    """An attempt that is about to be sent; `rates`: as for `Ledger.intend`."""

    attempt: Attempt
    buyer: Buyer
    rates: Mapping[str, Any]
    at: datetime


@dataclass(frozen=True, slots=True)
class End:
    """An attempt has failed, or is in doubt: the reason, the error's code, what a failure cost, and when."""

    attempt: Attempt
    message: str
    code: str = "in_doubt"
    usage: Usage = field(default_factory=Usage)
    at: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class SameGeneration:
    """An answer has an id that is another job's. Which of them it is, nobody knows: the job is in doubt.

    Attributes:
        what: both rows and the id, in words.
    """

    what: str


def intend(connection: sa.Connection, run_id: str, intents: Sequence[Intent]) -> Sequence[Obstacle | None]:
    """The POSTs are about to leave: looks at the gate once more, because answers may have changed it since.

    Returns:
        For each, None where it may leave; otherwise why not, and it stays as it was.
    """
    buyer, rates, at = intents[0].buyer, intents[0].rates, intents[0].at  # a run has one of each
    rows = writing.found(connection, [intent.attempt.job_key for intent in intents])
    gate = Gate(connection, buyer, at, Counting.SEND)
    obstacles: list[Obstacle | None] = []
    moves: list[tuple[Attempt, Values]] = []
    for intent in intents:
        sent = {"submitted_at": intent.at}
        is_sent = is_made(rows.get(key_of(intent.attempt)), run_id, State.SUBMITTING, sent)
        obstacle = None if is_sent else gate.lets(intent.attempt.quoted or Decimal(0))
        obstacles.append(obstacle)
        if obstacle is None:
            moves.append((intent.attempt, sent))
    if moves:
        move(connection, run_id, State.SUBMITTING, moves, rows)
        words.buys_at(connection, buyer.batch, rates, at)
    return obstacles


def release(connection: sa.Connection, run_id: str, unsent: Sequence[Attempt]) -> None:
    """The service took nothing: the jobs are planned again, and still reserved by the run."""
    move(connection, run_id, State.PLANNED, [(attempt, {}) for attempt in unsent])


def answered(
    connection: sa.Connection, run_id: str, answers: Sequence[PaidAnswer]
) -> Sequence[list[File] | SameGeneration]:
    """The jobs are accepted: records their ids, and when they are finished their costs and files.

    An id says which generation a job is. Where another job has it already, the answer is none for this job.
    The answers are all of accepted videos, or all of finished generations.

    Returns:
        The files of each finished generation, each with a free name in storage; or why it is in doubt.
    """
    same_ids = _same_ids(connection, answers)
    in_doubt(connection, run_id, [_of_same_id(answers[index], same_ids[index]) for index in same_ids])
    own_answers = [answer for index, answer in enumerate(answers) if index not in same_ids]
    to = State.GENERATED if answers[0].usage else State.PENDING
    done_before = move(
        connection, run_id, to, [(answer.attempt, _of_answer(answer)) for answer in own_answers]
    )
    new = [answer for answer in own_answers if key_of(answer.attempt) not in done_before]
    charged = [(answer.attempt, _charge(answer)) for answer in new]
    _count_charges(connection, answers[0].batch, charged)
    files = known(connection, [answer for answer in own_answers if key_of(answer.attempt) in done_before])
    files |= enter(connection, new)
    keys = [key_of(answer.attempt) for answer in answers]
    return [same_ids[index] if index in same_ids else files.get(key, []) for index, key in enumerate(keys)]


def recover(connection: sa.Connection, run_id: str, answer: PaidAnswer, submitted_at: datetime) -> None:
    """Records an answer that a dead run could not write, whatever the attempt's state is.

    The job is `run_id`'s from now on. Its request left at `submitted_at`, as far as that is known.
    """
    row = writing.found(connection, [answer.attempt.job_key])[key_of(answer.attempt)]
    taken_over: Values = {"run_id": run_id, "submitted_at": submitted_at}
    if same_ids := _same_ids(connection, [answer]):
        if row["settled"] is None:  # it says nothing against what a person settled
            in_doubt = {"state": State.IN_DOUBT} | _of_end(_of_same_id(answer, same_ids[0]))
            writing.change(connection, [(row, taken_over | in_doubt)])
        return
    state = State.GENERATED if answer.usage else State.PENDING
    writing.change(connection, [(row, taken_over | {"state": state} | _of_answer(answer))])
    _count_charges(connection, answer.batch, [(answer.attempt, _charge(answer))])
    enter(connection, [answer])


def _charge(answer: PaidAnswer) -> Decimal | None:
    return answer.usage.cost(answer.attempt.quoted)[0] if answer.usage else None


def _count_charges(
    connection: sa.Connection, batch: str, charged: Sequence[tuple[Attempt, Decimal | None]]
) -> None:
    """Counts what jobs with a price were charged, next to their quotes."""
    new = [
        Charge(attempt.row_id, attempt.sample, attempt.model, attempt.quoted, cost)
        for attempt, cost in charged
        if attempt.quoted is not None and cost is not None
    ]
    if new:
        charges.count(connection, batch, new)


def _same_ids(connection: sa.Connection, answers: Sequence[PaidAnswer]) -> dict[int, SameGeneration]:
    """By their number, the answers with an id that another attempt has: in the ledger, or before them here.

    Another service's ids say nothing.
    """
    ids = {answer.generation_id for answer in answers}
    columns = (attempts.c[name] for name in ("generation_id", "job_key", "attempt", "row_id", "batch"))
    query = sa.select(*columns).where(attempts.c.generation_id.in_(ids))
    elsewhere: Collection[str] = ()
    attempts_by_id: dict[str, list[tuple[str, int, str, str]]] = defaultdict(list)
    for row in connection.execute(query):
        attempts_by_id[row.generation_id].append(tuple(row[1:]))
    if attempts_by_id and (service := spending.of_batch(connection, answers[0].batch)):
        elsewhere = spending.elsewhere(connection, service)
    same_ids: dict[int, SameGeneration] = {}
    for index, answer in enumerate(answers):
        of_id, attempt = attempts_by_id[answer.generation_id], answer.attempt
        its_own = (attempt.job_key, attempt.number)
        for job_key, number, row_id, batch in of_id:
            if (job_key, number) != its_own and batch not in elsewhere:
                of_batch = "" if batch == answer.batch else f" of the batch {batch}"
                same_ids[index] = SameGeneration(
                    f"row {attempt.row_id} was answered with the id {answer.generation_id}, "
                    f"which row {row_id}{of_batch} has already"
                )
                break
        else:
            of_id.append((*its_own, attempt.row_id, answer.batch))
    return same_ids


def _of_same_id(answer: PaidAnswer, generation: SameGeneration) -> End:
    return End(answer.attempt, generation.what, at=answer.at)


def _of_answer(answer: PaidAnswer) -> Values:
    """The columns that an answer sets."""
    values: Values = {
        "generation_id": answer.generation_id,
        # Of a doubt, or of a person's decision about it, that the answer supersedes.
        "error_code": None,
        "error_message": None,
        "settled": None,
        "finished_at": None,
        "cost": None,
        "cost_source": None,
    }
    if (usage := answer.usage) is None:
        return values
    return values | _cost(usage, *usage.cost(answer.attempt.quoted))


def _cost(usage: Usage, cost: Decimal | None, source: CostSource | None) -> Values:
    return {
        "cost": cost,
        "cost_source": source,
        "billable_unit": usage.billable_unit,
        "unit_price": usage.unit_price,
        "quantity": usage.quantity,
    }


def failed(connection: sa.Connection, run_id: str, ends: Sequence[End]) -> None:
    """The service refused the jobs or gave them up. They cost what it has charged, mostly nothing."""
    moves: list[tuple[Attempt, Values]] = []
    for end in ends:
        cost, source = end.usage.charged()
        costs = _cost(end.usage, cost, source) if cost else {"cost": cost}
        moves.append((end.attempt, _of_end(end) | costs))
    done_before = move(connection, run_id, State.FAILED, moves)
    new = [(attempt, values["cost"]) for attempt, values in moves if key_of(attempt) not in done_before]
    if charged := [(attempt, cost) for attempt, cost in new if cost]:
        batch = connection.scalars(sa.select(runs.c.batch).where(runs.c.id == run_id)).one()
        _count_charges(connection, batch, charged)


def in_doubt(connection: sa.Connection, run_id: str, ends: Sequence[End]) -> None:
    """What became of the jobs is not known."""
    move(connection, run_id, State.IN_DOUBT, [(end.attempt, _of_end(end)) for end in ends])


def _of_end(end: End) -> Values:
    """The columns that it sets; the id where an answer had one."""
    values = {"finished_at": end.at, "error_code": end.code, "error_message": end.message}
    generation_id = end.attempt.generation_id
    return values if generation_id is None else values | {"generation_id": generation_id}


def says(connection: sa.Connection, run_id: str, texts: Sequence[tuple[Attempt, str]]) -> None:
    """What the service says of pending videos, where that is no status that is known; empty: nothing odd."""
    rows = writing.found(connection, [attempt.job_key for attempt, _ in texts])
    changes = [
        (row, {"error_code": UNKNOWN_STATUS if text else None, "error_message": text or None})
        for attempt, text in texts
        if (row := rows.get(key_of(attempt))) and (row["state"], row["run_id"]) == (State.PENDING, run_id)
    ]
    writing.change(connection, changes)


_FILE = media.update().where(
    media.c.job_key == sa.bindparam("the_job"),
    media.c.attempt == sa.bindparam("the_attempt"),
    media.c.index == sa.bindparam("the_index"),
)


def other_name(name: str, attempt: Attempt, index: int) -> str:
    """The name for a file where `name` is taken.

    It adds what identifies the file: the job's key, the number of an attempt after the first, and the index
    of a file after the first.
    """
    path = PurePosixPath(name)
    identity = attempt.job_key[:12] + (f"-{attempt.number}" if attempt.number > 1 else "")
    identity += f"_{index}" if index else ""
    return str(path.with_name(f"{path.stem}-{identity}{path.suffix}"))


def taken_names(connection: sa.Connection, storage: str, names: Collection[str]) -> set[str]:
    """Those of the names in `storage` that files of the ledger have, folded (`storage.names.folded`)."""
    is_taken = media.c.folded_name.in_([folded(name) for name in names])
    return set(connection.scalars(sa.select(media.c.folded_name).where(media.c.storage == storage, is_taken)))


def _free_name(folded_names: set[str], name: str, attempt: Attempt, index: int) -> str:
    """`name`, or the file's other name where that one is taken; from now on it is."""
    free = other_name(name, attempt, index) if folded(name) in folded_names else name
    folded_names.add(folded(free))
    return free


@dataclass(frozen=True, slots=True)
class FileEnd:
    """A file is verified and in storage, as `copy`, or can no longer be had (`lost`: why); `at`: when."""

    file: File
    copy: StoredFile | None = None
    lost: str = ""
    at: datetime = field(default_factory=lambda: datetime.now(UTC))


def enter(connection: sa.Connection, answers: Sequence[PaidAnswer]) -> dict[Key, list[File]]:
    """Enters the files of answers, each under a free name: the wanted one, unless that is taken."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for answer in answers:
        names[answer.storage] += answer.names
    folded_names = {
        storage: taken_names(connection, storage, wanted_names) for storage, wanted_names in names.items()
    }
    files: defaultdict[Key, list[File]] = defaultdict(list)
    rows: list[Values] = []
    for answer in answers:
        attempt = replace(answer.attempt, generation_id=answer.generation_id)
        for index, (item, wanted_name) in enumerate(zip(answer.media, answer.names, strict=True)):
            name = _free_name(folded_names[answer.storage], wanted_name, attempt, index)
            files[key_of(attempt)].append(File(attempt, index, name, item))
            location = {"storage": answer.storage, "name": name, "folded_name": folded(name)}
            key = {"job_key": attempt.job_key, "attempt": attempt.number, "index": index}
            rows.append(item.model_dump(exclude={"url"}) | key | location | {"source_url": item.url})
    if rows:
        connection.execute(media.insert(), rows)
    return files


def known(connection: sa.Connection, answers: Sequence[PaidAnswer]) -> dict[Key, list[File]]:
    """The files of answers that were entered before."""
    attempts = [replace(answer.attempt, generation_id=answer.generation_id) for answer in answers]
    rows = _files_of(connection, attempts)
    return {
        key_of(attempt): [queries.file_of(row, attempt) for row in rows[key_of(attempt)].values()]
        for attempt in attempts
    }


def refreshed(
    connection: sa.Connection, run_id: str, files: Sequence[tuple[File, str, datetime | None]]
) -> None:
    """The service gave new URLs for files, each with its `deletes_at`."""
    for file, url, until in files:  # rarely more than one
        _set(connection, run_id, file, {"source_url": url, "deletes_at": until})


def renamed(connection: sa.Connection, run_id: str, files: Sequence[tuple[File, str]]) -> Sequence[str]:
    """The files get other names: their own are taken in storage by other bytes, or end as another type.

    Returns:
        Their names from now on: those that are wanted, unless another file of the ledger has them.
    """
    names = []
    for file, wanted_name in files:  # rarely more than one
        row, name = _files_of(connection, [file.attempt])[key_of(file.attempt)][file.index], wanted_name
        if folded(wanted_name) != row["folded_name"]:
            folded_names = taken_names(connection, row["storage"], [wanted_name])
            name = _free_name(folded_names, wanted_name, file.attempt, file.index)
        _set(connection, run_id, file, {"name": name, "folded_name": folded(name)})
        names.append(name)
    return names


def _set(connection: sa.Connection, run_id: str, file: File, values: Values) -> None:
    """Sets columns of a file, where its job is the run's."""
    row = writing.found(connection, [file.attempt.job_key]).get(key_of(file.attempt))
    if row and row["run_id"] == run_id:
        connection.execute(_FILE, _the_file(file) | values)


def stored(connection: sa.Connection, run_id: str, ends: Sequence[FileEnd]) -> Sequence[State | None]:
    """Files are verified and in storage. A job ends with its last file: as lost where one of them is.

    Returns:
        For each the end of its job, where it was the job's last file.
    """
    return _end_files(connection, run_id, ends, State.STORED)


def lost(connection: sa.Connection, run_id: str, ends: Sequence[FileEnd]) -> Sequence[State | None]:
    """Files can no longer be had; otherwise as `stored`."""
    return _end_files(connection, run_id, ends, State.LOST)


def _end_files(
    connection: sa.Connection, run_id: str, ends: Sequence[FileEnd], to: State
) -> Sequence[State | None]:
    attempts = [end.file.attempt for end in ends]
    rows = writing.found(connection, [attempt.job_key for attempt in attempts])
    files = _files_of(connection, attempts)
    results: list[State | None] = []
    changed: list[Values] = []
    moves: dict[State, list[tuple[Attempt, Values]]] = {State.STORED: [], State.LOST: []}
    for end in ends:
        attempt = end.file.attempt
        row, files_of_job = rows.get(key_of(attempt)), files[key_of(attempt)]
        file = files_of_job.get(end.file.index)
        if row is None or file is None or row["run_id"] != run_id:
            raise refused(attempt, to)
        values: Values = asdict(end.copy) if end.copy else {"lost_at": end.at}
        if all(file[name] == value for name, value in values.items()):  # made before
            results.append(row["state"] if row["finished_at"] == end.at else None)
            continue
        if row["state"] != State.GENERATED or _has_ended(file):
            raise refused(attempt, to)
        file |= values
        changed.append(_the_file(end.file) | values)
        if not all(map(_has_ended, files_of_job.values())):
            results.append(None)
            continue
        state = (
            State.LOST if any(file["lost_at"] is not None for file in files_of_job.values()) else State.STORED
        )
        error = {"error_code": "lost", "error_message": end.lost} if end.lost else {}
        moves[state].append((attempt, {"finished_at": end.at} | error))
        results.append(state)
    if changed:
        connection.execute(_FILE, changed)
    for state, its_moves in moves.items():
        move(connection, run_id, state, its_moves, rows)
    return results


def _files_of(connection: sa.Connection, attempts: Sequence[Attempt]) -> dict[Key, dict[int, Values]]:
    """By attempt and index, every file of these attempts' jobs."""
    files: dict[Key, dict[int, Values]] = defaultdict(dict)
    of_jobs = media.c.job_key.in_({attempt.job_key for attempt in attempts})
    for row in connection.execute(sa.select(media).where(of_jobs).order_by(media.c.index)).mappings():
        files[row["job_key"], row["attempt"]][row["index"]] = dict(row)
    return files


def _has_ended(file: Values) -> bool:
    return file["stored_at"] is not None or file["lost_at"] is not None


def _the_file(file: File) -> Values:
    return {"the_job": file.attempt.job_key, "the_attempt": file.attempt.number, "the_index": file.index}
