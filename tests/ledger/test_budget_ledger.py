"""The ledger's wall: what all its batches may spend together, ever, under any concurrency."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from multiprocessing.synchronize import Barrier
from typing import Any

import pytest
import sqlalchemy as sa

from callsheet.config.load import load
from callsheet.config.settings import Budget
from callsheet.ledger import gate, states, sums
from callsheet.ledger.gate import Obstacle, Reservation
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.policy import Policy
from callsheet.ledger.states import End
from callsheet.steps import batch
from tests.conftest import Project
from tests.ledger.buying import buyer, generation, intend, job
from tests.ledger.other_run import other_run
from tests.ledger.test_budget_per_day import ROWS, names, submitted
from tests.ledger.test_leases import LONG_AGO, change
from tests.waiting import LONGEST

pytestmark = pytest.mark.anyio

WALL = Decimal("1.0000")
BATCHES, JOBS = 6, 10  # 25 of the 60 jobs fit
FORKS = multiprocessing.get_context("forkserver")


async def reserve(
    ledger: Ledger, *names: str, of_ledger: str = "0.08", limit: str = "100", **options: Any
) -> Reservation:
    """Reserves jobs of 0.04 dollars each; the one called `dear` is of 0.50."""
    jobs = [job(name, price="0.5000" if name == "dear" else "0.0400") for name in names]
    day = options.pop("per_day", None)
    budget = Budget(per_day=day and Decimal(day), ledger=Decimal(of_ledger))
    return await ledger.reserve(jobs, Policy(), ledger.buyer(budget, Decimal(limit)), **options)


def used(connection: sa.Connection, batch: str) -> tuple[Decimal, int]:
    """As the quote of a batch says it."""
    return gate.used_ever(connection, but_of=batch), gate.used_by(connection, but_of=batch)


async def test_all_batches_together_never_spend_more_than_the_wall(url: str) -> None:
    async with buyer(url) as ledger, buyer(url, "another batch") as other:
        first = await reserve(ledger, "a", "b", "c")
        assert (len(first.reserved), names(first.left), first.obstacle) == (2, ["c"], Obstacle.LEDGER)
        assert (await reserve(other, "x")).obstacle is Obstacle.LEDGER, "what is reserved counts"
        (_, a), (_, b) = first.reserved
        await intend(ledger, a)
        await intend(ledger, b)
        assert (await reserve(other, "x")).obstacle is Obstacle.LEDGER, "what is in flight counts"
        await ledger.transition(states.in_doubt, End(a, "cut off"))
        await ledger.generated(b, generation("b", cost="0.0100"), ["b.png"], "out")
        refused = await reserve(other, "x")
        assert (refused.obstacle, refused.remaining) == (Obstacle.LEDGER, Decimal("0.03")), (
            "spent and in doubt count"
        )
        more = await reserve(other, "x", of_ledger="0.09")
        assert (len(more.reserved), more.obstacle) == (1, None)
        await intend(other, more.reserved[0][1])
        await other.transition(states.failed, End(more.reserved[0][1], "no", "server_error"))
        assert (await reserve(ledger, "c", of_ledger="0.09")).obstacle is None, "what failed is free"


async def test_what_was_sent_on_any_day_counts(url: str, ledger: Ledger) -> None:
    for _, attempt in (await reserve(ledger, "a", "b")).reserved:
        await intend(ledger, attempt)
    submitted(url, datetime.now(UTC) - timedelta(days=400))
    assert (await reserve(ledger, "c")).obstacle is Obstacle.LEDGER


async def test_the_wall_that_a_job_meets_is_named(ledger: Ledger) -> None:
    """Where a job fits neither the ledger's nor the day's, the ledger's: no day ends that."""
    assert (await reserve(ledger, "a", limit="0.03", of_ledger="1")).obstacle is Obstacle.BALANCE
    assert (await reserve(ledger, "a", of_ledger="1", per_day="0.03")).obstacle is Obstacle.DAY
    assert (await reserve(ledger, "a", of_ledger="0.03", per_day="0.03")).obstacle is Obstacle.LEDGER
    skipped = await reserve(ledger, "dear", "a", of_ledger="0.04", skip=True)
    assert (names([one for one, _ in skipped.reserved]), names(skipped.left)) == (["a"], ["dear"])
    assert skipped.obstacle is Obstacle.LEDGER


