"""Version 7: running totals in shards, so that runs that write at the same time do not wait for a row."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from callsheet.ledger import running_totals

revision = "7"
down_revision = "6"


def upgrade() -> None:
    """Makes the table of totals anew, with shards, from the attempts, and its triggers."""
    of = "" if op.get_bind().dialect.name == "sqlite" else " ON attempts"
    for name in ("insert", "update", "delete"):
        op.execute(f"DROP TRIGGER IF EXISTS totals_{name}{of}")
    op.drop_table("totals")
    op.create_table(
        "totals",
        sa.Column("batch", sa.Text, primary_key=True),
        sa.Column("day", sa.String(10), primary_key=True),
        sa.Column("state", sa.String(16), primary_key=True),
        sa.Column("superseded", sa.Boolean, primary_key=True),
        sa.Column("reserved", sa.Boolean, primary_key=True),
        sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("jobs", sa.BigInteger, nullable=False),
        sa.Column("quoted", sa.BigInteger, nullable=False),
        sa.Column("cost", sa.BigInteger, nullable=False),
    )
    running_totals.keep(op.get_bind())
