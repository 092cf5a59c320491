"""Version 8: what is set aside from the budget for a run, so that reservations do not wait for each other."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "8"
down_revision = "7"


def upgrade() -> None:
    """Adds the table of allotments, which is empty while no run is at work."""
    op.create_table(
        "allotments",
        sa.Column("run_id", sa.String(36), primary_key=True),
        sa.Column("batch", sa.Text, nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
    )
