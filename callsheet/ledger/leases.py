"""Which run owns which jobs: a run has a lease that it renews, and the next run takes over from a dead one.

On the machine and in the container where it runs, a run is alive as long as its process, however old its
lease is: a laptop may have been suspended. Seen from elsewhere, it is dead when its lease has expired by the
database's clock. Each function is part of a ledger transaction, on the connection it is given.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from callsheet.errors import LedgerError
from callsheet.ledger import processes, queries, running_totals, writing
from callsheet.ledger.tables import attempts, runs
from callsheet.records import Attempt, OtherRun, State

_OPEN = (State.PLANNED, State.SUBMITTING, State.PENDING, State.GENERATED)
_IN_HAND = sa.and_(
    attempts.c.state.in_((*_OPEN, State.IN_DOUBT)),  # which an index finds
    sa.or_(attempts.c.state.in_(_OPEN), queries.IS_POLLED),
)
LEASE = 60.0
"""For how many seconds a run counts as alive after it has last renewed its lease."""

NO_ANSWER = "the run ended before the answer came"
"""Why a job of a dead run is in doubt."""

_open_here: set[str] = set()
"""The runs that are open in this process: of a process that lives on, only these are alive."""


def enter(
    connection: sa.Connection,
    run_id: str,
    batch: str,
    *,
    balance: Decimal | None,
    spent: Decimal,
    lease: float,
) -> None:
    """Enters a run.

    Args:
        connection: the transaction.
        run_id: the new run.
        batch: the batch that it buys.
        balance: what the workspace had just before, in dollars; None where that is not known.
        spent: what the ledger has spent at the run's service, in dollars.
        lease: how long it counts as alive without a renewal, in seconds.
    """
    now = _now(connection)
    _open_here.add(run_id)
    connection.execute(
        runs.insert().values(
            id=run_id,
            batch=batch,
            host=processes.host(),
            boot=processes.boot(),
            pid=os.getpid(),
            process_start=processes.start_of(os.getpid()) or None,
            started_at=now,
            lease_until=now + timedelta(seconds=lease),
            balance_at_start=balance,
            spent_at_start=spent,
        )
    )


def known(connection: sa.Connection, batch: str, run_ids: Collection[str]) -> set[str]:
    """Those of the runs that are the batch's in this ledger, alive or not."""
    query = sa.select(runs.c.id).where(runs.c.batch == batch, runs.c.id.in_(run_ids))
    return set(connection.scalars(query))


def alive(connection: sa.Connection, batch: str) -> set[str]:
    """The runs of the batch that are alive."""
    return {run.id for run in _alive(connection, batch)}


def take_over(connection: sa.Connection, run_id: str, batch: str) -> list[Attempt]:
    """Closes the dead runs of the batch; what they had accepted belongs to `run_id` from now on.

    What they had reserved is free.

    Returns:
        What they were submitting: it is in doubt from now on.
    """
    alive = [run.id for run in _alive(connection, batch)]
    doubts = _close_dead_runs(connection, batch, alive)
    theirs = sa.and_(attempts.c.batch == batch, attempts.c.run_id.not_in(alive))
    for accepted in (queries.IS_POLLED, attempts.c.state == State.GENERATED):  # an index finds each
        rows = writing.which(connection, theirs, accepted)
        writing.change(connection, [(row, {"run_id": run_id}) for row in rows])
    return doubts


def forget(run_id: str) -> None:
    """The run is no longer open in this process, whether it could end or not. Not part of a transaction."""
    _open_here.discard(run_id)


def renew(connection: sa.Connection, run_id: str, lease: float) -> None:
    """Renews a run's lease, also one that has expired, unless another run has taken its jobs over.

    Raises:
        LedgerError: one has.
    """
    ours = sa.and_(runs.c.id == run_id, runs.c.ended_at.is_(None))
    until = _now(connection) + timedelta(seconds=lease)
    if connection.execute(runs.update().where(ours).values(lease_until=until)).rowcount != 1:
        raise LedgerError(
            f"this run was suspended for over {lease:g} s, and another run has taken its jobs over",
            hint="Run the same command again; nothing is lost.",
        )


