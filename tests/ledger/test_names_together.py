"""With PostgreSQL, runs choose names in storage at the same time: no two files get the same."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from multiprocessing.synchronize import Barrier

import sqlalchemy as sa

from callsheet.ledger.ledger import Ledger
from callsheet.ledger.tables import media
from tests.ledger.buying import generation, intend, job, reserve
from tests.ledger.together import FORKS, check_no_deadlock
from tests.waiting import LONGEST

NAMES = 150  # that are wanted at once


def take_names(url: str, number: int, everybody: Barrier) -> None:
    """One process: a run that wants the names that all others want, in an order of its own."""
    asyncio.run(_take_names(url, random.Random(number), f"batch {number}", everybody))


async def _take_names(url: str, chance: random.Random, batch: str, everybody: Barrier) -> None:
    notes: list[str] = []
    ledger = await Ledger.open(url, batch, note=notes.append)
    await ledger.begin_run()
    jobs = [job(f"{batch}-{number}") for number in range(2 * NAMES)]
    attempts = [attempt for _, attempt in (await reserve(ledger, *jobs))[0]]
    await asyncio.gather(*(intend(ledger, attempt) for attempt in attempts))
    for start in (0, NAMES):
        names = [chance.choice([f"{start}-{n}.png", f"{start}-{n}.PNG"]) for n in range(NAMES)]
        chance.shuffle(names)
        everybody.wait(LONGEST)
        chosen = attempts[start : start + NAMES]
        await asyncio.gather(
            *(
                ledger.generated(attempt, generation(attempt.job_key), [name], "out")
                for attempt, name in zip(chosen, names, strict=True)
            )
        )
    await ledger.end_run()
    await ledger.close()
    assert notes == [], "nothing had to be tried again"


def test_no_name_in_storage_is_given_twice(new_database: Callable[[], str]) -> None:
    url = new_database()
    everybody = FORKS.Barrier(8)
    crowd = [
        FORKS.Process(target=take_names, args=(url, number, everybody), daemon=True) for number in range(8)
    ]
    for process in crowd:
        process.start()
    for process in crowd:
        process.join()
    assert [process.exitcode for process in crowd] == [0] * 8
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        names = Counter(connection.scalars(sa.select(sa.func.lower(media.c.name))))
    engine.dispose()
    assert (names.total(), max(names.values())) == (8 * 2 * NAMES, 1)
    check_no_deadlock(url)
