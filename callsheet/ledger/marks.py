"""What is said of stored files: the decisions of persons and of automatic checks, and what the checks found.

A decision costs and buys nothing. A later one of the same file replaces an earlier one, and none is deleted.
A file is one of an attempt of this batch, also where another batch's file stands for it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, astuple, dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, NamedTuple

import polars as pl
import sqlalchemy as sa

from callsheet.ledger import queries
from callsheet.ledger.tables import attempts, checks, marks, media
from callsheet.records import six_decimals

FILE = ["job_key", "attempt", "index"]
"""The columns that say which file it is."""

_SAID = ("model_delivered", "mime_type_said", "width", "height", "duration", "fps", "has_sound")

_LATER = marks.alias("later")
IS_NEWEST = ~sa.exists().where(
    *(_LATER.c[name] == marks.c[name] for name in FILE), _LATER.c.number > marks.c.number
)
"""Whether a mark is the newest of its file, by an index: what is asked of few marks looks at few."""


class MediaDecision(StrEnum):
    """What was decided about a stored file."""

    KEPT = "kept"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class FileKey:
    """A file of the batch."""

    job_key: str
    attempt: int
    index: int


@dataclass(frozen=True, slots=True)
class Mark:
    """What somebody says of a file; no decision takes an earlier one back."""

    file: FileKey
    decision: MediaDecision | None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured in a file: pixels, seconds, frames a second, and whether anything can be heard. What
    an image does not have, and what could not be measured, is None.
    """

    width: int | None = None
    height: int | None = None
    duration: float | None = None
    fps: float | None = None
    has_sound: bool | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What the checks found in a file: flags in words, the score of the user's program, a perceptual hash.

    `rejected_by`: the check that rejects the file (`blank`); empty where none does. `judged`: False where the
    user's program could not say anything, and is asked again. `measured`: None where it was measured before.
    """

    file: FileKey
    flags: tuple[str, ...] = ()
    score: float | None = None
    hash: str | None = None
    rejected_by: str = ""
    judged: bool = True
    measured: Measured | None = None


class StoredAt(NamedTuple):
    """Where a stored file is, and its type."""

    url: str
    mime_type: str


class Counts(NamedTuple):
    """How far a batch is reviewed: its stored files by what was decided about them."""

    kept: int
    rejected: int
    to_review: int

    def cost_per_kept(self, spent: Decimal) -> Decimal | None:
        """What a kept file costs, where the batch has cost `spent`, in dollars; None without one."""
        return six_decimals(spent / self.kept) if self.kept else None


def mark(connection: sa.Connection, batch: str, new_marks: Sequence[Mark], by: str) -> int:
    """Enters marks, all or none, but for those that the same person has said already; as quickly among many
    marks as among few.

    Returns:
        How many were new.
    """
    decided = _decided(connection, [mark.file.job_key for mark in new_marks])
    number = newest(connection)
    unmarked = (None, None, by)
    new = [mark for mark in new_marks if (mark.decision, mark.note, by) != decided.get(mark.file, unmarked)]
    said_by = {"batch": batch, "decided_by": by, "decided_at": datetime.now(UTC)}
    rows = [
        {
            "number": number + nth,
            "job_key": mark.file.job_key,
            "attempt": mark.file.attempt,
            "index": mark.file.index,
            "decision": mark.decision,
            "note": mark.note,
            **said_by,
        }
        for nth, mark in enumerate(new, start=1)
    ]
    if rows:
        connection.execute(marks.insert(), rows)
    return len(rows)


def found(connection: sa.Connection, batch: str, findings: Sequence[Finding]) -> list[Finding]:
    """Enters what checks found, once for each file; and once more, in its place, when the user's program has
    judged the file that it could not judge before. What is decided already stays so.

    Returns:
        Those whose files are rejected by it.
    """
    judged = {
        FileKey(*file): is_judged
        for condition in queries.of_jobs([finding.file.job_key for finding in findings], checks)
        for *file, is_judged in connection.execute(sa.select(*_columns(checks, "judged")).where(condition))
    }
    new = [
        finding
        for finding in findings
        if finding.file not in judged or (finding.judged and not judged[finding.file])
    ]
    if replaced := [astuple(finding.file) for finding in new if finding.file in judged]:
        connection.execute(checks.delete().where(sa.tuple_(*_columns(checks)).in_(replaced)))
    now = datetime.now(UTC)
    rows = [
        asdict(finding.file)
        | {"batch": batch, "flags": list(finding.flags), "score": finding.score, "hash": finding.hash}
        | {"judged": finding.judged, "checked_at": now}
        for finding in new
    ]
    if rows:
        connection.execute(checks.insert(), rows)
    _measured(connection, new)
    rejecting = [finding for finding in new if finding.rejected_by]
    decided = _decided(connection, [finding.file.job_key for finding in rejecting])
    rejected = [finding for finding in rejecting if finding.file not in decided]
    for check in sorted({finding.rejected_by for finding in rejected}):
        of_it = [finding for finding in rejected if finding.rejected_by == check]
        rejections = [
            Mark(finding.file, MediaDecision.REJECTED, "; ".join(finding.flags) or None) for finding in of_it
        ]
        mark(connection, batch, rejections, f"check:{check}")
    return rejected


def removed(connection: sa.Connection, _: str, files: Sequence[FileKey]) -> None:
    """Enters that stored files are not in storage any more."""
    now = datetime.now(UTC)
    for file in files:
        of_file = [media.c[name] == value for name, value in asdict(file).items()]
        connection.execute(media.update().where(*of_file).values(removed_at=now))


def _measured(connection: sa.Connection, findings: Sequence[Finding]) -> None:
    """Enters what was measured in files beside what the service says of them."""
    of_file = (media.c[name] == sa.bindparam(f"the_{name}") for name in FILE)
    rows = [
        {f"the_{name}": value for name, value in asdict(finding.file).items()}
        | {f"{name}_measured": value for name, value in asdict(finding.measured).items()}
        for finding in findings
        if finding.measured
    ]
    if rows:
        connection.execute(media.update().where(*of_file), rows)


def decisions(connection: sa.Connection, batch: str, since: int = 0) -> pl.DataFrame:
    """The newest mark of each file that has one, in order: `FILE`, `number`, `decision`, `note`, `decided_by`
    and `decided_at`. `since`: only those with a higher number.
    """
    names = ("number", "decision", "note", "decided_by", "decided_at")
    query = sa.select(*_columns(marks, *names)).where(marks.c.batch == batch, marks.c.number > since)
    return queries.read(connection, query.where(IS_NEWEST).order_by(marks.c.number))


def findings(connection: sa.Connection, batch: str) -> pl.DataFrame:
    """What checks found: `FILE`, `flags` (a JSON list), `score` and `hash` of each file that was checked."""
    columns = _columns(checks, "flags", "score", "hash")
    return queries.read(connection, sa.select(*columns).where(checks.c.batch == batch))


def checked(connection: sa.Connection, batch: str) -> tuple[int, int]:
    """How many files of the batch were checked, and of how many of these nothing is left to be found."""
    counts = sa.select(sa.func.count(), sa.func.count().filter(checks.c.judged))
    files, judged = connection.execute(counts.where(checks.c.batch == batch)).one()
    return files, judged


def unchecked(connection: sa.Connection, batch: str) -> pl.DataFrame:
    """The stored files of the batch that no check has seen, or that the user's program could not judge:
    `FILE`, `run_id` (that has bought it), `row_id`, `sample`, `model`, `type`, `url`, `mime_type` and
    `sha256`, and what the service says of them, in order of storage; and `flags` (a JSON list) and `hash`,
    null where no check has seen it.
    """
    of_file = sa.and_(
        checks.c.job_key == attempts.c.job_key,
        checks.c.attempt == attempts.c.attempt,
        checks.c.index == media.c.index,
    )
    names = (*FILE, "run_id", "row_id", "sample", "model", "type", "url", "mime_type", "sha256", *_SAID)
    is_judged = sa.exists().where(of_file, checks.c.judged)
    left = queries.stored_files(connection, batch, names, ~is_judged, media.c.removed_at.is_(None))
    not_judged = sa.select(*_columns(checks, "flags", "hash")).where(
        checks.c.batch == batch, ~checks.c.judged
    )
    return left.join(queries.read(connection, not_judged), on=FILE, how="left", maintain_order="left")


def hashes(connection: sa.Connection, batch: str) -> list[tuple[str, str]]:
    """The row and the hash of every checked file of the batch that has a hash and is not rejected."""
    rejected = decisions(connection, batch).filter(pl.col("decision") == MediaDecision.REJECTED)
    hashed = findings(connection, batch).drop_nulls("hash").join(rejected, on=FILE, how="anti")
    rows = files(connection, batch).join(hashed, on=FILE, maintain_order="left")
    return rows.select("row_id", "hash").rows()


def files(connection: sa.Connection, batch: str, row_ids: Collection[str] | None = None) -> pl.DataFrame:
    """Each stored file of the batch, or of these rows, in order of storage: `FILE`, `row_id`, `sample` and
    `file_number`.
    """
    names = [*FILE, "row_id", "sample", "file_number"]
    if row_ids is None:
        return queries.stored_files(connection, batch, names)
    of_rows = [*queries.any_of(attempts.c.row_id, [*row_ids]), sa.false()]  # the last one for the columns
    return pl.concat(queries.stored_files(connection, batch, names, some) for some in of_rows)


def newest(connection: sa.Connection, _: str = "") -> int:
    """The number of the last mark; 0 without any."""
    return connection.scalar(sa.select(sa.func.max(marks.c.number))) or 0


def has_rejected(connection: sa.Connection, batch: str) -> bool:
    """Whether a file of the batch was ever rejected."""
    query = sa.select(marks.c.number).where(
        marks.c.batch == batch, marks.c.decision == MediaDecision.REJECTED
    )
    return connection.scalar(query.limit(1)) is not None


def counts(connection: sa.Connection, batch: str) -> Counts:
    """How far the batch is reviewed: what is said after each mark, in a large batch too, needs no table."""
    stored = sa.select(sa.func.count()).join_from(attempts, media, queries.FILES_OF)
    files = connection.scalar(stored.where(attempts.c.batch == batch, media.c.stored_at.is_not(None))) or 0
    newest_marks = sa.select(marks.c.decision, sa.func.count()).where(marks.c.batch == batch, IS_NEWEST)
    by_decision: dict[str | None, int] = dict(
        connection.execute(newest_marks.group_by(marks.c.decision)).all()
    )
    kept, rejected = (by_decision.get(decision, 0) for decision in MediaDecision)
    return Counts(kept, rejected, files - kept - rejected)


def stored(connection: sa.Connection, batch: str, keys: Collection[str]) -> dict[FileKey, StoredAt]:
    """The stored files of these jobs, if they are the batch's; as quickly in a large batch as in a small."""
    columns = (attempts.c.job_key, attempts.c.attempt, media.c.index, media.c.url, media.c.mime_type)
    query = sa.select(attempts.c.batch, *columns).join_from(attempts, media, queries.FILES_OF)
    return {
        FileKey(*file): StoredAt(url, kind)
        for condition in queries.of_jobs([*keys])
        for of_batch, *file, url, kind in connection.execute(
            query.where(condition, media.c.stored_at.is_not(None))
        )
        if of_batch == batch
    }


