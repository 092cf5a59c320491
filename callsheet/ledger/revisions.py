"""The revision of a batch: a text that each change of what the ledger says of the batch replaces.

It is replaced once, in the transaction of the change. So who has kept the revision that a result was made by
knows at once whether the ledger still says the same. Runs and leases are no part of it: they come and go.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from callsheet.ledger.tables import (
    attempts,
    batches,
    changes,
    charges,
    checks,
    claims,
    marks,
    media,
    new_revision,
    settlements,
    words,
)

_OF_BATCH = {attempts, media, settlements, words, marks, checks, charges, changes, claims}
_REPLACE = batches.update().where(batches.c.batch == sa.bindparam("the_batch"))


@contextmanager
def transaction(engine: sa.Engine, batch: str) -> Iterator[sa.Connection]:
    """A transaction that may change what the ledger says of this batch, and of no other one."""
    with engine.begin() as connection:
        is_changed = False

        @sa.event.listens_for(connection, "after_execute")
        def _look(_: sa.Connection, statement: Any, *__: Any) -> None:
            nonlocal is_changed
            is_changed |= isinstance(statement, sa.UpdateBase) and statement.table in _OF_BATCH

        yield connection
        if is_changed:
            connection.execute(_REPLACE, {"the_batch": batch, "revision": new_revision()})


def of_batch(connection: sa.Connection, batch: str) -> str:
    """The batch's revision; empty where the ledger does not know the batch yet."""
    return connection.scalar(sa.select(batches.c.revision).where(batches.c.batch == batch)) or ""
