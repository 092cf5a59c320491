"""The databases of ledgers, SQLite and PostgreSQL: opened, and their schema checked."""

from __future__ import annotations

import logging
import os
import re
import shlex
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import sqlalchemy as sa

from callsheet import failpoints
from callsheet.errors import LedgerError, LedgerUnavailable, OtherVersion
from callsheet.files import PRIVATE, make_file, make_folder, network_disk
from callsheet.ledger import migrations, tables
from callsheet.ledger.tables import about, metadata

logger = logging.getLogger("callsheet")

BUSY = 30.0
"""For how many seconds a write waits for another process's write; then the ledger counts as locked."""

_IDLE = 30  # seconds that a transaction in PostgreSQL may pause; then its machine counts as vanished
_AGAIN = 0.01  # seconds between two tries where SQLite has not waited
_MOMENT = 0.5  # seconds after which a writer that waits for SQLite's lock notices `hurry`
_CHECKPOINT = "wal_autocheckpoint=4000"
"""Pages, 16 MB, after which SQLite takes them over from the -wal file. It does so at 1,000 by itself, and a
row of a large ledger pays for that: its pages are far apart.
"""
_WRITE_LOCK = 0x63616C6C73686565  # the number of PostgreSQL's advisory lock that a writer takes

# A password that was put into a URL as it is may hold whatever marks a URL's other parts.
_WITH_LOGIN = re.compile(r"(\w[\w+]*://)([^:/]*)(?::(.*))?@([^@]*)", re.DOTALL)

_TO_CHECK = {
    "sqlite": "Check ledger.url, the permissions of its folder, free disk space, "
    "and whether another program holds it.",
    "postgresql": "Check ledger.url, that the server runs, that it has this database, "
    "and that it lets this user in.",
}


def open_engine(
    url: str | sa.URL,
    busy: float = BUSY,
    *,
    looks: bool = False,
    note: Callable[[str], None] = logger.warning,
) -> sa.Engine:
    """Opens the ledger's database; creates the tables in a new one, and upgrades an older one.

    A transaction that only reads is begun on a connection with the execution option `reading=True`. A write
    waits for another process's write for `busy` seconds.

    Args:
        looks: nothing is created or upgraded. What is not there yet is read as an empty ledger, and one that
            this user may not write is read as it is.
        note: called with what was upgraded, in a sentence.

    Raises:
        OtherVersion: it is of another Callsheet: a newer one, or an older one and cannot be upgraded here.
        LedgerError: it cannot be opened, or a run is at work on an older one.
    """
    address = address_of(url)
    name = shown(address)
    try:
        if looks and not exists(address):
            return _empty()
        make = _postgresql if address.drivername != "sqlite" else _sqlite
        if looks and make is _sqlite and not _may_write(_sqlite_path(address)):
            make = _sqlite_to_read
        engine = make(address, busy)
        with engine.connect().execution_options(reading=True) as connection:  # waits for no writer
            if make is _postgresql:
                _check_encoding(connection, name)
            if make is not _sqlite:  # which has looked before it wrote anything
                _check(connection, name)
            version = migrations.check_version(connection, name, looks=looks)
        if not version and looks:
            engine.dispose()
            return _empty()
        if version != tables.SCHEMA_VERSION:
            _make_current(engine, name, file_of(address), note)
    except ImportError as error:  # also of a psycopg that finds no libpq
        raise LedgerError(
            f"the ledger {name} needs a database driver that is not installed: psycopg",
            hint=f"Install it: {_pip_install()} 'psycopg[binary]'",
        ) from error
    except (sa.exc.SQLAlchemyError, sqlite3.Error, OSError) as error:
        raise LedgerError(
            f"the ledger {name} cannot be opened: {_reason(error, address)}",
            hint=_TO_CHECK[address.get_backend_name()],
        ) from error
    _check_each_time(engine, name)
    return engine


def upgrade(url: str, note: Callable[[str], None]) -> None:
    """Upgrades a ledger that is of an older Callsheet; one that is not there yet is not created.

    `note` is called as by `open_engine`, which says what is raised.
    """
    try:
        open_engine(url, looks=True).dispose()
    except OtherVersion:
        open_engine(url, note=note).dispose()