async def test_what_a_dead_run_of_another_batch_had_reserved_is_free(url: str, ledger: Ledger) -> None:
    """And when it was not dead but suspended elsewhere, it sends of that what the wall has room for."""
    async with buyer(url, "another batch") as sleeper:
        (_, x), (_, y) = (await reserve(sleeper, "x", "y")).reserved
        assert await intend(sleeper, x, of_ledger="0.08") is None
        assert (await reserve(ledger, "a", "b")).obstacle is Obstacle.LEDGER
        change(url, sleeper.run_id, host="elsewhere", lease_until=LONG_AGO)
        [(_, a)] = (await reserve(ledger, "a", "b")).reserved
        assert await intend(ledger, a, of_ledger="0.08") is None
        assert await intend(sleeper, y, of_ledger="0.08") is Obstacle.LEDGER
        await sleeper.generated(x, generation("x"), ["x.png"], "out")


async def test_what_a_dead_run_of_the_batch_had_reserved_is_free_before_it_is_taken_over(
    url: str, ledger: Ledger
) -> None:
    """Of what was left for the batch, too."""
    left: dict[str, Any] = {"of_ledger": "1", "limit": "0.04"}
    async with buyer(url) as sleeper:
        [(_, x)] = (await reserve(sleeper, "x", **left)).reserved
        assert (await reserve(ledger, "a", **left)).obstacle is Obstacle.BALANCE
        change(url, sleeper.run_id, host="elsewhere", lease_until=LONG_AGO)
        [(_, a)] = (await reserve(ledger, "a", **left)).reserved
        assert await intend(ledger, a, **left) is None
        assert await intend(sleeper, x, **left) is Obstacle.BALANCE


async def test_answers_that_cost_more_keep_back_what_another_batch_has_reserved(url: str) -> None:
    async with buyer(url) as ledger, buyer(url, "another batch") as other:
        [(_, a)] = (await reserve(ledger, "a")).reserved
        [(_, x)] = (await reserve(other, "x")).reserved
        await intend(ledger, a, of_ledger="0.08")
        await ledger.generated(a, generation("a", cost="0.0500"), ["a.png"], "out")
        assert await intend(other, x, of_ledger="0.08") is Obstacle.LEDGER
        [(_, x)] = (await reserve(other, "x", of_ledger="0.09")).reserved
        assert await intend(other, x, of_ledger="0.09") is None


async def test_a_reader_knows_what_is_left_for_the_next_run_of_a_batch(url: str, ledger: Ledger) -> None:
    """Without what the batch itself has reserved, and what dead runs have: it is to buy, or free."""
    assert await ledger.read(used) == (0, 0)
    (_, a), *_ = (await reserve(ledger, "a", "b", of_ledger="1")).reserved
    assert await ledger.read(used) == (0, 0)
    await intend(ledger, a)
    with other_run(url, "another batch") as other:
        other.do("reserve x y", "intend x")
        assert await ledger.read(used) == (Decimal("0.12"), 2), "a, x and y"
        other.kill()
        assert await ledger.read(used) == (Decimal("0.08"), 2), "a, and x, which is in doubt"
    with other_run(url, "a third batch") as third:
        third.do("reserve z")
        assert await ledger.read(used) == (Decimal("0.12"), 3), "z too, which is reserved"
    assert len((await reserve(ledger, "c", "d", of_ledger="0.20")).reserved) == 2


# ---- several batches at once


def buy(url: str, number: int, everybody: Barrier) -> None:
    """One process: the run of a batch of its own. All reserve their first jobs, then all go on at once."""
    asyncio.run(_buy(url, number, random.Random(number), everybody))


async def _buy(url: str, number: int, chance: random.Random, everybody: Barrier) -> None:
    async with buyer(url, f"batch-{number}") as ledger:
        for start in range(0, JOBS, 2):
            wanted = [f"{number}-{start}", f"{number}-{start + 1}"]
            everybody.wait(LONGEST)
            for one, attempt in (await reserve(ledger, *wanted, of_ledger=str(WALL))).reserved:
                if await intend(ledger, attempt, of_ledger=str(WALL)):
                    continue
                outcome = chance.choice(["bought", "bought", "refused", "doubt"])
                if outcome == "refused":
                    await ledger.transition(states.failed, End(attempt, "no", "server_error"))
                elif outcome == "doubt":
                    await ledger.transition(states.in_doubt, End(attempt, "cut off"))
                else:
                    await ledger.generated(attempt, generation(one.row_id), [f"{one.row_id}.png"], "out")
        everybody.wait(LONGEST)
        await ledger.end_run()


