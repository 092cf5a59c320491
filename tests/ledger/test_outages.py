"""A database that fails while a run's lease lives makes the run wait; nothing is written twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa

from callsheet.config.settings import Budget
from callsheet.errors import LedgerError, LedgerUnavailable
from callsheet.ledger import gate, queries, services, states
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.states import End, FileEnd
from callsheet.ledger.tables import metadata, runs
from callsheet.present.reasons import why
from callsheet.records import Job, ModelType, State
from tests.ledger.buying import NOW, STORED, buyer, generation, intend, job, reserve, state_of, submitting
from tests.ledger.test_ledger import ANSWERED, SHOWN
from tests.servers.postgres import postgres, postgres_proxy
from tests.waiting import LONGEST, wait_until

pytestmark = pytest.mark.anyio

A, B, C, D, E, F = map(job, "abcdef")
VIDEO, SENT, ACCEPTED = (job(name, ModelType.VIDEO) for name in ("video", "sent", "accepted"))


LONG = 10 * LONGEST  # seconds of a lease: no machine is so slow that it expires


def waits_for_a_lock(url: str) -> bool:
    """Whether a connection to this database waits for another one."""
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    waiting = "wait_event_type = 'Lock' AND datname = current_database()"
    with engine.connect() as connection:
        found = connection.exec_driver_sql(f"SELECT 1 FROM pg_stat_activity WHERE {waiting}").first()
    engine.dispose()
    return found is not None


async def life(ledger: Ledger, url: str) -> list[Any]:
    """Everything that a run writes; what each write came to. The URL is for a run that dies beside it."""
    came: list[Any] = []

    async def attempt_of(one: Job, limit: str = "100") -> Any:
        result, considered = await reserve(ledger, one, B, limit=limit)
        came.append(([(chosen.row_id, attempt.number) for chosen, attempt in result], considered))
        return result[0][1]

    a = await attempt_of(A, limit="0.08")  # both jobs fit, and no more
    await intend(ledger, a)
    await ledger.transition(states.planned_again, a)
    await intend(ledger, a)
    files = await ledger.generated(a, generation("a", files=2), ["a.png", "b.png"], "out")
    came.append([file.name for file in files])
    await ledger.transition(states.refreshed, files[0], "http://x/2", NOW + timedelta(hours=1))
    await ledger.transition(states.renamed, files[0], "c.png")
    came += [
        await ledger.transition(states.stored, FileEnd(files[0], STORED)),
        await ledger.transition(states.stored, FileEnd(files[1], STORED)),
    ]
    e, f = await attempt_of(E), await attempt_of(F)
    came.append(await intend(ledger, e, limit="0.01"))
    [(_, e)], _ = await reserve(ledger, E)
    came += await asyncio.gather(intend(ledger, e), intend(ledger, f, limit="0.12"))
    files = await ledger.generated(e, generation("e", files=3), ["e.png"] * 3, "out")
    ends = (
        ledger.transition(states.stored, FileEnd(files[0], STORED)),
        ledger.transition(states.lost, FileEnd(files[1], lost="gone")),
        ledger.transition(states.stored, FileEnd(files[2], STORED)),
    )
    came += [file.name for file in files] + await asyncio.gather(*ends)
    came.append(await ledger.generated(f, generation("e"), ["f.png"], "out"))
    c = await attempt_of(C)
    await intend(ledger, c)
    [file] = await ledger.generated(c, generation("c"), ["a.png"], "out")
    came += [file.name, await ledger.transition(states.lost, FileEnd(file, lost="gone"))]
    d = await attempt_of(D)
    await intend(ledger, d)
    await ledger.transition(states.in_doubt, End(d, "cut off"))
    video = await attempt_of(VIDEO)
    await intend(ledger, video)
    await ledger.pending(video, "req-video")
    await ledger.transition(states.unknown_status, video, "unheard of")
    await ledger.transition(states.failed, End(video, "no", "server_error"))
    asks = ledger.buyer(Budget(approve_above=Decimal(0)), Decimal(100))
    asked = await ledger.write(
        gate.let_begin, asks, SHOWN, replace(ANSWERED, asker=ledger.asker, budget_limit=None), in_words=why
    )
    await ledger.write(gate.answer, asks, replace(asked, decision=ANSWERED.decision, decided_at=NOW))
    async with buyer(url) as dead:
        for one in (SENT, ACCEPTED):
            [attempt] = await submitting(dead, one)
        await dead.pending(attempt, "req-accepted")
    videos, _, doubts = await ledger.take_over()
    came += [one.row_id for one in (*videos, *doubts)]
    await ledger.renew()
    await ledger.write(services.learn, "http://service", {"lanes": 3})
    return came


def content(url: str) -> dict[str, list[str]]:
    """Every row of the ledger, without the times, and what a run is called."""
    differs = ("_at", "_id", "_until", "id", "asker")
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        tables = {
            table.name: sorted(
                repr({name: value for name, value in row.items() if not name.endswith(differs)})
                for row in connection.execute(sa.select(table)).mappings()
            )
            for table in metadata.sorted_tables
            if table is not runs
        }
    engine.dispose()
    return tables


async def test_whatever_a_run_writes_is_written_once_when_its_connection_is_lost_after_the_commit(
    new_database: Callable[[], str],
) -> None:
    """Each commit is made, and the run is not told; then it is told that it has been made."""
    told, not_told = new_database(), new_database()
    async with buyer(told) as ledger:
        expected = await life(ledger, told)
    with postgres_proxy(not_told) as proxy:
        async with buyer(proxy.url, lease=LONG) as ledger:
            proxy.lose(every=2)
            assert await life(ledger, not_told) == expected
            proxy.lose(every=0)
            assert proxy.lost == 35, "each of the writes"
    assert content(not_told) == content(told)


async def test_what_is_refused_in_a_commit_that_was_not_confirmed_is_refused_and_the_rest_is_written(
    new_database: Callable[[], str],
) -> None:
    with postgres_proxy(new_database()) as proxy:
        async with buyer(proxy.url, lease=LONG) as ledger:
            [(_, a), (_, b)], _ = await reserve(ledger, A, B)
            await intend(ledger, a)
            proxy.lose(every=2)
            ends = await asyncio.gather(intend(ledger, a), intend(ledger, b), return_exceptions=True)
            assert [type(end) for end in ends] == [LedgerError, type(None)]
            assert not isinstance(ends[0], LedgerUnavailable)
            assert proxy.lost == 1
            assert await state_of(ledger, B) is State.SUBMITTING


async def test_a_commit_that_the_server_makes_only_after_its_connection_is_lost_is_not_made_twice(
    new_database: Callable[[], str],
) -> None:
    """The next try waits until it is known what came of the one before."""
    url = new_database()
    with postgres_proxy(url) as proxy:
        async with buyer(proxy.url, lease=LONG) as ledger:
            [(_, attempt)], _ = await reserve(ledger, A)
            proxy.lose(
                every=2,
                before=lambda: wait_until(lambda: waits_for_a_lock(url), "the next try has not come"),
            )
            await intend(ledger, attempt)
            # The server frees its locks before it answers the commit: the next try may end before that.
            await asyncio.to_thread(wait_until, lambda: proxy.lost, "the server has never answered")
            assert proxy.lost == 1
            assert await state_of(ledger, A) is State.SUBMITTING


async def test_nothing_waits_where_there_is_no_lease_or_where_the_run_ends() -> None:
    with postgres() as server:
        url = server.new_database()
        async with buyer(url, lease=LONG) as ledger:
            reader = await Ledger.open(url, "b")
            [(_, a), *_], _ = await reserve(ledger, A)
            server.kill()
            waiting = asyncio.create_task(intend(ledger, a))
            await asyncio.sleep(0)
            for end in (reader.read(queries.unfinished, reader.run_id), ledger.end_run(), waiting):
                with pytest.raises(LedgerUnavailable):
                    await asyncio.wait_for(end, LONGEST)
            await reader.close()
        server.restart()