def check_exists(url: str) -> None:
    """Makes sure that there is a ledger to read; opening one makes the file where it is missing.

    Raises:
        LedgerError: it would be a new SQLite file, or `url` is not the URL of a ledger.
    """
    if not exists(url):
        raise LedgerError(
            f"there is no ledger at {address_of(url).database}",
            hint="The first run of a batch makes it. Otherwise name the ledger: "
            "--set ledger.url=sqlite:///path.",
        )


def exists(url: str | sa.URL) -> bool:
    """Whether the file of a SQLite ledger is there and has something in it.

    True also where nobody can tell without opening it, and for PostgreSQL.

    Raises:
        LedgerError: `url` is not the URL of a ledger.
    """
    address = address_of(url)
    if address.drivername != "sqlite":
        return True
    try:
        return _sqlite_path(address).stat().st_size > 0
    except PermissionError:
        return True
    except OSError:
        return False


def file_of(url: str | sa.URL) -> Path | None:
    """The file of a SQLite ledger as its URL names it, from the working directory or whole; None of another.

    Raises:
        LedgerError: `url` is not the URL of a ledger.
    """
    address = address_of(url)
    return Path(address.database or "") if address.drivername == "sqlite" else None


def unchecked(url: str) -> sa.Engine:
    """The database at a URL, whatever schema it has."""
    address = address_of(url)
    return (_sqlite if address.drivername == "sqlite" else _postgresql)(address, BUSY)


def hurry(engine: sa.Engine) -> None:
    """From now on a writer waits no longer than a moment for another process's write (SQLite)."""
    engine.update_execution_options(hurry=True)


@contextmanager
def explained(*engines: sa.Engine) -> Iterator[None]:
    """For work on the databases of these engines.

    Raises:
        LedgerUnavailable: the database failed; in place of SQLAlchemy's error.
    """
    try:
        yield
    except sa.exc.SQLAlchemyError as error:
        raise LedgerUnavailable(
            f"the ledger could not be read or written: {_reason(error, *(engine.url for engine in engines))}",
            hint="Check that its database runs, that the disk has space, and what else uses it; "
            "then run the same command again.",
        ) from error


@contextmanager
def explain_values() -> Iterator[None]:
    """For work in a transaction or a savepoint: an error that its values caused, in words.

    Raises:
        LedgerError: the values can be in no ledger.
    """
    try:
        yield
    except (sa.exc.StatementError, UnicodeError, OverflowError) as error:
        is_of_database = isinstance(error, sa.exc.DBAPIError)
        if is_of_database and not isinstance(error, sa.exc.IntegrityError | sa.exc.DataError):
            raise
        raise LedgerError(f"this is a value that no ledger can have: {error.__cause__ or error}") from error


def _reason(error: BaseException, *addresses: sa.URL) -> str:
    """The driver's message, without the SQL that PostgreSQL quotes below it, and without any login."""
    words = next(iter(str(error.__cause__ or error).splitlines()), type(error).__name__)
    for address in addresses:
        options = [address.query.get(name, "") for name in ("user", "password", "sslpassword")]
        for login in (address.username, address.password, *options):
            if login:
                words = re.sub(rf"(?<!\w){re.escape(str(login))}(?!\w)", "...", words)
    return words


def _pip_install() -> str:
    """The beginning of the line that installs packages beside this one; uv's environments have no pip."""
    python = shlex.quote(sys.executable)
    return f"{python} -m pip install" if find_spec("pip") else f"uv pip install --python {python}"


def address_of(url: str | sa.URL) -> sa.URL:
    """The parsed URL. Messages do not repeat it, because it may have a login: they have what is `shown`."""
    try:
        address = sa.make_url(url) if isinstance(url, sa.URL) else _parsed(url)
    except (sa.exc.ArgumentError, ValueError):
        address = None
    if address is None or address.drivername not in ("sqlite", "postgresql+psycopg"):
        raise LedgerError(
            "ledger.url is not the URL of a database that a ledger can be in",
            hint="Give sqlite:///out/ledger.db or postgresql+psycopg://user:password@host/database.",
        )
    return address


