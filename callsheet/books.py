"""What the ledger says: read-only queries over one batch, each a function of a connection and a batch name.

Run them with `Ledger.read`. Nothing here writes.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from callsheet.records import Attempt, File, Kind, Media, State, Totals
from callsheet.tables import Money, attempts, media

# What an attempt holds of the budget: its cost where known, else its quote while it may still cost that.
_EXPOSURE = sa.func.coalesce(
    sa.func.sum(
        sa.case(
            (attempts.c.cost.is_not(None), attempts.c.cost),
            (attempts.c.state.in_([State.SUBMITTING, State.PENDING, State.IN_DOUBT]), attempts.c.quoted),
            (sa.and_(attempts.c.state == State.PLANNED, attempts.c.run_id.is_not(None)), attempts.c.quoted),
            else_=0,
        )
    ),
    0,
    type_=Money,
)
_OF_ONE_JOB = sa.and_(attempts.c.job_key == media.c.job_key, attempts.c.attempt == media.c.attempt)


def exposure(connection: sa.Connection, batch: str) -> Decimal:
    """What counts against the budget: spent, reserved, in flight and in doubt."""
    return connection.scalar(sa.select(_EXPOSURE).where(attempts.c.batch == batch)) or Decimal(0)


def totals(connection: sa.Connection, batch: str) -> Totals:
    """The batch so far: jobs by state, and money."""
    of_batch = attempts.c.batch == batch
    counts = connection.execute(
        sa.select(attempts.c.state, sa.func.count())
        .where(of_batch, ~attempts.c.superseded)
        .group_by(attempts.c.state)
    )

    def money(column: sa.Column[Decimal], where: sa.ColumnElement[bool]) -> Decimal:
        summed = sa.func.coalesce(sa.func.sum(column), 0, type_=Money)
        return connection.scalar(sa.select(summed).where(of_batch, where)) or Decimal(0)

    return Totals(
        states={State(state): count for state, count in counts},
        quoted=money(attempts.c.quoted, ~attempts.c.superseded),
        spent=money(attempts.c.cost, sa.true()),
        in_doubt_exposure=money(attempts.c.quoted, attempts.c.state == State.IN_DOUBT),
        exposure=exposure(connection, batch),
    )


def states(connection: sa.Connection, batch: str) -> dict[str, State]:
    """The state of every job of the batch that the ledger knows, by key."""
    query = sa.select(attempts.c.job_key, attempts.c.state).where(
        attempts.c.batch == batch, ~attempts.c.superseded
    )
    return {key: State(state) for key, state in connection.execute(query)}


def unfinished(connection: sa.Connection, run_id: str) -> tuple[list[Attempt], list[File]]:
    """A run's accepted videos that are still made, and its files that are still at the service."""
    mine = attempts.c.run_id == run_id
    videos = connection.execute(sa.select(attempts).where(mine, attempts.c.state == State.PENDING))
    files = connection.execute(
        sa.select(media, *_others())
        .join(attempts, _OF_ONE_JOB)
        .where(mine, attempts.c.state == State.GENERATED)
        .where(media.c.stored_at.is_(None), media.c.lost_at.is_(None))
    )
    return [_attempt(row) for row in videos], [_file(row) for row in files]


def ended(connection: sa.Connection, batch: str) -> list[File]:
    """Every file of the batch that is stored or lost."""
    query = sa.select(media, *_others()).join(attempts, _OF_ONE_JOB).where(attempts.c.batch == batch)
    over = sa.or_(media.c.stored_at.is_not(None), media.c.lost_at.is_not(None))
    return [_file(row) for row in connection.execute(query.where(over))]


def costs(connection: sa.Connection, batch: str) -> list[dict[str, Any]]:
    """A row for every attempt that was ever submitted, in order of submission."""
    query = (
        sa.select(attempts)
        .where(attempts.c.batch == batch, attempts.c.submitted_at.is_not(None))
        .where(attempts.c.state != State.PLANNED)
        .order_by(attempts.c.submitted_at, attempts.c.job_key, attempts.c.attempt)
    )
    return [dict(row) for row in connection.execute(query).mappings()]


def manifest(connection: sa.Connection, batch: str) -> list[dict[str, Any]]:
    """A row for every stored file, with the columns of its attempt, in order of storage."""
    query = (
        sa.select(media, *_others())
        .join(attempts, _OF_ONE_JOB)
        .where(attempts.c.batch == batch, media.c.stored_at.is_not(None))
        .order_by(media.c.stored_at, media.c.job_key, media.c.index)
    )
    return [dict(row) for row in connection.execute(query).mappings()]


def _others() -> list[sa.Column[Any]]:
    """The columns of `attempts` that `media` does not have too."""
    return [column for column in attempts.c if column.name not in media.c]


def _attempt(row: Any) -> Attempt:
    return Attempt(
        row.job_key, row.attempt, Kind(row.type), row.row_id, row.sample, row.model, row.generation_id
    )


def _file(row: Any) -> File:
    fields = {name: getattr(row, name) for name in Media.model_fields if name != "url"}
    return File(_attempt(row), row.index, row.name, Media(url=row.source_url, **fields))
