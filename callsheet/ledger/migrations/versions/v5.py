"""Version 5: the number of a run's last commit."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "5"
down_revision = "4"


def upgrade() -> None:
    """Adds a column to runs."""
    op.add_column("runs", sa.Column("commits", sa.Integer))
