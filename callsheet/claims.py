"""Which jobs a run may buy: those that nobody has bought or holds, and that fit the budget.

Each function is part of a ledger transaction, on the connection it is given; one writer at a time, so that
what is read here is true until it is written.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from callsheet import books
from callsheet.records import Attempt, Job, State
from callsheet.tables import attempts


def reserve(
    connection: sa.Connection,
    batch: str,
    run_id: str,
    jobs: Sequence[Job],
    *,
    limit: Decimal,
    again: Collection[State],
) -> tuple[list[tuple[Job, Attempt]], int]:
    """Reserves jobs in their order for a run, until one does not fit the budget (`Ledger.reserve`).

    Args:
        connection: the transaction.
        batch: whose jobs they are.
        run_id: who reserves them.
        jobs: the next jobs of the plan.
        limit: how much the batch's exposure may come to, in dollars.
        again: the states of which a job is attempted anew.
    """
    exposure = books.exposure(connection, batch)
    current = _current(connection, jobs)
    reserved: list[tuple[Job, Attempt]] = []
    for considered, job in enumerate(jobs):
        last = current.get(job.key)
        if not _is_free(last, again):
            continue
        if exposure + job.quoted > limit:
            return reserved, considered
        exposure += job.quoted
        reserved.append((job, _enter(connection, batch, run_id, job, last)))
    return reserved, len(jobs)


def _current(connection: sa.Connection, jobs: Sequence[Job]) -> dict[str, Any]:
    """The newest attempt at each job that has one."""
    columns = (getattr(attempts.c, name) for name in ("job_key", "attempt", "state", "run_id", "error_code"))
    query = sa.select(*columns).where(
        attempts.c.job_key.in_([job.key for job in jobs]), ~attempts.c.superseded
    )
    return {row.job_key: row for row in connection.execute(query)}


def _is_free(last: Any, again: Collection[State]) -> bool:
    return (
        last is None
        or (last.state == State.PLANNED and last.run_id is None)
        or (last.state == State.FAILED and last.error_code == books.NOT_CHARGED)
        or last.state in again
    )


def _enter(connection: sa.Connection, batch: str, run_id: str, job: Job, last: Any) -> Attempt:
    """Makes the run the owner of the planned attempt, or of a new one that supersedes the last."""
    number = 1 if last is None else last.attempt
    old = sa.and_(attempts.c.job_key == job.key, attempts.c.attempt == number)
    if last is not None and last.state == State.PLANNED:
        connection.execute(attempts.update().where(old).values(run_id=run_id))
    else:
        if last is not None:
            connection.execute(attempts.update().where(old).values(superseded=True))
            number += 1
        connection.execute(attempts.insert().values(_row(job) | _owned(batch, run_id, number)))
    return Attempt(job.key, number, job.kind, job.row_id, job.sample, job.model)


def _owned(batch: str, run_id: str, number: int) -> dict[str, Any]:
    return {
        "attempt": number,
        "superseded": False,
        "batch": batch,
        "run_id": run_id,
        "state": State.PLANNED,
    }


def _row(job: Job) -> dict[str, Any]:
    return {
        "job_key": job.key,
        "row_id": job.row_id,
        "sample": job.sample,
        "type": job.kind,
        "model": job.model,
        "prompt": job.request["prompt"],
        "carried": dict(job.carried),
        "quoted": job.quoted,
        "currency": job.price.currency if job.price else "USD",
        "billable_unit": job.price.billable_unit if job.price else None,
        "unit_price": job.price.unit_price if job.price else None,
        "quantity": Decimal(job.price.quantity) if job.price else None,
    }