def _parsed(url: str) -> sa.URL | None:
    """As SQLAlchemy reads it, but that a login ends at the last `@`, and a path of SQLite at the end or at
    options. None where it is not clear where the login ends.
    """
    login = _WITH_LOGIN.fullmatch(url)
    if url.startswith("sqlite:///") and not re.search(r"\?\w+=", url):
        address = sa.URL.create("sqlite", database=url.removeprefix("sqlite:///"))
    elif login is None or url.startswith("sqlite:"):
        address = sa.make_url(url)
    else:
        scheme, user, password, rest = login.groups()
        if "password=" in (password or ""):  # the `@` is of an option
            return None
        address = sa.make_url(scheme + rest)
        address = address.set(username=unquote(user), password=password and unquote(password))
    if address.drivername != "sqlite" and "@" in f"{address.host}{address.database}":
        return None
    return address


def shown(address: sa.URL) -> str:
    """An address as it may be shown: without its login, and without its options, which may be one."""
    places = {name: address.query[name] for name in ("host", "port") if name in address.query}
    return sa.URL.create(
        address.drivername, host=address.host, port=address.port, database=address.database, query=places
    ).render_as_string()


def _check_encoding(connection: sa.Connection, name: str) -> None:
    """Checks that a database in PostgreSQL can have every text: a prompt, and what the service says."""
    encoding = connection.exec_driver_sql("SELECT getdatabaseencoding()::text").scalar()
    if isinstance(encoding, bytes):  # as the driver reads a database that has no encoding (SQL_ASCII)
        encoding = encoding.decode()
    if encoding != "UTF8":
        raise LedgerError(
            f"the database {name} stores text in {encoding}, and not in UTF-8; nothing in it was changed",
            hint="Make one that does, and name it in ledger.url: "
            "createdb --template template0 --encoding UTF8 --locale C NAME",
        )


def _check(connection: sa.Connection, name: str) -> None:
    """Checks that a database is a ledger, of whatever version, or can become one. It changes nothing.

    In PostgreSQL other programs may have tables there, too, under names that a ledger does not use.
    """
    inspector = sa.inspect(connection)
    tables = {*inspector.get_table_names(), *inspector.get_view_names()}
    if connection.dialect.name == "postgresql":
        tables &= set(metadata.tables)
    columns = {column["name"] for column in inspector.get_columns("about")} if "about" in tables else set()
    if tables and not ({"runs", "attempts", "media"} <= tables and "schema_version" in columns):
        raise LedgerError(
            f"the database {name} has tables of another program, and is not a ledger; nothing in it was "
            "changed",
            hint="Choose another ledger.url.",
        )


def _make_current(engine: sa.Engine, name: str, file: Path | None, note: Callable[[str], None]) -> None:
    """Creates the tables of a new ledger, or upgrades an older one, unless another process has just done so.

    `note` is called with what a person should know of that.
    """
    with engine.begin() as connection:
        version, upgraded = migrations.check_version(connection, name), ""
        if not version:
            _create(connection)
        elif version < tables.SCHEMA_VERSION:
            upgraded = migrations.upgrade(connection, name, version, file)
    if upgraded:
        failpoints.passed("after ledger.upgrade")
        note(upgraded)
    if not version and file and (kind := network_disk(file)):
        note(
            f"the ledger {file} is on a network disk ({kind}), where locks may not hold: two runs could "
            "damage it. Put it on a disk of this machine, or use PostgreSQL"
        )


def _create(connection: sa.Connection) -> None:
    metadata.create_all(connection)
    connection.execute(about.insert().values(schema_version=tables.SCHEMA_VERSION, needs=tables.SINCE))


def _check_each_time(engine: sa.Engine, name: str) -> None:
    """From now on each transaction looks whether the ledger still has this schema.

    A newer Callsheet may have upgraded it, or somebody moved it, while a page or a question was open.
    """

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        if connection.exec_driver_sql("SELECT schema_version FROM about").scalar() != tables.SCHEMA_VERSION:
            raise LedgerError(
                f"the ledger {name} was upgraded or moved while it was in use",
                hint="Run the same command again: it says what the ledger needs now.",
            )


