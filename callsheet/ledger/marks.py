"""What is said of stored files: the decisions of persons and of automatic checks, and what the checks found.

A decision costs and buys nothing. A later one of the same file replaces an earlier one, and none is deleted.
A file is one of an attempt of this batch, also where another batch's file stands for it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, NamedTuple

import polars as pl
import sqlalchemy as sa

from callsheet.ledger import frames, queries
from callsheet.ledger.tables import attempts, checks, marks, media
from callsheet.records import six_decimals

FILE = ["job_key", "attempt", "index"]
"""The columns that say which file it is."""

CHECK = "check:"
"""What the name of a check that decides begins with."""


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
class Finding:
    """What the checks found in a file.

    Attributes:
        flags: in words; none where nothing is wrong.
        score: of the user's program.
        hash: a perceptual hash, 16 hex digits.
        rejected_by: the check that rejects the file (`blank`); empty where none does.
    """

    file: FileKey
    flags: tuple[str, ...] = ()
    score: float | None = None
    hash: str | None = None
    rejected_by: str = ""


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


def mark(connection: sa.Connection, batch: str, said: Sequence[Mark], by: str) -> int:
    """Enters marks, but for those that say what is known already.

    Returns:
        How many were new.
    """
    known = {_key(row): row for row in _newest(connection, batch)}
    number = connection.scalar(sa.select(sa.func.max(marks.c.number))) or 0
    now, rows = datetime.now(UTC), []
    for one in said:
        before = known.get(one.file)
        if (one.decision, one.note) == ((before.decision, before.note) if before else (None, None)):
            continue
        number += 1
        said_by = {"batch": batch, "decided_by": by, "decided_at": now, "number": number}
        rows.append(asdict(one.file) | said_by | {"decision": one.decision, "note": one.note})
    if rows:
        connection.execute(marks.insert(), rows)
    return len(rows)


def found(connection: sa.Connection, batch: str, findings: Sequence[Finding]) -> list[Finding]:
    """Enters what checks found, once for each file. What is decided already stays so.

    Returns:
        Those whose files are rejected by it.
    """
    columns = [checks.c[name] for name in FILE]
    these = checks.c.job_key.in_({one.file.job_key for one in findings})
    known = _keys(connection.execute(sa.select(*columns).where(these)))
    now, new = datetime.now(UTC), [one for one in findings if one.file not in known]
    if new:
        rows = [
            asdict(one.file)
            | {"batch": batch, "flags": list(one.flags), "score": one.score, "hash": one.hash}
            | {"checked_at": now}
            for one in new
        ]
        connection.execute(checks.insert(), rows)
    if not any(one.rejected_by for one in new):
        return []
    decided = _keys(_newest(connection, batch))
    rejected = [one for one in new if one.rejected_by and one.file not in decided]
    for check in sorted({one.rejected_by for one in rejected}):
        of_it = [
            Mark(one.file, MediaDecision.REJECTED, "; ".join(one.flags) or None)
            for one in rejected
            if one.rejected_by == check
        ]
        mark(connection, batch, of_it, CHECK + check)
    return rejected


def decisions(connection: sa.Connection, batch: str, since: int = 0) -> pl.DataFrame:
    """The newest mark of each file that has one, in order: `FILE`, `number`, `decision`, `note`, `decided_by`
    and `decided_at`. `since`: only those with a higher number.
    """
    return frames.read(connection, _query(batch).where(marks.c.number > since))


def findings(connection: sa.Connection, batch: str) -> pl.DataFrame:
    """What checks found: `FILE`, `flags` (a JSON list), `score` and `hash` of each file that was checked."""
    names = (*FILE, "flags", "score", "hash")
    query = sa.select(*(checks.c[name] for name in names)).where(checks.c.batch == batch)
    return frames.read(connection, query)


def unchecked(connection: sa.Connection, batch: str) -> pl.DataFrame:
    """The stored files of the batch that no check has seen: `FILE`, `run_id` (that has bought it), `row_id`,
    `sample`, `model`, `url`, `mime_type` and `sha256`, in order of storage.
    """
    seen = sa.and_(
        checks.c.job_key == attempts.c.job_key,
        checks.c.attempt == attempts.c.attempt,
        checks.c.index == media.c.index,
    )
    names = ("run_id", "row_id", "sample", "model")
    query = (
        sa.select(
            attempts.c.job_key,
            attempts.c.attempt,
            media.c.index,
            *(attempts.c[name] for name in names),
            *(media.c[name] for name in ("url", "mime_type", "sha256")),
        )
        .join_from(attempts, media, queries.FILES_OF)
        .where(attempts.c.batch == batch, media.c.stored_at.is_not(None), ~sa.exists().where(seen))
        .order_by(media.c.stored_at, attempts.c.job_key, media.c.index)
    )
    return frames.read(connection, query)


def requests(connection: sa.Connection, keys: Sequence[str]) -> dict[str, tuple[dict[str, Any], Any]]:
    """By job: the request as it was sent, and the carried columns; of some thousand jobs at the most."""
    query = sa.select(attempts.c.job_key, attempts.c.request, attempts.c.carried)
    rows = connection.execute(query.where(attempts.c.job_key.in_(keys)).order_by(attempts.c.attempt))
    return {key: (json.loads(request), carried) for key, request, carried in rows}


def hashes(connection: sa.Connection, batch: str) -> list[tuple[str, str]]:
    """The row and the hash of every checked file of the batch that has a hash and is not rejected."""
    rejected = _keys(row for row in _newest(connection, batch) if row.decision == MediaDecision.REJECTED)
    of_one = sa.and_(attempts.c.job_key == checks.c.job_key, attempts.c.attempt == checks.c.attempt)
    query = (
        sa.select(*(checks.c[name] for name in FILE), attempts.c.row_id, checks.c.hash)
        .join(attempts, of_one)
        .where(checks.c.batch == batch, checks.c.hash.is_not(None))
        .order_by(checks.c.checked_at, checks.c.job_key, checks.c.index)
    )
    return [(row.row_id, row.hash) for row in connection.execute(query) if _key(row) not in rejected]


def files(connection: sa.Connection, batch: str) -> pl.DataFrame:
    """Every stored file of the batch: `FILE`, `row_id` and `sample`, in order of storage."""
    return queries.stored_files(connection, batch, [*FILE, "row_id", "sample"])


def stored(connection: sa.Connection, batch: str, keys: Collection[str]) -> dict[FileKey, StoredAt]:
    """The stored files of these jobs, if they are the batch's."""
    query = (
        sa.select(attempts.c.job_key, attempts.c.attempt, media.c.index, media.c.url, media.c.mime_type)
        .join_from(attempts, media, queries.FILES_OF)
        .where(attempts.c.batch == batch, attempts.c.job_key.in_(keys), media.c.stored_at.is_not(None))
    )
    return {_key(row): StoredAt(row.url, row.mime_type) for row in connection.execute(query)}