def leave(connection: sa.Connection, run_id: str, batch: str) -> None:
    """Ends a run of the batch: what it had reserved is free again."""
    _free(connection, sa.and_(attempts.c.batch == batch, attempts.c.run_id == run_id))
    ours = sa.and_(runs.c.id == run_id, runs.c.ended_at.is_(None))
    connection.execute(runs.update().where(ours).values(ended_at=_now(connection)))


def others(connection: sa.Connection, batch: str, run_id: str | None) -> list[OtherRun]:
    """The runs of the batch that are alive besides this one, if it is one, the oldest first."""
    jobs = (
        sa.select(sa.func.count())
        .where(attempts.c.batch == batch, attempts.c.run_id == sa.bindparam("the_run"))
        .where(_IN_HAND)
    )
    return [
        OtherRun(
            run_id=run.id,
            host=run.host.partition(" ")[0],
            pid=run.pid,
            started_at=run.started_at,
            jobs=connection.scalar(jobs, {"the_run": run.id}) or 0,
        )
        for run in _alive(connection, batch)
        if run.id != run_id
    ]


def batches_at_work(connection: sa.Connection) -> list[str]:
    """The batches of the ledger that runs are buying now, sorted."""
    return sorted({run.batch for run in _alive(connection)})


def as_if_closed(connection: sa.Connection, batch: str) -> sa.Subquery:
    """The batch's attempts as they will be when the next run has closed the dead ones. Writes nothing."""
    alive = [run.id for run in _alive(connection, batch)]
    later = attempts.alias("later")
    was_superseded = sa.exists().where(
        later.c.job_key == attempts.c.job_key,
        later.c.attempt == attempts.c.attempt + 1,
        ~_is_unsent(later, alive),
    )
    dead = _is_of_dead_run(attempts, alive)
    submitting = sa.and_(attempts.c.state == State.SUBMITTING, dead)
    reserved = sa.and_(attempts.c.state == State.PLANNED, dead)
    changed = {
        "superseded": sa.and_(attempts.c.superseded, was_superseded),
        "state": sa.case((submitting, State.IN_DOUBT), else_=attempts.c.state),
        "run_id": sa.case((sa.or_(submitting, reserved), None), else_=attempts.c.run_id),
    }
    columns = [changed[c.name].label(c.name) if c.name in changed else c for c in attempts.c]
    query = sa.select(*columns).where(attempts.c.batch == batch, ~_is_unsent(attempts, alive))
    return query.subquery("attempts_as_if_closed")


def has_dead_work(connection: sa.Connection, batch: str) -> bool:
    """Whether dead runs of the batch were submitting jobs, or had reserved some."""
    return _have_left(connection, batch, attempts.c.state.in_((State.PLANNED, State.SUBMITTING)))


def have_left_work(connection: sa.Connection, batch: str) -> bool:
    """Whether runs of the batch that are over had jobs in hand, which nobody has taken over."""
    return _have_left(connection, batch, _IN_HAND)


def _have_left(connection: sa.Connection, batch: str, which: sa.ColumnElement[bool]) -> bool:
    alive = [run.id for run in _alive(connection, batch)]
    dead = sa.and_(which, _is_of_dead_run(attempts, alive))
    return bool(connection.scalar(sa.select(sa.exists().where(attempts.c.batch == batch, dead))))


def free(connection: sa.Connection, run_id: str, keys: Collection[str]) -> None:
    """Frees some of the jobs that a run had reserved: they do not fit the budget any more."""
    _free(connection, sa.and_(attempts.c.run_id == run_id, attempts.c.job_key.in_(keys)))


def used_today(connection: sa.Connection, batch: str, now: datetime) -> Decimal:
    """What counts against `budget.per_day`, in dollars, before the next run of the batch reserves anything.

    What dead runs had reserved is free then, and what the batch's own runs have reserved is part of what it
    has to buy. Writes nothing.
    """
    others = [run.id for run in _alive(connection) if run.batch != batch]
    return running_totals.exposure_of_day(connection, now, reserved_by=others)


