"""Opens the ledger's database, SQLite or PostgreSQL, so that both give the same guarantees.

A commit is on the disk when it returns. One transaction writes at a time, so what it reads stays true until
it commits. Readers see one consistent state and wait for nobody. What the tables mean is not known here.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from callsheet.errors import LedgerError, LedgerUnavailable
from callsheet.files import make_folder
from callsheet.ledger import schema
from callsheet.ledger.tables import SCHEMA_VERSION

T = TypeVar("T")

BUSY = 30.0
"""For how many seconds a write waits for another process's write; then the ledger counts as locked."""

_IDLE = 30  # seconds that a transaction in PostgreSQL may pause; then its machine counts as vanished
_MOMENT = 0.5  # seconds after which a writer that waits for SQLite's lock notices `hurry`
_CHECKPOINT = "wal_autocheckpoint=4000"
"""Pages, 16 MB, after which SQLite takes them over from the -wal file. It does so at 1,000 by itself, and a
row of a large ledger pays for that: its pages are far apart.
"""
_WRITE_LOCK = 0x63616C6C73686565  # the number of PostgreSQL's advisory lock that a writer takes

_TO_CHECK = {
    "sqlite": "Check ledger.url, the permissions of its folder, free disk space, "
    "and whether another program holds it.",
    "postgresql": "Check ledger.url, that the server runs, that it has this database, "
    "and that it lets this user in.",
}


def open_engine(url: str, busy: float = BUSY) -> sa.Engine:
    """Opens the ledger's database; creates the tables in a new one.

    A transaction that only reads is begun on a connection with the execution option `reading=True`.

    Args:
        url: the database.
        busy: for how many seconds a write waits for another process's write.

    Raises:
        LedgerError: it cannot be opened, or has another schema.
    """
    address = _address(url)
    name = address.render_as_string(hide_password=True)
    try:
        make = _sqlite if address.drivername == "sqlite" else _postgresql
        engine = make(address, busy)
        with engine.connect().execution_options(reading=True) as connection:  # waits for no writer
            if schema.is_foreign(connection):
                raise _foreign(name)
            version = schema.version_of(connection)
            moved = schema.new_place(connection, version)
        if not version:
            with engine.begin() as connection:
                version = schema.create(connection)
    except ModuleNotFoundError as error:
        raise LedgerError(
            f"the ledger {name} needs a database driver that is not installed: {error.name}",
            hint="Install it: pip install 'callsheet[postgres]'",
        ) from error
    except (sa.exc.SQLAlchemyError, sqlite3.Error, OSError) as error:
        raise LedgerError(
            f"the ledger {name} cannot be opened: {_reason(error)}",
            hint=_TO_CHECK[address.get_backend_name()],
        ) from error
    if moved:
        raise LedgerError(
            f"the ledger {name} was moved to {moved}",
            hint="Set ledger.url to that address; here nobody knows what was bought since.",
        )
    if version != SCHEMA_VERSION:
        raise LedgerError(
            f"the ledger {name} has schema version {version}; this Callsheet knows {SCHEMA_VERSION}",
            hint="Finish its batches with the Callsheet that made it; for new ones, set another ledger.url.",
        )
    return engine


def check_exists(url: str) -> None:
    """Makes sure that there is a ledger to read; opening one makes the file where it is missing.

    Raises:
        LedgerError: it would be a new SQLite file, or `url` is not the URL of a ledger.
    """
    address = _address(url)
    if address.drivername == "sqlite" and not _sqlite_path(address).exists():
        raise LedgerError(
            f"there is no ledger at {address.database}",
            hint="Name a batch's config, or the ledger: --set ledger.url=sqlite:///path.",
        )


def hurry(engine: sa.Engine) -> None:
    """From now on a writer waits no longer than a moment for another process's write (SQLite)."""
    engine.update_execution_options(hurry=True)


def explained(work: Callable[[], T]) -> T:
    """Does work on the database.

    Raises:
        LedgerUnavailable: the database failed; in place of SQLAlchemy's error.
    """
    try:
        return work()
    except sa.exc.SQLAlchemyError as error:
        raise LedgerUnavailable(
            f"the ledger could not be read or written: {_reason(error)}",
            hint="Check free disk space and what else uses the ledger; then run the same command again.",
        ) from error


def _reason(error: BaseException) -> str:
    """The driver's message without the SQL that PostgreSQL quotes below it."""
    return next(iter(str(error.__cause__ or error).splitlines()), type(error).__name__)


def _address(url: str) -> sa.URL:
    """The parsed URL. Messages do not repeat it, because it may have a password."""
    try:
        address = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        address = None
    if address is None or address.drivername not in ("sqlite", "postgresql+psycopg"):
        raise LedgerError(
            "ledger.url is not the URL of a database that a ledger can be in",
            hint="Give sqlite:///out/ledger.db or postgresql+psycopg://user:password@host/database.",
        )
    return address


def _foreign(name: str) -> LedgerError:
    return LedgerError(
        f"the database {name} has tables of another program, and is not a ledger; nothing in it was changed",
        hint="Choose another ledger.url.",
    )


