"""All that the ledger knows of one row: each attempt at each of its jobs, the files, and who settled what.

Run it with `Ledger.read`. Nothing here writes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from callsheet.ledger import queries
from callsheet.ledger.tables import attempts, media, settlements
from callsheet.records import State, dollars

_KEY = re.compile("[0-9a-f]{8,64}")


@dataclass(frozen=True, slots=True)
class StoredCopy:
    """A file of an attempt. Without `stored_at` it is not stored yet, or lost."""

    index: int
    url: str
    mime_type: str
    width: int | None
    height: int | None
    duration: float | None
    bytes: int | None
    sha256: str | None
    deletes_at: datetime | None
    stored_at: datetime | None
    lost_at: datetime | None


@dataclass(frozen=True, slots=True)
class Settlement:
    """A person's decision about a doubt."""

    charged: bool
    settled_by: str
    settled_at: datetime
    why: str | None


@dataclass(frozen=True, slots=True)
class Story:
    """One attempt at a job.

    Attributes:
        request: as sent, as JSON text, with `sha256:<hex>` in place of each inlined image.
        quoted: in dollars; None where the catalogue had no price.
        cost: in dollars; None while that is not known.
        cost_source: whose word that is (`records.CostSource`); None where nothing was charged.
        reused_from: the key of the job of another batch whose files stand for this one's.
    """

    job_key: str
    sample: int
    attempt: int
    newest: bool
    state: State
    row_id: str
    type: str
    model: str
    prompt: str
    request: str
    carried: dict[str, Any]
    quoted: Decimal | None
    cost: Decimal | None
    cost_source: str | None
    generation_id: str | None
    error_code: str | None
    error_message: str | None
    submitted_at: datetime | None
    finished_at: datetime | None
    reused_from: str | None
    decision: Settlement | None
    files: tuple[StoredCopy, ...]

    def as_json(self) -> dict[str, Any]:
        """What `failed --json` prints; money is a string, a time is ISO 8601."""
        fields: dict[str, Any] = _as_json(asdict(self))
        del fields["request"]
        return fields


def _as_json(value: Any) -> Any:
    match value:
        case Decimal():
            return dollars(value)
        case datetime():
            return value.isoformat()
        case dict():
            return {name: _as_json(item) for name, item in value.items()}
        case tuple():
            return [_as_json(item) for item in value]
    return value


def stories(connection: sa.Connection, batch: str, row: str) -> list[Story]:
    """Every attempt at the jobs of a row, in their order.

    `row`: the row's id; or how a job's key begins, with 8 digits at least.
    """
    wanted = attempts.c.row_id == row
    if _KEY.fullmatch(row):
        wanted = sa.or_(wanted, attempts.c.job_key.startswith(row))
    order = (attempts.c.sample, attempts.c.job_key, attempts.c.attempt)
    return _told(connection, sa.and_(attempts.c.batch == batch, wanted), *order)


def of_jobs(connection: sa.Connection, keys: Sequence[str]) -> list[Story]:
    """The newest attempt at each of these few jobs, in the order of the rows' ids."""
    newest = sa.and_(attempts.c.job_key.in_(keys), ~attempts.c.superseded)
    return _told(connection, newest, attempts.c.row_id, attempts.c.sample)


def failures(connection: sa.Connection, batch: str, most: int | None = None) -> Iterator[Story]:
    """The newest attempt of every job that has failed, or of the first so many, in order of submission."""
    order = (attempts.c.submitted_at, attempts.c.job_key)
    failed = sa.select(attempts.c.job_key).where(_has_failed(batch)).order_by(*order).limit(most)
    for these in queries.of_jobs(connection.scalars(failed).all()):
        yield from _told(connection, sa.and_(these, ~attempts.c.superseded), *order)


def charged_for_failures(connection: sa.Connection, batch: str) -> Decimal:
    """What the service has charged, in dollars, for the jobs that have failed: mostly nothing."""
    return connection.scalar(sa.select(sa.func.sum(attempts.c.cost)).where(_has_failed(batch))) or Decimal(0)


def rows_that_failed(connection: sa.Connection, batch: str) -> set[str]:
    """The ids of the rows with a job that has failed."""
    return set(connection.scalars(sa.select(attempts.c.row_id).where(_has_failed(batch)).distinct()))


def _has_failed(batch: str) -> sa.ColumnElement[bool]:
    return sa.and_(attempts.c.batch == batch, attempts.c.state == State.FAILED, ~attempts.c.superseded)


def _told(connection: sa.Connection, which: sa.ColumnElement[bool], *order: sa.Column[Any]) -> list[Story]:
    """The stories of these attempts: three statements, however many there are."""
    ids = (attempts.c.job_key, attempts.c.attempt)
    own = [attempts.c[name].label(f"of_{name}") for name in ("job_key", "attempt")]
    files: defaultdict[tuple[str, int], list[StoredCopy]] = defaultdict(list)
    stored = sa.select(media, *own).join_from(attempts, media, queries.FILES_OF).where(which)
    for row in connection.execute(stored.order_by(media.c.index)):
        files[row.of_job_key, row.of_attempt].append(_copy(row))
    settled = sa.select(settlements).join(
        attempts, sa.tuple_(settlements.c.job_key, settlements.c.attempt) == sa.tuple_(*ids)
    )
    decisions = {
        (row.job_key, row.attempt): Settlement(row.charged, row.settled_by, row.settled_at, row.why)
        for row in connection.execute(settled.where(which))
    }
    rows = connection.execute(sa.select(attempts).where(which).order_by(*order)).all()
    keys = [(row.job_key, row.attempt) for row in rows]
    return [_story(row, decisions.get(key), files[key]) for key, row in zip(keys, rows, strict=True)]


def _story(row: sa.Row[Any], decision: Settlement | None, files: Sequence[StoredCopy]) -> Story:
    same = {name: getattr(row, name) for name in Story.__slots__ if name in attempts.c}
    return Story(
        **same
        | {
            "state": State(row.state),
            "newest": not row.superseded,
            "reused_from": row.reused_key,
            "decision": decision,
            "files": tuple(files),
        }
    )


def _copy(row: Any) -> StoredCopy:
    fields = {name: getattr(row, name) for name in StoredCopy.__slots__}
    return StoredCopy(**fields | {"url": row.url or f"{row.storage.rstrip('/')}/{row.name}"})
