"""What is done with some jobs costs the same in a small ledger and in a large one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sqlalchemy as sa

from callsheet.ledger import queries, stories
from callsheet.records import Job
from callsheet.report.contact_sheet.cards import cards
from tests.ledger.buying import buyer, job, reserve

FEW = [job(f"few {number}") for number in range(10)]
KEYS = [one.key for one in FEW]
OTHERS = [job(f"other {number}") for number in range(5_000)]

Read = Callable[[sa.Connection, str], Any]


def planned(one: Job) -> dict[str, Any]:
    asked = {"prompt": "", "asked": "", "quoted": None, "carried": None}
    return {"job_key": one.key, "row_id": one.row_id, "sample": 1, "type": "image", "model": "m", **asked}


PLANNED = pl.DataFrame([planned(one) for one in FEW])


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ledger.db"


class Steps:
    """Counts the steps of SQLite, in hundreds, on the connections that are opened from now on."""

    def __init__(self) -> None:
        self._counted = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        sa.event.listen(sa.Engine, "connect", self._watch)
        try:
            yield
        finally:
            sa.event.remove(sa.Engine, "connect", self._watch)

    async def of(self, work: Awaitable[object]) -> int:
        before = self._counted
        await work
        return self._counted - before

    def _watch(self, connection: Any, _: object) -> None:
        connection.set_progress_handler(self._count, 100)

    def _count(self) -> int:
        self._counted += 1
        return 0


@pytest.fixture
def steps() -> Iterator[Steps]:
    counted = Steps()
    with counted.watching():
        yield counted


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda connection, batch: queries.states(connection, batch, KEYS), id="states"),
        pytest.param(lambda connection, _: cards(connection, PLANNED), id="contact sheet"),
        pytest.param(lambda connection, _: stories.of_jobs(connection, KEYS), id="pilot"),
        pytest.param(lambda connection, _: queries.ended(connection, KEYS), id="spool"),
    ],
)
def test_reading_some_jobs_costs_the_same_in_a_batch_of_any_size(url: str, steps: Steps, read: Read) -> None:
    async def scenario() -> None:
        async with buyer(url) as ledger:
            await reserve(ledger, *FEW, limit="1000")
            small = await steps.of(ledger.read(lambda *where: list(read(*where))))
            await reserve(ledger, *OTHERS, limit="1000")
            assert await steps.of(ledger.read(lambda *where: list(read(*where)))) <= 1.5 * small + 1

    asyncio.run(scenario())


def test_ending_a_run_costs_the_same_however_many_jobs_other_batches_have(url: str, steps: Steps) -> None:
    async def end_of_a_run() -> int:
        async with buyer(url) as ledger:
            await reserve(ledger, *FEW, limit="1000")
            return await steps.of(ledger.end_run())

    async def scenario() -> None:
        alone = await end_of_a_run()
        async with buyer(url, "another") as ledger:
            await reserve(ledger, *OTHERS, limit="1000")
            assert await end_of_a_run() <= 1.5 * alone + 1

    asyncio.run(scenario())