def test_batches_that_reserve_at_the_same_moment_never_pass_the_wall_together(url: str) -> None:
    FORKS.set_forkserver_preload([__name__])
    everybody = FORKS.Barrier(BATCHES)
    crowd = [FORKS.Process(target=buy, args=(url, number, everybody)) for number in range(BATCHES)]
    for process in crowd:
        process.start()
    looks = asyncio.run(_watch_the_wall(url, crowd))
    assert looks > 5, "the wall was looked at while they bought"
    assert [process.exitcode for process in crowd] == [0] * BATCHES
    asyncio.run(_buy_the_rest(url))


async def _buy_the_rest(url: str) -> None:
    """What refused jobs gave back at the very end, when nobody asked for it any more, can be bought."""
    async with buyer(url, "the last batch") as ledger:
        rest = [f"rest-{number}" for number in range(JOBS * BATCHES)]
        reserved = (await reserve(ledger, *rest, of_ledger=str(WALL))).reserved
        assert len(reserved) < BATCHES * 2, "no more than what they all had reserved at once"
        for _, attempt in reserved:
            assert await intend(ledger, attempt, of_ledger=str(WALL)) is None
        assert await ledger.read(lambda connection, _: gate.used_ever(connection)) == WALL


async def _watch_the_wall(url: str, crowd: list[multiprocessing.process.BaseProcess]) -> int:
    looks = 0
    async with await Ledger.open(url, "none of them") as ledger:
        while any(process.is_alive() for process in crowd):
            ever, wrong = await ledger.read(
                lambda connection, _: (gate.used_ever(connection), sums.differences(connection))
            )
            assert ever <= WALL
            assert wrong == []
            looks += 1
    return looks


# ---- two batches, bought at the backlot


def run(made: Project, name: str, **budget: str) -> Any:
    made.set(batch=name, report={"url": f"out/{name}/report"}, budget=budget)
    return asyncio.run(batch.generate(load(made.config), approved=True))


def test_the_second_of_two_batches_stops_at_the_wall_and_says_what_is_used(
    project: Callable[..., Project],
) -> None:
    made = project(ROWS)
    first = run(made, "first", ledger="0.0060")
    assert (first.outcome, first.stored) == ("complete", 3)
    second = run(made, "second")
    assert (second.stored, second.stop_reason, second.exit_code) == (1, "budget", 4)
    assert second.stop_message == (
        "row b, 0.0015 USD, does not fit what is left of budget.ledger: 0.0000 of 0.0060 USD; "
        "0.0060 USD are used by 2 batches"
    )
    assert "With a higher budget.ledger the same command goes on from here" in str(second.details.stop_hint)
    refused = run(made, "second", on_exceed="refuse")
    assert (refused.submissions, refused.stop_reason, refused.exit_code) == (0, "budget", 4)
    assert "budget.ledger" in str(refused.stop_message)
    skipped = run(made, "second", on_exceed="skip", ledger="0.0080")
    assert (skipped.stored, skipped.stop_reason, skipped.exit_code) == (2, "budget", 4)
    assert str(skipped.stop_message).startswith(
        "skipped 1 job (the first: row c, 0.0015 USD), which cost more than what is left of budget.ledger: "
        "0.0005 of 0.0080 USD; 0.0075 USD are used by 2 batches"
    )
    done = run(made, "second", ledger="0.0090")
    assert (done.outcome, done.stored) == ("complete", 3), "with a higher limit the same command goes on"
    assert made.charged == Decimal("0.0090")


def test_two_batches_at_once_buy_no_more_than_the_wall_together(project: Callable[..., Project]) -> None:
    made = project([row | {"samples": 4} for row in ROWS], image_seconds=0.02)
    configs = []
    for name in ("first", "second"):
        made.set(batch=name, report={"url": f"out/{name}/report"}, budget={"ledger": "0.0150"})
        configs.append(load(made.config))

    async def both() -> list[Any]:
        return await asyncio.gather(*(batch.generate(each, approved=True) for each in configs))

    summaries = asyncio.run(both())
    assert made.charged == Decimal("0.0150"), "10 of the 24"
    assert sum(each.stored for each in summaries) == 10
    assert {(each.stop_reason, each.exit_code) for each in summaries} == {("budget", 4)}
