"""What the ledger has, read: attempts, files and totals as records, and as the columns of frames.

Nothing here writes.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import polars as pl
import sqlalchemy as sa

from callsheet.ledger.policy import Policy, to_buy
from callsheet.ledger.tables import Moment, Money, attempts, batches, checks, marks, media, settlements
from callsheet.records import (
    Attempt,
    Doubt,
    File,
    Media,
    ModelType,
    Record,
    State,
)

_KEYS = 5_000  # that one statement names

_MAY_BE_POLLED = attempts.c.state.in_((State.PENDING, State.IN_DOUBT))  # which an index finds

IS_POLLED = sa.and_(
    _MAY_BE_POLLED,
    sa.or_(attempts.c.state == State.PENDING, attempts.c.generation_id.is_not(None)),
    attempts.c.type == ModelType.VIDEO,
)
"""Videos that were accepted and have not ended: those too that the service did not know the last time, or had
no file of. Of an image in doubt there is nothing to ask, even where it has an id."""

ERROR_CODE = sa.func.coalesce(attempts.c.settled, attempts.c.error_code, type_=sa.Text).label("error_code")
"""Why an attempt has ended, as people see it: of what a person has settled the decision, else the code."""

_HAS_ENDED = sa.or_(media.c.stored_at.is_not(None), media.c.lost_at.is_not(None))
FILES_OF = sa.and_(attempts.c.job_key == media.c.job_key, attempts.c.attempt == media.c.attempt)
"""Joins attempts with their files."""


def of_jobs(keys: Sequence[str], table: sa.FromClause = attempts) -> Iterator[sa.ColumnElement[bool]]:
    """Conditions for the rows of a table that are of these jobs, each for as many as a statement takes.

    A key is of one batch only. With a condition on the batch besides, SQLite would read all of the batch.
    """
    yield from any_of(table.c.job_key, keys)


def any_of(column: sa.ColumnElement[str], values: Sequence[str]) -> Iterator[sa.ColumnElement[bool]]:
    """Conditions for rows with one of these values in a column, each for as many as a statement takes."""
    for start in range(0, len(values), _KEYS):
        yield column.in_(values[start : start + _KEYS])


def stored_hashes(connection: sa.Connection, _batch: str) -> dict[int, set[str]]:
    """The sha256 of every file that a batch of the ledger has stored, by its size in bytes."""
    query = sa.select(media.c.bytes, media.c.sha256).where(media.c.stored_at.is_not(None))
    hashes = defaultdict[int, set[str]](set)
    for size, sha256 in connection.execute(query):
        hashes[size].add(sha256)
    return hashes


def doubts(connection: sa.Connection, batch: str, *, pending: bool = False) -> list[Doubt]:
    """Every attempt that is in doubt, superseded ones too, in order of submission.

    `pending`: every accepted video too that has not ended. Otherwise only those of which the service said a
    status that is not known.
    """
    is_pending = attempts.c.state == State.PENDING
    if not pending:
        is_pending = sa.and_(is_pending, attempts.c.error_message.is_not(None))
    query = (
        sa.select(attempts)
        .where(
            attempts.c.batch == batch, _MAY_BE_POLLED, sa.or_(attempts.c.state == State.IN_DOUBT, is_pending)
        )
        .order_by(attempts.c.submitted_at, attempts.c.job_key, attempts.c.attempt)
    )
    return [doubt_of(row) for row in connection.execute(query)]


def row_ids(connection: sa.Connection, batch: str, words: Collection[str]) -> set[str]:
    """Those of the words that are ids of rows of the batch."""
    query = sa.select(attempts.c.row_id).where(attempts.c.batch == batch)
    return {
        row_id
        for condition in any_of(attempts.c.row_id, [*words])
        for row_id in connection.scalars(query.where(condition))
    }


def models_and_rows(connection: sa.Connection, batch: str) -> tuple[set[str], int, int]:
    """The models of the batch's attempts, ordered and delivered; how many rows these are of, and how many
    they are: by that a mark needs no table of a large batch, where there is nothing to compare.
    """
    of_batch = attempts.c.batch == batch
    pairs = sa.select(attempts.c.model, attempts.c.model_delivered).where(of_batch).distinct()
    models = {model for pair in connection.execute(pairs) for model in pair if model is not None}
    counts = sa.select(sa.func.count(attempts.c.row_id.distinct()), sa.func.count()).where(of_batch)
    rows, tries = connection.execute(counts).one()
    return models, rows, tries


def doubt_of(row: Any) -> Doubt:
    """A row of `attempts` that is in doubt or pending."""
    return Doubt(
        job_key=row.job_key,
        attempt=row.attempt,
        row_id=row.row_id,
        sample=row.sample,
        type=ModelType(row.type),
        model=row.model,
        price=row.quoted,
        submitted_at=row.submitted_at,
        what=row.error_message or f"it was accepted as {row.generation_id}, and has not ended",
        generation_id=row.generation_id,
        state=State(row.state),
    )


def asked_for(connection: sa.Connection, keys: Sequence[str]) -> dict[str, tuple[dict[str, Any], Any]]:
    """By job: the request as it was sent, and the carried columns; of some thousand jobs at the most."""
    query = sa.select(attempts.c.job_key, attempts.c.request, attempts.c.carried)
    rows = connection.execute(query.where(attempts.c.job_key.in_(keys)).order_by(attempts.c.attempt))
    return {key: (json.loads(request), carried) for key, request, carried in rows}


def unfinished(connection: sa.Connection, batch: str, run_id: str) -> tuple[list[Attempt], list[File]]:
    """A run's accepted videos that are not finished, and its files that are not stored yet."""
    of_run = sa.and_(attempts.c.batch == batch, attempts.c.run_id == run_id)
    videos = connection.execute(sa.select(attempts).where(of_run, IS_POLLED)).mappings()
    files = _files(connection, of_run, attempts.c.state == State.GENERATED, ~_HAS_ENDED)
    return [attempt_of(row) for row in videos], files


