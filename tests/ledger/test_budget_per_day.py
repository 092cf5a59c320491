"""The daily wall: what all batches of the ledger may spend in a UTC day, under any concurrency."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa

from callsheet.config.load import load
from callsheet.config.settings import Budget
from callsheet.ledger import gate, states, writing
from callsheet.ledger.databases import open_engine
from callsheet.ledger.gate import Obstacle, Reservation
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.policy import Policy
from callsheet.ledger.states import End
from callsheet.ledger.tables import attempts
from callsheet.records import Job
from callsheet.steps import batch
from tests.conftest import Project
from tests.ledger.buying import buyer, generation, intend, job
from tests.ledger.other_run import other_run
from tests.ledger.test_leases import LONG_AGO, change

pytestmark = pytest.mark.anyio


ROWS = [{"id": name, "prompt": "a vase", "model": "sketch-1", "aspect_ratio": "1:1"} for name in "abc"]
"""Each costs 0.0015 USD."""


async def reserve(
    ledger: Ledger, *names: str, per_day: str = "0.08", limit: str = "100", **options: Any
) -> Reservation:
    """Reserves jobs of 0.04 dollars each; the one called `dear` is of 0.50."""
    jobs = [job(name, price="0.5000" if name == "dear" else "0.0400") for name in names]
    budget = Budget(per_day=Decimal(per_day))
    return await ledger.reserve(jobs, Policy(), ledger.buyer(budget, Decimal(limit)), **options)


def names(jobs: list[Job]) -> list[str]:
    return [one.row_id for one in jobs]


def submitted(url: str, when: datetime) -> None:
    """Moves all submissions so far to another time."""
    engine = open_engine(url)
    with engine.begin() as connection:
        for row in writing.which(connection, attempts.c.submitted_at.is_not(None)):
            writing.change_attempt(connection, row, {"submitted_at": when})
    engine.dispose()


@pytest.mark.parametrize(
    ("balance", "per_day", "ever", "obstacle"),
    [
        ("0.30", "0.20", "9", Obstacle.BALANCE),  # midnight would not help
        ("0.60", "0.20", "9", Obstacle.DAY),
        ("0.30", "9", "0.20", Obstacle.LEDGER),
        ("0.20", "9", "0.30", Obstacle.BALANCE),
    ],
)
async def test_the_tightest_of_what_a_job_does_not_fit_is_named(
    ledger: Ledger, balance: str, per_day: str, ever: str, obstacle: Obstacle
) -> None:
    budget = Budget(per_day=Decimal(per_day), ledger=Decimal(ever))
    dear = job("dear", price="0.5000")
    reservation = await ledger.reserve([dear], Policy(), ledger.buyer(budget, Decimal(balance)), skip=False)
    assert reservation.obstacle is obstacle


async def test_all_batches_together_spend_no_more_than_the_wall_in_a_day(url: str) -> None:
    async with buyer(url) as ledger, buyer(url, "another batch") as other:
        first = await reserve(ledger, "a", "b", "c")
        assert (len(first.reserved), names(first.left), first.obstacle) == (2, ["c"], Obstacle.DAY)
        assert (await reserve(other, "x")).obstacle is Obstacle.DAY, "what is reserved counts"
        (_, a), (_, b) = first.reserved
        await intend(ledger, a)
        await intend(ledger, b)
        assert (await reserve(other, "x")).obstacle is Obstacle.DAY, "what is in flight counts"
        await ledger.transition(states.in_doubt, End(a, "cut off"))
        await ledger.generated(b, generation("b", cost="0.0100"), ["b.png"], "out")
        assert (await reserve(other, "x")).obstacle is Obstacle.DAY, "what is in doubt and spent counts"
        more = await reserve(other, "x", per_day="0.09")
        assert (len(more.reserved), more.obstacle) == (1, None)
        await intend(other, more.reserved[0][1])
        await other.transition(states.failed, End(more.reserved[0][1], "no", "server_error"))
        assert (await reserve(ledger, "c", per_day="0.09")).obstacle is None, "what failed is free"


async def test_what_was_sent_yesterday_does_not_count_today(url: str, ledger: Ledger) -> None:
    for _, attempt in (await reserve(ledger, "a", "b")).reserved:
        await intend(ledger, attempt)
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    submitted(url, today)
    assert (await reserve(ledger, "c")).obstacle is Obstacle.DAY
    submitted(url, today - timedelta(microseconds=1))
    assert len((await reserve(ledger, "c", "d", "e")).reserved) == 2


async def test_a_job_counts_for_the_day_on_which_it_is_sent(url: str, ledger: Ledger) -> None:
    """However long it was reserved, and although the service took nothing when it was sent before."""
    reserved = (await reserve(ledger, "a", "b")).reserved
    for _, attempt in reserved:
        await intend(ledger, attempt)
        await ledger.transition(states.planned_again, attempt)
    submitted(url, datetime.now(UTC) - timedelta(days=1))
    assert (await reserve(ledger, "c")).obstacle is Obstacle.DAY, "what is reserved may be sent today"
    for _, attempt in reserved:
        await intend(ledger, attempt)
    assert (await reserve(ledger, "c")).obstacle is Obstacle.DAY


@pytest.mark.skipif(shutil.which("faketime") is None, reason="faketime is not installed")
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_the_day_is_the_database_s_also_for_a_machine_whose_clock_is_wrong(url: str) -> None:
    async with buyer(url) as ledger:
        with other_run(url, "theirs", clock="-1d") as wrong:
            wrong.do("reserve x", "intend x")
            assert (await reserve(ledger, "a", per_day="0.04")).obstacle is Obstacle.DAY


async def test_the_wall_that_a_job_meets_is_named(ledger: Ledger) -> None:
    assert (await reserve(ledger, "a", limit="0.03", per_day="1")).obstacle is Obstacle.BALANCE
    assert (await reserve(ledger, "a", limit="1", per_day="0.03")).obstacle is Obstacle.DAY
    assert (await reserve(ledger, "a", limit="0.03", per_day="0.03")).obstacle is Obstacle.BALANCE
    skipped = await reserve(ledger, "dear", "a", limit="1", per_day="0.04", skip=True)
    assert (names([one for one, _ in skipped.reserved]), names(skipped.left)) == (["a"], ["dear"])
    assert skipped.obstacle is Obstacle.DAY


async def test_what_a_dead_run_of_another_batch_had_reserved_is_free(url: str, ledger: Ledger) -> None:
    """And when it was not dead but suspended elsewhere, it sends of that what the wall has room for."""
    async with buyer(url, "another batch") as sleeper:
        (_, x), (_, y) = (await reserve(sleeper, "x", "y")).reserved
        await intend(sleeper, x, per_day="0.08")
        assert (await reserve(ledger, "a", "b")).obstacle is Obstacle.DAY
        change(url, sleeper.run_id, host="elsewhere", lease_until=LONG_AGO)
        [(_, a)] = (await reserve(ledger, "a", "b")).reserved
        await intend(ledger, a, per_day="0.08")
        assert await intend(sleeper, y, per_day="0.08") is Obstacle.DAY
        await sleeper.generated(x, generation("x"), ["x.png"], "out")


async def test_a_reader_knows_what_of_the_day_is_left_for_the_next_run_of_a_batch(
    url: str, ledger: Ledger
) -> None:
    """Without what the batch itself has reserved, and what dead runs have: it is to buy, or free."""

    def used(connection: sa.Connection, batch: str) -> Decimal:
        return gate.used_today(connection, datetime.now(UTC), but_of=batch)

    (_, a), *_ = (await reserve(ledger, "a", "b", per_day="1")).reserved
    await intend(ledger, a)
    with other_run(url, "another batch") as other:
        other.do("reserve x y", "intend x")
        assert await ledger.read(used) == Decimal("0.12"), "a, x and y"
        other.kill()
        assert await ledger.read(used) == Decimal("0.08"), "a, and x, which is in doubt"
    assert len((await reserve(ledger, "c", "d", per_day="0.20")).reserved) == 2


def test_runs_of_two_batches_stop_at_the_daily_wall_and_say_so(project: Callable[..., Project]) -> None:
    made = project(ROWS)
    made.set(budget={"per_day": "0.0030"})
    for name, stored in (("first", 2), ("second", 0)):
        made.set(batch=name, report={"url": f"out/{name}/report"})
        summary = asyncio.run(batch.generate(load(made.config), approved=True))
        assert (summary.stored, summary.stop_reason, summary.exit_code) == (stored, "budget", 4)
        assert "budget.per_day" in (summary.stop_message or "")
