"""Version 1: the first ledgers. `upgrades.prepare` makes a new ledger whole, so there is nothing to do."""

from __future__ import annotations

revision = "1"
down_revision = None


def upgrade() -> None:
    """The tables of version 1 are there."""