def _sqlite(address: sa.URL, busy: float) -> sa.Engine:
    path = _sqlite_path(address)
    make_folder(path.parent)  # SQLite itself makes the files in it durable
    _check_file(path, busy)
    engine = sa.create_engine(address, connect_args={"timeout": busy, "check_same_thread": False})
    opened: list[tuple[int, int] | None] = []

    @sa.event.listens_for(engine, "connect")
    def _settings(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # otherwise the driver begins transactions by itself
        # The last one reads, and so makes the -wal file where there is none yet (see `_begin`).
        settings = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", _CHECKPOINT, "user_version")
        for setting in settings:
            connection.execute(f"PRAGMA {setting}").fetchall()

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        # A writer takes the write lock at once: what its transaction reads stays true until it commits.
        if connection.get_execution_options().get("reading", False):
            _wait_for_others(connection, busy)
            connection.exec_driver_sql("BEGIN")
        else:
            _begin_writing(connection, busy)
        # SQLite goes on writing into a file that was deleted, which nobody could read afterwards.
        files = _identities(path)
        if not opened:
            opened.extend(files)
        elif files != opened:
            raise LedgerError(
                f"the ledger {path} was moved, deleted or replaced while it was in use",
                hint="Put it and its -wal file back before you run the same command again: "
                "an empty ledger does not know what is bought, and everything would be bought again.",
            )

    return engine


def _begin_writing(connection: sa.Connection, busy: float) -> None:
    """Takes SQLite's write lock. It waits for it in short parts, because nothing can end a wait of SQLite's.

    Who has it waits for nobody any more.

    Args:
        connection: the connection.
        busy: seconds to wait in all.

    Raises:
        sa.exc.OperationalError: another process held the lock all the time, or until `hurry`.
    """
    until = time.monotonic() + busy
    _wait_for_others(connection, min(busy, _MOMENT))
    while True:
        try:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            break
        except sa.exc.OperationalError as error:
            locked = getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
            hurried = connection.engine.get_execution_options().get("hurry", False)
            if not locked or hurried or time.monotonic() >= until:
                raise


def _wait_for_others(connection: sa.Connection, seconds: float) -> None:
    """From now on the connection waits so long for what another one holds (SQLite)."""
    if connection.info.get("waits") != seconds:
        connection.exec_driver_sql(f"PRAGMA busy_timeout={round(1000 * seconds)}")
        connection.info["waits"] = seconds


def _sqlite_path(address: sa.URL) -> Path:
    """The file of a SQLite ledger.

    Raises:
        LedgerError: the address is not that of a plain file.
    """
    hint = "Give the path of a file: sqlite:///out/ledger.db, or sqlite:////var/lib/ledger.db from the root."
    if address.database in (None, "", ":memory:"):
        raise LedgerError("a ledger in memory would forget what is bought when the run ends", hint=hint)
    if address.query or address.database.startswith("file:"):
        raise LedgerError("the address of a SQLite ledger is a path, without options after it", hint=hint)
    return Path(address.database).absolute()


def _check_file(path: Path, busy: float) -> None:
    """Checks, without changing it, that a file is a ledger or can become one.

    Raises:
        LedgerError: it is the database of another program.
        sqlite3.Error: it cannot be read, or is not a database.
    """
    if not path.exists():
        return
    read_only = f"{path.as_uri()}?mode=ro"
    with closing(sqlite3.connect(read_only, uri=True, timeout=busy)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        tables = {name for (name,) in names if not name.startswith("sqlite_")}
        columns = {name for (name,) in connection.execute("SELECT name FROM pragma_table_info('about')")}
    if tables and not schema.is_ledger(tables, columns):
        raise _foreign(str(path))


def _identities(path: Path) -> list[tuple[int, int] | None]:
    """The device and inode of the database at `path` and of its write-ahead log; None for a missing file."""
    identities: list[tuple[int, int] | None] = []
    for file in (path, path.with_name(f"{path.name}-wal")):
        try:
            status = file.stat()
            identities.append((status.st_dev, status.st_ino))
        except OSError:
            identities.append(None)
    return identities


def _postgresql(address: sa.URL, busy: float) -> sa.Engine:
    # Notices a server that has vanished, without waiting until the operating system gives up.
    keepalives = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 4}
    timeouts = {"connect_timeout": max(2, round(busy)), "tcp_user_timeout": round(busy * 1000)}
    engine = sa.create_engine(address, pool_pre_ping=True, connect_args=keepalives | timeouts)

    @sa.event.listens_for(engine, "connect")
    def _settings(connection: Any, _record: Any) -> None:
        # As with SQLite: a commit is on the disk, and nobody waits for a writer for ever, not even for one
        # whose machine has vanished in the middle of a transaction.
        for setting in (
            "synchronous_commit = on",
            f"lock_timeout = '{busy}s'",
            f"idle_in_transaction_session_timeout = '{_IDLE}s'",
            # A writer sees what was committed while it waited for a lock, whatever the server's default is.
            "default_transaction_isolation = 'read committed'",
        ):
            connection.execute(f"SET {setting}")
        connection.commit()

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        # As with SQLite: one writer at a time. A reader needs no lock, but one view for all its queries.
        if connection.get_execution_options().get("reading", False):
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        else:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITE_LOCK})")

    return engine
