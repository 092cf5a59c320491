"""The ledger's tables and column types, and how its database is opened. No rule of the business is here.

Money is stored as whole millionths of a dollar, so that SQL sums are exact on every database; times are UTC
text in one fixed width, so that they compare as they read.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

from callsheet.errors import LedgerError
from callsheet.files import make_folder

SCHEMA_VERSION = 2
_MICRO = Decimal(1_000_000)
BUSY_TIMEOUT = 30  # seconds that a write waits for another process's; then the ledger counts as locked
_WRITER = 0x63616C6C73686565  # the advisory lock of the one writer: a number of our own


class Money(sa.types.TypeDecorator[Decimal]):
    """`Decimal` dollars in Python, millionths in the database. More than six decimals is a bug."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> int | None:
        """Dollars to millionths, exactly."""
        if value is None:
            return None
        micros = value * _MICRO
        if micros != micros.to_integral_value():
            raise ValueError(f"{value} has more than six decimals")
        return int(micros)

    def process_result_value(self, value: Any, dialect: Dialect) -> Decimal | None:
        """Millionths to dollars, exactly. (PostgreSQL sums integers to a Decimal.)"""
        return None if value is None else Decimal(int(value)) / _MICRO


class Moment(sa.types.TypeDecorator[datetime]):
    """An aware `datetime` in Python, `2026-01-31T12:00:00.000000Z` in the database."""

    impl = sa.String(27)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:
        """To UTC text of one fixed width."""
        return None if value is None else value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Back to an aware datetime."""
        return None if value is None else datetime.fromisoformat(value)


metadata = sa.MetaData()

about = sa.Table("about", metadata, sa.Column("schema_version", sa.Integer, primary_key=True))

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("batch", sa.Text, nullable=False, index=True),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("started_at", Moment, nullable=False),
    sa.Column("lease_until", Moment, nullable=False),
    sa.Column("ended_at", Moment),
    # Evidence for doubts: what the workspace had, and what the whole ledger had spent, when the run began.
    sa.Column("balance_at_start", Money),
    sa.Column("spent_at_start", Money),
)

# A row for every attempt at a job; the job's state is that of its newest attempt, the one not superseded.
attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column("job_key", sa.String(64), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True),
    sa.Column("superseded", sa.Boolean, nullable=False, default=False),
    sa.Column("batch", sa.Text, nullable=False),
    sa.Column("run_id", sa.String(36)),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("row_id", sa.Text, nullable=False),
    sa.Column("sample", sa.Integer, nullable=False),
    sa.Column("type", sa.String(16), nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("prompt", sa.Text, nullable=False),
    sa.Column("carried", sa.JSON, nullable=False),
    sa.Column("quoted", Money, nullable=False),
    sa.Column("cost", Money),
    sa.Column("currency", sa.String(8), nullable=False),
    sa.Column("billable_unit", sa.Text),
    sa.Column("unit_price", Money),
    sa.Column("quantity", Money),  # seconds may come with a fraction: six decimals, like money
    sa.Column("generation_id", sa.Text),
    sa.Column("error_code", sa.Text),
    sa.Column("error_message", sa.Text),
    sa.Column("submitted_at", Moment),
    sa.Column("finished_at", Moment),
    # The sha256 of the request as sent and the sample's number: what other batches find it by.
    sa.Column("request_key", sa.String(64), index=True),
    # The attempt of another batch whose files stand for this one's, where `reuse` is `ledger`.
    sa.Column("reused_key", sa.String(64)),
    sa.Column("reused_attempt", sa.Integer),
    sa.Index("attempts_by_state", "batch", "state", "superseded", "run_id"),
)

media = sa.Table(
    "media",
    metadata,
    sa.Column("job_key", sa.String(64), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True),
    sa.Column("index", sa.Integer, primary_key=True),
    sa.Column("storage", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("source_url", sa.Text, nullable=False),
    sa.Column("mime_type", sa.Text, nullable=False),
    sa.Column("width", sa.Integer),
    sa.Column("height", sa.Integer),
    sa.Column("duration", sa.Float),
    sa.Column("fps", sa.Float),
    sa.Column("has_sound", sa.Boolean),
    sa.Column("deletes_at", Moment, nullable=False),
    sa.Column("url", sa.Text),
    sa.Column("sha256", sa.String(64)),
    sa.Column("bytes", sa.BigInteger),
    sa.Column("stored_at", Moment),
    sa.Column("lost_at", Moment),
    sa.UniqueConstraint("storage", "name"),
)

# A row for every attempt that was in doubt and that a person has settled.
settlements = sa.Table(
    "settlements",
    metadata,
    sa.Column("job_key", sa.String(64), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True),
    sa.Column("charged", sa.Boolean, nullable=False),
    sa.Column("settled_by", sa.Text, nullable=False),
    sa.Column("settled_at", Moment, nullable=False),
    sa.Column("why", sa.Text),
)

# What pace and lanes have learned of an account, to start the next run with.
learned = sa.Table(
    "learned",
    metadata,
    sa.Column("service", sa.Text, primary_key=True),
    sa.Column("limits", sa.JSON, nullable=False),
)


# What schema 2 has and schema 1 had not; `create_all` makes whole tables only.
_SINCE_1 = (
    "ALTER TABLE runs ADD COLUMN balance_at_start BIGINT",
    "ALTER TABLE runs ADD COLUMN spent_at_start BIGINT",
    "ALTER TABLE attempts ADD COLUMN request_key VARCHAR(64)",
    "ALTER TABLE attempts ADD COLUMN reused_key VARCHAR(64)",
    "ALTER TABLE attempts ADD COLUMN reused_attempt INTEGER",
    "CREATE INDEX ix_attempts_request_key ON attempts (request_key)",
)


def open_engine(url: str) -> sa.Engine:
    """Opens (and where it is new, makes; where it is old, extends) the ledger's database.

    Raises:
        LedgerError: it cannot be opened, or a later version of Callsheet made it.
    """
    address = _address(url)
    name = address.render_as_string(hide_password=True)
    try:
        engine = _sqlite(address) if address.drivername.startswith("sqlite") else _postgresql(address)
        with engine.begin() as connection:
            metadata.create_all(connection)
            version = _upgraded(connection)
    except ModuleNotFoundError as error:
        raise LedgerError(
            f"the ledger {name} needs a database driver that is not installed: {error.name}",
            hint="Install it: pip install 'callsheet[postgres]'",
        ) from error
    except (sa.exc.SQLAlchemyError, OSError) as error:
        raise LedgerError(
            f"the ledger {name} cannot be opened: {error.__cause__ or error}",
            hint="Check ledger.url, the permissions of its folder, and free disk space.",
        ) from error
    if version != SCHEMA_VERSION:
        raise LedgerError(
            f"the ledger {name} has schema version {version}; this Callsheet knows {SCHEMA_VERSION}",
            hint="Use the Callsheet that made it, or another ledger.url.",
        )
    return engine


def _address(url: str) -> sa.URL:
    """The URL, read; it is not repeated in the message, because it may carry a password."""
    try:
        address = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        address = None
    if address is None or address.drivername not in ("sqlite", "postgresql+psycopg"):
        raise LedgerError(
            "ledger.url is no database that a ledger can be in",
            hint="Give sqlite:///out/ledger.db or postgresql+psycopg://user:password@host/database.",
        )
    return address


def _upgraded(connection: sa.Connection) -> int:
    """The schema's version, after bringing an old one up to date."""
    version: int | None = connection.scalar(sa.select(about.c.schema_version))
    if version is None:
        connection.execute(about.insert().values(schema_version=SCHEMA_VERSION))
        return SCHEMA_VERSION
    if version == 1:
        for statement in _SINCE_1:
            connection.exec_driver_sql(statement)
        connection.execute(about.update().values(schema_version=SCHEMA_VERSION))
        return SCHEMA_VERSION
    return version


