"""The money that came back for a batch, as persons have said, and which claims were sent.

A credit makes no room in a budget: limits count what was spent (`gate.py`). Money is in dollars.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from callsheet.errors import CallsheetError
from callsheet.ledger import sums
from callsheet.ledger.tables import Values, claims
from callsheet.records import dollars

AttemptKey = tuple[str, int]
"""The `job_key` and the number of an attempt."""


def enter_credit(
    connection: sa.Connection, batch: str, amount: Decimal, *, by: str, note: str | None
) -> Decimal:
    """Enters money that came back for the batch; returns all that came back for it.

    Raises:
        CallsheetError: then more would have come back than was spent; nothing was entered.
    """
    spent, entered = sums.of_batch(connection, batch).spent, sums.credits_of(connection, batch)
    if amount + entered > spent:
        raise CallsheetError(
            f"a credit of {dollars(amount)} USD is more than {batch} has cost: {dollars(spent)} USD, "
            f"of which {dollars(entered)} came back already; nothing was entered",
            hint="Enter what came back for this batch alone; other batches have credits of their own.",
        )
    _enter(connection, batch, by, note, credit=amount)
    return amount + entered


def enter_sent(
    connection: sa.Connection, batch: str, keys: Collection[AttemptKey], *, by: str, note: str
) -> None:
    """A claim was sent that names these attempts."""
    _enter(connection, batch, by, note, attempts=[list(key) for key in keys])


def _enter(connection: sa.Connection, batch: str, by: str, note: str | None, **said: Any) -> None:
    number = (connection.scalar(sa.select(sa.func.max(claims.c.number))) or 0) + 1
    of_batch: Values = {"number": number, "batch": batch, "attempts": [], "note": note}
    connection.execute(claims.insert(), of_batch | said | {"said_by": by, "said_at": datetime.now(UTC)})


def sent(connection: sa.Connection, batch: str) -> set[AttemptKey]:
    """The attempts of the batch that a claim names which was sent."""
    lists = connection.scalars(sa.select(claims.c.attempts).where(claims.c.batch == batch))
    return {(job_key, attempt) for keys in lists for job_key, attempt in keys}
