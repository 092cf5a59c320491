"""How a job and its files move from state to state: the intent, the answer, the end of each file.

No two files of the ledger have the same name in storage; it does not look into storage. A change that is
made a second time, because the answer of its commit was lost, changes nothing and returns the same
(`writing.move`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any

import sqlalchemy as sa

from callsheet.ledger import charges, queries, services, words, writing
from callsheet.ledger.charges import Charge
from callsheet.ledger.gate import Buyer, Counting, Gate, Obstacle
from callsheet.ledger.journal import PaidAnswer
from callsheet.ledger.tables import Values, attempts, media
from callsheet.ledger.writing import key_of, move, refused
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


_OF_ID = sa.select(attempts.c.job_key, attempts.c.attempt, attempts.c.row_id, attempts.c.batch).where(
    attempts.c.generation_id == sa.bindparam("the_id")
)


def intend(
    connection: sa.Connection,
    run_id: str,
    attempt: Attempt,
    buyer: Buyer,
    *,
    rates: Mapping[str, Any],
    at: datetime,
) -> Obstacle | None:
    """The POST is about to leave: looks at the gate once more, because answers may have changed it since.

    Returns:
        None where it may leave; otherwise why not, and it stays as it was. `rates`: as for `Ledger.intend`.
    """
    sent = {"submitted_at": at}
    row = writing.to_move(connection, run_id, State.SUBMITTING, attempt, sent)
    if row is None:
        return None
    gate_now = Gate(connection, buyer, at, Counting.SEND)
    if obstacle := gate_now.lets(attempt.quoted or Decimal(0), attempt.model):
        return obstacle
    # Another purse may have taken the place of that by which it was reserved.
    writing.change_attempt(connection, row, {"state": State.SUBMITTING, "purse": gate_now.purse_id} | sent)
    words.buys_at(connection, buyer.batch, rates, at)
    return None


def planned_again(connection: sa.Connection, run_id: str, attempt: Attempt) -> None:
    """The service took nothing: the job is planned again, and still reserved by the run."""
    move(connection, run_id, State.PLANNED, attempt, {})


def answered(connection: sa.Connection, run_id: str, answer: PaidAnswer) -> list[File] | SameGeneration:
    """The job is accepted: records its id, and when it is finished its cost and files.

    An id says which generation a job is. Where another job has it already, the answer is none for this job.

    Returns:
        The files of a finished generation, each with a free name in storage; or why it is in doubt.
    """
    if same_generation := _same_generation(connection, answer):
        in_doubt(connection, run_id, _of_same_id(answer, same_generation))
        return same_generation
    attempt = replace(answer.attempt, generation_id=answer.generation_id)
    to, values = _of_answer(answer)
    if move(connection, run_id, to, attempt, values) is None:
        return [queries.file_of(row, attempt) for row in _files_of(connection, attempt).values()]
    _count_charge(connection, answer.batch, attempt, values["cost"], answer.model)
    return _enter_files(connection, attempt, answer)


def recover(connection: sa.Connection, run_id: str, answer: PaidAnswer, submitted_at: datetime) -> None:
    """Records an answer that a dead run could not write, whatever the attempt's state is.

    The job is `run_id`'s from now on. Its request left at `submitted_at`, as far as that is known.
    """
    attempt = replace(answer.attempt, generation_id=answer.generation_id)
    row = writing.row_of(connection, attempt)
    assert row is not None  # noqa: S101 - it was entered before
    taken_over: Values = {"run_id": run_id, "submitted_at": submitted_at}
    if same_generation := _same_generation(connection, answer):
        if row["settled"] is None:  # it says nothing against what a person settled
            end = _of_end(_of_same_id(answer, same_generation))
            writing.change_attempt(connection, row, taken_over | {"state": State.IN_DOUBT} | end)
        return
    state, values = _of_answer(answer)
    writing.change_attempt(connection, row, taken_over | {"state": state} | values)
    _count_charge(connection, answer.batch, attempt, values["cost"], answer.model)
    _enter_files(connection, attempt, answer)


def _count_charge(
    connection: sa.Connection, batch: str, attempt: Attempt, cost: Decimal | None, model: str | None = None
) -> None:
    """Counts what a job was charged, next to its quote, and for which model, as far as the answer says that.

    What has no price, or no cost that is known, is never above it, and may be of another model.
    """
    delivered = "" if model in (None, attempt.model) else model
    amounts = [amount for amount in (attempt.quoted, cost) if amount is not None]
    if delivered or len(amounts) == 2:
        quoted, charged = (amounts or [Decimal(0)])[0], (amounts or [Decimal(0)])[-1]
        charge = Charge(attempt.row_id, attempt.sample, attempt.model, quoted, charged, delivered=delivered)
        charges.count(connection, batch, charge)


def _same_generation(connection: sa.Connection, answer: PaidAnswer) -> SameGeneration | None:
    """Whether another attempt has the answer's id; another service's ids say nothing."""
    attempt = answer.attempt
    rows = connection.execute(_OF_ID, {"the_id": answer.generation_id}).all()
    others = [row for row in rows if (row.job_key, row.attempt) != (attempt.job_key, attempt.number)]
    if not others:
        return None
    service = services.of_batch(connection, answer.batch)
    elsewhere = services.elsewhere(connection, service) if service else ()
    for row in others:
        if row.batch not in elsewhere:
            of_batch = "" if row.batch == answer.batch else f" of the batch {row.batch}"
            return SameGeneration(
                f"row {attempt.row_id} was answered with the id {answer.generation_id}, "
                f"which row {row.row_id}{of_batch} has already"
            )
    return None


def _of_same_id(answer: PaidAnswer, generation: SameGeneration) -> End:
    return End(answer.attempt, generation.what, at=answer.at)


def _of_answer(answer: PaidAnswer) -> tuple[State, Values]:
    """The state that an answer leads to, and the other columns that it sets."""
    values: Values = {
        "generation_id": answer.generation_id,
        # Of a doubt, or of a person's decision about it, that the answer supersedes.
        "error_code": None,
        "error_message": None,
        "settled": None,
        "finished_at": None,
        "cost": None,
        "cost_source": None,
        "model_delivered": answer.model,
    }
    if (usage := answer.usage) is None:
        return State.PENDING, values
    return State.GENERATED, values | _cost(usage, *usage.cost(answer.attempt.quoted))


def _cost(usage: Usage, cost: Decimal | None, source: CostSource | None) -> Values:
    return {
        "cost": cost,
        "cost_source": source,
        "billable_unit": usage.billable_unit,
        "unit_price": usage.unit_price,
        "quantity": usage.quantity,
    }


def failed(connection: sa.Connection, run_id: str, end: End) -> None:
    """The service refused the job or gave it up. It costs what it has charged, mostly nothing."""
    cost, source = end.usage.charged()
    costs = _cost(end.usage, cost, source) if cost else {"cost": cost}
    row = move(connection, run_id, State.FAILED, end.attempt, _of_end(end) | costs)
    if row is not None and cost:
        _count_charge(connection, row["batch"], end.attempt, cost)


def in_doubt(connection: sa.Connection, run_id: str, end: End) -> None:
    """What became of the job is not known."""
    move(connection, run_id, State.IN_DOUBT, end.attempt, _of_end(end))


def _of_end(end: End) -> Values:
    """The columns that it sets; the id where an answer had one."""
    values = {"finished_at": end.at, "error_code": end.code, "error_message": end.message}
    generation_id = end.attempt.generation_id
    return values if generation_id is None else values | {"generation_id": generation_id}


def unknown_status(connection: sa.Connection, run_id: str, video: Attempt, text: str) -> None:
    """A pending video has a status that is not known, in these words of the service; empty: it has not."""
    row = writing.row_of(connection, video)
    if row and (row["state"], row["run_id"]) == (State.PENDING, run_id):
        values = {"error_code": UNKNOWN_STATUS if text else None, "error_message": text or None}
        writing.change_attempt(connection, row, values)


_OF_ATTEMPT = sa.and_(
    media.c.job_key == sa.bindparam("the_job"), media.c.attempt == sa.bindparam("the_attempt")
)
_FILES = sa.select(media).where(_OF_ATTEMPT).order_by(media.c.index)
_ENTER_FILE = media.insert()
_SET_FILE = media.update().where(_OF_ATTEMPT, media.c.index == sa.bindparam("the_index"))
_HAS_NAME = sa.select(sa.true()).where(
    media.c.storage == sa.bindparam("the_storage"), media.c.folded_name == sa.bindparam("the_name")
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


def _free_name(connection: sa.Connection, storage: str, name: str, attempt: Attempt, index: int) -> str:
    """`name`, or the file's other name where another file of the ledger has that one."""
    is_taken = connection.scalar(_HAS_NAME, {"the_storage": storage, "the_name": folded(name)})
    return other_name(name, attempt, index) if is_taken else name


