"""A run's jobs are its own while it lives; the next run takes over from one that is dead."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa

from callsheet.errors import LedgerError
from callsheet.ledger import leases, queries, running_totals
from callsheet.ledger.databases import open_engine
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.policy import Policy
from callsheet.ledger.tables import attempts, runs
from callsheet.records import ModelType, State, StoredFile
from tests.ledger import reading
from tests.ledger.buying import NOW, buyer, generation, intend, job, reserve, state_of
from tests.ledger.other_run import other_run

STORED = StoredFile("out/x", "ab" * 32, 7, NOW, "image/png")
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


def test_what_a_dead_run_left_is_taken_over(url: str) -> None:
    """In doubt is what was on the wire, and only that."""

    async def scenario() -> None:
        jobs = {name: job(name, ModelType.VIDEO) for name in ("reserved", "sent", "accepted", "paid")}
        async with buyer(url) as dead:
            reserved, _ = await reserve(dead, *jobs.values())
            attempts = {one.row_id: attempt for one, attempt in reserved}
            for name in ("sent", "accepted", "paid"):
                await intend(dead, attempts[name])
            await dead.pending(attempts["accepted"], "req-accepted")
            await dead.generated(attempts["paid"], generation("paid"), ["paid.png"], "out")
            await dead.end_run()
        async with buyer(url) as heir:
            videos, files = await heir.adopted()
            assert [video.generation_id for video in videos] == ["req-accepted"]
            assert [file.attempt.row_id for file in files] == ["paid"]
            assert await state_of(heir, jobs["sent"]) is State.IN_DOUBT
            reserved, _ = await reserve(heir, *jobs.values())
            assert [one.row_id for one, _ in reserved] == ["reserved"]

    asyncio.run(scenario())


@pytest.mark.parametrize("beside", [False, True])
def test_who_takes_over_is_told_once_of_what_was_on_the_wire(url: str, beside: bool) -> None:
    """By the next run that begins, or by one that was at work beside the dead one."""

    async def scenario() -> None:
        async with buyer(url) as dead:
            heir = await Ledger.open(url, "b")
            told = await heir.begin_run() if beside else []
            reserved, _ = await reserve(dead, job("reserved"), job("sent"), job("answered"))
            for _, attempt in reserved[1:]:
                await intend(dead, attempt)
            await dead.failed(reserved[2][1], "refused", "no")
        assert told == []
        told = (await heir.take_over())[2] if beside else await heir.begin_run()
        assert [(one.row_id, one.number) for one in told] == [("sent", 1)]
        assert (await heir.take_over())[2] == []
        await heir.close()

    asyncio.run(scenario())


def test_a_live_runs_jobs_are_left_alone(url: str) -> None:
    async def scenario() -> None:
        async with buyer(url) as first:
            [(_, attempt)], _ = await reserve(first, job("one"))
            await intend(first, attempt)
            async with buyer(url) as second:
                assert await second.adopted() == ([], [])
                assert await state_of(second, job("one")) is State.SUBMITTING
                with pytest.raises(LedgerError, match="another run"):
                    await second.doubt(attempt, "not mine")

    asyncio.run(scenario())


@pytest.mark.parametrize("killed", [False, True])
def test_a_second_attempt_that_was_never_sent_does_not_count(url: str, killed: bool) -> None:
    """A run that ends between reservation and POST leaves the doubt as it was."""

    async def scenario() -> None:
        async with buyer(url) as ledger:
            [(_, attempt)], _ = await reserve(ledger, job("one"))
            await intend(ledger, attempt)
            await ledger.doubt(attempt, "cut off")
            [(_, again)], _ = await reserve(ledger, job("one"), retry_doubt=True)
            assert again.number == 2
            if not killed:
                await ledger.end_run()
        async with buyer(url) as ledger:
            assert await state_of(ledger, job("one")) is State.IN_DOUBT
            assert await reserve(ledger, job("one")) == ([], 1)
            [(_, again)], _ = await reserve(ledger, job("one"), retry_doubt=True)
            assert again.number == 2

    asyncio.run(scenario())


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


# ---- which runs are alive


def test_on_its_own_machine_a_run_lives_as_long_as_its_process_however_old_its_lease(url: str) -> None:
    """A laptop that was suspended for days: neither a quote nor a second run touches the first one's jobs."""

    async def scenario() -> None:
        with other_run(url) as sleeper:
            sleeper.do("reserve a b", "intend a")
            sleeper.process.send_signal(signal.SIGSTOP)
            change(url, lease_until=LONG_AGO)
            before = rows(url)
            reader = await Ledger.open(url, "b")
            known, totals = await reader.read(reading.outlook(POLICY))
            await reader.close()
            assert rows(url) == before
            assert totals.states == {State.SUBMITTING: 1, State.PLANNED: 1}
            assert {row["to_buy"] for row in known.values() if row["bought"]} == {False}
            async with buyer(url) as second:
                assert await state_of(second, job("a")) is State.SUBMITTING
                assert (await reserve(second, *map(job, "abc")))[0][0][0] == job("c")
                sleeper.process.send_signal(signal.SIGCONT)
                sleeper.do("renew", "generated a", "intend b", "generated b", "end")

    asyncio.run(scenario())


