"""Copies a whole ledger into an empty database, and compares the copy with it, row for row.

For backups, and to move between SQLite and PostgreSQL. The original is read at one moment: runs may go on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from callsheet.errors import LedgerError
from callsheet.files import PRIVATE, PartialFile, disk_errors, sync_folder
from callsheet.ledger import leases
from callsheet.ledger.databases import check_exists, explained, mark_as_moved, open_engine
from callsheet.ledger.tables import about, metadata

_PAGE = 1_000  # rows that are read and written at once
_COPIED = [table for table in metadata.sorted_tables if table is not about]
"""The schema's version is there already. The ledger's id is copied apart."""


def back_up(url: str, to: Path) -> dict[str, int]:
    """Copies a ledger as `copy` does into a new SQLite file, which is there only when the copy is whole.

    Raises:
        LedgerError: as `copy`; or the file exists.
        StorageError: it cannot be looked for.
    """
    taken = LedgerError(f"{to} exists already; nothing was written", hint="Name a new file.")
    check_exists(url)
    with disk_errors(to, "--to"), ExitStack() as stack:
        if os.path.lexists(to):
            raise taken
        file = stack.enter_context(PartialFile(to, rights=PRIVATE))
        stack.callback(_remove_beside, file.partial)
        counts = copy(url, sa.URL.create("sqlite", database=str(file.partial)))
        try:
            file.commit(overwrite=False)
        except FileExistsError:
            raise taken from None
        sync_folder(to.parent)
    return counts


def copy(url: str, to: str | sa.URL) -> dict[str, int]:
    """Copies a ledger as it is at this moment into an empty database, and compares them; both are URLs.

    Returns:
        How many rows each table has.

    Raises:
        LedgerError: there is no such ledger, the database is not empty, or the copy is not the same.
    """
    with (
        _opened(url, to) as (original, other),
        original.connect().execution_options(reading=True) as source,
        other.begin() as target,
    ):
        return _copied(source, target)


def move(url: str, to: str) -> dict[str, int]:
    """Copies a ledger as `copy` does, and closes the old one for ever.

    Raises:
        LedgerError: as `copy`; or a run is at work. The old ledger is then as it was.
    """
    with _opened(url, to) as (original, other), original.begin() as source:
        if working := {run.batch for run in leases.alive(source)}:
            raise LedgerError(
                f"a run is at work on {', '.join(sorted(working))}; nothing was changed",
                hint="Wait until it has ended, or end it; then run the same command again.",
            )
        with other.begin() as target:
            counts = _copied(source, target)
        mark_as_moved(source, other.url.render_as_string(hide_password=True))
    return counts


@contextmanager
def _opened(url: str, to: str | sa.URL) -> Iterator[tuple[sa.Engine, sa.Engine]]:
    """A ledger, and the empty database for its copy."""
    check_exists(url)
    original, other = open_engine(url), open_engine(to)
    try:
        with explained():
            with other.connect().execution_options(reading=True) as connection:
                if any(connection.scalar(sa.select(sa.exists().select_from(table))) for table in _COPIED):
                    raise LedgerError(
                        "the database to copy to has a ledger with rows in it already; nothing was changed",
                        hint="Name an empty database, or a file that does not exist yet.",
                    )
            yield original, other
    finally:
        original.dispose()
        other.dispose()


def _remove_beside(database: Path) -> None:
    for end in ("-wal", "-shm"):
        database.with_name(database.name + end).unlink(missing_ok=True)


def _copied(source: sa.Connection, target: sa.Connection) -> dict[str, int]:
    for table in _COPIED:
        for page in _pages(source, table):
            target.execute(table.insert(), [dict(row._mapping) for row in page])
    target.execute(about.update().values(ledger_id=source.scalar(sa.select(about.c.ledger_id))))
    return {table.name: _compared(source, target, table) for table in _COPIED}


def _compared(source: sa.Connection, target: sa.Connection, table: sa.Table) -> int:
    """The number of a table's rows; a LedgerError where they are not the same in both."""
    count = 0
    for page, other in zip_longest(_pages(source, table), _pages(target, table)):
        if page != other:
            raise LedgerError(f"the copy differs from the ledger in {table.name}; it was not kept")
        count += len(page)
    return count


def _pages(connection: sa.Connection, table: sa.Table) -> Iterator[Sequence[sa.Row[Any]]]:
    """A table's rows in the order of their primary key, which is the same in both databases."""
    collation = "C" if connection.dialect.name == "postgresql" else "BINARY"
    key = [
        column.collate(collation) if isinstance(column.type, sa.String) else column
        for column in table.primary_key
    ]
    query = sa.select(table).order_by(*key)
    with closing(connection.execute(query, execution_options={"yield_per": _PAGE})) as result:
        yield from result.partitions(_PAGE)