def _sqlite(address: sa.URL, busy: float) -> sa.Engine:
    path = _sqlite_path(address)
    _make_files(path)
    if path.stat().st_size:
        read_only = partial(sqlite3.connect, f"{path.as_uri()}?mode=ro", uri=True, timeout=busy)
        with sa.create_engine("sqlite://", creator=read_only, poolclass=sa.NullPool).connect() as connection:
            _check(connection, str(path))
    engine = sa.create_engine(
        address, connect_args={"timeout": busy, "check_same_thread": False, "uri": True}
    )
    opened: list[tuple[int, int] | None] = []

    @sa.event.listens_for(engine, "connect")
    def _settings(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # otherwise the driver begins transactions by itself
        # A new file gets its -wal file; SQLite does not wait for another process that does so too.
        _while_locked(lambda: connection.execute("PRAGMA journal_mode=WAL").fetchall(), busy, lambda: False)
        # The last one reads, and so makes the -wal file where there is none yet (see `_begin`).
        for setting in ("synchronous=FULL", "foreign_keys=ON", _CHECKPOINT, "user_version"):
            connection.execute(f"PRAGMA {setting}").fetchall()

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        # A writer takes the write lock at once: what its transaction reads stays true until it commits.
        if connection.get_execution_options().get("reading", False):
            connection.exec_driver_sql(f"PRAGMA busy_timeout={round(1000 * busy)}")
            connection.exec_driver_sql("BEGIN")
        else:
            _begin_writing(connection, busy)
        # SQLite goes on writing into a file that was deleted, which nobody could read afterwards.
        files = [_identity(path), _identity(path.with_name(f"{path.name}-wal"))]
        if not opened:
            opened.extend(files)
        elif files != opened:
            raise LedgerError(
                f"the ledger {path} was moved, deleted or replaced while it was in use",
                hint="Put it and its -wal file back before you run the same command again: "
                "an empty ledger does not know what is bought, and everything would be bought again.",
            )

    return engine


def _may_write(path: Path) -> bool:
    """Whether this user may write a SQLite database: its file, what stands beside it, and its folder."""
    beside = (path.with_name(f"{path.name}-{end}") for end in ("wal", "shm"))
    return all(os.access(place, os.W_OK) for place in (path.parent, path, *beside) if place.exists())


def _sqlite_to_read(address: sa.URL, busy: float) -> sa.Engine:
    """A SQLite ledger that this user may not write.

    SQLite reads it beside the runs of others, by the files that these have open beside it. Without those it
    would have to make them, unless it may take the database as one that nobody changes (`immutable`). So it
    is told, where there is no -wal file; and what was read is not used where somebody has changed it since.
    """
    path = _sqlite_path(address)
    wal = path.with_name(f"{path.name}-wal")

    def file_states() -> tuple[int, ...]:
        states = [file.stat() for file in (path, wal) if file.exists()]
        return tuple(
            number for status in states for number in (status.st_ino, status.st_size, status.st_mtime_ns)
        )

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(uri_to_read(path), uri=True, timeout=busy, check_same_thread=False)
        connection.isolation_level = None
        return connection

    engine = sa.create_engine("sqlite://", creator=connect, poolclass=sa.NullPool)
    begun: dict[sa.Connection, tuple[int, ...]] = {}

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        begun[connection] = () if wal.exists() else file_states()
        connection.exec_driver_sql("BEGIN")

    @sa.event.listens_for(engine, "rollback")
    def _end(connection: sa.Connection) -> None:
        if (states_at_begin := begun.pop(connection, ())) and states_at_begin != file_states():
            raise LedgerUnavailable(
                f"the ledger {path} was changed while it was read",
                hint="Run the same command again. Who may write in its folder reads it beside a run.",
            )

    return engine


def uri_to_read(path: Path) -> str:
    """The address by which SQLite only reads a file; beside runs, where these have it open."""
    has_wal = path.with_name(f"{path.name}-wal").exists()
    return f"{path.as_uri()}?mode=ro{'' if has_wal else '&immutable=1'}"


def _empty() -> sa.Engine:
    """A ledger without anything in it, in memory: its one connection has all of it."""
    engine = sa.create_engine(
        "sqlite://",
        poolclass=sa.QueuePool,
        pool_size=1,
        max_overflow=0,
        connect_args={"check_same_thread": False},
    )
    with engine.begin() as connection:
        _create(connection)
    return engine


def _make_files(path: Path) -> None:
    """Makes a new SQLite ledger, which only this user can read, and looks at what stands beside an old one.

    There are addresses in it at which anybody can download. SQLite gives the files beside it the same rights,
    and would write through a link.

    Raises:
        LedgerError: it is a link to nothing, or a file beside it is a link, or no file.
        OSError: it cannot be made.
    """
    make_folder(path.parent)  # SQLite itself makes the files in it durable
    file = path.resolve()  # of a link to a ledger SQLite has the others where the ledger is
    beside = (file.with_name(f"{file.name}-{end}") for end in ("wal", "shm", "journal"))
    unsafe = [
        side_file
        for side_file in beside
        if os.path.lexists(side_file) and (side_file.is_symlink() or not side_file.is_file())
    ]
    if not path.exists():
        try:
            os.close(make_file(path, PRIVATE))
        except FileExistsError:  # a link to nothing, unless another process has just made it
            unsafe += [] if path.exists() else [path]
    if unsafe:
        raise LedgerError(
            f"{unsafe[0]} is a link, or no file; nothing was written",
            hint="Move it away: the ledger would be written to another place.",
        )


def _begin_writing(connection: sa.Connection, busy: float) -> None:
    """Takes SQLite's write lock, for which it waits `busy` seconds at most, or until `hurry`.

    It waits in short parts, because nothing can end a wait of SQLite's. Who has the lock waits for nobody.
    """

    def is_hurried() -> bool:
        return bool(connection.engine.get_execution_options().get("hurry", False))

    connection.exec_driver_sql(f"PRAGMA busy_timeout={round(1000 * min(busy, _MOMENT))}")
    _while_locked(lambda: connection.exec_driver_sql("BEGIN IMMEDIATE"), busy, is_hurried)


def _while_locked(work: Callable[[], object], busy: float, is_hurried: Callable[[], bool]) -> None:
    """Does work on a SQLite database; for `busy` seconds again while another process has it locked."""
    until = time.monotonic() + busy
    while True:
        try:
            work()
            break
        except (sqlite3.OperationalError, sa.exc.OperationalError) as error:
            code = getattr(getattr(error, "orig", error), "sqlite_errorcode", None)
            if code != sqlite3.SQLITE_BUSY or is_hurried() or time.monotonic() >= until:
                raise
        time.sleep(_AGAIN)


def _sqlite_path(address: sa.URL) -> Path:
    """The file of a SQLite ledger; a LedgerError where the address is not that of a plain file."""
    hint = "Give the path of a file: sqlite:///out/ledger.db, or sqlite:////var/lib/ledger.db from the root."
    if address.database in (None, "", ":memory:"):
        raise LedgerError("a ledger in memory would forget what is bought when the run ends", hint=hint)
    if address.query or address.database.startswith("file:"):
        raise LedgerError("the address of a SQLite ledger is a path, without options after it", hint=hint)
    return Path(address.database).absolute()


def _identity(file: Path) -> tuple[int, int] | None:
    """The device and inode of a file; None for a missing one."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _postgresql(address: sa.URL, busy: float) -> sa.Engine:
    # Notices a server that has vanished, without waiting until the operating system gives up.
    keepalives = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 4}
    timeouts = {"connect_timeout": max(2, round(busy)), "tcp_user_timeout": round(busy * 1000)}
    # Whatever PGCLIENTENCODING says; and a pooler may give the connection to others after each transaction.
    options = keepalives | timeouts | {"client_encoding": "utf8", "prepare_threshold": None}
    engine = sa.create_engine(address, pool_pre_ping=True, connect_args=options)

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
