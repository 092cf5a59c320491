"""Version 2: settled doubts with their evidence, and files that another batch has bought."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"


def upgrade() -> None:
    """Adds the table of settlements, and columns to runs and attempts."""
    op.create_table(
        "settlements",
        sa.Column("job_key", sa.String(64), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("charged", sa.Boolean, nullable=False),
        sa.Column("settled_by", sa.Text, nullable=False),
        sa.Column("settled_at", sa.String(27), nullable=False),
        sa.Column("why", sa.Text),
    )
    for name in ("balance_at_start", "spent_at_start"):
        op.add_column("runs", sa.Column(name, sa.BigInteger))
    op.add_column("attempts", sa.Column("request_key", sa.String(64)))
    op.add_column("attempts", sa.Column("reused_key", sa.String(64)))
    op.add_column("attempts", sa.Column("reused_attempt", sa.Integer))
    op.create_index("ix_attempts_request_key", "attempts", ["request_key"])
