"""Version 4: running totals, which triggers keep. Version 7 makes their table anew, and fills it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "4"
down_revision = "3"


def upgrade() -> None:
    """Adds the table of totals, and an index."""
    op.create_table(
        "totals",
        sa.Column("batch", sa.Text, primary_key=True),
        sa.Column("day", sa.String(10), primary_key=True),
        sa.Column("state", sa.String(16), primary_key=True),
        sa.Column("superseded", sa.Boolean, primary_key=True),
        sa.Column("reserved", sa.Boolean, primary_key=True),
        sa.Column("jobs", sa.BigInteger, nullable=False),
        sa.Column("quoted", sa.BigInteger, nullable=False),
        sa.Column("cost", sa.BigInteger, nullable=False),
    )
    is_reused = sa.text("reused_key IS NOT NULL")
    op.create_index(
        "attempts_reused", "attempts", ["reused_key"], sqlite_where=is_reused, postgresql_where=is_reused
    )
