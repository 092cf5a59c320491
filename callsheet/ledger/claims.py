"""The reservation of jobs for a run: those that its policy buys, that no run has reserved, and that fit.

Exact with any number of runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from callsheet.ledger import leases, queries, services, writing
from callsheet.ledger.budget import Room, SpendingLimit, Wall
from callsheet.ledger.policy import NOT_CHARGED, Policy, to_buy
from callsheet.ledger.tables import attempts
from callsheet.ledger.writing import Values
from callsheet.records import Attempt, Job, State, canonical


@dataclass(slots=True)
class Reservation:
    """What `Ledger.reserve` did.

    Attributes:
        reserved: in their order.
        left: the first job that does not fit and all after it; with `skip` all that do not fit.
        wall: which one the first of them does not fit; None where none is left.
        room: what was left within that wall then, in dollars.
    """

    reserved: list[tuple[Job, Attempt]] = field(default_factory=list)
    left: list[Job] = field(default_factory=list)
    wall: Wall | None = None
    room: Decimal = Decimal(0)


def reserve(
    connection: sa.Connection,
    run_id: str,
    jobs: Sequence[Job],
    policy: Policy,
    budget: SpendingLimit,
    *,
    service: str,
    skip: bool,
) -> Reservation:
    """Reserves jobs in their order for a run at `service`, as far as the budget allows (`Ledger.reserve`).

    The run gets again what it has reserved before, which the budget counts: the commit of an earlier try may
    have been made without being confirmed.
    """
    room = Room(connection, budget, leases.time_by_database(connection), reserved=True)
    newest = _newest(connection, jobs, policy)
    stored: dict[str, list[Any]] = {}
    if policy.reuse:
        others = services.elsewhere(connection, service)
        stored = queries.reusable(connection, budget.batch, jobs, without=others)
    entries = _Entries(budget.batch, run_id, budget.approval)
    result = Reservation()
    for position, job in enumerate(jobs):
        last = newest.get(job.key)
        reserved_by = last["run_id"] if last and last["state"] == State.PLANNED else None
        if last and (not last["to_buy"] or reserved_by not in (None, run_id) or _has_failed_in(last, run_id)):
            continue
        if stored and (source := stored.get(job.request_key)):
            entries.add(job, last, _reused(source.pop(0)))
        elif reserved_by or (wall := room.take(job.quoted)) is None:
            result.reserved.append((job, entries.add(job, last)))
        else:
            if result.wall is None:
                result.wall, result.room = wall, room.left(wall)
            if not skip:
                result.left += jobs[position:]
                break
            result.left.append(job)
    entries.write(connection)
    return result


def enter(connection: sa.Connection, batch: str, run_id: str, job: Job) -> Attempt:
    """Enters an attempt at a job for a run, whatever budget and policy say: it was sent already.

    That is a planned attempt, or a new one that supersedes the last.
    """
    entries = _Entries(batch, run_id)
    attempt = entries.add(job, _newest(connection, [job], Policy()).get(job.key))
    entries.write(connection)
    return attempt


def _has_failed_in(last: Values, run_id: str) -> bool:
    """Whether a run has tried the job already, and it failed: the same run does not try it again."""
    has_failed = last["state"] == State.FAILED and last["error_code"] != NOT_CHARGED
    return bool(has_failed and last["run_id"] == run_id)


def _newest(connection: sa.Connection, jobs: Sequence[Job], policy: Policy) -> dict[str, Values]:
    """By key, the newest attempt at each job that has one, and whether it is `to_buy`."""
    newest = sa.and_(attempts.c.job_key.in_([job.key for job in jobs]), ~attempts.c.superseded)
    rows = writing.which(connection, newest, also=[to_buy(policy).label("to_buy")])
    return {row["job_key"]: row for row in rows}


class _Entries:
    """The attempts that one reservation writes: each statement is carried out once for all of them."""

    def __init__(self, batch: str, run_id: str, approval: str = "") -> None:
        self._owner = {"batch": batch, "run_id": run_id, "state": State.PLANNED}
        self._approval = approval
        self._changes: list[tuple[Values, Values]] = []
        self._new: list[Values] = []

    def add(self, job: Job, last: Values | None, more: Values | None = None) -> Attempt:
        """Reserves a job: its planned attempt, or a new one that supersedes the last; sets `more` columns.

        A planned attempt was never sent, so it gets today's price.
        """
        # A job without a price is held to nothing: what it costs counts for no approval.
        approval = {"approval": self._approval if job.price else ""}
        values = _row(job) | self._owner | approval | (more or {})
        number = 1 if last is None else last["attempt"]
        if last is not None and last["state"] == State.PLANNED:
            self._changes.append((last, values))
        else:
            if last is not None:
                self._changes.append((last, {"superseded": True}))
                number += 1
            self._new.append(values | {"attempt": number})
        quoted = job.price.total if job.price else None
        return Attempt(
            *(job.key, number, job.type, job.row_id, job.sample, job.model, quoted),
            request_key=job.request_key,
        )

    def write(self, connection: sa.Connection) -> None:
        """Writes all of it."""
        writing.change(connection, self._changes)
        writing.enter(connection, self._new)


def _reused(source: Any) -> Values:
    """The columns of an attempt that is stored with the files of another batch's attempt, at no cost."""
    return {
        "state": State.STORED,
        "cost": Decimal(0),
        "generation_id": source.generation_id,
        "reused_key": source.job_key,
        "reused_attempt": source.attempt,
        "submitted_at": None,
        "finished_at": datetime.now(UTC),
    }


def _row(job: Job) -> Values:
    return {
        "job_key": job.key,
        "row_id": job.row_id,
        "sample": job.sample,
        "type": job.type,
        "model": job.model,
        "prompt": job.request["prompt"],
        "request": canonical(dict(job.request)),
        "carried": dict(job.carried),
        "request_key": job.request_key,
        "quoted": job.price.total if job.price else None,
        "currency": job.price.currency if job.price else "USD",
        "billable_unit": job.price.billable_unit if job.price else None,
        "unit_price": job.price.unit_price if job.price else None,
        "quantity": Decimal(job.price.quantity) if job.price else None,
    }
