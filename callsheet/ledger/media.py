"""The files of generations, from the answer that names them until they are in storage, or lost.

No two files of the ledger have the same name in storage; it does not look into storage. A change that
is made a second time changes nothing, and returns the same (`writing.move`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa

from callsheet.ledger import queries, writing
from callsheet.ledger.journal import PaidAnswer
from callsheet.ledger.tables import media
from callsheet.ledger.writing import Key, Values, key_of, move, refused
from callsheet.records import Attempt, File, State
from callsheet.storage.names import folded

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
    path = Path(name)
    identity = attempt.job_key[:12] + (f"-{attempt.number}" if attempt.number > 1 else "")
    identity += f"_{index}" if index else ""
    return str(path.with_name(f"{path.stem}-{identity}{path.suffix}"))


def taken_names(connection: sa.Connection, storage: str, names: Collection[str]) -> set[str]:
    """Those of the names in `storage` that files of the ledger have, folded (`storage.names.folded`)."""
    taken = media.c.folded_name.in_([folded(name) for name in names])
    return set(connection.scalars(sa.select(media.c.folded_name).where(media.c.storage == storage, taken)))


def _free_name(taken: set[str], name: str, attempt: Attempt, index: int) -> str:
    """`name`, or the file's other name where that one is taken; from now on it is."""
    free = other_name(name, attempt, index) if folded(name) in taken else name
    taken.add(folded(free))
    return free


class FileEnd(NamedTuple):
    """A file is in storage, or lost (`lost`: why), by these columns of `media`; `at`: when."""

    file: File
    values: Values
    lost: str
    at: datetime


def enter(connection: sa.Connection, answers: Sequence[PaidAnswer]) -> dict[Key, list[File]]:
    """Enters the files of answers, each under a free name: the wanted one, unless that is taken."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for answer in answers:
        names[answer.storage] += answer.names
    taken = {storage: taken_names(connection, storage, wanted) for storage, wanted in names.items()}
    files: defaultdict[Key, list[File]] = defaultdict(list)
    rows: list[Values] = []
    for answer in answers:
        attempt = replace(answer.attempt, generation_id=answer.generation_id)
        for index, (item, wanted) in enumerate(zip(answer.media, answer.names, strict=True)):
            name = _free_name(taken[answer.storage], wanted, attempt, index)
            files[key_of(attempt)].append(File(attempt, index, name, item))
            more = {"storage": answer.storage, "name": name, "folded_name": folded(name)}
            key = {"job_key": attempt.job_key, "attempt": attempt.number, "index": index}
            rows.append(item.model_dump(exclude={"url"}) | key | more | {"source_url": item.url})
    if rows:
        connection.execute(media.insert(), rows)
    return files


def known(connection: sa.Connection, answers: Sequence[PaidAnswer]) -> dict[Key, list[File]]:
    """The files of answers that were entered before."""
    attempts = [replace(answer.attempt, generation_id=answer.generation_id) for answer in answers]
    known = _files_of(connection, attempts)
    return {
        key_of(attempt): [queries.file_of(row, attempt) for row in known[key_of(attempt)].values()]
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
    for file, wanted in files:  # rarely more than one
        own, name = _files_of(connection, [file.attempt])[key_of(file.attempt)][file.index], wanted
        if folded(wanted) != own["folded_name"]:
            taken = taken_names(connection, own["storage"], [wanted])
            name = _free_name(taken, wanted, file.attempt, file.index)
        _set(connection, run_id, file, {"name": name, "folded_name": folded(name)})
        names.append(name)
    return names


def _set(connection: sa.Connection, run_id: str, file: File, values: Values) -> None:
    """Sets columns of a file, where its job is the run's."""
    row = writing.found(connection, [file.attempt.job_key]).get(key_of(file.attempt))
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
    files = _files_of(connection, attempts)
    results: list[State | None] = []
    changed: list[Values] = []
    moves: dict[State, list[tuple[Attempt, Values]]] = {State.STORED: [], State.LOST: []}
    for end in ends:
        attempt = end.file.attempt
        row, its = rows.get(key_of(attempt)), files[key_of(attempt)]
        file = its.get(end.file.index)
        if row is None or file is None or row["run_id"] != run_id:
            raise refused(attempt, State.LOST if end.lost else State.STORED)
        if all(file[name] == value for name, value in end.values.items()):  # made before
            results.append(row["state"] if row["finished_at"] == end.at else None)
            continue
        if row["state"] != State.GENERATED or _has_ended(file):
            raise refused(attempt, State.LOST if end.lost else State.STORED)
        file |= end.values
        changed.append(_the_file(end.file) | end.values)
        if not all(map(_has_ended, its.values())):
            results.append(None)
            continue
        to = State.LOST if any(each["lost_at"] is not None for each in its.values()) else State.STORED
        error = {"error_code": "lost", "error_message": end.lost} if end.lost else {}
        moves[to].append((attempt, {"finished_at": end.at} | error))
        results.append(to)
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
