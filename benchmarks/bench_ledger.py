"""How many jobs a second pass through a ledger, without HTTP and without files.

One run reserves in blocks of 50, and for each job the intent, the answer and the stored file are durable one
after the other, as in a real run. 50 jobs are under way at once. PostgreSQL is on the same cores; both have
their data in the temporary folder, so set TMPDIR to a real disk.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.measuring import Figure
from callsheet.ledger.ledger import Ledger
from callsheet.records import Attempt, Job, StoredFile
from tests.ledger.buying import NOW, buyer, generation, intend, job, reserve
from tests.servers.postgres import postgres

BLOCK = 50  # jobs that are reserved in one transaction
FLIGHT = 50  # jobs under way at once
LIMIT = "1000000"


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
        await ledger.stored(file, StoredFile(f"out/media/{name}", one.key, 20_000, NOW, "image/png"))