def _sqlite(address: sa.URL) -> sa.Engine:
    if address.database:
        make_folder(Path(address.database).parent)  # SQLite itself makes durable what is in it
    engine = sa.create_engine(address, connect_args={"timeout": BUSY_TIMEOUT, "check_same_thread": False})
    path = Path(address.database or "").absolute()
    opened: list[tuple[int, int] | None] = []

    @sa.event.listens_for(engine, "connect")
    def _settings(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the driver must not begin transactions behind our back
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        # A writer takes the lock at once: what its transaction reads stays true until it commits.
        reading = connection.get_execution_options().get("reading", False)
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")
        # SQLite writes on into a file that has no name any more, and nobody would ever read it again.
        found = _identities(path)
        if not opened:
            opened.extend(found)
        elif found != opened:
            raise LedgerError(
                f"the ledger {path} was moved, deleted or replaced while it was in use",
                hint="Put it and its -wal file back before you run the same command again: "
                "a new ledger knows of nothing that is bought, and all would be bought again.",
            )

    return engine


def _identities(path: Path) -> list[tuple[int, int] | None]:
    """Which files the database at `path` and its write-ahead log are; None where there is none."""
    found: list[tuple[int, int] | None] = []
    for file in (path, path.with_name(f"{path.name}-wal")):
        try:
            status = file.stat()
            found.append((status.st_dev, status.st_ino))
        except OSError:
            found.append(None)
    return found


def _postgresql(address: sa.URL) -> sa.Engine:
    # A server that has vanished without a word is noticed, and not waited for until the system gives up.
    alive = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 4}
    patience = {"connect_timeout": BUSY_TIMEOUT, "tcp_user_timeout": BUSY_TIMEOUT * 1000}
    engine = sa.create_engine(address, pool_pre_ping=True, connect_args=alive | patience)

    @sa.event.listens_for(engine, "connect")
    def _settings(connection: Any, _record: Any) -> None:
        # As with SQLite: a commit is on the disk, and nobody waits for a writer for ever, not even for one
        # whose machine has vanished in mid-transaction.
        for setting in (
            "synchronous_commit = on",
            f"lock_timeout = '{BUSY_TIMEOUT}s'",
            f"idle_in_transaction_session_timeout = '{BUSY_TIMEOUT}s'",
        ):
            connection.execute(f"SET {setting}")
        connection.commit()

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        # As with SQLite: one writer at a time, so what its transaction reads stays true until it commits.
        # Reading needs no lock, but one view for all its queries.
        reading = connection.get_execution_options().get("reading", False)
        connection.exec_driver_sql(
            "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
            if reading
            else f"SELECT pg_advisory_xact_lock({_WRITER})"
        )

    return engine