@pytest.mark.parametrize("reaped", [True, False])
def test_on_its_own_machine_a_run_is_dead_as_soon_as_its_process_is_gone(url: str, reaped: bool) -> None:
    """Also where nobody reaps the process, as in a container without an init."""

    async def scenario() -> None:
        with other_run(url, forked=reaped) as dead:
            dead.do("reserve a b", "intend a")
            dead.kill()
            async with buyer(url) as heir:
                assert await state_of(heir, job("a")) is State.IN_DOUBT
                assert (await reserve(heir, *map(job, "ab")))[0][0][0] == job("b")

    asyncio.run(scenario())


def test_another_process_with_the_number_of_a_dead_one_is_not_the_run(url: str) -> None:
    async def scenario() -> None:
        with other_run(url) as other:
            other.do("reserve a", "intend a")
            change(url, process_start="1")
            async with buyer(url) as heir:
                assert await state_of(heir, job("a")) is State.IN_DOUBT

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "where", [{"host": "elsewhere"}, {"boot": "another start of a machine of this name"}]
)
def test_from_elsewhere_the_lease_decides_whether_a_run_is_alive(url: str, where: dict[str, str]) -> None:
    async def scenario() -> None:
        with other_run(url) as other:
            other.do("reserve a", "intend a")
            change(url, **where)
            async with buyer(url) as second:
                assert await state_of(second, job("a")) is State.SUBMITTING
                await second.end_run()
            change(url, lease_until=LONG_AGO)
            async with buyer(url) as third:
                assert await state_of(third, job("a")) is State.IN_DOUBT
            assert "another run has taken its jobs over" in other.ask("renew")
            assert other.ask("generated a").startswith("LedgerError")

    asyncio.run(scenario())


def test_a_run_that_was_suspended_beyond_its_lease_goes_on_unless_its_jobs_were_taken_over(url: str) -> None:
    async def scenario() -> None:
        with other_run(url) as sleeper:
            sleeper.do("reserve a", "intend a")
            change(url, host="elsewhere", lease_until=LONG_AGO)
            sleeper.do("renew")
            async with buyer(url) as second:
                assert await state_of(second, job("a")) is State.SUBMITTING, "the lease is renewed"
            change(url, lease_until=LONG_AGO)
            sleeper.do("generated a")

    asyncio.run(scenario())


def test_a_run_of_an_older_schema_is_dead_when_its_lease_has_expired_or_its_process_is_gone(url: str) -> None:
    async def scenario() -> None:
        with other_run(url) as other:
            other.do("reserve a", "intend a")
            change(url, boot=None, process_start=None)
            async with buyer(url) as second:
                assert await state_of(second, job("a")) is State.SUBMITTING
            other.kill()
            async with buyer(url) as third:
                assert await state_of(third, job("a")) is State.IN_DOUBT

    asyncio.run(scenario())


def test_a_run_that_was_closed_without_its_end_is_dead_also_in_its_own_process(url: str) -> None:
    """As in a notebook, after a run that could not end because the database was away."""

    async def scenario() -> None:
        async with buyer(url) as first:
            [(_, attempt)], _ = await reserve(first, job("a"))
            await intend(first, attempt)
        async with buyer(url) as second:
            assert await state_of(second, job("a")) is State.IN_DOUBT

    asyncio.run(scenario())


# ---- reading as if dead runs were closed


POLICY = Policy(retry_doubt=True, attempts=2)


def test_a_reader_sees_a_dead_runs_jobs_as_the_next_run_will_and_writes_nothing(url: str) -> None:
    async def scenario() -> None:
        async with buyer(url) as ledger:
            reserved, _ = await reserve(ledger, *map(job, "abcd"))
            for _, attempt in reserved[:3]:
                await intend(ledger, attempt)
            await ledger.doubt(reserved[0][1], "cut off")
            await ledger.doubt(reserved[1][1], "cut off")
            second, _ = await reserve(ledger, job("a"), job("b"), retry_doubt=True)
            await intend(ledger, second[1][1])
        before = rows(url)
        reader = await Ledger.open(url, "b")
        known, totals = await reader.read(reading.outlook(POLICY))
        assert rows(url) == before
        assert {key for key, row in known.items() if row["to_buy"]} == {job(name).key for name in "acd"}
        assert not any(row["bought"] for row in known.values())
        async with buyer(url) as heir:
            assert await heir.read(reading.known(POLICY)) == known
            assert await heir.read(running_totals.of_batch) == totals
        await reader.close()

    asyncio.run(scenario())


