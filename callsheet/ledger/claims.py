"""Reserves jobs for a run: those that its policy buys, that no run has reserved, and that fit the budget.

Each function is part of a ledger transaction, on the connection it is given. With PostgreSQL, other runs may
change the states of their jobs meanwhile, which takes no room in a budget; but reservations of a batch are
made one after the other, and where days have a budget, those of the whole ledger. So what is left of a budget
stays true until it is written.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

import polars as pl
import sqlalchemy as sa

from callsheet.ledger import databases, leases, queries, running_totals
from callsheet.ledger.policy import Policy, to_buy
from callsheet.ledger.tables import attempts
from callsheet.records import Attempt, Job, State, Totals

_THE_ATTEMPT = attempts.update().where(
    attempts.c.job_key == sa.bindparam("the_job"), attempts.c.attempt == sa.bindparam("the_attempt")
)


class Wall(StrEnum):
    """A limit of the budget that a job does not fit."""

    BATCH = "batch"
    """What the batch may spend."""

    DAY = "day"
    """What the whole ledger may spend in a UTC day."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """What `Ledger.reserve` did.

    Attributes:
        reserved: the jobs that are reserved now, in their order, each with its attempt.
        left: the jobs that are left: the first that does not fit and all after it; with `skip` all that do
            not fit.
        wall: which limit the first of them does not fit; None where none is left.
    """

    reserved: list[tuple[Job, Attempt]]
    left: list[Job]
    wall: Wall | None


def reserve(
    connection: sa.Connection,
    batch: str,
    run_id: str,
    jobs: Sequence[Job],
    policy: Policy,
    *,
    limit: Decimal,
    per_day: Decimal | None,
    skip: bool,
) -> Reservation:
    """Reserves jobs in their order for a run, as far as the budget allows (`Ledger.reserve`)."""
    databases.lock(connection, f"reservations of {batch}")
    if per_day is not None:
        databases.lock(connection, "reservations")
    remaining = _Remaining(connection, batch, limit, per_day)
    newest = _newest(connection, jobs, policy)
    stored = _stored(connection, batch, jobs) if policy.reuse else {}
    entries = _Entries(batch, run_id)
    reserved: list[tuple[Job, Attempt]] = []
    left: list[Job] = []
    first_wall: Wall | None = None
    for position, job in enumerate(jobs):
        last = newest.get(job.key)
        if last is not None and _is_taken(last):
            continue
        if stored and (source := stored.get(job.request_key)):
            entries.reuse(entries.add(job, last), source.popleft())
        elif (wall := remaining.take(job.quoted)) is None:
            reserved.append((job, entries.add(job, last)))
        else:
            first_wall = first_wall or wall
            if not skip:
                left = list(jobs[position:])
                break
            left.append(job)
    entries.write(connection)
    return Reservation(reserved, left, first_wall)


def are_taken(connection: sa.Connection, jobs: Sequence[Job], policy: Policy) -> bool:
    """Whether `reserve` would pass over all of these jobs. Only reads, and waits for nobody."""
    newest = _newest(connection, jobs, policy)
    return all(job.key in newest and _is_taken(newest[job.key]) for job in jobs)


def _is_taken(last: Any) -> bool:
    return not last.to_buy or last.reserved


class _Remaining:
    """What is left of the budget's limits, in dollars, during one reservation."""

    def __init__(
        self, connection: sa.Connection, batch: str, limit: Decimal, per_day: Decimal | None
    ) -> None:
        self._left = {Wall.BATCH: limit - running_totals.exposure(connection, batch)}
        if per_day is not None:
            if leases.has_dead_reservations(connection):
                databases.alone(connection)
                leases.free_dead_reservations(connection)
            self._left[Wall.DAY] = per_day - running_totals.exposure_of_day(connection, datetime.now(UTC))

    def take(self, amount: Decimal) -> Wall | None:
        """Takes an amount off every limit; or returns the first limit that it does not fit."""
        for wall, left in self._left.items():
            if amount > left:
                return wall
        self._left = {wall: left - amount for wall, left in self._left.items()}
        return None


