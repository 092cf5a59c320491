"""Which run owns which jobs: a run has a lease that it renews, and the next run takes over from a dead one.

On the machine and in the container where it ran, a run is dead as soon as its process is gone; seen from
elsewhere, when its lease has expired. Each function is part of a ledger transaction, on the connection it is
given.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from callsheet.errors import LedgerError
from callsheet.ledger import queries
from callsheet.ledger.tables import attempts, runs
from callsheet.ledger.waits import waits
from callsheet.records import State


def enter(connection: sa.Connection, run_id: str, batch: str, balance: Decimal | None) -> None:
    """Enters a run, and takes over what dead runs of the batch left.

    What they were submitting is in doubt now, what they had reserved is free, and what was accepted belongs
    to the new run.

    Args:
        connection: the transaction.
        run_id: the new run.
        batch: the batch that it buys.
        balance: what the workspace had just before, in dollars; None where that is not known.
    """
    now = datetime.now(UTC)
    connection.execute(
        runs.insert().values(
            id=run_id,
            batch=batch,
            host=_host(),
            pid=os.getpid(),
            started_at=now,
            lease_until=_lease_from(now),
            balance_at_start=balance,
            spent_at_start=queries.spent(connection),
        )
    )
    accepted = attempts.c.state.in_([State.PENDING, State.GENERATED])
    connection.execute(
        attempts.update().where(close_dead_runs(connection, batch), accepted).values(run_id=run_id)
    )


def close_dead_runs(connection: sa.Connection, batch: str) -> sa.ColumnElement[bool]:
    """Puts in doubt what dead runs of the batch were submitting, and frees what they had reserved.

    Returns:
        The condition for attempts that belong, or belonged, to dead runs.
    """
    now = datetime.now(UTC)
    open_runs = connection.execute(sa.select(runs).where(runs.c.batch == batch, runs.c.ended_at.is_(None)))
    alive = [run.id for run in open_runs if _is_alive(run, now)]
    orphaned = sa.and_(attempts.c.batch == batch, attempts.c.run_id.not_in(alive))
    _free(connection, orphaned)
    connection.execute(
        attempts.update()
        .where(orphaned, attempts.c.state == State.SUBMITTING)
        .values(
            state=State.IN_DOUBT,
            run_id=None,
            finished_at=now,
            error_code="in_doubt",
            error_message="the run ended before the answer came",
        )
    )
    return orphaned


def renew(connection: sa.Connection, run_id: str) -> None:
    """Renews a run's lease, also one that has expired, as long as no other run has started since.

    Raises:
        LedgerError: one has, and may own our jobs now.
    """
    now = datetime.now(UTC)
    other = runs.alias("other")
    taken_over = sa.exists().where(
        other.c.batch == runs.c.batch, other.c.id != runs.c.id, other.c.started_at >= runs.c.lease_until
    )
    ours = sa.and_(runs.c.id == run_id, runs.c.ended_at.is_(None), ~taken_over)
    renewed = connection.execute(runs.update().where(ours).values(lease_until=_lease_from(now)))
    if renewed.rowcount != 1:
        raise LedgerError(
            f"this run was suspended for over {waits().lease:g} s, and another one has taken its jobs over",
            hint="Run the same command again; nothing is lost.",
        )


def leave(connection: sa.Connection, run_id: str) -> None:
    """Ends a run: what it had reserved is free again."""
    _free(connection, attempts.c.run_id == run_id)
    connection.execute(runs.update().where(runs.c.id == run_id).values(ended_at=datetime.now(UTC)))


def _free(connection: sa.Connection, whose: sa.ColumnElement[bool]) -> None:
    """Frees what was reserved and not sent.

    A second or later attempt is removed, and the one before it is the newest again. So a job that is in
    doubt, or failed, stays so unless it was really sent again.
    """
    reserved = sa.and_(whose, attempts.c.state == State.PLANNED)
    later = sa.select(attempts.c.job_key, attempts.c.attempt).where(reserved, attempts.c.attempt > 1)
    for key, number in connection.execute(later).all():
        of_job = attempts.c.job_key == key
        connection.execute(attempts.delete().where(of_job, attempts.c.attempt == number))
        before = sa.and_(of_job, attempts.c.attempt == number - 1)
        connection.execute(attempts.update().where(before).values(superseded=False))
    connection.execute(attempts.update().where(reserved).values(run_id=None))


def _lease_from(now: datetime) -> datetime:
    return now + timedelta(seconds=waits().lease)


def _host() -> str:
    """This machine and, where there are several, this container: where a process id has a meaning."""
    namespace = ""
    with suppress(OSError):
        namespace = str(Path("/proc/self/ns/pid").readlink())
    return f"{socket.gethostname()} {namespace}".strip()


def _is_alive(run: Any, now: datetime) -> bool:
    if run.lease_until < now:
        return False
    if run.host != _host():
        return True
    try:
        os.kill(run.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
