"""What is read of some jobs costs the same in a small batch and in a large one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sqlalchemy as sa

from callsheet.ledger import queries, stories
from callsheet.ledger.ledger import Ledger
from callsheet.records import Job
from callsheet.report.contact_sheet.cards import cards
from tests.ledger.buying import buyer, job, reserve

FEW = [job(f"few {number}") for number in range(10)]
KEYS = [one.key for one in FEW]

Read = Callable[[sa.Connection, str], Any]


def planned(one: Job) -> dict[str, Any]:
    asked = {"prompt": "", "asked": "", "quoted": None, "carried": None}
    return {"job_key": one.key, "row_id": one.row_id, "sample": 1, "type": "image", "model": "m", **asked}


PLANNED = pl.DataFrame([planned(one) for one in FEW])


async def steps(ledger: Ledger, read: Read) -> int:
    """The steps of SQLite that a read takes, in hundreds."""
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    def counting(connection: sa.Connection, batch: str) -> int:
        database: Any = connection.connection.driver_connection
        database.set_progress_handler(count, 100)
        list(read(connection, batch))
        database.set_progress_handler(None, 0)
        return counted

    return await ledger.read(counting)


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda connection, batch: queries.states(connection, batch, KEYS), id="states"),
        pytest.param(lambda connection, _: cards(connection, PLANNED), id="contact sheet"),
        pytest.param(lambda connection, _: stories.of_jobs(connection, KEYS), id="pilot"),
        pytest.param(lambda connection, _: queries.ended(connection, KEYS), id="spool"),
    ],
)
def test_reading_some_jobs_costs_the_same_in_a_batch_of_any_size(tmp_path: Path, read: Read) -> None:
    async def scenario() -> None:
        async with buyer(f"sqlite:///{tmp_path}/ledger.db") as ledger:
            await reserve(ledger, *FEW, limit="1000")
            small = await steps(ledger, read)
            await reserve(ledger, *(job(f"other {number}") for number in range(5_000)), limit="1000")
            assert await steps(ledger, read) <= 1.5 * small + 1

    asyncio.run(scenario())
