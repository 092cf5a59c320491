"""With PostgreSQL, runs choose names in storage at the same time: no two files get the same."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from multiprocessing.synchronize import Barrier

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from callsheet.ledger import databases
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.tables import media
from tests.ledger.buying import NOW, generation, job, reserve
from tests.ledger.together import FORKS, STORED, WAITERS, check_no_deadlock, execute
from tests.waiting import LONGEST, wait_until

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
    await asyncio.gather(*map(ledger.intend, attempts))
    for start in (0, NAMES):
        names = [chance.choice([f"{start}-{n}.png", f"{start}-{n}.PNG"]) for n in range(NAMES)]
        chance.shuffle(names)
        everybody.wait(LONGEST)
        chosen = attempts[start : start + NAMES]
        await asyncio.gather(
            *(
                ledger.generated(attempt, generation("x"), [name], "out")
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


def test_runs_that_want_names_do_not_wait_for_each_other_in_a_circle(new_database: Callable[[], str]) -> None:
    """Who wants a name waits also for a change of the file that has it (PostgreSQL)."""

    async def scenario() -> None:
        url = new_database()
        notes: list[str] = []
        engine = databases.open_engine(url)
        ledger = await Ledger.open(url, "b", note=notes.append)
        await ledger.begin_run()
        (_, a), (_, b) = (await reserve(ledger, job("a"), job("b")))[0]
        await asyncio.gather(ledger.intend(a), ledger.intend(b))
        [file] = await ledger.generated(b, generation("b"), ["b.png"], "out")
        with engine.connect().execution_options(sharing=True) as other, other.begin():
            _enter(other, "a.png")
            both = asyncio.gather(
                ledger.stored(file, STORED),
                ledger.generated(a, generation("a"), ["a.png"], "out"),
            )
            waits = partial(execute, url, WAITERS)
            await asyncio.to_thread(wait_until, waits, "it does not wait for the name")
            await asyncio.to_thread(_enter, other, "b.png")
        await both
        assert notes == [], "nothing had to be tried again"
        await ledger.close()
        engine.dispose()
        check_no_deadlock(url)

    asyncio.run(scenario())


def _enter(connection: sa.Connection, name: str) -> None:
    """Enters a file of another batch, if its name is free."""
    row = {"job_key": f"of {name}", "attempt": 1, "index": 0, "storage": "out", "name": name}
    of_service = {"source_url": "http://x/1", "mime_type": "image/png", "deletes_at": NOW}
    free = postgresql.insert(media).on_conflict_do_nothing()
    connection.execute(free, row | of_service | {"folded_name": name})
