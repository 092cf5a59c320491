"""Version 6: what persons were asked before anything was bought, and what they said."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "6"
down_revision = "5"


def upgrade() -> None:
    """Adds the table of approvals."""
    op.create_table(
        "approvals",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("batch", sa.Text, nullable=False, index=True),
        sa.Column("question", sa.String(16), nullable=False),
        sa.Column("plan", sa.String(64), nullable=False),
        sa.Column("jobs", sa.BigInteger, nullable=False),
        sa.Column("quoted", sa.BigInteger, nullable=False),
        sa.Column("rates", sa.JSON, nullable=False),
        sa.Column("asked_at", sa.String(27), nullable=False),
        sa.Column("flow_run", sa.Text),
        sa.Column("decision", sa.String(16)),
        sa.Column("decided_at", sa.String(27)),
        sa.Column("decided_by", sa.Text),
        sa.Column("place", sa.String(16)),
        sa.Column("budget_limit", sa.BigInteger),
        sa.Column("note", sa.Text),
    )
