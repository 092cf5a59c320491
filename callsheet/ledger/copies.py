"""A ledger in another database: a backup, a copy, and one that moves there for good.

A copy is compared with the original, row by row, before it is kept. It does not look at what a row means.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from callsheet import failpoints
from callsheet.errors import LedgerError, LedgerMoved
from callsheet.files import PRIVATE, PartialFile, disk_errors, sync_folder
from callsheet.ledger import leases, migrations
from callsheet.ledger.databases import (
    address_of,
    check_exists,
    explained,
    file_of,
    open_engine,
    shown,
    unchecked,
)
from callsheet.ledger.tables import about, metadata, moved_to

_PAGE = 1_000  # rows that are read and written at once
_COPIED = [table for table in metadata.sorted_tables if table is not about]
"""The schema's version is there already. The ledger's id is copied apart."""
_VERSION, _LEDGER_ID = sa.select(about.c.schema_version), sa.select(about.c.ledger_id)


def back_up(url: str, to: Path) -> dict[str, int]:
    """Copies a ledger as `copy` does into a new SQLite file, which is there only when the copy is whole.

    Raises:
        LedgerError: as `copy`; or the file exists.
        StorageError: it cannot be looked for.
    """
    already_there = LedgerError(f"{to} exists already; nothing was written", hint="Name a new file.")
    check_exists(url)
    with disk_errors(to, "--to"), ExitStack() as stack:
        if os.path.lexists(to):
            raise already_there
        file = stack.enter_context(PartialFile(to, rights=PRIVATE))
        for end in ("-wal", "-shm"):
            stack.callback(file.partial.with_name(file.partial.name + end).unlink, missing_ok=True)
        counts = copy(url, sa.URL.create("sqlite", database=str(file.partial)))
        try:
            file.commit(overwrite=False)
        except FileExistsError:
            raise already_there from None
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
        _opened(url, to, looks=True) as (original, duplicate),
        original.connect().execution_options(reading=True) as source,
        duplicate.begin() as target,
    ):
        return _copy(source, target)


def move(url: str, to: str) -> dict[str, int]:
    """Copies a ledger as `copy` does, and closes the old one for ever.

    The old one is closed before the new one can be opened. A move that was killed is gone on with by the same
    call; until then one of them can be opened, or none.

    Raises:
        LedgerError: as `copy`; or a run is at work. The old ledger is then as it was.
        LedgerUnavailable: a database failed, maybe between the closing and the opening.
    """
    check_exists(url)
    try:
        open_engine(url).dispose()
    except LedgerMoved:
        if counts := _end_move(url, to):
            return counts
    with _opened(url, to) as (original, duplicate):
        with duplicate.begin() as target:  # which commits last
            with original.begin() as source:
                if working := {run.batch for run in leases.alive(source)}:
                    raise LedgerError(
                        f"a run is at work on {', '.join(sorted(working))}; nothing was changed",
                        hint="Wait until it has ended, or end it; then run the same command again.",
                    )
                _copy(source, target)
                moved_to.create(source)
                source.execute(moved_to.insert().values(url=_full_url(to)))
                _add_to_version(source, migrations.MOVING)
                failpoints.passed("before ledger.close")
            failpoints.passed("after ledger.close")
        failpoints.passed("after ledger.open")
    return _end_move(url, to)


def _end_move(url: str, to: str) -> dict[str, int]:
    """Ends a move that has closed the old ledger. Where the copy was not kept, the old one is open again.

    Returns:
        How many rows each table has, where the copy is there; nothing where it is not, or is elsewhere.
    """
    original = unchecked(url)
    try:
        with explained(original):
            with original.connect().execution_options(reading=True) as source:
                if source.scalar(sa.select(moved_to.c.url)) != _full_url(to):
                    return {}
            duplicate = open_engine(to)
            # The copy's lock first: a move that is under way has both, and lets go of this one last.
            with duplicate.begin() as target, original.begin() as source:
                is_kept = source.scalar(_LEDGER_ID) == target.scalar(_LEDGER_ID)
                if is_moving := (source.scalar(_VERSION) or 0) > migrations.MOVING:
                    _add_to_version(source, (migrations.MOVED if is_kept else 0) - migrations.MOVING)
                if is_moving and not is_kept:
                    moved_to.drop(source)
                count = sa.select(sa.func.count())
                counts = {table.name: target.scalar(count.select_from(table)) or 0 for table in _COPIED}
            failpoints.passed("after ledger.move")
            return counts if is_kept else {}
    finally:
        original.dispose()


def _add_to_version(connection: sa.Connection, number: int) -> None:
    connection.execute(about.update().values(schema_version=about.c.schema_version + number))


def _full_url(url: str) -> str:
    """The URL of a ledger, from wherever somebody reads it, and without its login."""
    address = address_of(url)
    if (file := file_of(address)) is not None:
        address = address.set(database=str(file.absolute()))
    return shown(address)


@contextmanager
def _opened(url: str, to: str | sa.URL, *, looks: bool = False) -> Iterator[tuple[sa.Engine, sa.Engine]]:
    """A ledger, which `open_engine` opens, and the empty database for its copy."""
    check_exists(url)
    original, duplicate = open_engine(url, looks=looks), open_engine(to)
    try:
        with explained(original, duplicate):
            with duplicate.connect().execution_options(reading=True) as connection:
                if any(connection.scalar(sa.select(sa.exists().select_from(table))) for table in _COPIED):
                    raise LedgerError(
                        "the database to copy to has a ledger with rows in it already; nothing was changed",
                        hint="Name an empty database, or a file that does not exist yet.",
                    )
            yield original, duplicate
    finally:
        original.dispose()
        duplicate.dispose()


def _copy(source: sa.Connection, target: sa.Connection) -> dict[str, int]:
    for table in _COPIED:
        for page in _pages(source, table):
            target.execute(table.insert(), [dict(row._mapping) for row in page])
    target.execute(about.update().values(ledger_id=source.scalar(_LEDGER_ID)))
    return {table.name: _compared(source, target, table) for table in _COPIED}


def _compared(source: sa.Connection, target: sa.Connection, table: sa.Table) -> int:
    """The number of a table's rows; a LedgerError where they are not the same in both."""
    count = 0
    for page, copied_page in zip_longest(_pages(source, table), _pages(target, table)):
        if page != copied_page:
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