@dataclass(frozen=True, slots=True)
class FileEnd:
    """A file is verified and in storage, as `copy`, or can no longer be had (`lost`: why); `at`: when."""

    file: File
    copy: StoredFile | None = None
    lost: str = ""
    at: datetime = field(default_factory=lambda: datetime.now(UTC))


def _enter_files(connection: sa.Connection, attempt: Attempt, answer: PaidAnswer) -> list[File]:
    """Enters the files of an answer, each under a free name: the wanted one, unless that is taken."""
    files: list[File] = []
    for index, (item, wanted_name) in enumerate(zip(answer.media, answer.names, strict=True)):
        name = _free_name(connection, answer.storage, wanted_name, attempt, index)
        row = {"job_key": attempt.job_key, "attempt": attempt.number, "index": index}
        row |= {"storage": answer.storage, "name": name, "folded_name": folded(name)}
        row |= item.model_dump(exclude={"url"}) | {"source_url": item.url, "mime_type_said": item.mime_type}
        connection.execute(_ENTER_FILE, row)
        files.append(File(attempt, index, name, item))
    return files


def refreshed(
    connection: sa.Connection, run_id: str, file: File, url: str, deletes_at: datetime | None
) -> None:
    """The service gave a new URL for a file, with its `deletes_at`."""
    _set(connection, run_id, file, {"source_url": url, "deletes_at": deletes_at})


