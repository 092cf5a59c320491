"""Everything that is only read from the ledger; each query is a function of a connection and a batch name.

Run them with `Ledger.read`. Nothing here writes.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import polars as pl
import sqlalchemy as sa

from callsheet.ledger import frames
from callsheet.ledger.policy import Policy, to_buy
from callsheet.ledger.tables import attempts, media
from callsheet.records import Attempt, CostSource, Doubt, File, Job, Media, ModelType, State

_KEYS = 5_000  # that one statement names

IS_POLLED = sa.and_(
    attempts.c.state.in_((State.PENDING, State.IN_DOUBT)),  # which an index finds
    sa.or_(attempts.c.state == State.PENDING, attempts.c.generation_id.is_not(None)),
    attempts.c.type == ModelType.VIDEO,
)
"""Videos that were accepted and have not ended: those too that the service did not know the last time, or had
no file of. Of an image in doubt there is nothing to ask, even where it has an id."""

IS_ESTIMATED = attempts.c.cost_source.in_((CostSource.COMPUTED, CostSource.QUOTED))
"""Attempts of which the cost is not the service's word."""

_HAS_ENDED = sa.or_(media.c.stored_at.is_not(None), media.c.lost_at.is_not(None))
FILES_OF = sa.and_(
    sa.func.coalesce(attempts.c.reused_key, attempts.c.job_key) == media.c.job_key,
    sa.func.coalesce(attempts.c.reused_attempt, attempts.c.attempt) == media.c.attempt,
)
"""Joins attempts with their files; where another batch's files stand for an attempt's own, with those."""


def of_jobs(keys: Sequence[str], table: sa.Table = attempts) -> Iterator[sa.ColumnElement[bool]]:
    """Conditions for the rows of a table that are of these jobs, each for as many as a statement takes.

    A key is of one batch only. With a condition on the batch besides, SQLite would read all of the batch.
    """
    for start in range(0, len(keys), _KEYS):
        yield table.c.job_key.in_(keys[start : start + _KEYS])


def jobs(
    connection: sa.Connection, batch: str, names: Collection[str], *, policy: Policy | None = None
) -> pl.DataFrame:
    """Some columns of the newest attempt at every job of the batch that the ledger knows.

    Args:
        names: the columns.
        policy: adds the column `to_buy`: whether a run with this policy buys the job.
    """
    columns: list[sa.ColumnElement[Any]] = [attempts.c[name] for name in names]
    if policy is not None:
        columns.append(to_buy(policy).label("to_buy"))
    query = sa.select(*columns).where(attempts.c.batch == batch, ~attempts.c.superseded)
    return frames.read(connection, query)


def requests(connection: sa.Connection, batch: str, policy: Policy) -> pl.DataFrame:
    """What the batch has asked for: of each job the columns by which a plan finds it again, and `to_buy`."""
    names = "job_key row_id sample state type model quoted request_key request carried"
    return jobs(connection, batch, names.split(), policy=policy)


def reusable(
    connection: sa.Connection, batch: str, wanted: Sequence[Job], *, without: Collection[str]
) -> dict[str, list[Any]]:
    """What other batches have stored for the requests of jobs and this one has not reused yet.

    Each may be used for one job of this batch: two equal rows are two images. The batches of another service
    are to be left out: `without`.

    Returns:
        By request key the `job_key`, `attempt` and `generation_id` of each, the oldest first.
    """
    names = ("request_key", "job_key", "attempt", "generation_id")
    these = attempts.c.request_key.in_([job.request_key for job in wanted])
    query = sa.select(*(attempts.c[name] for name in names)).where(_is_reusable(batch, without), these)
    found = defaultdict(list)
    for row in connection.execute(query.order_by(attempts.c.finished_at, attempts.c.job_key)):
        found[row.request_key].append(row)
    return found


def reusable_requests(connection: sa.Connection, batch: str, *, without: Collection[str]) -> pl.DataFrame:
    """The `request_key` of all that `reusable` finds, and in `stored` how often."""
    key = attempts.c.request_key
    query = sa.select(key, sa.func.count().label("stored")).where(_is_reusable(batch, without))
    return frames.read(connection, query.group_by(key))


