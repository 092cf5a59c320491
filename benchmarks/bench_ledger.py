"""How many jobs a second pass through a ledger, and what a mark costs, without HTTP and without files.

One run reserves in blocks of 50, and for each job the intent, the answer and the stored file are durable one
after the other, as in a real run. 50 jobs are under way at once. PostgreSQL is on the same cores; both have
their data in the temporary folder, so set TMPDIR to a real disk.

A mark is what a key in the review does: its file is looked up, and the mark is entered. So many files are
stored, and marked once, before it is measured.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

from benchmarks.measuring import Figure
from callsheet.ledger import states
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.states import FileEnd
from callsheet.records import Attempt, Job, StoredFile
from tests.ledger.buying import (
    NOW,
    buyer,
    fill_with_marked_files,
    generation,
    intend,
    job,
    mark,
    reserve,
)
from tests.servers.postgres import postgres

BLOCK = 50  # jobs that are reserved in one transaction
FLIGHT = 50  # jobs under way at once
LIMIT = "1000000"
FEW, MANY = 1_000, 100_000  # marks
A_SECOND = 20  # marks, beside a run


def measure(*, quick: bool) -> Iterator[Figure]:
    """Jobs a second with SQLite and with PostgreSQL, in turns; medians."""
    jobs, times = (200, 1) if quick else (3_000, 3)
    speeds: dict[str, list[float]] = {"SQLite": [], "PostgreSQL": []}
    with TemporaryDirectory(prefix="callsheet-") as folder, postgres() as server:
        for turn in range(times):
            sqlite = f"sqlite:///{Path(folder) / str(turn)}.db"
            for name, url in (("SQLite", sqlite), ("PostgreSQL", server.new_database())):
                speeds[name].append(jobs / asyncio.run(seconds(url, jobs)))
    for name, each in speeds.items():
        yield Figure(
            f"jobs a second through a ledger in {name}", f"{median(each):,.0f}", "an account takes 10"
        )
    yield from marking(*((100, 500) if quick else (FEW, MANY)))


def marking(few: int, many: int) -> Iterator[Figure]:
    """CPU of a mark where there are many, next to one where there are few; a run's commit beside marks."""
    with TemporaryDirectory(prefix="callsheet-") as folder:
        cpu = {
            count: asyncio.run(of_a_mark(f"sqlite:///{folder}/{count}.db", count)) for count in (few, many)
        }
        alone, beside = asyncio.run(commits(f"sqlite:///{folder}/{many}.db", many))
    what = f"CPU of a mark among {many:,}, next to one among {few:,}"
    yield Figure(what, f"{cpu[many] / cpu[few]:.2f} times", "at most 1.5 times")
    yield Figure("CPU of a mark", f"{1000 * cpu[many]:.1f} ms")
    what = f"a run's commit beside {A_SECOND} marks a second, and alone: 95 of 100 take at most"
    yield Figure(
        what, f"{1000 * quantiles(beside, n=20)[-1]:.0f} and {1000 * quantiles(alone, n=20)[-1]:.0f} ms"
    )


async def of_a_mark(url: str, count: int, times: int = 200) -> float:
    """CPU seconds of one mark in a new ledger that has so many marked files."""
    async with buyer(url) as ledger:
        await fill_with_marked_files(ledger, count)
        for n in range(10):
            await a_key(ledger, n % count)
        began = time.process_time()
        for n in range(times):
            await a_key(ledger, n % count)
        return (time.process_time() - began) / times


async def a_key(ledger: Ledger, number: int) -> None:
    """A mark that says something new."""
    assert await ledger.write(mark, number, f"{time.monotonic()}") == 1


async def commits(url: str, count: int, times: int = 200) -> tuple[list[float], list[float]]:
    """The seconds of a run's commits in a ledger with so many marks: alone, and beside marks."""
    async with buyer(url) as run, await Ledger.open(url, run.batch) as review:
        alone = [await commit(run) for _ in range(times)]

        async def marks_a_second() -> None:
            async with asyncio.TaskGroup() as keys:
                for number in itertools.count():
                    keys.create_task(a_key(review, number % count))
                    await asyncio.sleep(1 / A_SECOND)

        marking = asyncio.create_task(marks_a_second())
        beside = [await commit(run) for _ in range(times)]
        marking.cancel()
        with suppress(asyncio.CancelledError):
            await marking
    return alone, beside


async def commit(run: Ledger) -> float:
    """The seconds of one commit; a pause as between two answers of an account follows."""
    began = time.perf_counter()
    await run.renew()
    took = time.perf_counter() - began
    await asyncio.sleep(0.02)
    return took


async def seconds(url: str, count: int) -> float:
    """The seconds in which a run takes so many jobs, whole blocks of them, through a new ledger."""
    jobs = [job(f"row-{number}") for number in range(count)]
    reserved: asyncio.Queue[tuple[Job, Attempt] | None] = asyncio.Queue(FLIGHT)
    async with buyer(url) as ledger:
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(FLIGHT):
                group.create_task(lane(ledger, reserved))
            for start in range(0, count, BLOCK):
                pairs, _ = await reserve(ledger, *jobs[start : start + BLOCK], limit=LIMIT)
                assert len(pairs) == BLOCK
                for pair in pairs:
                    await reserved.put(pair)
            for _ in range(FLIGHT):
                await reserved.put(None)
        return time.perf_counter() - began


async def lane(ledger: Ledger, reserved: asyncio.Queue[tuple[Job, Attempt] | None]) -> None:
    """Buys one job after the other."""
    while pair := await reserved.get():
        one, attempt = pair
        assert await intend(ledger, attempt, limit=LIMIT) is None
        name = f"{one.row_id}.jpeg"
        [file] = await ledger.generated(attempt, generation(one.row_id), [name], "out/media")
        await ledger.transition(
            states.stored, FileEnd(file, StoredFile(f"out/media/{name}", one.key, 20_000, NOW, "image/png"))
        )
