"""The ledger's large queries as lists and dictionaries, which tests can compare at a glance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from callsheet.ledger import queries, tables, writing
from callsheet.ledger.queries import Policy
from callsheet.records import State, Totals

Row = dict[str, Any]


def states(connection: sa.Connection, batch: str) -> dict[str, State]:
    """By key, the state of every job of the batch that the ledger knows."""
    rows = queries.jobs(connection, batch, ["job_key", "state"]).iter_rows()
    return {key: State(state) for key, state in rows}


def attempts(connection: sa.Connection, batch: str) -> list[Row]:
    return queries.every_attempt(connection, batch, tables.attempts.c.keys()).to_dicts()


def manifest(connection: sa.Connection, batch: str) -> list[Row]:
    names = dict.fromkeys([*tables.attempts.c.keys(), *tables.media.c.keys()])
    return queries.stored_files(connection, batch, names).to_dicts()


def known(policy: Policy) -> Callable[[sa.Connection, str], dict[str, Row]]:
    """By key, every job that the ledger knows, as a policy sees it."""
    return lambda connection, batch: {
        row["job_key"]: row
        for row in queries.jobs(connection, batch, ["job_key", "state"], policy=policy).to_dicts()
    }


def known_and_totals(connection: sa.Connection, batch: str) -> tuple[dict[str, Row], Totals]:
    """The same by a policy that buys what is in doubt again, and the totals."""
    policy = Policy(retry_doubt=True, attempts=2)
    return known(policy)(connection, batch), writing.of_batch(connection, batch)