def outlook(connection: sa.Connection, batch: str, policy: Policy) -> tuple[Iterator[pl.DataFrame], Totals]:
    """The batch as the next run will find it, when it has closed the dead ones. Writes nothing.

    Returns:
        `queries.known_jobs` and `running_totals.of_batch`.
    """
    if not leases.has_dead_work(connection, batch):
        return queries.known_jobs(connection, batch, policy), running_totals.of_batch(connection, batch)
    table = leases.as_if_closed(connection, batch)
    known = queries.known_jobs(connection, batch, policy, table)
    return known, running_totals.summed(connection, batch, table)


def _newest(connection: sa.Connection, jobs: Sequence[Job], policy: Policy) -> dict[str, Any]:
    """By key, the newest attempt at each job that has one, with `to_buy` and `reserved`."""
    reserved = running_totals.is_reserved()
    columns = (attempts.c.job_key, attempts.c.attempt, attempts.c.state)
    query = sa.select(*columns, to_buy(policy).label("to_buy"), reserved.label("reserved")).where(
        attempts.c.job_key.in_([job.key for job in jobs]), ~attempts.c.superseded
    )
    return {row.job_key: row for row in connection.execute(query)}


def _stored(connection: sa.Connection, batch: str, jobs: Sequence[Job]) -> dict[str, deque[Any]]:
    """By request key, what other batches have stored for the jobs' requests, the oldest first."""
    stored: dict[str, deque[Any]] = defaultdict(deque)
    for row in queries.reusable(connection, batch, [job.request_key for job in jobs]):
        stored[row.request_key].append(row)
    return stored


class _Entries:
    """The rows that one reservation writes, so that each statement is carried out once for all of them."""

    def __init__(self, batch: str, run_id: str) -> None:
        self._owner = {"batch": batch, "run_id": run_id, "state": State.PLANNED}
        self._superseded: list[dict[str, Any]] = []
        self._new: list[dict[str, Any]] = []
        self._planned: list[dict[str, Any]] = []
        self._reused: list[dict[str, Any]] = []

    def add(self, job: Job, last: Any) -> Attempt:
        """Reserves a job: its planned attempt, or a new one that supersedes the last.

        A planned attempt was never sent, so it gets today's price.
        """
        number = 1 if last is None else last.attempt
        the_last = {"the_job": job.key, "the_attempt": number}
        if last is not None and last.state == State.PLANNED:
            self._planned.append(the_last | _row(job) | {"run_id": self._owner["run_id"]})
        else:
            if last is not None:
                self._superseded.append(the_last | {"superseded": True})
                number += 1
            self._new.append(_row(job) | self._owner | {"attempt": number})
        return Attempt(job.key, number, job.type, job.row_id, job.sample, job.model)

    def reuse(self, attempt: Attempt, source: Any) -> None:
        """Stores a job with the files of another batch's attempt, at no cost."""
        self._reused.append(
            {
                "the_job": attempt.job_key,
                "the_attempt": attempt.number,
                "state": State.STORED,
                "cost": Decimal(0),
                "generation_id": source.generation_id,
                "reused_key": source.job_key,
                "reused_attempt": source.attempt,
                "submitted_at": None,
                "finished_at": datetime.now(UTC),
            }
        )

    def write(self, connection: sa.Connection) -> None:
        """Carries the statements out; an attempt is entered before it is stored."""
        if self._superseded:  # its run may be about to change it
            databases.alone(connection)
        for statement, rows in (
            (_THE_ATTEMPT, self._superseded),
            (attempts.insert(), self._new),
            (_THE_ATTEMPT, self._planned),
            (_THE_ATTEMPT, self._reused),
        ):
            if rows:
                connection.execute(statement, rows)


def _row(job: Job) -> dict[str, Any]:
    return {
        "job_key": job.key,
        "row_id": job.row_id,
        "sample": job.sample,
        "type": job.type,
        "model": job.model,
        "prompt": job.request["prompt"],
        "carried": dict(job.carried),
        "request_key": job.request_key,
        "quoted": job.quoted,
        "currency": job.price.currency if job.price else "USD",
        "billable_unit": job.price.billable_unit if job.price else None,
        "unit_price": job.price.unit_price if job.price else None,
        "quantity": Decimal(job.price.quantity) if job.price else None,
    }
