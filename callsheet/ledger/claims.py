"""Which jobs a run may buy: those that nobody has bought or holds, and that fit the budget.

Each function is part of a ledger transaction, on the connection it is given; one writer at a time, so that
what is read here is true until it is written.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from callsheet.ledger import queries
from callsheet.ledger.tables import attempts
from callsheet.records import Attempt, Job, State, canonical


def request_key(job: Job) -> str:
    """What jobs of several batches have in common that would buy the same: 64 hex digits."""
    return hashlib.sha256(canonical([job.request, job.sample]).encode()).hexdigest()


def reserve(
    connection: sa.Connection,
    batch: str,
    run_id: str,
    jobs: Sequence[Job],
    *,
    limit: Decimal,
    again: Collection[State],
    skip: bool,
    reuse: bool,
) -> tuple[list[tuple[Job, Attempt]], list[Job]]:
    """Reserves jobs in their order for a run, as far as the budget goes (`Ledger.reserve`).

    Args:
        connection: the transaction.
        batch: whose jobs they are.
        run_id: who reserves them.
        jobs: the next jobs of the plan.
        limit: how much the batch's exposure may come to, in dollars.
        again: the states of which a job is attempted anew.
        skip: whether to go on behind a job that does not fit.
        reuse: whether what another batch has stored for the same request stands for a job.
    """
    exposure = queries.exposure(connection, batch)
    current = _current(connection, jobs)
    stored = _stored(connection, batch, jobs) if reuse else {}
    reserved: list[tuple[Job, Attempt]] = []
    left: list[Job] = []
    for at, job in enumerate(jobs):
        last = current.get(job.key)
        if not _is_free(last, again):
            continue
        if stored and (source := stored.get(request_key(job))):
            _reuse(connection, _enter(connection, batch, run_id, job, last), source.popleft())
        elif exposure + job.quoted <= limit:
            exposure += job.quoted
            reserved.append((job, _enter(connection, batch, run_id, job, last)))
        elif skip:
            left.append(job)
        else:
            return reserved, list(jobs[at:])
    return reserved, left


def _stored(connection: sa.Connection, batch: str, jobs: Sequence[Job]) -> dict[str, deque[Any]]:
    """What other batches have stored for the jobs' requests, the oldest first."""
    wanted = attempts.c.request_key.in_([request_key(job) for job in jobs])
    found: dict[str, deque[Any]] = defaultdict(deque)
    for row in queries.reusable(connection, batch, wanted):
        found[row.request_key].append(row)
    return found


def _reuse(connection: sa.Connection, attempt: Attempt, source: Any) -> None:
    """The files of another batch's attempt stand for this one's, at no cost."""
    where = sa.and_(attempts.c.job_key == attempt.job_key, attempts.c.attempt == attempt.number)
    connection.execute(
        attempts.update()
        .where(where)
        .values(
            state=State.STORED,
            cost=Decimal(0),
            generation_id=source.generation_id,
            reused_key=source.job_key,
            reused_attempt=source.attempt,
            submitted_at=None,
            finished_at=datetime.now(UTC),
        )
    )


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
        or (last.state == State.FAILED and last.error_code == queries.NOT_CHARGED)
        or last.state in again
    )


def _enter(connection: sa.Connection, batch: str, run_id: str, job: Job, last: Any) -> Attempt:
    """Makes the run the owner of the planned attempt, or of a new one that supersedes the last.

    A planned attempt was never sent, and takes today's price.
    """
    number = 1 if last is None else last.attempt
    old = sa.and_(attempts.c.job_key == job.key, attempts.c.attempt == number)
    if last is not None and last.state == State.PLANNED:
        connection.execute(attempts.update().where(old).values(_row(job) | {"run_id": run_id}))
    else:
        if last is not None:
            connection.execute(attempts.update().where(old).values(superseded=True))
            number += 1
        owned = {"batch": batch, "run_id": run_id, "attempt": number, "state": State.PLANNED}
        connection.execute(attempts.insert().values(_row(job) | owned))
    return Attempt(job.key, number, job.type, job.row_id, job.sample, job.model)


def _row(job: Job) -> dict[str, Any]:
    return {
        "job_key": job.key,
        "row_id": job.row_id,
        "sample": job.sample,
        "type": job.type,
        "model": job.model,
        "prompt": job.request["prompt"],
        "carried": dict(job.carried),
        "request_key": request_key(job),
        "quoted": job.quoted,
        "currency": job.price.currency if job.price else "USD",
        "billable_unit": job.price.billable_unit if job.price else None,
        "unit_price": job.price.unit_price if job.price else None,
        "quantity": Decimal(job.price.quantity) if job.price else None,
    }
