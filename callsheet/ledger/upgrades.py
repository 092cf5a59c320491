"""Creates the ledger's tables in a new database, and upgrades those of an older Callsheet with Alembic.

An upgrade only adds: an older Callsheet that has the ledger open can go on. `migrations/` has the steps. The
version is in the table `about`, which the first ledgers had already, and in Alembic's own.
"""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa

from callsheet.ledger import running_totals
from callsheet.ledger.tables import SCHEMA_VERSION, about, alembic_version, metadata, moved_to

_MOVED = 1_000_000  # on top of the schema's version of a moved ledger: an older Callsheet refuses it too


def is_ledger(tables: Collection[str], columns_of_about: Collection[str]) -> bool:
    """Whether a database with these tables is a ledger, of whatever version."""
    return {"about", "runs", "attempts", "media"} <= set(tables) and "schema_version" in columns_of_about


def is_foreign(connection: sa.Connection) -> bool:
    """Whether the database has tables of another program under the names of a ledger's."""
    inspector = sa.inspect(connection)
    tables = set(inspector.get_table_names())
    if not tables & set(metadata.tables):
        return False
    columns = [column["name"] for column in inspector.get_columns("about")] if "about" in tables else []
    return not is_ledger(tables, columns)


def version_of(connection: sa.Connection) -> int:
    """The schema's version; 0 where there are no tables yet."""
    there = sa.inspect(connection).has_table("about")
    version: int | None = connection.scalar(sa.select(about.c.schema_version)) if there else None
    return version or 0


def prepare(connection: sa.Connection) -> int:
    """Creates or upgrades the tables; returns the schema's version.

    A version that is newer than `SCHEMA_VERSION` is left as it is.
    """
    version = version_of(connection)
    if not version:
        metadata.create_all(connection)
        running_totals.keep(connection)
        connection.execute(about.insert().values(schema_version=SCHEMA_VERSION))
        connection.execute(alembic_version.insert().values(version_num=str(SCHEMA_VERSION)))
    elif version < SCHEMA_VERSION:
        _upgrade(connection, version)
        connection.execute(about.update().values(schema_version=SCHEMA_VERSION))
    return max(version, SCHEMA_VERSION)


def _upgrade(connection: sa.Connection, version: int) -> None:
    """Takes the steps from a version to the newest, in the transaction that is given."""
    from alembic import command  # 0.1 s that a ledger of this version need not spend
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "callsheet.ledger:migrations")
    if not sa.inspect(connection).has_table(alembic_version.name):
        command.stamp(config, str(version))  # an older Callsheet has made it, without Alembic
    command.upgrade(config, "head")


def mark_as_moved(connection: sa.Connection, to: str) -> None:
    """From now on nobody can open this ledger: it would not know what is bought elsewhere.

    Args:
        connection: the transaction.
        to: where the ledger is now, without a password.
    """
    moved_to.create(connection)
    connection.execute(moved_to.insert().values(url=to))
    connection.execute(about.update().values(schema_version=about.c.schema_version + _MOVED))


def new_place(connection: sa.Connection, version: int) -> str | None:
    """Where a ledger with this schema version was moved to; None where it was not moved."""
    return connection.scalar(sa.select(moved_to.c.url)) if version > _MOVED else None
