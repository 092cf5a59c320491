"""For tests in which runs are processes that write to one PostgreSQL at the same time."""

from __future__ import annotations

import multiprocessing

import sqlalchemy as sa

from callsheet.records import StoredFile
from tests.ledger.buying import NOW

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__])
STORED = StoredFile("out/x", "ab" * 32, 7, NOW, "image/png")
WAITERS = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


def execute(url: str, statement: str) -> list[sa.Row[tuple[object, ...]]]:
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        result = connection.exec_driver_sql(statement)
        found = list(result.all()) if result.returns_rows else []
    engine.dispose()
    return found


def check_no_deadlock(url: str) -> None:
    """Where there was one, the server's log says who waited for what."""
    query = "SELECT deadlocks, pg_read_file('log') FROM pg_stat_database WHERE datname = current_database()"
    [[number, log]] = execute(url, query)
    assert number == 0, str(log).partition("deadlock detected")[2][:4000]
