"""What is done with some jobs costs the same in a small ledger and in a large one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from callsheet.ledger import queries, stories
from callsheet.ledger.ledger import Ledger
from tests.ledger.buying import buyer, job, reserve

pytestmark = pytest.mark.anyio

FEW = [job(f"few {number}") for number in range(10)]
KEYS = [one.key for one in FEW]
OTHERS = [job(f"other {number}") for number in range(5_000)]

Read = Callable[[sa.Connection, str], Any]
Steps = Callable[[Awaitable[object]], Awaitable[int]]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ledger.db"


@pytest.fixture
def steps() -> Iterator[Steps]:
    """Counts the steps of SQLite, in hundreds, on the connections that are opened from now on."""
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    def watch(connection: Any, _: object) -> None:
        connection.set_progress_handler(count, 100)

    async def of(work: Awaitable[object]) -> int:
        before = counted
        await work
        return counted - before

    sa.event.listen(sa.Engine, "connect", watch)
    yield of
    sa.event.remove(sa.Engine, "connect", watch)


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda connection, batch: queries.states(connection, batch, KEYS), id="states"),
        pytest.param(lambda connection, _: stories.of_jobs(connection, KEYS), id="pilot"),
        pytest.param(lambda connection, _: queries.ended(connection, KEYS), id="spool"),
    ],
)
async def test_reading_some_jobs_costs_the_same_in_a_batch_of_any_size(
    steps: Steps, ledger: Ledger, read: Read
) -> None:
    await reserve(ledger, *FEW, limit="1000")
    small = await steps(ledger.read(lambda *where: list(read(*where))))
    await reserve(ledger, *OTHERS, limit="1000")
    assert await steps(ledger.read(lambda *where: list(read(*where)))) <= 1.5 * small + 1


async def test_ending_a_run_costs_the_same_however_many_jobs_other_batches_have(
    url: str, steps: Steps
) -> None:
    async def end_of_a_run() -> int:
        async with buyer(url) as ledger:
            await reserve(ledger, *FEW, limit="1000")
            return await steps(ledger.end_run())

    alone = await end_of_a_run()
    async with buyer(url, "another") as ledger:
        await reserve(ledger, *OTHERS, limit="1000")
        assert await end_of_a_run() <= 1.5 * alone + 1