def test_the_other_runs_that_are_at_work_can_be_named(url: str) -> None:
    async def scenario() -> None:
        with other_run(url) as other, other_run(url) as dead:
            other.do("reserve a b c", "intend a", "generated a", "intend b")
            dead.do("reserve d")
            dead.kill()
            async with buyer(url) as ledger:
                [run] = await ledger.others()
                assert (run.host, run.pid, run.jobs) == (os.uname().nodename, other.process.pid, 3)
                assert timedelta(0) < datetime.now(UTC) - run.started_at < timedelta(hours=1)
                other.do("end")
                assert await ledger.others() == []

    asyncio.run(scenario())


def test_a_video_in_doubt_that_a_run_asks_for_is_in_its_hand_and_any_other_doubt_is_not(url: str) -> None:
    async def scenario() -> None:
        with other_run(url) as other:
            other.do("reserve a b", "intend a", "pending a", "doubt a", "intend b", "doubt b")
            async with buyer(url) as ledger:
                [run] = await ledger.others()
                assert run.jobs == 1
                assert not await ledger.read(leases.have_left_work)
                other.do("end")
                assert await ledger.read(leases.have_left_work), "nobody asks for it now"
                videos, _, _ = await ledger.take_over()
                assert [video.row_id for video in videos] == ["a"]
                assert not await ledger.read(leases.have_left_work)

    asyncio.run(scenario())


@pytest.mark.parametrize("steps", [["pending a"], ["pending a", "doubt a"]], ids=["pending", "in doubt"])
@pytest.mark.parametrize("charged", [True, False])
def test_what_a_run_at_work_asks_for_is_not_settled_and_the_run_goes_on(
    url: str, steps: list[str], charged: bool
) -> None:
    async def scenario() -> None:
        person = await Ledger.open(url, "b")
        with other_run(url) as other:
            other.do("reserve a b", "intend a", *steps, "intend b", "doubt b")
            seen = await person.read(
                lambda connection, batch: queries.doubts(connection, batch, pending=True)
            )
            with pytest.raises(LedgerError, match=rf"row a: .*pid {other.process.pid}, .*settled"):
                await person.settle(seen[::-1], charged=charged, by="ada", why=None)
            assert await person.read(queries.doubts) == [one for one in seen if one.state is State.IN_DOUBT]
            await person.settle(
                [one for one in seen if one.row_id == "b"], charged=charged, by="ada", why=None
            )
            other.do("generated a")
        await person.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("steps", [["pending a"], ["pending a", "doubt a"]], ids=["pending", "in doubt"])
@pytest.mark.parametrize("charged", [True, False])
def test_an_accepted_video_is_given_up_where_no_run_at_work_asks_for_it(
    url: str, steps: list[str], charged: bool
) -> None:
    async def scenario() -> None:
        person = await Ledger.open(url, "b")
        with other_run(url) as other:
            other.do("reserve a", "intend a", *steps)
            other.kill()
            [seen] = await person.read(
                lambda connection, batch: queries.doubts(connection, batch, pending=True)
            )
            assert seen.generation_id == "req-a"
            await person.settle([seen], charged=charged, by="ada", why=None)
            with pytest.raises(LedgerError, match="is no longer"):
                await person.settle([seen], charged=charged, by="bob", why=None)
        await person.close()
        async with buyer(url) as ledger:
            assert await ledger.adopted() == ([], []), "it is asked for no more"
            assert await state_of(ledger, job("a")) is (State.LOST if charged else State.FAILED)
            totals = await ledger.read(running_totals.of_batch)
            assert totals.exposure == totals.spent == (Decimal("0.04") if charged else 0)
            [row] = await ledger.read(reading.attempts)
            assert row["finished_at"] is not None
            again, _ = await reserve(ledger, job("a"))
            assert [attempt.number for _, attempt in again] == ([] if charged else [2])

    asyncio.run(scenario())


@pytest.mark.skipif(shutil.which("faketime") is None, reason="faketime is not installed")
@pytest.mark.parametrize("clock", ["-10m", "+10m"])
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_machines_whose_clocks_disagree_take_nothing_from_each_other(url: str, clock: str) -> None:
    """Each seems to be elsewhere to the other, so that only the leases tell who is alive."""

    async def scenario() -> None:
        with other_run(url, clock=clock) as theirs:
            theirs.do("reserve theirs", "intend theirs")
            change(url, host="elsewhere")
            async with buyer(url) as ours:
                [(_, attempt)], _ = await reserve(ours, job("ours"))
                await intend(ours, attempt)
                change(url, ours.run_id, host="elsewhere too")
                with other_run(url, clock=clock) as third:
                    third.do("renew")
                    assert await state_of(ours, job("ours")) is State.SUBMITTING
                    assert await state_of(ours, job("theirs")) is State.SUBMITTING
                await ours.renew()
                await ours.generated(attempt, generation("ours"), ["ours.png"], "out")
            theirs.do("renew", "generated theirs")

    asyncio.run(scenario())
