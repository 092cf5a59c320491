"""The ledger's large queries as lists and dictionaries, which tests can compare at a glance."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import sqlalchemy as sa

from callsheet.ledger import gate, queries, spending, sums, tables
from callsheet.ledger.policy import Policy
from callsheet.records import State, Totals
from callsheet.standing import read_standing

Row = dict[str, Any]


def states(connection: sa.Connection, batch: str) -> dict[str, State]:
    """By key, the state of every job of the batch that the ledger knows."""
    newest = read_standing(connection, batch).newest
    return {key: State(state) for key, state in newest.select("job_key", "state").iter_rows()}


def attempts(connection: sa.Connection, batch: str) -> list[Row]:
    standing = read_standing(connection, batch, of_attempts=tables.attempts.c.keys())
    return standing.attempts.select(tables.attempts.c.keys()).to_dicts()


def manifest(connection: sa.Connection, batch: str) -> list[Row]:
    names = dict.fromkeys([*tables.attempts.c.keys(), *tables.media.c.keys()])
    return queries.stored_files(connection, batch, names).to_dicts()


def known(policy: Policy) -> Callable[[sa.Connection, str], dict[str, Row]]:
    """By key, every job that the ledger knows, as a policy sees it."""
    names = ["job_key", "state", "to_buy"]
    return lambda connection, batch: {
        row["job_key"]: row
        for row in read_standing(connection, batch, None, policy).newest.select(names).to_dicts()
    }


def everything(connection: sa.Connection, batch: str) -> list[Any]:
    """What the ledger says to each kind of question; not whose an accepted job is, nor who is at work."""
    rows = [
        row | {"run_id": row["run_id"] if row["state"] == State.PLANNED else None}
        for row in attempts(connection, batch)
    ]
    first, last, service = date(2020, 1, 1), date(2100, 1, 1), "http://service"
    totals = connection.execute(sa.select(tables.totals)).all()
    return [
        known_and_totals(connection, batch),
        rows,
        manifest(connection, batch),
        queries.doubts(connection, batch, pending=True),
        [queries.stories(connection, batch, row_id) for row_id in sorted({row["row_id"] for row in rows})],
        list(queries.stories_of(connection, read_standing(connection, batch).failed["key"].to_list())),
        queries.free_jobs(connection, batch),
        sorted(map(tuple, (row for row in totals if any(row[len(tables.totals.primary_key) :])))),
        sums.of_ledger(connection),
        sums.differences(connection),
        gate.used_ever(connection),
        spending.days(connection, batch, service, first, last),
        spending.doubts_at_service(connection, service, first, last),
        read_standing(connection, batch, of_attempts=["request"]).shares,
    ]


def known_and_totals(connection: sa.Connection, batch: str) -> tuple[dict[str, Row], Totals]:
    """The same by a policy that buys what is in doubt again, and the totals."""
    policy = Policy(retry_doubt=True, attempts=2)
    return known(policy)(connection, batch), sums.of_batch(connection, batch)
