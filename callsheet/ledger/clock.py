"""The clock by which leases are measured: one for all machines that share a ledger."""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa


def now(connection: sa.Connection) -> datetime:
    """The time by the database's clock, in UTC; SQLite has none, and all who use it are on one machine.

    Machines may disagree about the time by minutes, which is longer than a lease.
    """
    if connection.dialect.name == "postgresql":
        moment: datetime = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
        return moment.astimezone(UTC)
    return datetime.now(UTC)