def revision(connection: sa.Connection, batch: str) -> str:
    """A text that each change of what the ledger says of the batch replaces (`group_commit.py`).

    Empty where the ledger does not know the batch yet.
    """
    return connection.scalar(sa.select(batches.c.revision).where(batches.c.batch == batch)) or ""


def free_jobs(connection: sa.Connection, batch: str) -> int:
    """How many jobs of the batch no run has reserved any more, and none has sent: an index finds them."""
    free = sa.and_(attempts.c.state == State.PLANNED, attempts.c.run_id.is_(None), ~attempts.c.superseded)
    return connection.scalar(sa.select(sa.func.count()).where(attempts.c.batch == batch, free)) or 0


def ended_files(connection: sa.Connection, keys: Sequence[str]) -> list[File]:
    """Every file of these jobs that is stored or lost."""
    return [file for condition in of_jobs(keys) for file in _files(connection, condition, _HAS_ENDED)]


def highest_numbers(connection: sa.Connection, batch: str, row_ids: Collection[str]) -> dict[str, int]:
    """The highest number that a job of each of these rows has; a row without a job is not there."""
    highest = sa.select(attempts.c.row_id, sa.func.max(attempts.c.file_number)).group_by(attempts.c.row_id)
    of_rows = sa.and_(attempts.c.batch == batch, attempts.c.row_id.in_(row_ids))
    return dict(connection.execute(highest.where(of_rows)).all()) if row_ids else {}


def newest_file(connection: sa.Connection, _: str, storage: str) -> tuple[str, str] | None:
    """The file that was last stored at a `storage.url`: its batch, which may be another one, and its name."""
    query = (
        sa.select(attempts.c.batch, media.c.name)
        .join(media, FILES_OF)
        .where(media.c.storage == storage, media.c.stored_at.is_not(None), media.c.removed_at.is_(None))
        .order_by(media.c.stored_at.desc())
        .limit(1)
    )
    row = connection.execute(query).first()
    return (row.batch, row.name) if row else None


