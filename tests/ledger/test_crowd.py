"""Ten processes buy at once, and some die: no job is sent by two, and the budget's limits hold throughout."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
from collections import Counter
from decimal import Decimal
from multiprocessing.synchronize import Barrier
from pathlib import Path

from callsheet.ledger import queries, states, sums
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.states import End, FileEnd
from callsheet.records import Attempt, State, StoredFile
from tests.ledger import reading
from tests.ledger.buying import NOW, buyer, generation, intend, job, reserve
from tests.waiting import LONGEST

JOBS = [job(f"job-{number}") for number in range(60)]
LIMIT = Decimal("1.5000")  # 37 of them fit
FORKS = multiprocessing.get_context("forkserver")
DEATHS = {0: "reserved", 3: "sent", 6: "generated"}  # which processes are killed, and where


def buy(url: str, book: Path, number: int, everybody: Barrier) -> None:
    """One process: a run that buys all it can, and dies in the middle of its third job if it is to.

    Everybody reserves some jobs, then all go on at once.
    """
    asyncio.run(_buy(url, book, random.Random(number), DEATHS.get(number), everybody))


async def _buy(url: str, book: Path, chance: random.Random, death: str | None, everybody: Barrier) -> None:
    async with buyer(url) as ledger:
        sent = 0
        for start in range(0, len(JOBS), 3):
            reserved, considered = await reserve(ledger, *JOBS[start : start + 3], limit=str(LIMIT))
            if reserved and not sent:
                everybody.wait(LONGEST)
            for one, attempt in reserved:
                sent += 1
                dies_at = death if sent == 3 else None
                await _send(ledger, book, one.row_id, attempt, chance, dies_at)
            if considered < 3:
                break
        await ledger.end_run()


async def _send(
    ledger: Ledger, book: Path, name: str, attempt: Attempt, chance: random.Random, dies_at: str | None
) -> None:
    _die_if(dies_at == "reserved")
    await intend(ledger, attempt)
    with book.open("a") as file:  # the service's own book: what really was sent
        file.write(f"{name}\n")
    _die_if(dies_at == "sent")
    outcome = "bought" if dies_at else chance.choice(["bought", "bought", "bought", "refused", "doubt"])
    if outcome == "refused":
        await ledger.transition(states.failed, End(attempt, "no", "content_policy_violation"))
    elif outcome == "doubt":
        await ledger.transition(states.in_doubt, End(attempt, "cut off"))
    else:
        [file] = await ledger.generated(attempt, generation(name), [f"{name}.png"], "out")
        _die_if(dies_at == "generated")
        await ledger.transition(
            states.stored, FileEnd(file, StoredFile(f"out/{name}.png", "ab" * 32, 7, NOW, "image/png"))
        )


def _die_if(now: bool) -> None:
    if now:
        os.kill(os.getpid(), signal.SIGKILL)


def test_ten_at_once_buy_no_job_twice_and_never_pass_the_wall(url: str, tmp_path: Path) -> None:
    book = tmp_path / "book"
    book.touch()
    FORKS.set_forkserver_preload([__name__])
    everybody = FORKS.Barrier(10)
    crowd = [FORKS.Process(target=buy, args=(url, book, number, everybody)) for number in range(10)]
    for process in crowd:
        process.start()
    looks = asyncio.run(_watch_the_wall(url, crowd))
    assert looks > 5, "the wall was looked at while they bought"
    killed = [number for number, process in enumerate(crowd) if process.exitcode == -signal.SIGKILL]
    assert killed == list(DEATHS)
    assert all(process.exitcode == 0 for number, process in enumerate(crowd) if number not in DEATHS)
    states = asyncio.run(_inherit(url, book))
    sent = Counter(book.read_text().split())
    assert max(sent.values()) == 1, "no job was sent by two"
    settled = {State.STORED, State.FAILED, State.IN_DOUBT}
    assert {one.row_id for one in JOBS if states.get(one.key) in settled} == set(sent)
    assert set(states.values()) <= settled | {State.PLANNED}


async def _watch_the_wall(url: str, crowd: list[multiprocessing.process.BaseProcess]) -> int:
    looks = 0
    ledger = await Ledger.open(url, "b")
    while any(process.is_alive() for process in crowd):
        exposure, wrong = await ledger.read(
            lambda connection, batch: (
                sums.of_batch(connection, batch).exposure,
                sums.differences(connection),
            )
        )
        assert exposure <= LIMIT
        assert wrong == [], "the totals are the sums at every moment"
        looks += 1
    await ledger.close()
    return looks


async def _inherit(url: str, book: Path) -> dict[str, State]:
    """The next run takes over from the dead, and buys what still fits."""
    async with buyer(url) as heir:
        videos, files = await heir.read(queries.unfinished, heir.run_id)
        assert videos == []
        for file in files:
            await heir.transition(
                states.stored, FileEnd(file, StoredFile(f"out/{file.name}", "ab" * 32, 7, NOW, "image/png"))
            )
        reserved, _ = await reserve(heir, *JOBS, limit=str(LIMIT))
        for one, attempt in reserved:
            await _send(heir, book, one.row_id, attempt, random.Random(0), None)
        await heir.end_run()
        known = await heir.read(reading.states)
        totals = await heir.read(sums.of_batch)
    assert totals.exposure == totals.spent + totals.in_doubt_exposure <= LIMIT
    return known