def rejected_rows(connection: sa.Connection, batch: str) -> pl.Series:
    """The id of each row that has stored files of which every one is rejected, whatever it was bought for."""
    said = decisions(connection, batch).select(*FILE, "decision")
    decided = files(connection, batch).join(said, on=FILE, how="left")
    rows = decided.group_by("row_id").agg(pl.col("decision").eq_missing(MediaDecision.REJECTED).all())
    return rows.filter("decision")["row_id"]


def counts(connection: sa.Connection, batch: str) -> Counts:
    """How many stored files of the batch are kept, rejected and not decided."""
    of_batch = sa.and_(attempts.c.batch == batch, media.c.stored_at.is_not(None))
    stored = sa.select(sa.func.count()).select_from(sa.join(attempts, media, queries.FILES_OF))
    all_files = connection.scalar(stored.where(of_batch)) or 0
    newest = _query(batch).subquery()
    by_decision = sa.select(newest.c.decision, sa.func.count()).group_by(newest.c.decision)
    of = {row.decision: row[1] for row in connection.execute(by_decision)}
    kept, rejected = of.get(MediaDecision.KEPT, 0), of.get(MediaDecision.REJECTED, 0)
    return Counts(kept, rejected, all_files - kept - rejected)


def _query(batch: str) -> sa.Select[Any]:
    """The newest mark of each file."""
    newest = (
        sa.select(sa.func.max(marks.c.number))
        .where(marks.c.batch == batch)
        .group_by(*(marks.c[name] for name in FILE))
    )
    names = (*FILE, "number", "decision", "note", "decided_by", "decided_at")
    return (
        sa.select(*(marks.c[name] for name in names))
        .where(marks.c.number.in_(newest))
        .order_by(marks.c.number)
    )


def _newest(connection: sa.Connection, batch: str) -> Sequence[sa.Row[Any]]:
    return connection.execute(_query(batch)).all()


def _key(row: Any) -> FileKey:
    return FileKey(row.job_key, row.attempt, row._mapping["index"])  # a row's own `index` is a method


def _keys(rows: Iterable[Any]) -> set[FileKey]:
    return set(map(_key, rows))
