"""Everything that is only read from the ledger; each query is a function of a connection and a batch name.

Run them with `Ledger.read`. Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from callsheet.ledger import running_totals
from callsheet.ledger.policy import BOUGHT, Policy, to_buy
from callsheet.ledger.tables import Money, attempts, media, runs, settlements
from callsheet.records import Attempt, Doubt, ExpectedBalance, File, Media, ModelType, State

Rows = Sequence[sa.RowMapping]
"""Rows by column name."""

_PART = 5_000  # rows that are read at once

IS_POLLED = sa.or_(
    attempts.c.state == State.PENDING,
    sa.and_(attempts.c.state == State.IN_DOUBT, attempts.c.generation_id.is_not(None)),
)
"""Videos that were accepted and have not ended: those too that the service did not know the last time."""

_OF_ONE_JOB = sa.and_(attempts.c.job_key == media.c.job_key, attempts.c.attempt == media.c.attempt)
_FILES_OF = sa.and_(
    sa.func.coalesce(attempts.c.reused_key, attempts.c.job_key) == media.c.job_key,
    sa.func.coalesce(attempts.c.reused_attempt, attempts.c.attempt) == media.c.attempt,
)


def states(connection: sa.Connection, batch: str) -> dict[str, State]:
    """By key, the state of every job of the batch that the ledger knows."""
    query = sa.select(attempts.c.job_key, attempts.c.state).where(
        attempts.c.batch == batch, ~attempts.c.superseded
    )
    return {key: State(state) for key, state in connection.execute(query)}


def known_jobs(
    connection: sa.Connection, batch: str, policy: Policy, table: sa.FromClause = attempts
) -> Sequence[sa.Row[Any]]:
    """Every job of the batch that the ledger knows, as the policy sees it.

    Args:
        connection: the transaction.
        batch: the batch.
        policy: what to do with jobs that were tried before.
        table: the attempts, or a query with the same columns (`leases.as_if_closed`).

    Returns:
        `job_key`, `to_buy` and `bought` of each. A job that is neither has failed or is in doubt, and is left
        so.
    """
    columns = (to_buy(policy, table).label("to_buy"), table.c.state.in_(BOUGHT).label("bought"))
    query = sa.select(table.c.job_key, *columns).where(table.c.batch == batch, ~table.c.superseded)
    return connection.execute(query).all()


def reusable(connection: sa.Connection, batch: str, *where: sa.ColumnElement[bool]) -> Sequence[sa.Row[Any]]:
    """What other batches have stored and this one has not reused yet, the oldest first.

    Each may be used for one job of this batch: two equal rows are two images.

    Returns:
        `request_key`, `job_key`, `attempt` and `generation_id` of each.
    """
    reused = attempts.alias("reused")
    taken = sa.exists().where(
        reused.c.batch == batch,
        reused.c.reused_key == attempts.c.job_key,
        reused.c.reused_attempt == attempts.c.attempt,
    )
    columns = (attempts.c[name] for name in ("request_key", "job_key", "attempt", "generation_id"))
    query = (
        sa.select(*columns)
        .where(attempts.c.batch != batch, attempts.c.state == State.STORED)
        .where(attempts.c.request_key.is_not(None), attempts.c.reused_key.is_(None), ~taken, *where)
        .order_by(attempts.c.finished_at, attempts.c.job_key)
    )
    return connection.execute(query).all()


def doubts(connection: sa.Connection, batch: str) -> list[Doubt]:
    """Every attempt that is in doubt, superseded ones too, in order of submission."""
    query = (
        sa.select(attempts)
        .where(attempts.c.batch == batch, attempts.c.state == State.IN_DOUBT)
        .order_by(attempts.c.submitted_at, attempts.c.job_key, attempts.c.attempt)
    )
    return [
        Doubt(
            job_key=row.job_key,
            attempt=row.attempt,
            row_id=row.row_id,
            sample=row.sample,
            type=ModelType(row.type),
            model=row.model,
            price=None if row.unit_price is None else row.quoted,
            submitted_at=row.submitted_at,
            what=row.error_message,
        )
        for row in connection.execute(query)
    ]


def reckoning(connection: sa.Connection, first: datetime) -> ExpectedBalance | None:
    """What the balance should be, counted from before a doubt that was submitted at `first`.

    None where no run before it knew the balance.
    """
    query = sa.select(runs).where(runs.c.balance_at_start.is_not(None), runs.c.started_at <= first)
    base = connection.execute(query.order_by(runs.c.started_at.desc()).limit(1)).first()
    if base is None:
        return None
    # Older doubts that were settled as charged since then: their money had left the balance before.
    settled = sa.exists().where(
        settlements.c.job_key == attempts.c.job_key,
        settlements.c.attempt == attempts.c.attempt,
        settlements.c.settled_at >= base.started_at,
    )
    older = _sum(connection, attempts.c.cost, attempts.c.submitted_at < base.started_at, settled)
    newer = attempts.c.submitted_at >= base.started_at
    return ExpectedBalance(
        since=base.started_at,
        balance_then=base.balance_at_start,
        spent_since=running_totals.spent(connection) - base.spent_at_start - older,
        in_doubt=_sum(connection, attempts.c.quoted, newer, attempts.c.state == State.IN_DOUBT),
        in_flight=_sum(
            connection, attempts.c.quoted, attempts.c.state.in_([State.SUBMITTING, State.PENDING])
        ),
    )


def days(connection: sa.Connection) -> dict[date, Decimal]:
    """What all batches together have cost in dollars, by the UTC day of submission."""
    day = sa.func.substr(sa.type_coerce(attempts.c.submitted_at, sa.String), 1, 10)
    summed = sa.func.sum(attempts.c.cost, type_=Money)
    query = sa.select(day, summed).where(attempts.c.cost.is_not(None), attempts.c.submitted_at.is_not(None))
    return {date.fromisoformat(name): cost for name, cost in connection.execute(query.group_by(day))}


def unfinished(connection: sa.Connection, run_id: str) -> tuple[list[Attempt], list[File]]:
    """A run's accepted videos that are not finished, and its files that are not stored yet."""
    mine = attempts.c.run_id == run_id
    videos = connection.execute(sa.select(attempts).where(mine, IS_POLLED))
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
    has_ended = sa.or_(media.c.stored_at.is_not(None), media.c.lost_at.is_not(None))
    return [_file(row) for row in connection.execute(query.where(has_ended))]