def free_dead_reservations(connection: sa.Connection) -> None:
    """Frees what dead runs of all batches had reserved: a run that only seemed dead can no longer send it."""
    _free(connection, _of_any_dead_run(connection))


def _of_any_dead_run(connection: sa.Connection) -> sa.ColumnElement[bool]:
    alive = [run.id for run in _alive(connection)]
    of_open_runs = attempts.c.batch.in_(sa.select(runs.c.batch).where(runs.c.ended_at.is_(None)))
    return sa.and_(of_open_runs, _is_of_dead_run(attempts, alive))


def _alive(connection: sa.Connection, batch: str | None = None) -> list[Any]:
    """The runs that are alive, of one batch or of all, the oldest first."""
    now = _now(connection)
    query = sa.select(runs).where(runs.c.ended_at.is_(None)).order_by(runs.c.started_at)
    if batch is not None:
        query = query.where(runs.c.batch == batch)
    return [run for run in connection.execute(query) if _is_alive(run, now)]


def _is_alive(run: Any, now: datetime) -> bool:
    leased = bool(run.lease_until >= now)
    if run.host != processes.host() or (run.boot and run.boot != processes.boot()):
        return leased
    if run.pid == os.getpid() and run.process_start in (None, processes.start_of(run.pid)):
        return run.id in _open_here
    start = processes.start_of(run.pid)
    if start is None:
        return False
    return bool(start == run.process_start) if start and run.process_start else leased


def _close_dead_runs(connection: sa.Connection, batch: str, alive: Collection[str]) -> list[Attempt]:
    """Puts in doubt, and returns, what dead runs were submitting; frees what they had reserved."""
    now = _now(connection)
    of_dead_runs = sa.and_(attempts.c.batch == batch, _is_of_dead_run(attempts, alive))
    _free(connection, of_dead_runs)
    doubts = writing.which(connection, of_dead_runs, attempts.c.state == State.SUBMITTING)
    in_doubt = {
        "state": State.IN_DOUBT,
        "run_id": None,
        "finished_at": now,
        "error_code": "in_doubt",
        "error_message": NO_ANSWER,
    }
    writing.change(connection, [(row, in_doubt) for row in doubts])
    dead = sa.and_(runs.c.batch == batch, runs.c.ended_at.is_(None), runs.c.id.not_in(alive))
    connection.execute(runs.update().where(dead).values(ended_at=now))
    return [queries.attempt_of(row) for row in doubts]


def _is_of_dead_run(table: sa.FromClause, alive: Collection[str]) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.run_id.is_not(None), table.c.run_id.not_in(alive))


def _is_unsent(table: sa.FromClause, alive: Collection[str]) -> sa.ColumnElement[bool]:
    """A second or later attempt that a dead run had reserved and not sent."""
    return sa.and_(table.c.state == State.PLANNED, table.c.attempt > 1, _is_of_dead_run(table, alive))


def _free(connection: sa.Connection, whose: sa.ColumnElement[bool]) -> None:
    """Frees what was reserved and not sent.

    A second or later attempt is removed, and the one before it is the newest again. So a job that is in
    doubt, or failed, stays so unless it was really sent again.
    """
    reserved = writing.which(connection, whose, attempts.c.state == State.PLANNED)
    later = [row for row in reserved if row["attempt"] > 1]
    first = [(row, {"run_id": None}) for row in reserved if row["attempt"] == 1]
    writing.remove(connection, later)
    of_jobs = writing.found(connection, [row["job_key"] for row in later])
    before = [of_jobs[row["job_key"], row["attempt"] - 1] for row in later]
    writing.change(connection, first + [(row, {"superseded": False}) for row in before])


def _now(connection: sa.Connection) -> datetime:
    """The time by the database's clock, in UTC; SQLite has none, and all who use it are on one machine.

    Machines may disagree about the time by minutes, which is longer than a lease.
    """
    if connection.dialect.name == "postgresql":
        moment: datetime = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
        return moment.astimezone(UTC)
    return datetime.now(UTC)
