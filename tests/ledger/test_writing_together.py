"""With PostgreSQL, many runs write to one ledger: the budget's walls and the totals stay exact.

Runs are real processes here. That no job is sent by two is in `test_crowd.py` too.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
import sqlalchemy as sa

from callsheet.errors import LedgerError
from callsheet.ledger import running_totals
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.policy import Policy
from callsheet.ledger.same_ids import SameGeneration
from callsheet.records import Attempt, File, Job, ModelType, State
from tests.ledger import reading
from tests.ledger.buying import buyer, generation, intend, job, reserve
from tests.ledger.test_leases import LONG_AGO, change
from tests.ledger.together import FORKS, STORED, WAITERS, check_no_deadlock, execute
from tests.servers.postgres_proxy import postgres_proxy
from tests.waiting import LONGEST, wait_until

LIMIT, PER_DAY = Decimal("1.20"), Decimal("2.20")
LOOKS = 0.05  # seconds between two looks at what others write, who need the processor too
PRICES = ("0.0100", "0.0400", "0.0700")


def jobs_of(batch: str) -> list[Job]:
    """Jobs of three prices; each second one is a video."""
    types = (ModelType.IMAGE, ModelType.VIDEO)
    return [job(f"{batch}-{number}", types[number % 2], PRICES[number % 3]) for number in range(60)]


# ---- the walls


def buy_what_fits(url: str, number: int, everybody: Barrier) -> None:
    """One process: a run of one of two batches that buys whatever fits into what is left."""
    asyncio.run(_buy_what_fits(url, number, everybody))


async def _buy_what_fits(url: str, number: int, everybody: Barrier) -> None:
    batch = f"batch {number % 2}"
    async with buyer(url, batch) as ledger:
        jobs = jobs_of(batch)
        jobs = [*jobs[9 * number :], *jobs[: 9 * number]]  # so that it is not a job's key that stops them
        everybody.wait(LONGEST)
        size = 1 if number < 4 else 3
        for start in range(0, len(jobs), size):
            block = jobs[start : start + size]
            result = await ledger.reserve(block, Policy(), limit=LIMIT, per_day=PER_DAY, skip=True)
            await asyncio.gather(*(_bought(ledger, one, attempt) for one, attempt in result.reserved))
        await ledger.end_run()


async def _bought(ledger: Ledger, one: Job, attempt: Attempt) -> None:
    await intend(ledger, attempt)
    await ledger.generated(attempt, generation(one.row_id, str(one.quoted)), [one.row_id], "out")


def test_eight_runs_of_two_batches_spend_the_budgets_to_the_cent(new_database: Callable[[], str]) -> None:
    """Whatever isolation the server gives those who do not ask for one."""
    url = new_database()
    name = sa.make_url(url).database
    execute(url, f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    everybody = FORKS.Barrier(8)
    crowd = [
        FORKS.Process(target=buy_what_fits, args=(url, number, everybody), daemon=True) for number in range(8)
    ]

    async def watch() -> Decimal:
        ledger = await Ledger.open(url, "b")
        for process in crowd:
            process.start()
        while any(process.is_alive() for process in crowd):
            day, batches = await ledger.read(_exposures)
            assert day <= PER_DAY
            assert all(exposed <= LIMIT for exposed in batches)
            await asyncio.sleep(LOOKS)
        day, _ = await ledger.read(_exposures)
        await ledger.close()
        return day

    assert asyncio.run(watch()) == PER_DAY
    assert [process.exitcode for process in crowd] == [0] * 8
    check_no_deadlock(url)


def _exposures(connection: sa.Connection, _: str) -> tuple[Decimal, list[Decimal]]:
    batches = [running_totals.of_batch(connection, f"batch {number}").exposure for number in range(2)]
    return running_totals.exposure_of_day(connection, datetime.now(UTC)), batches


# ---- everything at once


def live(url: str, seed: int, book: Path) -> None:
    """One process: a run of one of two batches that does all that runs do, and may be killed anywhere."""
    asyncio.run(_live(url, random.Random(seed), f"batch {seed % 2}", book))


def id_of(attempt: Attempt) -> str:
    return f"{attempt.job_key}-{attempt.number}"


async def _live(url: str, chance: random.Random, batch: str, book: Path) -> None:
    notes: list[str] = []
    ledger = await Ledger.open(url, batch, note=notes.append)
    await ledger.begin_run()
    dies_after = chance.choice([20, 60, 10_000])

    async def step(work: Awaitable[object]) -> None:
        nonlocal dies_after
        dies_after -= 1
        if not dies_after:
            os.kill(os.getpid(), signal.SIGKILL)
        await work

    async def fetched(files: Sequence[File]) -> None:
        for file in files:
            await step(ledger.lost(file, "gone") if chance.random() < 0.2 else ledger.stored(file, STORED))

    async def answered(attempt: Attempt, *more: str) -> None:
        outcome = chance.choice(["paid", "paid", "paid", "failed", *more])
        if outcome == "failed":
            await step(ledger.failed(attempt, "server_error", "no"))
        elif outcome == "doubt":
            await step(ledger.doubt(attempt, "cut off"))
        else:
            names = [f"{chance.randrange(6)}.png" for _ in range(2)]
            made = generation(id_of(attempt), files=2)
            files = await ledger.generated(attempt, made, names, "out")
            assert not isinstance(files, SameGeneration)
            await fetched(files)

    async def sent(attempt: Attempt) -> None:
        await step(intend(ledger, attempt))
        if chance.random() < 0.2:
            await step(ledger.release(attempt))
            await step(intend(ledger, attempt))
        with book.open("a") as file:
            file.write(f"{id_of(attempt)}\n")
        if attempt.type is ModelType.VIDEO:
            await step(ledger.pending(attempt, f"req-{id_of(attempt)}"))
        await answered(attempt, "doubt")

    videos, adopted = await ledger.adopted()
    await asyncio.gather(fetched(adopted), *map(answered, videos))
    policy = Policy(retry_failed=True, retry_doubt=True, attempts=3)
    jobs = jobs_of(batch)
    for start in chance.sample(range(0, len(jobs), 6), 6):
        per_day = chance.choice([None, Decimal(50)])
        block = jobs[start : start + 6]
        result = await ledger.reserve(block, policy, limit=Decimal(6), per_day=per_day, skip=True)
        await asyncio.gather(ledger.renew(), *(sent(attempt) for _, attempt in result.reserved))
    await ledger.end_run()
    await ledger.close()
    assert notes == [], "nothing had to be tried again"


def mixed_load(url: str, book: Path, lives: int) -> None:
    """Eight runs at a time, until so many have ended or died; each takes over from those that died."""
    book.touch()
    seeds = iter(range(lives))
    crowd: list[BaseProcess] = []

    def start_one() -> None:
        with suppress(StopIteration):
            crowd.append(FORKS.Process(target=live, args=(url, next(seeds), book), daemon=True))
            crowd[-1].start()

    def exact(connection: sa.Connection, _: str) -> bool:
        return running_totals.differences(connection) == []

    async def watch() -> None:
        ledger = await Ledger.open(url, "batch 0")
        for _ in range(8):
            start_one()
        ended = 0
        while any(process.is_alive() for process in crowd):
            assert await ledger.read(exact), "the totals are the sums at every moment"
            for process in crowd:
                assert process.exitcode in (None, 0, -signal.SIGKILL)
            for _ in range(sum(process.exitcode is not None for process in crowd) - ended):
                ended += 1
                start_one()
            await asyncio.sleep(LOOKS)
        assert await ledger.read(exact)
        await ledger.close()

    asyncio.run(watch())
    exits = Counter(process.exitcode for process in crowd)
    assert min(exits[0], exits[-signal.SIGKILL]) > 0
    assert exits.total() == lives


def check_mixed_load(url: str, book: Path, lives: int) -> None:
    mixed_load(url, book, lives)
    sent = Counter(book.read_text().split())
    assert len(sent) >= 60, "at least every second job was sent"
    assert max(sent.values()) == 1, "no attempt was sent by two"
    check_no_deadlock(url)

    async def heirs() -> None:
        for batch in ("batch 0", "batch 1"):
            async with buyer(url, batch) as heir:
                states = await heir.read(reading.states)
                assert State.SUBMITTING not in states.values()
                totals = await heir.read(running_totals.of_batch)
                assert totals.states == Counter(states.values())
                assert totals.exposure <= Decimal(6)
                await heir.end_run()

    asyncio.run(heirs())
    assert (
        execute(url, "SELECT * FROM totals WHERE least(quoted, reserved, in_flight, in_doubt, spent) < 0")
        == []
    )


def test_whatever_runs_do_and_wherever_they_die_no_update_of_the_totals_is_lost(
    new_database: Callable[[], str], tmp_path: Path
) -> None:
    check_mixed_load(new_database(), tmp_path / "book", lives=20)


@pytest.mark.soak
def test_the_same_at_length(new_database: Callable[[], str], tmp_path: Path) -> None:
    check_mixed_load(new_database(), tmp_path / "book", lives=200)


# ---- whose a job is, and whose commit


def test_a_file_is_stored_only_by_the_run_that_has_its_job(url: str) -> None:
    """Otherwise two runs could each store one of two files, and neither would see that it was the last."""

    async def scenario() -> None:
        async with buyer(url) as asleep:
            [(_, attempt)], _ = await reserve(asleep, job("a"))
            await intend(asleep, attempt)
            files = await asleep.generated(attempt, generation("a", files=2), ["a.png", "b.png"], "out")
            change(url, asleep.run_id, host="elsewhere", lease_until=LONG_AGO)
            async with buyer(url) as heir:
                assert len((await heir.adopted())[1]) == 2
                with pytest.raises(LedgerError, match="another run has taken it over"):
                    await asleep.stored(files[0], STORED)
                with pytest.raises(LedgerError, match="another run has taken it over"):
                    await asleep.lost(files[1], "gone")
                assert len((await heir.adopted())[1]) == 2
                assert [await heir.stored(file, STORED) for file in files] == [None, State.STORED]

    asyncio.run(scenario())


def test_a_commit_that_the_server_makes_only_after_its_connection_is_lost_is_not_made_twice(
    new_database: Callable[[], str],
) -> None:
    """The next try waits until it is known what came of the one before."""

    async def scenario() -> None:
        url = new_database()
        with postgres_proxy(url) as proxy:
            async with buyer(proxy.url) as ledger:
                [(_, attempt)], _ = await reserve(ledger, job("a"))
                proxy.lose(
                    every=2,
                    before=lambda: wait_until(lambda: execute(url, WAITERS), "the next try has not come"),
                )
                await intend(ledger, attempt)
                # The server frees its locks before it answers the commit: the next try may end before that.
                await asyncio.to_thread(wait_until, lambda: proxy.lost, "the server has never answered")
                assert proxy.lost == 1
                assert (await ledger.read(reading.states))[job("a").key] is State.SUBMITTING

    asyncio.run(scenario())
