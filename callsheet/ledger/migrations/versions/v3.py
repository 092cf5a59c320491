"""Version 3: a batch has one service, a run is known by its process, and names differ in more than case."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from callsheet.storage.names import folded

revision = "3"
down_revision = "2"

_PAGE = 5_000  # rows that are read and updated at once
_media = sa.table("media", *map(sa.column, ("job_key", "attempt", "index", "storage", "name", "folded_name")))


def upgrade() -> None:
    """Adds the table of batches, and columns to runs and media."""
    op.create_table(
        "batches",
        sa.Column("batch", sa.Text, primary_key=True),
        sa.Column("service", sa.Text, nullable=False),
        sa.Column("bound_at", sa.String(27), nullable=False),
    )
    op.add_column("runs", sa.Column("boot", sa.Text))
    op.add_column("runs", sa.Column("process_start", sa.Text))
    op.add_column("media", sa.Column("folded_name", sa.Text))
    op.create_index("ix_attempts_submitted_at", "attempts", ["submitted_at"])
    _fold_names(op.get_bind())
    op.create_index("media_by_folded_name", "media", ["storage", "folded_name"], unique=True)


def _fold_names(connection: sa.Connection) -> None:
    """Fills `folded_name`. Of several files whose names differ only in case, only the first one gets it."""
    media, key = _media, (_media.c.job_key, _media.c.attempt, _media.c.index)
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
