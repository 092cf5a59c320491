"""With PostgreSQL, runs reserve beside each other, from what is set aside for them; the walls stay exact."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa

from callsheet.ledger import claims, databases, running_totals
from callsheet.ledger.budgets import Budget, Wall
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.policy import Policy
from callsheet.ledger.tables import allotments
from callsheet.records import Job, State
from tests.conftest import Project
from tests.ledger import reading
from tests.ledger.buying import buyer, generation, job
from tests.ledger.other_run import other_run
from tests.ledger.test_leases import LONG_AGO, change
from tests.waiting import LONGEST, wait_until


@pytest.fixture
def url(new_database: Callable[[], str]) -> str:
    return new_database()


def jobs(name: str, count: int) -> list[Job]:
    """Jobs of 0.04 dollars."""
    return [job(f"{name}{number}") for number in range(count)]


async def reserved(ledger: Ledger, *those: Job, limit: str = "100", **options: Any) -> int | tuple[int, Wall]:
    """How many are reserved, and which wall the next one does not fit."""
    result = await ledger.reserve(those, Policy(), limit=Decimal(limit), **options)
    count = len(result.reserved)
    return (count, result.wall) if result.wall else count


def set_aside(url: str) -> dict[str, Decimal]:
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        rows = connection.execute(sa.select(allotments.c.run_id, allotments.c.amount)).all()
    engine.dispose()
    return {row.run_id: row.amount for row in rows}


@contextmanager
def writing(url: str) -> Iterator[sa.Connection]:
    """A transaction of another process, which is not committed."""
    engine = sa.create_engine(url, execution_options={"sharing": True})
    with engine.connect() as connection, connection.begin() as transaction:
        yield connection
        if transaction.is_active:
            transaction.rollback()
    engine.dispose()


def test_a_reservation_does_not_wait_for_another_runs_and_passes_over_its_jobs(url: str) -> None:
    async def scenario() -> None:
        async with buyer(url) as one, buyer(url) as other:
            for ledger, first in ((one, job("x")), (other, job("y"))):
                assert await reserved(ledger, first) == 1
            a, b = job("a"), job("b")
            with writing(url) as connection:  # in the middle of it
                budget = Budget(Decimal(100))
                theirs = claims.reserve(connection, "b", one.run_id, [a], Policy(), budget=budget, skip=False)
                assert len(theirs.reserved) == 1
                async with asyncio.timeout(LONGEST):
                    result = await other.reserve([a, b], Policy(), limit=Decimal(100))
                assert [found.row_id for found, _ in result.reserved] == ["b"]
                assert [found.row_id for found in result.claimed] == ["a"]
            assert await reserved(other, a) == 1, "that one was not committed"

    asyncio.run(scenario())


def test_what_is_set_aside_for_a_run_is_left_to_it_until_another_one_needs_it(url: str) -> None:
    async def scenario() -> None:
        async with buyer(url) as one, buyer(url) as other:
            assert await reserved(one, job("x"), limit="4.00") == 1
            assert set_aside(url) == {one.run_id: Decimal("3.96") / 16}
            assert await reserved(other, *jobs("y", 90), limit="4.00") == 90
            assert await reserved(one, *jobs("z", 5), limit="4.00") == 5
            assert set_aside(url)[one.run_id] == Decimal("0.0475"), "the rest of what was set aside"
            assert await reserved(other, *jobs("w", 5), limit="4.00") == (4, Wall.BATCH), "all that is left"
            assert await reserved(one, job("v"), limit="4.00") == (0, Wall.BATCH)
            assert await one.read(running_totals.exposure) == Decimal("4.00")

    asyncio.run(scenario())


def test_a_job_that_costs_more_than_quoted_takes_it_from_what_is_set_aside(url: str) -> None:
    async def scenario() -> None:
        async with buyer(url) as ledger:
            [(_, attempt)] = (await ledger.reserve([job("a")], Policy(), limit=Decimal("1.00"))).reserved
            assert set_aside(url) == {ledger.run_id: Decimal("0.06")}
            await ledger.intend(attempt)
            await ledger.generated(attempt, generation("a", cost="0.97"), ["a.png"], "out")
            assert await reserved(ledger, job("b"), limit="1.00") == (0, Wall.BATCH)

    asyncio.run(scenario())


def test_runs_of_two_batches_with_something_set_aside_share_the_day_to_the_cent(url: str) -> None:
    async def scenario() -> None:
        day = {"per_day": Decimal("4.00")}
        async with buyer(url) as one, buyer(url, "another batch") as other:
            assert await reserved(one, job("x"), **day) == 1
            assert await reserved(other, *jobs("y", 92), **day) == 92
            assert await reserved(one, *jobs("z", 5), **day) == 5
            assert await reserved(other, *jobs("w", 5), **day) == (2, Wall.DAY)
            assert await reserved(one, job("v"), **day) == (0, Wall.DAY)
            assert await reserved(one, job("v")) == 1, "without a wall for the day"

    asyncio.run(scenario())


def test_what_is_set_aside_is_given_back_at_the_end_and_taken_from_the_dead(url: str) -> None:
    async def scenario() -> None:
        async with buyer(url) as ledger:
            await reserved(ledger, job("x"))
            await ledger.end_run()
        assert set_aside(url) == {}
        with other_run(url, "b") as dead:
            dead.do("reserve y")
            assert len(set_aside(url)) == 1
        async with buyer(url):
            assert set_aside(url) == {}
        async with buyer(url) as asleep:
            await reserved(asleep, job("z"))
            change(url, asleep.run_id, host="elsewhere", lease_until=LONG_AGO)
            async with buyer(url):
                assert set_aside(url) == {}

    asyncio.run(scenario())


def test_a_run_tries_again_what_another_one_is_reserving(
    project: Callable[..., Project], new_database: Callable[[], str]
) -> None:
    image = {"model": "sketch-1", "aspect_ratio": "1:1"}
    made = project([{"id": name, "prompt": f"a {name}", **image} for name in ("apple", "pear", "plum")])
    made.set(ledger={"url": new_database()})
    made.run()
    [pear] = made.manifest().filter(row_id="pear")["job_key"]
    url = new_database()
    made.set(ledger={"url": url}, storage={"url": "out/again"})
    with writing(url) as connection:
        databases.open_engine(url).dispose()
        assert databases.claim(connection, [pear]) == {pear}
        run = threading.Thread(target=made.run)
        run.start()
        wait_until(lambda: stored(url) == 2, "the other two were not bought", 0.3)
    run.join()
    assert made.report()["outcome"] == "complete"
    assert stored(url) == 3


def stored(url: str) -> int:
    async def look() -> int:
        ledger = await Ledger.open(url, "test")
        states = await ledger.read(reading.states)
        await ledger.close()
        return list(states.values()).count(State.STORED)

    return asyncio.run(look())
