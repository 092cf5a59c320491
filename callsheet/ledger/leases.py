"""Which run owns which jobs: a run has a lease that it renews, and the next run takes over from a dead one.

What dead runs have left is read by everybody as the next run will find it (`foreseen`), before a run takes it
over (`take_over`) or a person decides about it (`end_dead`): one rule for what is read and written (`_left`).

On the machine and in the container where it runs, a run is alive as long as its process, however old its
lease is: a laptop may have been suspended. Seen from elsewhere, it is dead when its lease has expired by the
database's clock.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.visitors import replacement_traverse

from callsheet import processes
from callsheet.errors import LedgerError
from callsheet.ledger import queries, sums, writing
from callsheet.ledger.tables import AMOUNTS, Moment, Values, attempts, runs, totals
from callsheet.records import FOR_A_PERSON, OPEN, Attempt, OtherRun, State

_IN_HAND = sa.and_(
    attempts.c.state.in_((*OPEN, State.IN_DOUBT)),  # which an index finds
    sa.or_(attempts.c.state.in_(OPEN), queries.IS_POLLED),
)

_TOLD = [
    *(runs.c.id, runs.c.batch, runs.c.started_at, runs.c.lease_until, runs.c.refused),
    *(runs.c.host, runs.c.boot, runs.c.pid, runs.c.process_start),
]
"""What is told of a run that is alive: columns that the ledgers of all versions have (`migrations.py`)."""

LEASE = 60.0
"""For how many seconds a run counts as alive after it has last renewed its lease."""

NO_ANSWER = "the run ended before the answer came"
"""Why a job of a dead run is in doubt."""

_open_here: set[str] = set()
"""The runs that are open in this process: of a process that lives on, only these are alive."""


def enter_run(
    connection: sa.Connection,
    run_id: str,
    batch: str,
    *,
    balance: Decimal | None,
    spent: Decimal,
    lease: float,
    flow_run: str | None = None,
) -> None:
    """Enters a run of a batch, which counts as alive for `lease` seconds.

    `balance`: what the workspace had just before, in dollars; None where that is not known.
    `spent`: what the ledger has spent at the run's service, in dollars.
    `flow_run`: its id in Prefect, where it is one.
    """
    now = time_by_database(connection)
    _open_here.add(run_id)
    run = runs.insert().values(
        id=run_id,
        batch=batch,
        host=processes.machine(),
        boot=processes.boot(),
        pid=os.getpid(),
        process_start=processes.start_of(os.getpid()) or None,
        started_at=now,
        lease_until=now + timedelta(seconds=lease),
        balance_at_start=balance,
        spent_at_start=spent,
        flow_run=flow_run,
    )
    connection.execute(run)


def known(connection: sa.Connection, batch: str) -> set[str]:
    """Every run of the batch in this ledger, alive or not."""
    return set(connection.scalars(sa.select(runs.c.id).where(runs.c.batch == batch)))


def left_by(connection: sa.Connection, batch: str, flow_run: str) -> dict[str, State]:
    """By job key, what a flow run of Prefect has left in doubt or lost, in whichever of its processes.

    What it has taken over and what was in doubt before it first began is not its own, nor what is settled.
    """
    of_flow_run = sa.and_(runs.c.batch == batch, runs.c.flow_run == flow_run)
    began = sa.select(sa.func.min(runs.c.started_at, type_=Moment)).where(of_flow_run).scalar_subquery()
    query = sa.select(attempts.c.job_key, attempts.c.state).where(
        attempts.c.batch == batch,
        attempts.c.state.in_(FOR_A_PERSON),
        ~attempts.c.superseded,
        # What a dead run was submitting is of no run, since the next one found it (`take_over`).
        sa.or_(attempts.c.run_id.in_(sa.select(runs.c.id).where(of_flow_run)), attempts.c.run_id.is_(None)),
        attempts.c.finished_at >= began,
        attempts.c.settled.is_(None),
    )
    return {key: State(state) for key, state in connection.execute(query)}


def alive(connection: sa.Connection, batch: str | None = None) -> list[Any]:
    """The rows of `runs` that are alive, of one batch or of all, the oldest first."""
    return _not_ended(connection, batch)[0]


def _not_ended(connection: sa.Connection, batch: str | None = None) -> tuple[list[Any], list[Any]]:
    """The rows of `runs` that have not ended, the oldest first: those that are alive, and the dead ones."""
    query = sa.select(*_TOLD).where(runs.c.ended_at.is_(None)).order_by(runs.c.started_at)
    if batch is not None:
        query = query.where(runs.c.batch == batch)
    living: list[Any] = []
    dead: list[Any] = []
    if rows := connection.execute(query).all():
        now = time_by_database(connection)
        for run in rows:
            (living if _is_alive(run, now) else dead).append(run)
    return living, dead


def take_over(connection: sa.Connection, run_id: str, batch: str) -> list[Attempt]:
    """Ends the dead runs of the batch (`end_dead`); what they had accepted belongs to `run_id`."""
    doubts = end_dead(connection, batch)
    living = sa.select(runs.c.id).where(runs.c.batch == batch, runs.c.ended_at.is_(None))
    of_no_living = _is_of_none(living)
    for row in writing.which(connection, attempts.c.batch == batch, of_no_living, _IN_HAND):
        writing.change_attempt(connection, row, {"run_id": run_id})
    return doubts


def end_dead(connection: sa.Connection, batch: str) -> list[Attempt]:
    """Ends the dead runs of the batch; returns what they were submitting, which is in doubt from now on.

    What they had reserved is free, and what they had accepted is left to the next run.
    """
    _, dead = _not_ended(connection, batch)
    if not dead:
        return []
    doubts = _write_left(connection, _are_of(dead))
    ended = runs.update().where(runs.c.id.in_([run.id for run in dead]))
    connection.execute(ended.values(ended_at=time_by_database(connection)))
    return doubts


# ---- what a run leaves that is over


def foreseen(connection: sa.Connection) -> sa.Connection:
    """From now on the connection's queries find the ledger as the next run of each batch will find it.

    Nothing is written. In the place of the tables that `end_dead` would change stand subqueries; without a
    dead run nothing does.
    """
    _, dead = _not_ended(connection)
    if not dead:
        return connection
    theirs = _are_of(dead)
    left = _left(theirs)
    foreseen_tables = {attempts: left, totals: _totals_with(left, theirs)}

    @sa.event.listens_for(connection, "before_execute", retval=True)
    def _replace(_: sa.Connection, statement: Any, multiparams: Any, parameters: Any, __: Any) -> Any:
        return _with_tables(statement, foreseen_tables), multiparams, parameters

    return connection


def _are_of(over: Sequence[Any]) -> sa.ColumnElement[bool]:
    """Whether an attempt is of one of these runs."""
    batches = attempts.c.batch.in_({run.batch for run in over})  # by which an index finds it
    return sa.and_(batches, attempts.c.run_id.in_([run.id for run in over]))


def _left(over: sa.ColumnElement[bool]) -> sa.Subquery:
    """The table `attempts` as it is when the runs of these attempts are over.

    What such a run was submitting is in doubt since its end, or since its lease expired. What it had reserved
    is free. A second or later attempt that was only reserved is none, and the one before it is the newest
    again: so a job that is in doubt, or failed, stays so unless it was really sent again.
    """
    was_on_the_wire = sa.and_(over, attempts.c.state == State.SUBMITTING)
    was_reserved = sa.and_(over, sums.RESERVED)
    was_again = sa.and_(was_reserved, attempts.c.attempt > 1)
    attempts_before = sa.select(attempts.c.job_key, attempts.c.attempt - 1).where(was_again).correlate(None)
    is_newest_again = sa.tuple_(attempts.c.job_key, attempts.c.attempt).in_(attempts_before)
    end = sa.select(sa.func.coalesce(runs.c.ended_at, runs.c.lease_until))
    changed: dict[str, tuple[sa.ColumnElement[bool], Any]] = {
        "superseded": (is_newest_again, sa.false()),
        "run_id": (sa.or_(was_on_the_wire, was_reserved), None),
        "state": (was_on_the_wire, State.IN_DOUBT),
        "finished_at": (was_on_the_wire, end.where(runs.c.id == attempts.c.run_id).scalar_subquery()),
        "error_code": (was_on_the_wire, "in_doubt"),
        "error_message": (was_on_the_wire, NO_ANSWER),
    }
    columns = [
        sa.type_coerce(sa.case(changed[column.name], else_=column), column.type).label(column.name)
        if column.name in changed
        else column
        for column in attempts.c
    ]
    return sa.select(*columns).where(~was_again).subquery("attempts")


def _jobs_of(over: sa.ColumnElement[bool]) -> sa.Select[str]:
    """The keys of the jobs of which `_left` changes attempts."""
    changes = attempts.c.state.in_((State.PLANNED, State.SUBMITTING))  # which an index finds
    return sa.select(attempts.c.job_key).where(over, changes).correlate(None)


def _totals_with(left: sa.Subquery, over: sa.ColumnElement[bool]) -> sa.Subquery:
    """The table `totals` as it follows from `_left`: after less before, of what that changes."""
    sums_before = sums.by_attempts().where(attempts.c.job_key.in_(_jobs_of(over))).subquery()
    sums_after = _with_tables(sums.by_attempts(), {attempts: left}).where(left.c.job_key.in_(_jobs_of(over)))
    keys = [column.name for column in totals.primary_key]
    negated = sa.select(*(sums_before.c[name] for name in keys), *(-sums_before.c[name] for name in AMOUNTS))
    rows = sa.union_all(sa.select(totals), sums_after, negated).subquery()
    summed_up = (sums.total(rows.c[name]).label(name) for name in AMOUNTS)
    by = [rows.c[name] for name in keys]
    return sa.select(*by, *summed_up).group_by(*by).subquery("totals")


def _with_tables(statement: Any, subqueries: Mapping[sa.Table, sa.Subquery]) -> Any:
    """A statement with other tables in the place of some."""

    def replaced(element: Any, **_: Any) -> Any:
        if isinstance(element, sa.Table):
            return subqueries.get(element)
        if isinstance(element, sa.Column) and element.table in subqueries:
            return subqueries[element.table].c[element.name]
        return None

    return replacement_traverse(statement, {}, replaced)


def _write_left(connection: sa.Connection, over: sa.ColumnElement[bool]) -> list[Attempt]:
    """Writes what `_left` reads; returns what is in doubt from now on."""
    keys = connection.scalars(_jobs_of(over)).all()
    if not keys:
        return []
    rows_before, left = writing.rows_of(connection, keys), _left(over)
    names = ("superseded", "run_id", "state", "finished_at", "error_code", "error_message")
    columns = [left.c[name] for name in names]
    values_after: dict[writing.Key, Values] = {}
    for condition in queries.of_jobs(keys, left):
        query = sa.select(left.c.job_key, left.c.attempt, *columns).where(condition)
        for job_key, number, *values in connection.execute(query):
            values_after[job_key, number] = dict(zip(names, values, strict=True))
    doubts: list[Attempt] = []
    for key, row in rows_before.items():
        row_after = row | values_after.get(key, {})
        if key not in values_after:
            writing.remove(connection, row)
        elif row_after != row:
            writing.change_attempt(connection, row, values_after[key])
        if row_after["state"] != row["state"]:
            doubts.append(queries.attempt_of(row))
    return doubts


def forget(run_id: str) -> None:
    """The run is no longer open in this process, whether it could end or not."""
    _open_here.discard(run_id)


def renew(connection: sa.Connection, run_id: str, lease: float) -> None:
    """Renews a run's lease, also one that has expired, unless another run has taken its jobs over.

    To be called too before the run reserves jobs: only a run that has not ended leaves any (`foreseen`).

    Raises:
        LedgerError: one has.
    """
    ours = sa.and_(runs.c.id == run_id, runs.c.ended_at.is_(None))
    until = time_by_database(connection) + timedelta(seconds=lease)
    if connection.execute(runs.update().where(ours).values(lease_until=until)).rowcount != 1:
        raise LedgerError(
            f"this run was suspended for over {lease:g} s, and another run has taken its jobs over",
            hint="Run the same command again; nothing is lost.",
        )


def note_refusal(connection: sa.Connection, _: str, run_id: str, reason: str) -> None:
    """The service refuses every submission of a run, in these words; empty where it does not any more."""
    connection.execute(runs.update().where(runs.c.id == run_id).values(refused=reason))


def refusal(connection: sa.Connection, batch: str) -> str:
    """In which words the service refuses every submission of the batch's newest run, or did at its end; empty
    where it does not.
    """
    newest = sa.select(runs.c.refused).where(runs.c.batch == batch).order_by(runs.c.started_at.desc())
    return connection.scalar(newest.limit(1)) or ""


def leave(connection: sa.Connection, run_id: str, batch: str) -> None:
    """Ends a run of the batch: what it had reserved is free again, what it was submitting is in doubt."""
    ours = sa.and_(runs.c.id == run_id, runs.c.ended_at.is_(None))
    connection.execute(runs.update().where(ours).values(ended_at=time_by_database(connection)))
    _write_left(connection, sa.and_(attempts.c.batch == batch, attempts.c.run_id == run_id))


def last_run(connection: sa.Connection, batch: str) -> datetime | None:
    """When a run of the batch last began; None where there was none."""
    began: sa.ColumnElement[datetime | None] = sa.func.max(runs.c.started_at, type_=Moment)
    return connection.scalar(sa.select(began).where(runs.c.batch == batch))


def same_flow_run(
    connection: sa.Connection, batch: str, run_id: str | None
) -> tuple[list[str], datetime | None]:
    """The ids of a run and of those that are the same flow run of Prefect, and when the first of them began.

    None where it is no run.
    """
    flow_run = sa.select(runs.c.flow_run).where(runs.c.id == run_id).scalar_subquery()
    is_same = sa.or_(runs.c.id == run_id, runs.c.flow_run == flow_run)
    query = sa.select(runs.c.id, runs.c.started_at).where(runs.c.batch == batch, is_same)
    rows = connection.execute(query.order_by(runs.c.started_at)).all()
    return [row.id for row in rows], rows[0].started_at if rows else None


def began(connection: sa.Connection, batch: str, flow_run: str) -> bool:
    """Whether a flow run of Prefect has been at work at the batch."""
    query = sa.select(runs.c.id).where(runs.c.batch == batch, runs.c.flow_run == flow_run).limit(1)
    return connection.scalar(query) is not None


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
            refused=run.refused or "",
        )
        for run in alive(connection, batch)
        if run.id != run_id
    ]


def have_left_work(connection: sa.Connection, batch: str) -> bool:
    """Whether runs of the batch have died, or had jobs in hand at their end, which nobody has taken over."""
    living, dead = _not_ended(connection, batch)
    of_no_living = _is_of_none([run.id for run in living])
    left = sa.exists().where(attempts.c.batch == batch, _IN_HAND, of_no_living)
    return bool(dead or connection.scalar(sa.select(left)))


def unreserve(connection: sa.Connection, run_id: str, attempt: Attempt) -> None:
    """A job is not the run's any more that it had reserved: it does not fit the budget, or cannot be sent."""
    _write_left(connection, sa.and_(attempts.c.run_id == run_id, attempts.c.job_key == attempt.job_key))


def _is_alive(run: Any, now: datetime) -> bool:
    leased = bool(run.lease_until >= now)
    if run.host != processes.machine() or (run.boot and run.boot != processes.boot()):
        return leased
    if run.pid == os.getpid() and run.process_start in (None, processes.start_of(run.pid)):
        return run.id in _open_here
    start = processes.start_of(run.pid)
    if start is None:
        return False
    return bool(start == run.process_start) if start and run.process_start else leased


def _is_of_none(living: Collection[str] | sa.Select[str]) -> sa.ColumnElement[bool]:
    """Whether an attempt is of a run that is none of these."""
    return sa.and_(attempts.c.run_id.is_not(None), attempts.c.run_id.not_in(living))


def time_by_database(connection: sa.Connection) -> datetime:
    """The time by the database's clock, in UTC; SQLite has none, and all who use it are on one machine.

    Machines may disagree about the time by minutes, which is longer than a lease.
    """
    if connection.dialect.name == "postgresql":
        moment: datetime = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
        return moment.astimezone(UTC)
    return datetime.now(UTC)
