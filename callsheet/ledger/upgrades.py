"""Creates the ledger's tables in a new database, and upgrades those of an older Callsheet.

An upgrade only adds: an older Callsheet that has the ledger open can go on.
"""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa

from callsheet.ledger import running_totals
from callsheet.ledger.tables import SCHEMA_VERSION, about, media, metadata, moved_to
from callsheet.storage.names import folded

_PAGE = 5_000  # rows that are read and updated at once
_MOVED = 1_000_000  # on top of the schema's version of a moved ledger: an older Callsheet refuses it too

# By version, what the next one added to existing tables.
_ADDITIONS: dict[int, tuple[str, ...]] = {
    1: (
        "ALTER TABLE runs ADD COLUMN balance_at_start BIGINT",
        "ALTER TABLE runs ADD COLUMN spent_at_start BIGINT",
        "ALTER TABLE attempts ADD COLUMN request_key VARCHAR(64)",
        "ALTER TABLE attempts ADD COLUMN reused_key VARCHAR(64)",
        "ALTER TABLE attempts ADD COLUMN reused_attempt INTEGER",
        "CREATE INDEX ix_attempts_request_key ON attempts (request_key)",
    ),
    2: (
        "ALTER TABLE runs ADD COLUMN boot TEXT",
        "ALTER TABLE runs ADD COLUMN process_start TEXT",
        "ALTER TABLE media ADD COLUMN folded_name TEXT",
        "CREATE INDEX ix_attempts_submitted_at ON attempts (submitted_at)",
    ),
    3: ("CREATE INDEX attempts_reused ON attempts (reused_key) WHERE reused_key IS NOT NULL",),
    4: ("ALTER TABLE runs ADD COLUMN commits INTEGER",),
    5: (),  # the table `approvals`
}


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


def prepare(connection: sa.Connection) -> int:
    """Creates or upgrades the tables; returns the schema's version.

    A version that is newer than `SCHEMA_VERSION` is left as it is.
    """
    there = sa.inspect(connection).has_table("about")
    version: int | None = connection.scalar(sa.select(about.c.schema_version)) if there else None
    if version is None:
        metadata.create_all(connection)
        running_totals.keep(connection)
        connection.execute(about.insert().values(schema_version=SCHEMA_VERSION))
        return SCHEMA_VERSION
    if version < SCHEMA_VERSION:
        metadata.create_all(connection)
        for old in range(version, SCHEMA_VERSION):
            for statement in _ADDITIONS[old]:
                connection.exec_driver_sql(statement)
        if version < 3:
            _fold_names(connection)
        if version < 4:
            running_totals.keep(connection)
        connection.execute(about.update().values(schema_version=SCHEMA_VERSION))
    return max(version, SCHEMA_VERSION)


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


def _fold_names(connection: sa.Connection) -> None:
    """Fills `folded_name`. Of several files whose names differ only in case, only the first one gets it."""
    key = (media.c.job_key, media.c.attempt, media.c.index)
    page = sa.select(*key, media.c.name).order_by(*key).limit(_PAGE)
    update = media.update().where(*(column == sa.bindparam(f"the_{column.name}") for column in key))
    rows = connection.execute(page).all()
    while rows:
        values = [
            {"the_job_key": job_key, "the_attempt": attempt, "the_index": index, "folded": folded(name)}
            for job_key, attempt, index, name in rows
        ]
        connection.execute(update.values(folded_name=sa.bindparam("folded")), values)
        rows = connection.execute(page.where(sa.tuple_(*key) > sa.tuple_(*rows[-1][:3]))).all()
    position = sa.func.row_number().over(partition_by=(media.c.storage, media.c.folded_name), order_by=key)
    numbered = sa.select(*key, position.label("position")).subquery()
    later = sa.select(*(numbered.c[column.name] for column in key)).where(numbered.c.position > 1)
    connection.execute(media.update().where(sa.tuple_(*key).in_(later)).values(folded_name=None))
    connection.exec_driver_sql("CREATE UNIQUE INDEX media_by_folded_name ON media (storage, folded_name)")