def attempts_and_files(
    connection: sa.Connection,
    batch: str,
    of_attempt: Collection[str],
    of_file: Collection[str],
    policy: Policy,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Some columns of every attempt of the batch, and of every stored file: in one statement, because
    two take half as long again.

    Args:
        of_attempt: `job_key`, `attempt`, `submitted_at`, and others.
        of_file: `job_key`, `attempt`, `index`, and others of the file, or of its attempt.
        policy: of what the run does with jobs that were tried before.

    Returns:
        The attempts, in order of submission, each with `to_buy`: whether a run with this policy buys the job;
        and the files, in order of storage where they have `stored_at`.
    """
    names = dict.fromkeys((*of_attempt, *of_file))
    columns = [ERROR_CODE if name == "error_code" else _column(name) for name in names]
    is_stored = sa.and_(FILES_OF, media.c.stored_at.is_not(None))
    query = sa.select(*columns, to_buy(policy).label("to_buy")).select_from(
        sa.outerjoin(attempts, media, is_stored)
    )
    rows = read(connection, query.where(attempts.c.batch == batch))
    every_attempt = rows.select(*of_attempt, "to_buy")
    if (rows["index"] > 0).any():
        every_attempt = every_attempt.unique(["job_key", "attempt"], keep="first")
    stored = rows.filter(pl.col("index").is_not_null()).select(*of_file)
    if "stored_at" in of_file:
        stored = stored.sort(STORAGE_ORDER)
    return every_attempt.sort("submitted_at", "job_key", "attempt"), stored


STORAGE_ORDER = ("stored_at", "job_key", "index")


def _column(name: str) -> sa.Column[Any]:
    """A column of an attempt or of its file, of the attempt where both have it."""
    return attempts.c[name] if name in attempts.c else media.c[name]


def stored_files(
    connection: sa.Connection, batch: str, names: Collection[str], *conditions: sa.ColumnElement[bool]
) -> pl.DataFrame:
    """A row for every stored file of the batch, or for those that meet all conditions, in order of storage.

    `names` are columns of the file, or of its attempt where the file does not have them.
    """
    selected = dict.fromkeys((*names, *STORAGE_ORDER))
    query = (
        sa.select(*map(_column, selected))
        .join_from(attempts, media, FILES_OF)
        .where(attempts.c.batch == batch, media.c.stored_at.is_not(None), *conditions)
    )
    return read(connection, query).sort(STORAGE_ORDER).select(*names)


def attempt_of(row: Mapping[Any, Any]) -> Attempt:
    """A row of `attempts`, by column."""
    return Attempt(
        job_key=row["job_key"],
        number=row["attempt"],
        type=ModelType(row["type"]),
        row_id=row["row_id"],
        sample=row["sample"],
        model=row["model"],
        quoted=row["quoted"],
        generation_id=row["generation_id"],
        in_doubt=row["state"] == State.IN_DOUBT,
        said=(row["error_message"] or "") if row["state"] == State.PENDING else "",
        request_key=row["request_key"],
    )


def file_of(row: Mapping[Any, Any], attempt: Attempt) -> File:
    """A row of `media`, by column, as the file of its attempt."""
    fields = {name: row[name] for name in Media.model_fields if name != "url"}
    return File(attempt, row["index"], row["name"], Media(url=row["source_url"], **fields))


def _files(connection: sa.Connection, *conditions: sa.ColumnElement[bool]) -> list[File]:
    attempt_columns = [column for column in attempts.c if column.name not in media.c]
    query = sa.select(media, *attempt_columns).join(attempts, FILES_OF).where(*conditions)
    return [file_of(row, attempt_of(row)) for row in connection.execute(query).mappings()]


_KEY = re.compile("[0-9a-f]{8,64}")


@dataclass(frozen=True, slots=True)
class StoredCopy(Record):
    """A file of an attempt, and what was said of it. Without `stored_at` it is not stored yet, or lost."""

    index: int
    url: str
    mime_type: str
    width: int | None
    height: int | None
    duration: float | None
    duration_measured: float | None
    has_sound_measured: bool | None
    bytes: int | None
    sha256: str | None
    deletes_at: datetime | None
    stored_at: datetime | None
    lost_at: datetime | None
    removed_at: datetime | None
    decision: str | None = None
    note: str | None = None
    decided_by: str | None = None
    decided_at: datetime | None = None
    flags: tuple[str, ...] = ()


_OF_MARK = ("decision", "note", "decided_by", "decided_at")


@dataclass(frozen=True, slots=True)
class Settlement(Record):
    """A person's decision about a doubt."""

    charged: bool
    settled_by: str
    settled_at: datetime
    why: str | None


@dataclass(frozen=True, slots=True)
class Story(Record):
    """One attempt at a job.

    Attributes:
        model_delivered: as the answer names it; None where it names none.
        request: as sent, as JSON text, with `sha256:<hex>` in place of each inlined image.
        quoted: in dollars; None where the catalogue had no price.
        cost: in dollars; None while that is not known.
        cost_source: whose word that is (`records.CostSource`); None where nothing was charged.
        error_code: the service's, or a word of ours; of what a person has settled, the decision.
    """

    job_key: str
    sample: int
    file_number: int
    attempt: int
    newest: bool
    state: State
    row_id: str
    type: str
    model: str
    model_delivered: str | None
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
    decision: Settlement | None
    files: tuple[StoredCopy, ...]

    def keys(self) -> Iterable[str]:
        """The names of the fields that `--json` prints."""
        return [name for name in Record.keys(self) if name != "request"]


def stories(connection: sa.Connection, batch: str, row: str) -> list[Story]:
    """Every attempt at the jobs of a row, in their order.

    `row`: the row's id; or how a job's key begins, with 8 digits at least.
    """
    of_row = attempts.c.row_id == row
    if _KEY.fullmatch(row):
        of_row = sa.or_(of_row, attempts.c.job_key.startswith(row))
    order = (attempts.c.file_number, attempts.c.job_key, attempts.c.attempt)
    return _stories_where(connection, sa.and_(attempts.c.batch == batch, of_row), *order)


def stories_of(connection: sa.Connection, keys: Sequence[str]) -> Iterator[Story]:
    """The newest attempt at each of these jobs, in their order."""
    for start in range(0, len(keys), _KEYS):
        some = keys[start : start + _KEYS]
        newest = sa.and_(attempts.c.job_key.in_(some), ~attempts.c.superseded)
        by_key = {story.job_key: story for story in _stories_where(connection, newest)}
        yield from (by_key[key] for key in some)


def _stories_where(
    connection: sa.Connection, condition: sa.ColumnElement[bool], *order: sa.Column[Any]
) -> list[Story]:
    """The stories of these attempts: five statements, however many there are."""
    ids = (attempts.c.job_key, attempts.c.attempt)
    keys = [attempts.c[name].label(f"of_{name}") for name in ("job_key", "attempt")]
    files: defaultdict[tuple[str, int], list[StoredCopy]] = defaultdict(list)
    stored = sa.select(media, *keys).join_from(attempts, media, FILES_OF).where(condition)
    said: defaultdict[tuple[str, int, int], dict[str, Any]] = defaultdict(dict)
    for table, names in ((marks, _OF_MARK), (checks, ("flags",))):
        of_attempt = sa.and_(table.c.job_key == attempts.c.job_key, table.c.attempt == attempts.c.attempt)
        reading = sa.select(table).join(attempts, of_attempt).where(condition).order_by(*table.primary_key)
        for about in connection.execute(reading).mappings():  # of marks the last one counts
            said[about["job_key"], about["attempt"], about["index"]] |= {name: about[name] for name in names}
    for file in connection.execute(stored.order_by(media.c.index)).mappings():
        fields = {name: file[name] for name in StoredCopy.__slots__ if name in media.c}
        fields |= said[file["of_job_key"], file["of_attempt"], file["index"]]
        fields["flags"] = tuple(fields.get("flags", ()))
        fields["url"] = file["url"] or f"{file['storage'].rstrip('/')}/{file['name']}"
        files[file["of_job_key"], file["of_attempt"]].append(StoredCopy(**fields))
    settled = sa.select(settlements).join(
        attempts, sa.tuple_(settlements.c.job_key, settlements.c.attempt) == sa.tuple_(*ids)
    )
    decisions = {
        (row.job_key, row.attempt): Settlement(row.charged, row.settled_by, row.settled_at, row.why)
        for row in connection.execute(settled.where(condition))
    }
    stories = []
    for row in connection.execute(sa.select(attempts).where(condition).order_by(*order)):
        key = (row.job_key, row.attempt)
        fields = {name: getattr(row, name) for name in Story.__slots__ if name in attempts.c}
        fields |= {"state": State(row.state), "newest": not row.superseded}
        fields["error_code"] = row.settled or row.error_code
        stories.append(Story(**fields, decision=decisions.get(key), files=tuple(files[key])))
    return stories


MONEY = pl.Decimal(18, 6)
TIME = pl.Datetime("us", "UTC")
_TEXT = "%Y-%m-%dT%H:%M:%S%.fZ"  # of a moment
_PART = 16_384  # rows that are Python objects at once, which take ten times the memory
_TYPES: dict[type[Any], Any] = {
    Money: MONEY,
    Moment: TIME,
    sa.Boolean: pl.Boolean,
    sa.Integer: pl.Int64,
    sa.BigInteger: pl.Int64,
    sa.Float: pl.Float64,
}


def read(connection: sa.Connection, query: sa.Select[Any]) -> pl.DataFrame:
    """The rows of a query. Money is `MONEY`, a moment is `TIME`, and JSON is its text."""
    columns = query.selected_columns
    raw = query.with_only_columns(*map(_as_stored, columns), maintain_column_froms=True)
    types = {column.name: _TYPES.get(type(column.type), pl.String) for column in columns}
    parts = [pl.DataFrame(schema=types)]
    with closing(connection.execute(raw)) as result:
        # As the driver gives them: they need no conversion, and a large ledger is read in less time.
        while result.cursor and (rows := result.cursor.fetchmany(_PART)):
            columns_with_cells = zip(types.items(), zip(*rows, strict=True), strict=True)
            parts.append(pl.DataFrame([_typed(column, cells) for column, cells in columns_with_cells]))
    return pl.concat(parts)


def _as_stored(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """A column without the conversion of each of its values in Python."""
    if isinstance(column.type, sa.JSON):
        return sa.cast(column, sa.Text).label(column.name)
    stored = {Money: sa.BigInteger, Moment: sa.String, sa.Boolean: sa.Integer}.get(type(column.type))
    return sa.type_coerce(column, stored).label(column.name) if stored else column


def _typed(column: tuple[str, Any], cells: Sequence[Any]) -> pl.Series:
    name, dtype = column
    if dtype == MONEY:  # millionths
        return pl.Series(name, cells, pl.Int64).cast(pl.Int128).reinterpret(dtype=dtype)
    if dtype == TIME:
        return pl.Series(name, cells, pl.String).str.to_datetime(_TEXT, time_unit="us", time_zone="UTC")
    if dtype == pl.Boolean:  # a number in SQLite
        return pl.Series(name, cells, strict=False).cast(dtype)
    return pl.Series(name, cells, dtype)