def _is_reusable(batch: str, without: Collection[str]) -> sa.ColumnElement[bool]:
    reused = attempts.alias("reused")
    taken = sa.exists().where(
        reused.c.batch == batch,
        reused.c.request_key == attempts.c.request_key,  # always: this finds it by an index
        reused.c.reused_key == attempts.c.job_key,
        reused.c.reused_attempt == attempts.c.attempt,
    )
    stored = sa.and_(attempts.c.batch.not_in([batch, *without]), attempts.c.state == State.STORED)
    return sa.and_(stored, attempts.c.reused_key.is_(None), ~taken)


def doubts(connection: sa.Connection, batch: str, *, pending: bool = False) -> list[Doubt]:
    """Every attempt that is in doubt, superseded ones too, in order of submission.

    `pending`: every accepted video too that has not ended. Otherwise only those of which the service said a
    status that is not known.
    """
    is_pending = attempts.c.state == State.PENDING
    if not pending:
        is_pending = sa.and_(is_pending, attempts.c.error_message.is_not(None))
    listed = attempts.c.state.in_((State.IN_DOUBT, State.PENDING))  # which an index finds
    query = (
        sa.select(attempts)
        .where(attempts.c.batch == batch, listed, sa.or_(attempts.c.state == State.IN_DOUBT, is_pending))
        .order_by(attempts.c.submitted_at, attempts.c.job_key, attempts.c.attempt)
    )
    return [doubt_of(row) for row in connection.execute(query)]


def row_ids(connection: sa.Connection, batch: str, words: Collection[str]) -> set[str]:
    """Those of the words that are ids of rows of the batch."""
    query = sa.select(attempts.c.row_id).where(attempts.c.batch == batch, attempts.c.row_id.in_(words))
    return set(connection.scalars(query))


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
    mine = sa.and_(attempts.c.batch == batch, attempts.c.run_id == run_id)
    videos = connection.execute(sa.select(attempts).where(mine, IS_POLLED)).mappings()
    files = _files(connection, mine, attempts.c.state == State.GENERATED, ~_HAS_ENDED)
    return [attempt_of(row) for row in videos], files


def free_jobs(connection: sa.Connection, batch: str) -> int:
    """How many jobs of the batch runs had reserved, and no run has reserved now: none has sent them."""
    free = sa.and_(attempts.c.state == State.PLANNED, attempts.c.run_id.is_(None), ~attempts.c.superseded)
    return connection.scalar(sa.select(sa.func.count()).where(attempts.c.batch == batch, free)) or 0


def ended(connection: sa.Connection, keys: Sequence[str]) -> list[File]:
    """Every file of these jobs that is stored or lost."""
    return [file for these in of_jobs(keys) for file in _files(connection, these, _HAS_ENDED)]


def every_attempt(connection: sa.Connection, batch: str, names: Collection[str]) -> pl.DataFrame:
    """Some columns of every attempt of the batch, in order of submission."""
    query = (
        sa.select(*(attempts.c[name] for name in names))
        .where(attempts.c.batch == batch)
        .order_by(attempts.c.submitted_at, attempts.c.job_key, attempts.c.attempt)
    )
    return frames.read(connection, query)


def stored_files(
    connection: sa.Connection, batch: str, names: Collection[str], *which: sa.ColumnElement[bool]
) -> pl.DataFrame:
    """A row for every stored file of the batch, or for those that meet all conditions, in order of storage.

    A job that reuses another batch's files has a row for each of them. `names` are columns of the file, or of
    its attempt where the file does not have them.
    """
    of_job = {"job_key", "attempt"}  # this one's, also where the file is another job's
    named = (attempts.c[name] if name in of_job or name not in media.c else media.c[name] for name in names)
    query = (
        sa.select(*named)
        .join_from(attempts, media, FILES_OF)
        .where(attempts.c.batch == batch, media.c.stored_at.is_not(None), *which)
        .order_by(media.c.stored_at, attempts.c.job_key, media.c.index)
    )
    return frames.read(connection, query)


def estimated_costs(connection: sa.Connection, batch: str) -> int:
    """How many jobs of the batch have a cost that is not the service's word."""
    jobs = sa.select(sa.func.count(sa.distinct(attempts.c.job_key)))
    return connection.scalar(jobs.where(attempts.c.batch == batch, IS_ESTIMATED)) or 0


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


def _files(connection: sa.Connection, *which: sa.ColumnElement[bool]) -> list[File]:
    others = [column for column in attempts.c if column.name not in media.c]
    query = sa.select(media, *others).join(attempts, FILES_OF).where(*which)
    return [file_of(row, attempt_of(row)) for row in connection.execute(query).mappings()]
