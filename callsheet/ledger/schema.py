"""Creates the ledger's tables in a new database, and tells which schema an old one has.

There is one schema. A ledger of another one is refused, and left as it is (`databases.open_engine`).
"""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa

from callsheet.ledger.tables import SCHEMA_VERSION, about, metadata, moved_to

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


def create(connection: sa.Connection) -> int:
    """Creates the tables, unless another process has just done so; returns the schema's version."""
    if version := version_of(connection):
        return version
    metadata.create_all(connection)
    connection.execute(about.insert().values(schema_version=SCHEMA_VERSION))
    return SCHEMA_VERSION


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
