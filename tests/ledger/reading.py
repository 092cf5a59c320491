"""The ledger's large queries as lists and dictionaries, which tests can compare at a glance."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import polars as pl
import sqlalchemy as sa

from callsheet.ledger import queries, running_totals, tables
from callsheet.ledger.policy import Policy
from callsheet.records import State, Totals

Row = dict[str, Any]


def rows(parts: Iterable[pl.DataFrame]) -> list[Row]:
    return [row for part in parts for row in part.iter_rows(named=True)]


def states(connection: sa.Connection, batch: str) -> dict[str, State]:
    """By key, the state of every job of the batch that the ledger knows."""
    return {row["job_key"]: State(row["state"]) for row in rows(queries.states(connection, batch))}


def attempts(connection: sa.Connection, batch: str) -> list[Row]:
    return rows([queries.every_attempt(connection, batch, tables.attempts.c.keys())])


def manifest(connection: sa.Connection, batch: str) -> list[Row]:
    names = dict.fromkeys([*tables.attempts.c.keys(), *tables.media.c.keys()])
    return rows(queries.stored_files(connection, batch, names))


def known(policy: Policy) -> Callable[[sa.Connection, str], dict[str, Row]]:
    """By key, every job that the ledger knows, as a policy sees it."""
    return lambda connection, batch: {
        row["job_key"]: row for row in rows(queries.known_jobs(connection, batch, policy))
    }


def known_and_totals(connection: sa.Connection, batch: str) -> tuple[dict[str, Row], Totals]:
    """The same by a policy that buys what is in doubt again, and the totals."""
    policy = Policy(retry_doubt=True, attempts=2)
    return known(policy)(connection, batch), running_totals.of_batch(connection, batch)