def costs(connection: sa.Connection, batch: str) -> Iterator[Rows]:
    """A row for every attempt that was ever submitted, in order of submission, some thousands at a time."""
    query = (
        sa.select(attempts)
        .where(attempts.c.batch == batch, attempts.c.submitted_at.is_not(None))
        .where(attempts.c.state != State.PLANNED)
        .order_by(attempts.c.submitted_at, attempts.c.job_key, attempts.c.attempt)
    )
    return _in_parts(connection, query)


def manifest(connection: sa.Connection, batch: str) -> Iterator[Rows]:
    """A row for every stored file with its attempt's columns, in order of storage, some thousands at a time.

    A job that reuses another batch's files has a row for each of them.
    """
    query = (
        sa.select(attempts, *(column for column in media.c if column.name not in attempts.c))
        .join(media, _FILES_OF)
        .where(attempts.c.batch == batch, media.c.stored_at.is_not(None))
        .order_by(media.c.stored_at, attempts.c.job_key, media.c.index)
    )
    return _in_parts(connection, query)


def _in_parts(connection: sa.Connection, query: sa.Select[Any]) -> Iterator[Rows]:
    rows = connection.execute(query, execution_options={"yield_per": _PART})
    return rows.mappings().partitions()


def _sum(
    connection: sa.Connection, column: sa.ColumnElement[Decimal], *where: sa.ColumnElement[bool]
) -> Decimal:
    summed = sa.func.coalesce(sa.func.sum(column), 0, type_=Money)
    return connection.scalar(sa.select(summed).where(*where)) or Decimal(0)


def _others() -> list[sa.Column[Any]]:
    """The columns of `attempts` that `media` does not have."""
    return [column for column in attempts.c if column.name not in media.c]


def _attempt(row: Any) -> Attempt:
    return Attempt(
        *(row.job_key, row.attempt, ModelType(row.type), row.row_id, row.sample, row.model),
        generation_id=row.generation_id,
        in_doubt=row.state == State.IN_DOUBT,
    )


def file_of(row: Any, attempt: Attempt) -> File:
    """A row of `media` as the file of its attempt."""
    fields = {name: getattr(row, name) for name in Media.model_fields if name != "url"}
    return File(attempt, row.index, row.name, Media(url=row.source_url, **fields))


def _file(row: Any) -> File:
    return file_of(row, _attempt(row))