def renamed(connection: sa.Connection, run_id: str, file: File, wanted_name: str) -> str:
    """The file gets another name: its own is taken in storage by other bytes, or ends as another type.

    Returns:
        Its name from now on: the one that is wanted, unless another file of the ledger has it.
    """
    row, name = _files_of(connection, file.attempt)[file.index], wanted_name
    if folded(wanted_name) != row["folded_name"]:
        name = _free_name(connection, row["storage"], wanted_name, file.attempt, file.index)
    _set(connection, run_id, file, {"name": name, "folded_name": folded(name)})
    return name


def _set(connection: sa.Connection, run_id: str, file: File, values: Values) -> None:
    """Sets columns of a file, where its job is the run's."""
    row = writing.row_of(connection, file.attempt)
    if row and row["run_id"] == run_id:
        connection.execute(_SET_FILE, key_of(file.attempt) | {"the_index": file.index} | values)


def stored(connection: sa.Connection, run_id: str, end: FileEnd) -> State | None:
    """A file is verified and in storage. A job ends with its last file: as lost where one of them is.

    Returns:
        The end of its job, where it was the job's last file.
    """
    return _end_file(connection, run_id, end, State.STORED)


def lost(connection: sa.Connection, run_id: str, end: FileEnd) -> State | None:
    """A file can no longer be had; otherwise as `stored`."""
    return _end_file(connection, run_id, end, State.LOST)


def _end_file(connection: sa.Connection, run_id: str, end: FileEnd, to: State) -> State | None:
    attempt = end.file.attempt
    row, files = writing.row_of(connection, attempt), _files_of(connection, attempt)
    file = files.get(end.file.index)
    if row is None or file is None or row["run_id"] != run_id:
        raise refused(attempt, to)
    values: Values = asdict(end.copy) if end.copy else {"lost_at": end.at}
    if all(file[name] == value for name, value in values.items()):  # made before
        return State(row["state"]) if row["finished_at"] == end.at else None
    if not writing.may_move(row, to) or _has_ended(file):
        raise refused(attempt, to)
    connection.execute(_SET_FILE, key_of(attempt) | {"the_index": end.file.index} | values)
    file |= values
    if not all(map(_has_ended, files.values())):
        return None
    is_lost = any(file["lost_at"] is not None for file in files.values())
    state = State.LOST if is_lost else State.STORED
    error = {"error_code": "lost", "error_message": end.lost} if end.lost else {}
    writing.change_attempt(connection, row, {"state": state, "finished_at": end.at} | error)
    return state


def _files_of(connection: sa.Connection, attempt: Attempt) -> dict[int, Values]:
    """By index, the files of an attempt."""
    rows = connection.execute(_FILES, key_of(attempt)).mappings()
    return {row["index"]: dict(row) for row in rows}


def _has_ended(file: Values) -> bool:
    return file["stored_at"] is not None or file["lost_at"] is not None
