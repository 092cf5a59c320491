"""A run's jobs are its own while it lives; the next run takes over from one that is dead."""

from __future__ import annotations

import shutil
import signal
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa

from callsheet.errors import LedgerError
from callsheet.ledger import leases, queries, states, sums
from callsheet.ledger.databases import open_engine
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.settling import settle
from callsheet.ledger.states import End
from callsheet.ledger.tables import attempts, runs
from callsheet.records import State
from tests.ledger import reading
from tests.ledger.buying import buyer, generation, job, reserve, state_of, submitting
from tests.ledger.other_run import other_run

pytestmark = pytest.mark.anyio

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def change(url: str, run_id: str | None = None, **values: Any) -> None:
    """Changes the row of a run, or of all runs."""
    engine = open_engine(url)
    with engine.begin() as connection:
        which = runs.c.id == run_id if run_id else sa.true()
        connection.execute(runs.update().where(which).values(values))
    engine.dispose()


def rows(url: str) -> list[Any]:
    """Everything that the ledger knows of runs and attempts."""
    engine = open_engine(url)
    with engine.connect() as connection:
        found = [connection.execute(sa.select(table)).all() for table in (runs, attempts)]
    engine.dispose()
    return found


@pytest.mark.parametrize("beside", [False, True])
async def test_who_takes_over_is_told_once_of_what_was_on_the_wire(url: str, beside: bool) -> None:
    """By the next run that begins, or by one that was at work beside the dead one."""
    async with buyer(url) as dead:
        heir = await Ledger.open(url, "b")
        told = await heir.begin_run() if beside else []
        await reserve(dead, job("reserved"))
        _, answered = await submitting(dead, job("sent"), job("answered"))
        await dead.transition(states.failed, End(answered, "no", "refused"))
    assert told == []
    told = (await heir.take_over())[2] if beside else await heir.begin_run()
    assert [(one.row_id, one.number) for one in told] == [("sent", 1)]
    assert (await heir.take_over())[2] == []
    await heir.close()


async def test_on_its_own_machine_a_run_lives_as_long_as_its_process_however_old_its_lease(url: str) -> None:
    """A laptop that was suspended for days: neither a quote nor a second run touches the first one's jobs."""
    with other_run(url) as sleeper:
        sleeper.do("reserve a b", "intend a")
        sleeper.process.send_signal(signal.SIGSTOP)
        change(url, lease_until=LONG_AGO)
        before = rows(url)
        reader = await Ledger.open(url, "b")
        known, totals = await reader.read(reading.known_and_totals)
        await reader.close()
        assert rows(url) == before
        assert totals.states == {State.SUBMITTING: 1, State.PLANNED: 1}
        assert not known[job("a").key]["to_buy"]
        async with buyer(url) as second:
            assert await state_of(second, job("a")) is State.SUBMITTING
            assert (await reserve(second, *map(job, "abc")))[0][0][0] == job("c")
            sleeper.process.send_signal(signal.SIGCONT)
            sleeper.do("renew", "generated a", "intend b", "generated b", "end")


@pytest.mark.parametrize(("url", "reaped"), [("sqlite", False), ("postgresql", True)], indirect=["url"])
async def test_on_its_own_machine_a_run_is_dead_as_soon_as_its_process_is_gone(
    url: str, reaped: bool
) -> None:
    """Also where nobody reaps the process, as in a container without an init."""
    with other_run(url, forked=reaped) as dead:
        dead.do("reserve a b", "intend a")
        dead.kill()
        async with buyer(url) as heir:
            assert await state_of(heir, job("a")) is State.IN_DOUBT
            assert (await reserve(heir, *map(job, "ab")))[0][0][0] == job("b")


async def test_the_process_says_whether_a_run_of_this_machine_lives_and_the_lease_of_any_other(
    url: str,
) -> None:
    """The number of a process says little: another process, machine or container may have it too."""
    reader = await Ledger.open(url, "b")
    with other_run(url) as other:
        [run] = rows(url)[0]
        here = {"host": run.host, "boot": run.boot, "process_start": run.process_start}
        for differs, lives, lives_beyond_its_lease in (
            ({}, True, True),
            ({"process_start": "1"}, False, False),  # another process has its number now
            ({"boot": None, "process_start": None}, True, False),  # where the system does not tell them
            ({"host": "elsewhere"}, True, False),
            ({"boot": "another start of a machine of this name"}, True, False),
        ):
            for until, expected in ((run.lease_until, lives), (LONG_AGO, lives_beyond_its_lease)):
                change(url, **here | differs | {"lease_until": until})
                assert bool(await reader.read(leases.others, reader.run_id)) is expected, differs
        change(url, boot=None, process_start=None, lease_until=run.lease_until)
        other.kill()
        assert await reader.read(leases.others, reader.run_id) == []
    await reader.close()


