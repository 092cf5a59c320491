"""The bound of a batch, and the reservation of jobs within it: one rule, for all its runs together.

The bound is the smallest of the limit that a person has said last (`approvals.said_limit`), what is
approved, what all batches may spend together, ever and in a day, and what the workspace can pay. Without a
limit, what a run has quoted is the bound, as if it was approved. It is looked at where a job is reserved, and
again in the transaction that says that it is about to be sent. Exact with any number of runs. Money is in
dollars.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

import sqlalchemy as sa

from callsheet.ledger import approvals, leases, writing
from callsheet.ledger.queries import Policy, to_buy
from callsheet.ledger.tables import attempts
from callsheet.ledger.writing import Values
from callsheet.records import NOT_CHARGED, Attempt, Job, State, canonical


class Wall(StrEnum):
    """What a job does not fit, or why none may be sent."""

    LIMIT = "limit"
    """What the batch may spend: `budget.limit`, as it was said last."""

    APPROVED = "approved"
    """What was approved, or quoted where nobody had to approve it."""

    LEDGER = "ledger"
    """What the whole ledger may spend, ever."""

    DAY = "day"
    """What the whole ledger may spend in a UTC day."""

    BALANCE = "balance"
    """What the workspace can pay."""

    PRICE = "price"
    """Jobs were charged more than was quoted, and nobody has accepted that (`approvals.Charged`)."""


@dataclass(frozen=True, slots=True)
class SpendingLimit:
    """What bounds a run, besides the limit of its batch, in dollars.

    Attributes:
        affordable: what the batch may come to before the workspace cannot pay: spent, reserved, in flight and
            in doubt.
        per_day: what all batches of the ledger together may spend in a UTC day, by the database's clock
            (`leases.time_by_database`). A job counts for the day on which it is sent; until then for today.
        approval: the id of the approval that it buys by; empty where it has none.
        of_ledger: what all batches of the ledger together may spend, ever.
    """

    batch: str
    affordable: Decimal
    per_day: Decimal | None = None
    approval: str = ""
    of_ledger: Decimal | None = None


class Bound:
    """What is left within each wall at a moment, in dollars; until the transaction ends, this stays true.

    `reserved`: reservations count too; in the walls of the ledger and of a day, those of runs at work alone.
    A job that is about to be sent is looked at without the other reservations: each of them is looked at in
    its turn.
    """

    def __init__(
        self, connection: sa.Connection, budget: SpendingLimit, at: datetime, *, reserved: bool
    ) -> None:
        exposure = writing.exposure(connection, budget.batch, reserved=reserved)
        limit = approvals.said_limit(connection, budget.batch)
        bound = limit  # of the whole batch
        self._left: dict[Wall, Decimal] = {}
        if limit is not None:
            self._left[Wall.LIMIT] = limit - exposure
        approved = approvals.bound(connection, budget.approval, is_limited=limit is not None)
        if approved is not None:
            used = writing.exposure_by(connection, budget.approval, reserved=reserved)
            self._left[Wall.APPROVED] = approved * approvals.ROUNDING - used
            if limit is None:
                bound = exposure + approved - used
        self._left[Wall.BALANCE] = budget.affordable - exposure
        if budget.of_ledger is not None:
            ever = leases.used_ever if reserved else writing.sent
            self._left[Wall.LEDGER] = budget.of_ledger - ever(connection)
        if budget.per_day is not None:
            today = leases.used_today if reserved else writing.sent_since
            self._left[Wall.DAY] = budget.per_day - today(connection, at)
        self._is_too_dear = approvals.charges_of(connection, budget.batch).stops(bound)

    def left(self, wall: Wall) -> Decimal:
        """What is left within a wall, in dollars; nothing within that of the price."""
        return max(Decimal(0), self._left.get(wall, Decimal(0)))

    def moved(self, amount: Decimal) -> None:
        """What was reserved by another approval, in dollars, is bought by this one from now on."""
        if Wall.APPROVED in self._left:
            self._left[Wall.APPROVED] -= amount

    def take(self, amount: Decimal) -> Wall | None:
        """Takes an amount, in dollars; or returns the first wall that it does not fit."""
        if self._is_too_dear:
            return Wall.PRICE
        for wall, left in self._left.items():
            if amount > left:
                return wall
        self._left = {wall: left - amount for wall, left in self._left.items()}
        return None


@dataclass(slots=True)
class Reservation:
    """What `Ledger.reserve` did.

    Attributes:
        reserved: in their order.
        left: the first job that does not fit and all after it; with `skip` all that do not fit.
        wall: which one the first of them does not fit; None where none is left.
        remaining: what was left within that wall then, in dollars.
    """

    reserved: list[tuple[Job, Attempt]] = field(default_factory=list)
    left: list[Job] = field(default_factory=list)
    wall: Wall | None = None
    remaining: Decimal = Decimal(0)


def reserve(
    connection: sa.Connection,
    run_id: str,
    jobs: Sequence[Job],
    policy: Policy,
    budget: SpendingLimit,
    *,
    skip: bool,
) -> Reservation:
    """Reserves jobs in their order for a run, as far as the budget allows (`Ledger.reserve`).

    The run gets again what it has reserved before, which the budget counts: the commit of an earlier try may
    have been made without being confirmed.
    """
    bound = Bound(connection, budget, leases.time_by_database(connection), reserved=True)
    newest = _newest(connection, jobs, policy)
    result = Reservation()
    fitting: list[tuple[Job, Values | None]] = []
    for position, job in enumerate(jobs):
        last = newest.get(job.key)
        reserved_by = last["run_id"] if last and last["state"] == State.PLANNED else None
        if last and (not last["to_buy"] or reserved_by not in (None, run_id)):
            continue
        has_failed = last and last["state"] == State.FAILED and last["settled"] != NOT_CHARGED
        if last and has_failed and last["run_id"] == run_id:  # the same run does not try it again
            continue
        if reserved_by or (wall := bound.take(job.quoted)) is None:
            if reserved_by and last and last["approval"] != budget.approval:
                bound.moved(job.quoted)
            fitting.append((job, last))
        else:
            if result.wall is None:
                result.wall, result.remaining = wall, bound.left(wall)
            if not skip:
                result.left += jobs[position:]
                break
            result.left.append(job)
    result.reserved = _write(connection, budget.batch, run_id, fitting, budget.approval)
    return result


def enter(connection: sa.Connection, batch: str, run_id: str, job: Job) -> Attempt:
    """Enters an attempt at a job for a run, whatever budget and policy say: it was sent already.

    That is a planned attempt, or a new one that supersedes the last.
    """
    last = _newest(connection, [job], Policy()).get(job.key)
    [(_, attempt)] = _write(connection, batch, run_id, [(job, last)])
    return attempt


def _newest(connection: sa.Connection, jobs: Sequence[Job], policy: Policy) -> dict[str, Values]:
    """By key, the newest attempt at each job that has one, and whether it is `to_buy`."""
    newest = sa.and_(attempts.c.job_key.in_([job.key for job in jobs]), ~attempts.c.superseded)
    rows = writing.which(connection, newest, also=[to_buy(policy).label("to_buy")])
    return {row["job_key"]: row for row in rows}


def _write(
    connection: sa.Connection,
    batch: str,
    run_id: str,
    jobs: Sequence[tuple[Job, Values | None]],
    approval: str = "",
) -> list[tuple[Job, Attempt]]:
    """Reserves jobs, each given with the newest attempt at it: that one, or a new one that supersedes it.

    A planned attempt was never sent, so it gets today's price.
    """
    changes: list[tuple[Values, Values]] = []
    new: list[Values] = []
    reserved: list[tuple[Job, Attempt]] = []
    for job, last in jobs:
        # A job without a price is held to nothing: what it costs counts for no approval.
        owner = {"batch": batch, "run_id": run_id, "approval": approval if job.price else ""}
        values = _row(job) | owner | {"state": State.PLANNED}
        number = 1 if last is None else last["attempt"]
        if last is not None and last["state"] == State.PLANNED:
            changes.append((last, values))
        else:
            if last is not None:
                changes.append((last, {"superseded": True}))
                number += 1
            new.append(values | {"attempt": number})
        which = (job.key, number, job.type, job.row_id, job.sample, job.model, values["quoted"])
        reserved.append((job, Attempt(*which, request_key=job.request_key)))
    writing.change(connection, changes)
    writing.enter(connection, new)
    return reserved


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
