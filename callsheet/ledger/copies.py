"""A ledger in another database: a backup, a copy, and one that moves there for good.

The databases do it by their own means. A copy is compared with the original before it is kept, cell by cell
between SQLite files, otherwise by a hash of each row. It does not look at what a row means.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
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
    uri_to_read,
)
from callsheet.ledger.tables import about, metadata, moved_to

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
    """Copies all rows, and makes sure that both have the same; returns how many rows each table has.

    Raises:
        LedgerError: they have not.
    """
    target.execute(about.update().values(ledger_id=source.scalar(_LEDGER_ID)))
    if source.dialect.name == target.dialect.name == "sqlite":
        return _copy_attached(source, target)
    for table in _COPIED:
        _enter(target, table, _rows(source, table))
    counts = {}
    for table in _COPIED:
        of_source = _sum(source, table)
        _check_same(table, is_same=_sum(target, table) == of_source)
        counts[table.name], _ = of_source
    return counts


def _copy_attached(source: sa.Connection, target: sa.Connection) -> dict[str, int]:
    """The same between two SQLite files: the target reads the other one by itself."""
    [path] = [Path(row.file) for row in source.exec_driver_sql("PRAGMA database_list") if row.name == "main"]
    target.exec_driver_sql("ATTACH ? AS original", (uri_to_read(path),))
    counts = {}
    for table in _COPIED:
        name, names = _quoted(table.name), table.columns.keys()
        in_original = target.exec_driver_sql(f"PRAGMA original.table_info({name})").mappings()
        # An upgraded ledger may have its columns in another order; otherwise SQLite copies quickly.
        as_they_are = [row["name"] for row in in_original] == names
        into, chosen = ("", "*") if as_they_are else (f"({_columns(table)})", _columns(table))
        target.exec_driver_sql(f"INSERT INTO main.{name} {into} SELECT {chosen} FROM original.{name}")  # noqa: S608
        counts[table.name] = _count(target, f"original.{name}")
        copied = _count(target, f"main.{name}")
        keys = table.primary_key.columns.keys()
        pairs = _count(
            target,
            f"original.{name} AS original JOIN main.{name} AS copied ON {_equal('=', keys)} "
            f"WHERE {_equal('IS', names)}",
        )
        _check_same(table, is_same=copied == pairs == counts[table.name])
    return counts


def _count(connection: sa.Connection, rows: str) -> int:
    return connection.exec_driver_sql(f"SELECT count(*) FROM {rows}").scalar() or 0  # noqa: S608


def _equal(operator: str, names: Iterable[str]) -> str:
    """Whether the original and the copy have the same in these columns."""
    return " AND ".join(f"original.{name} {operator} copied.{name}" for name in map(_quoted, names))


def _check_same(table: sa.Table, *, is_same: bool) -> None:
    if not is_same:
        raise LedgerError(f"the copy differs from the ledger in {table.name}; it was not kept")


# ---- between two kinds of databases. PostgreSQL hands rows on, and takes them, by COPY

_POSTGRESQL_TYPES = {sa.Boolean: "bool", sa.Integer: "int8", sa.Float: "float8"}  # JSON is its text
_DIGITS = 10  # of a row's hash that are added up: the sum of millions of rows is an integer of 64 bits


def _rows(connection: sa.Connection, table: sa.Table) -> Iterator[Sequence[Any]]:
    """A table's rows, as they are stored."""
    driver: Any = connection.connection.driver_connection
    with closing(driver.cursor()) as cursor:
        if connection.dialect.name == "sqlite":
            yield from cursor.execute(f"SELECT {_columns(table)} FROM {_quoted(table.name)}")  # noqa: S608
            return
        with cursor.copy(f"COPY {_quoted(table.name)} ({_columns(table)}) TO STDOUT") as copied:
            copied.set_types([_type(column) for column in table.columns])
            yield from copied.rows()


def _enter(connection: sa.Connection, table: sa.Table, rows: Iterator[Sequence[Any]]) -> None:
    driver: Any = connection.connection.driver_connection
    with closing(driver.cursor()) as cursor:
        if connection.dialect.name == "sqlite":
            places = ", ".join("?" * len(table.columns))
            into = f"{_quoted(table.name)} ({_columns(table)})"
            cursor.executemany(f"INSERT INTO {into} VALUES ({places})", rows)  # noqa: S608
            return
        with cursor.copy(f"COPY {_quoted(table.name)} ({_columns(table)}) FROM STDIN") as copied:
            for row in rows:
                copied.write_row(row)


def _sum(connection: sa.Connection, table: sa.Table) -> tuple[int, int]:
    """How many rows a table has, and the sum of their hashes, each of all cells: of a number its digits, of a
    float its bytes.
    """
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        driver.create_function("row_hash", len(table.columns), _row_hash, deterministic=True)
        hashed = f"row_hash({_columns(table)})"
    else:
        cells = []
        for column in table.columns:
            name, kind = _quoted(column.name), _type(column)
            cell = {"bool": f"{name}::int::text", "float8": f"encode(float8send({name}), 'hex')"}
            text = cell.get(kind, f"{name}::text")
            cells.append(f"coalesce(length({text}) || ':' || {text}, '-')")
        hashed = f"('x' || left(md5({' || '.join(cells)}), {_DIGITS}))::bit({4 * _DIGITS})::bigint"
    query = f"SELECT count(*), coalesce(sum({hashed}), 0) FROM {_quoted(table.name)}"  # noqa: S608
    count, total = connection.exec_driver_sql(query).one()
    return count, int(total)


def _row_hash(*cells: str | float | None) -> int:
    """The same as in PostgreSQL: that has the function itself."""
    texts = (struct.pack(">d", cell).hex() if isinstance(cell, float) else cell for cell in cells)
    text = "".join("-" if cell is None else f"{len(str(cell))}:{cell}" for cell in texts)
    return int(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:_DIGITS], 16)


def _type(column: sa.Column[Any]) -> str:
    """The type in PostgreSQL, as what it is read."""
    stored = column.type.impl if isinstance(column.type, sa.types.TypeDecorator) else column.type
    return next((name for kind, name in _POSTGRESQL_TYPES.items() if isinstance(stored, kind)), "text")


def _columns(table: sa.Table) -> str:
    return ", ".join(map(_quoted, table.columns.keys()))


def _quoted(name: str) -> str:
    return f'"{name}"'