async def test_a_run_that_was_suspended_beyond_its_lease_goes_on_unless_its_jobs_were_taken_over(
    url: str,
) -> None:
    with other_run(url) as sleeper:
        sleeper.do("reserve a b", "intend a", "intend b")
        change(url, host="elsewhere", lease_until=LONG_AGO)
        sleeper.do("renew")
        async with buyer(url) as second:
            assert await state_of(second, job("a")) is State.SUBMITTING, "the lease is renewed"
            await second.end_run()
        change(url, lease_until=LONG_AGO)
        sleeper.do("generated a")
        async with buyer(url) as third:
            assert await state_of(third, job("b")) is State.IN_DOUBT
        for step in ("renew", "reserve c"):
            assert "another run has taken its jobs over" in sleeper.ask(step)
        assert sleeper.ask("generated b").startswith("LedgerError")


async def test_a_video_in_doubt_that_a_run_asks_for_is_in_its_hand_and_any_other_doubt_is_not(
    url: str,
) -> None:
    with other_run(url) as other:
        other.do("reserve a b", "intend a", "pending a", "doubt a", "intend b", "doubt b")
        async with buyer(url) as ledger:
            [run] = await ledger.read(leases.others, ledger.run_id)
            assert run.jobs == 1
            assert not await ledger.read(leases.have_left_work)
            other.do("end")
            assert await ledger.read(leases.have_left_work), "nobody asks for it now"
            videos, _, _ = await ledger.take_over()
            assert [video.row_id for video in videos] == ["a"]
            assert not await ledger.read(leases.have_left_work)


@pytest.mark.parametrize(
    ("steps", "charged"),
    [(["pending a"], True), (["pending a", "doubt a"], False)],
    ids=["pending", "in doubt"],
)
async def test_an_accepted_video_is_given_up_only_where_no_run_at_work_asks_for_it(
    url: str, steps: list[str], charged: bool
) -> None:
    decision: Any = {"charged": charged, "by": "ada", "why": None}
    person = await Ledger.open(url, "b")
    with other_run(url) as other:
        other.do("reserve a b", "intend a", *steps, "intend b", "doubt b")
        a, b = await person.read(lambda connection, batch: queries.doubts(connection, batch, pending=True))
        with pytest.raises(LedgerError, match=rf"row a: .*pid {other.process.pid}, .*settled"):
            await person.write(settle, [b, a], **decision)
        await person.write(settle, [b], **decision)
        other.kill()
        await person.write(settle, [a], **decision)
        with pytest.raises(LedgerError, match="is no longer"):
            await person.write(settle, [a], **decision)
    await person.close()
    async with buyer(url) as ledger:
        assert await ledger.read(queries.unfinished, ledger.run_id) == ([], []), "it is asked for no more"
        assert await state_of(ledger, job("a")) is (State.LOST if charged else State.FAILED)
        totals = await ledger.read(sums.of_batch)
        assert totals.exposure == totals.spent == (Decimal("0.08") if charged else 0)
        assert all(row["finished_at"] for row in await ledger.read(reading.attempts))
        again, _ = await reserve(ledger, job("a"))
        assert [attempt.number for _, attempt in again] == ([] if charged else [2])


@pytest.mark.skipif(shutil.which("faketime") is None, reason="faketime is not installed")
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_machines_whose_clocks_disagree_take_nothing_from_each_other(url: str) -> None:
    """Each seems to be elsewhere to the other, so that only the leases tell who is alive."""
    with other_run(url, clock="-10m") as slow:
        slow.do("reserve theirs", "intend theirs")
        change(url, host="elsewhere")
        async with buyer(url) as ours:
            [attempt] = await submitting(ours, job("ours"))
            change(url, ours.run_id, host="elsewhere too")
            with other_run(url, clock="+10m") as fast:
                fast.do("renew")
                assert await state_of(ours, job("ours")) is State.SUBMITTING
                assert await state_of(ours, job("theirs")) is State.SUBMITTING
            await ours.renew()
            await ours.generated(attempt, generation("ours"), ["ours.png"], "out")
        slow.do("renew", "generated theirs")