def left(connection: sa.Connection, batch: str) -> list[FileKey]:
    """The stored files of the batch about which nothing is decided, in order of storage."""
    of_same_file = (marks.c[name] == (media if name == "index" else attempts).c[name] for name in FILE)
    decided = sa.exists().where(*of_same_file, IS_NEWEST, marks.c.decision.is_not(None))
    return [FileKey(*file) for file in queries.stored_files(connection, batch, FILE, ~decided).iter_rows()]


def undecided(connection: sa.Connection, _: str, files: Sequence[FileKey]) -> list[FileKey]:
    """Those of these files about which nothing is decided; as quickly among many marks as among few."""
    decided = _decided(connection, [file.job_key for file in files])
    return [file for file in files if decided.get(file, (None, None))[0] is None]


def _decided(
    connection: sa.Connection, keys: Sequence[str]
) -> dict[FileKey, tuple[str | None, str | None, str]]:
    """The newest decision and note of each file of these jobs that has a mark, and whose it is."""
    query = sa.select(*_columns(marks, "decision", "note", "decided_by")).order_by(marks.c.number)
    return {
        FileKey(*file): (decision, note, by)
        for condition in queries.of_jobs(keys, marks)
        for *file, decision, note, by in connection.execute(query.where(condition))
    }


def _columns(table: sa.Table, *other_names: str) -> list[sa.Column[Any]]:
    """The columns of a table that say which file it is, and others."""
    return [table.c[name] for name in (*FILE, *other_names)]
