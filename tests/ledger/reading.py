"""The ledger's large queries as lists and dictionaries, which tests can compare at a glance."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import polars as pl
import sqlalchemy as sa

from callsheet.ledger import claims, queries, tables
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
    return lambda connection, batch: _by_key(queries.known_jobs(connection, batch, policy))


def outlook(policy: Policy) -> Callable[[sa.Connection, str], tuple[dict[str, Row], Totals]]:
    """The same as the next run will find it, and the totals."""

    def read(connection: sa.Connection, batch: str) -> tuple[dict[str, Row], Totals]:
        parts, totals = claims.outlook(connection, batch, policy)
        return _by_key(parts), totals

    return read


def _by_key(parts: Iterable[pl.DataFrame]) -> dict[str, Row]:
    return {row["job_key"]: row for row in rows(parts)}
