"""The ledger keeps the states' rules, the budget's wall, and everything through a dead run."""

from __future__ import annotations

import asyncio
import itertools
import json
import sqlite3
import threading
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sqlalchemy as sa

from callsheet.config.settings import Budget
from callsheet.errors import LedgerError
from callsheet.ledger import changes, charges, gate, leases, marks, queries, states, sums, words, writing
from callsheet.ledger.gate import Obstacle
from callsheet.ledger.journal import Journal, PaidAnswer
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.policy import Policy
from callsheet.ledger.settling import settle
from callsheet.ledger.states import End, FileEnd, SameGeneration, other_name
from callsheet.ledger.tables import attempts
from callsheet.ledger.tables import marks as marks_table
from callsheet.ledger.tables import words as words_table
from callsheet.ledger.words import Decision, Place, Reason, Shown, Word
from callsheet.present.reasons import asked_and_answered, why
from callsheet.records import ModelType, Price, State, Usage
from callsheet.standing import read_standing
from callsheet.steps.approve import new_word
from tests.ledger import reading
from tests.ledger.buying import (
    NOW,
    STORED,
    buyer,
    fill_with_marked_files,
    generation,
    intend,
    job,
    mark,
    reserve,
    state_of,
    submitting,
    word,
)
from tests.ledger.journals import answer, files_in
from tests.waiting import LONGEST

pytestmark = pytest.mark.anyio


async def test_a_job_of_several_files_ends_with_the_last_one(ledger: Ledger) -> None:
    """Also where all come in one commit, beside those of other jobs; one that is lost makes the job lost."""
    a, b, c = await submitting(ledger, *map(job, "abc"))
    files = await ledger.generated(a, generation("a", files=2), ["a0.png", "a1.png"], "out")
    files += await ledger.generated(b, generation("b"), ["b.png"], "out")
    ends = await asyncio.gather(*(ledger.transition(states.stored, FileEnd(file, STORED)) for file in files))
    assert ends == [None, State.STORED, State.STORED]
    files = await ledger.generated(c, generation("c", files=2), ["c0.png", "c1.png"], "out")
    assert await ledger.transition(states.lost, FileEnd(files[0], lost="gone")) is None
    assert await ledger.transition(states.stored, FileEnd(files[1], STORED)) is State.LOST
    assert (await ledger.read(sums.of_batch)).states == {State.STORED: 2, State.LOST: 1}


async def test_a_write_whose_caller_is_cancelled_is_made_with_those_of_the_others(ledger: Ledger) -> None:
    jobs = [*map(job, "abc")]
    reserved, _ = await reserve(ledger, *jobs)
    writes = [asyncio.create_task(intend(ledger, attempt)) for _, attempt in reserved]
    await asyncio.sleep(0)  # they wait for the commit
    writes[1].cancel()
    await asyncio.wait(writes)
    assert [write.cancelled() for write in writes] == [False, True, False]
    assert [await state_of(ledger, one) for one in jobs] == [State.SUBMITTING] * 3


async def test_jobs_that_leave_in_one_commit_are_looked_at_one_after_the_other_each_with_its_own_limits(
    ledger: Ledger,
) -> None:
    """What a run may spend is changed at any moment: also between two jobs that wait for the same commit."""
    reserved, _ = await reserve(ledger, *map(job, "abc"))
    (_, a), (_, b), (_, c) = reserved
    leaves = (intend(ledger, a), intend(ledger, b, limit="0.07"), intend(ledger, c, per_day="0.08"))
    assert await asyncio.gather(*leaves) == [None, Obstacle.BALANCE, None]


async def test_what_may_leave_fits_what_the_batch_may_come_to_by_all_words(url: str) -> None:
    """Also what the run itself has reserved counts; another's may go back, and is looked at in its turn."""
    jobs = [job(name, price="0.0100") for name in "abcd"]
    async with buyer(url) as other, await Ledger.open(url, "b") as ledger:
        kept, _ = await reserve(other, jobs[3])
        await other.write(lambda connection, _: connection.execute(words_table.delete()))
        await ledger.begin_run()
        reserved, considered = await reserve(ledger, *jobs)
        assert (reserved, considered) == ([], 0), "nobody has let it begin"
        await ledger.write(words.enter_word, word(ledger, "0.02"))
        result = await ledger.reserve(jobs, Policy(), ledger.buyer(Budget(), Decimal(100)))
        assert (len(result.reserved), result.left) == (2, jobs[2:])
        assert (result.obstacle, result.remaining) == (Obstacle.ALLOWED, Decimal(0))
        assert await intend(other, kept[0][1]) is Obstacle.QUESTION


async def test_what_a_job_without_a_price_costs_takes_nothing_from_what_was_approved(url: str) -> None:
    free, priced = replace(job("free"), price=None), job("priced")
    async with await Ledger.open(url, "b") as ledger:
        await ledger.begin_run()
        await ledger.write(words.enter_word, word(ledger, "0.04"))
        reserved, _ = await reserve(ledger, free, priced)
        for _, attempt in reserved:
            assert await intend(ledger, attempt) is None
            made = replace(generation(attempt.row_id), id=f"req-{attempt.row_id}")
            await ledger.generated(attempt, made, [f"{attempt.row_id}.png"], "out")
        assert (await ledger.read(sums.of_batch)).spent == Decimal("0.08")
        assert await ledger.read(sums.differences) == []


SERVER, GATEWAY = {"server_error", "http_503"}, {"http_403", "waf_block"}
BY_KIND: dict[Any, set[str]] = {
    False: set(),
    "server_error": SERVER,
    "gateway": GATEWAY | {"http_503"},
    "all": SERVER | GATEWAY | {"content_policy_violation", "not_found"},
}


async def test_failed_jobs_are_attempted_anew_by_their_kind(url: str) -> None:
    """What the service refused with a code of its own is only sent again with `all`."""
    jobs = {code: job(code) for code in BY_KIND["all"]}
    async with buyer(url) as ledger:
        for attempt in await submitting(ledger, *jobs.values()):
            await ledger.transition(states.failed, End(attempt, "no", attempt.row_id))
        known = await ledger.read(reading.known(Policy("all", run_id=ledger.run_id)))
        assert not any(row["to_buy"] for row in known.values()), "not by the run in which they failed"
        assert (await reserve(ledger, *jobs.values(), retry_failed="all"))[0] == []
    async with buyer(url) as ledger:
        for kind, again in BY_KIND.items():
            known = await ledger.read(reading.known(Policy(retry_failed=kind)))
            assert {code for code, one in jobs.items() if known[one.key]["to_buy"]} == again
            anew, _ = await reserve(ledger, *jobs.values(), retry_failed=kind)
            assert {of.row_id for of, _ in anew} == again
            for _, attempt in anew:
                assert await intend(ledger, attempt, limit="0"), "it is freed, and failed as before"


async def test_a_failed_job_whose_row_is_gone_counts_where_one_of_its_attempts_was_charged(url: str) -> None:
    charged = Usage(total_cost=Decimal("0.02"))
    async with buyer(url) as ledger:
        for attempt in await submitting(ledger, *map(job, ("dear", "free", "there"))):
            usage = charged if attempt.row_id == "dear" else Usage()
            await ledger.transition(states.failed, End(attempt, "no", "server_error", usage))
    async with buyer(url) as ledger:
        for attempt in await submitting(ledger, job("dear"), retry_failed="all"):
            await ledger.transition(states.failed, End(attempt, "no", "server_error"))
        gone = [job("dear").key, job("free").key]
        await ledger.write(writing.adopt, [], {True: [job("there").key], False: gone})
        totals, standing = await ledger.read(sums.of_batch), await ledger.read(read_standing)
    assert totals.states == standing.states == {State.FAILED: 2}
    assert totals.spent == standing.spent == Decimal("0.02")


async def test_a_job_whose_row_is_gone_counts_where_an_answer_came_to_an_attempt_before_the_last(
    url: str,
) -> None:
    async with buyer(url) as ledger:
        [first] = await submitting(ledger, job("late"))
        await ledger.transition(states.in_doubt, End(first, "no answer"))
    async with buyer(url) as ledger:
        [second] = await submitting(ledger, job("late"), retry_doubt=True)
        await ledger.transition(states.failed, End(second, "no", "server_error"))
        paid = generation("late")
        answer = PaidAnswer(first, paid.id, paid.usage, paid.media, ("late.png",), "out", batch=ledger.batch)
        await ledger.transition(states.recover, answer, NOW)
        await ledger.write(writing.adopt, [], {False: [job("late").key]})
        totals, standing = await ledger.read(sums.of_batch), await ledger.read(read_standing)
    assert totals.states == standing.states == {State.FAILED: 1}
    assert totals.spent == standing.spent == Decimal("0.04")


async def test_what_was_planned_before_a_price_rose_is_reserved_at_the_new_one(url: str) -> None:
    async with buyer(url) as ledger:
        await reserve(ledger, *map(job, "abc"))
        await ledger.end_run()
    async with buyer(url) as ledger:
        dearer = [job(each, price="0.0800") for each in "abc"]
        assert [each.key for each in dearer] == [job(each).key for each in "abc"]
        reserved, _ = await reserve(ledger, *dearer, limit="0.20")
        assert [one.row_id for one, _ in reserved] == ["a", "b"]
        assert (await ledger.read(sums.of_batch)).exposure == Decimal("0.16")


async def test_names_that_differ_only_in_case_or_encoding_are_one_name(ledger: Ledger) -> None:
    """On the disks of macOS and Windows they are one file; also of files of one answer."""
    first, second, last = await submitting(ledger, *map(job, "abc"))
    taken = ["same.png", "\u00e9.png", "straße.png"]
    files = await ledger.generated(first, generation("a", files=3), taken, "out")
    assert [file.name for file in files] == taken
    alike = ["SAME.png", "e\u0301.png", "STRASSE.png", "Same.PNG"]
    files = await ledger.generated(second, generation("b", files=4), alike, "out")
    assert [file.name for file in files] == [other_name(name, second, n) for n, name in enumerate(alike)]
    await ledger.transition(states.renamed, files[0], "Another.png")
    files = await ledger.generated(last, generation("c", files=2), ["another.png", "Free.png"], "out")
    assert [file.name for file in files] == [other_name("another.png", last, 0), "Free.png"]
    assert other_name("a.png", last, 2) == f"a-{last.job_key[:12]}_2.png"


async def test_what_the_ledger_cannot_hold_leaves_the_others_in_its_commit_alone(ledger: Ledger) -> None:
    attempts = await submitting(ledger, *map(job, "abc"))
    words = ("no", "half an emoji: \ud83d", "no")
    failing = (
        ledger.transition(states.failed, End(attempt, said, "server_error"))
        for attempt, said in zip(attempts, words, strict=True)
    )
    ends = await asyncio.gather(*failing, return_exceptions=True)
    assert [type(end) for end in ends] == [type(None), LedgerError, type(None)]
    known = [await state_of(ledger, job(name)) for name in "abc"]
    assert known == [State.FAILED, State.SUBMITTING, State.FAILED]
    with pytest.raises(LedgerError, match="no ledger can have"):
        await ledger.read(lambda *of: queries.stories(*of, "typed as Latin-1: \udcff"))


async def test_nobody_can_say_what_an_unpriced_job_has_cost(ledger: Ledger) -> None:
    [attempt] = await submitting(ledger, replace(job("a"), price=None))
    await ledger.transition(states.in_doubt, End(attempt, "cut off"))
    await ledger.write(settle, await ledger.read(queries.doubts), charged=True, by="ada", why=None)
    [row] = await ledger.read(reading.attempts)
    assert (row["state"], row["cost"]) == (State.LOST, None)


# ---- large queries as columns: the same exact types from each kind of database


async def test_values_have_the_same_types_from_each_database(ledger: Ledger) -> None:
    price = Price("image", Decimal("999999.999999"), 1, "USD")
    carried = {"note": 'naïve "x"', "n": [1, None]}
    one = replace(job("a"), price=price, carried=carried)
    names = "row_id superseded quoted cost carried submitted_at finished_at sample"
    began = datetime.now(UTC)
    reserved, _ = await reserve(ledger, one, replace(job("b"), price=None), limit="1000000")
    await intend(ledger, reserved[0][1], limit="1000000")
    query = sa.select(*(attempts.c[name] for name in names.split())).order_by(attempts.c.row_id)
    rows = await ledger.read(lambda connection, _: queries.read(connection, query))
    assert dict(rows.schema) == {
        "row_id": pl.String,
        "superseded": pl.Boolean,
        "quoted": pl.Decimal(18, 6),
        "cost": pl.Decimal(18, 6),
        "carried": pl.String,
        "submitted_at": pl.Datetime("us", "UTC"),
        "finished_at": pl.Datetime("us", "UTC"),
        "sample": pl.Int64,
    }
    first, second = rows.iter_rows(named=True)
    assert (first["row_id"], first["superseded"], first["sample"]) == ("a", False, 1)
    assert (first["quoted"], first["cost"], second["quoted"]) == (price.unit_price, None, None)
    assert json.loads(first["carried"]) == carried
    assert began <= first["submitted_at"] <= datetime.now(UTC)
    assert second["submitted_at"] is None


# ---- what a person was asked, and the one answer


NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
SHOWN = Shown(
    plan="b" * 64,
    jobs=3,
    quoted=Decimal("0.004501"),
    at_most=Decimal("0.004501"),
    sent_with_price=Decimal("0.01"),
    rates=({"id": "still-1", "pricing": {"rates": [{"unit_price": "0.0015"}]}},),
    guesses={"prompt": "prompt from 'text'"},
    charges=(charges.Charge("x", 1, "still-1", Decimal("0.0015"), Decimal("0.0030"), needs_yes=True),),
    keys=("c" * 64,),
)
ASKED = Word("a" * 32, "somebody", SHOWN, (Reason.PRICE,), "it is dear", NOON)
ANSWERED = replace(
    ASKED,
    decision=Decision.APPROVED,
    decided_at=NOON + timedelta(hours=1),
    decided_by="Ada",
    place=Place.UI,
    budget_limit=Decimal("0.0030"),
    note="two will do; 'quoted' \u2603",
)


async def test_a_question_is_answered_once_and_belongs_to_its_batch(url: str) -> None:
    ledger, other = await Ledger.open(url, "shots"), await Ledger.open(url, "other")
    runs = ledger.buyer(Budget())
    await ledger.write(words.enter_word, ASKED)
    assert await ledger.read(words.of_batch) == (ASKED,)
    await ledger.write(gate.answer, runs, ANSWERED)
    with pytest.raises(LedgerError, match="answered already"):
        await ledger.write(gate.answer, runs, replace(ANSWERED, decision=Decision.REFUSED))
    later = replace(ASKED, id="0" * 32, asked_at=NOON + timedelta(days=1))
    await ledger.write(words.enter_word, later)
    assert await ledger.read(words.of_batch) == (ANSWERED, later)
    assert await ledger.read(words.allowed) == Decimal("0.014501")
    assert await other.read(words.of_batch) == ()
    await ledger.close()
    await other.close()


def test_a_line_says_what_was_asked_and_by_whom_it_was_answered() -> None:
    assert (
        asked_and_answered(ASKED)
        == "the quote, 3 jobs for 0.004501 USD: asked 2026-05-01 12:00 UTC, not answered"
    )
    assert asked_and_answered(ANSWERED) == (
        "the quote, 3 jobs for 0.004501 USD: approved, up to 0.0030 USD by Ada (ui), 2026-05-01 13:00 UTC: "
        "two will do; 'quoted' \u2603"
    )
    assert ANSWERED.as_json()["quoted"] == "0.004501"
    assert "rates" not in ANSWERED.as_json()


# ---- an answer with an id that another job has is a doubt: nobody knows whose generation it is


HERE, ELSEWHERE = "https://a.example", "https://b.example"
VIDEOS = [job(name, ModelType.VIDEO) for name in "vw"]


async def test_an_answer_with_the_id_of_another_row_is_in_doubt_and_names_both_rows(url: str) -> None:
    """Of an image or a video, and also where both come in one commit."""
    async with buyer(url, service=HERE) as ledger:
        a, b, c, d, v, w = await submitting(ledger, *map(job, "abcd"), *VIDEOS)
        assert await ledger.generated(a, generation("x"), ["a.png"], "out")
        made = ((b, "x"), (c, "y"), (d, "y"))
        doubts = await asyncio.gather(
            *(ledger.generated(one, generation(name), [f"{one.row_id}.png"], "out") for one, name in made),
            *(ledger.pending(one, "req-z") for one in (v, w)),
        )
        what = "row b was answered with the id req-x, which row a has already"
        assert doubts[0] == SameGeneration(what)
        assert [isinstance(doubt, SameGeneration) for doubt in doubts] == [True, False, True, False, True]
        open_ = await ledger.read(queries.doubts)
        assert {doubt.row_id for doubt in open_} == {"b", "d", "w"}
        assert [doubt.generation_id for doubt in open_ if doubt.what == what] == [None]
        totals = await ledger.read(sums.of_batch)
        assert (totals.spent, totals.in_doubt_exposure) == (Decimal("0.08"), Decimal("0.12"))
        videos, _ = await ledger.read(queries.unfinished, ledger.run_id)
        assert [video.row_id for video in videos] == ["v"], "the other one is never polled"
        assert await ledger.generated(v, generation("z"), ["v.mp4"], "out"), "its own id"


async def test_the_id_may_be_of_another_batch_of_the_service_and_not_of_another_service(url: str) -> None:
    for batch, service in (("of a", HERE), ("of b", ELSEWHERE)):
        async with buyer(url, batch, service=service) as ledger:
            [attempt] = await submitting(ledger, job(batch))
            assert await ledger.generated(attempt, generation("x"), [f"{batch}.png"], "out")
    async with buyer(url, "more of b", service=ELSEWHERE) as ledger:
        [attempt] = await submitting(ledger, job("c"))
        doubt = await ledger.generated(attempt, generation("x"), ["c.png"], "out")
        what = "row c was answered with the id req-x, which row of b of the batch of b has already"
        assert doubt == SameGeneration(what)


@pytest.mark.parametrize("settled", [False, True])
async def test_a_journal_with_the_id_of_another_row_leaves_its_job_in_doubt_or_as_it_was_settled(
    url: str, spool: Path, settled: bool
) -> None:
    async with buyer(url, service=HERE) as killed:
        first, second = await submitting(killed, job("a"), job("b"))
        await killed.generated(first, generation("x"), ["a.png"], "out")
        lines = Journal(spool, killed.run_id)
        lines.append(answer(second, "x", service=HERE, ledger_id=killed.id))
        lines.close()
        await killed.end_run()
    if settled:
        async with buyer(url, service=HERE) as ledger:
            doubts = await ledger.read(queries.doubts)
            await ledger.write(settle, doubts, charged=True, by="ada", why=None)
    async with buyer(url, service=HERE, journal=spool) as ledger:
        [row] = [row for row in await ledger.read(reading.attempts) if row["row_id"] == "b"]
        assert (row["state"], row["generation_id"]) == ("lost" if settled else "in_doubt", None)
        assert ("settled as charged" if settled else "which row a has already") in row["error_message"]
        totals = await ledger.read(sums.of_batch)
        assert (totals.spent, totals.exposure) == (Decimal("0.08" if settled else "0.04"), Decimal("0.08"))
        assert not files_in(spool)


# ---- the newest word


async def test_a_limit_counts_from_when_its_run_is_let_begin_and_set_holds_until_its_runs_have_ended(
    url: str,
) -> None:
    """The newest word counts for every run of the batch; a flow run that goes on says nothing anew."""

    async def begins(ledger: Ledger, limit: str | None, above: str | None = None) -> Decimal | None:
        """What the limit is after a run has asked to begin whose config says `limit`."""
        of_config = {"limit": limit, "approve_above": above}
        budget = Budget(**{name: None if text is None else Decimal(text) for name, text in of_config.items()})
        shown = Shown("p", quoted=Decimal(1), at_most=Decimal(1))
        await ledger.write(
            gate.let_begin, ledger.buyer(budget, Decimal(100)), shown, new_word(ledger), in_words=why
        )
        return await ledger.read(changes.limit)

    async def sets(ledger: Ledger, limit: str) -> int:
        number, _ = await ledger.write(changes.enter_change, {changes.LIMIT: limit}, "somebody")
        return number

    async with AsyncExitStack() as stack:

        async def run(flow_run: str | None = None) -> Ledger:
            ledger = await Ledger.open(url, "b", flow_run=flow_run)
            await stack.enter_async_context(ledger)
            await ledger.begin_run()
            return ledger

        first = await run("one")
        assert await begins(first, "2.00") == Decimal("2.00")
        assert await begins(await run(), "9.00", above="0") == Decimal("2.00"), "it only asks"
        assert await begins(await run(), "3.00") == Decimal("3.00"), "the newest"
        number = await sets(first, "0.50")
        left = partial(changes.not_taken, number=number)
        at_work = len(await first.read(left))
        await first.write(changes.goes_by, first.run_id, number)
        assert len(await first.read(left)) == at_work - 1
        late = await run()
        assert await begins(late, "5.00") == Decimal("0.50"), "a config never raises what set has said"
        assert await begins(await run(), None) == Decimal("0.50")
        assert await begins(await run(), "0.40") == Decimal("0.40"), "and lowers it"
        assert await begins(first, "2.00") == Decimal("0.40"), "it has said its own already"
        await first.end_run()
        resumed = await run("one")
        assert await begins(resumed, "2.00") == Decimal("0.40"), "the same flow run"
    async with await Ledger.open(url, "b") as later:
        await later.begin_run()
        assert await begins(later, "5.00") == Decimal("5.00"), "those that it was said to have ended"


async def test_what_a_flow_run_left_in_doubt_or_lost_is_known_until_it_is_settled(url: str) -> None:
    """Also what its killed process was submitting; not what was left before it began, or by others."""

    async def left(ledger: Ledger, flow_run: str) -> dict[str, State]:
        return await ledger.read(partial(leases.left_by, flow_run=flow_run))

    old, doubt, lost, killed, others = map(job, ("old", "doubt", "lost", "killed", "others"))
    async with buyer(url) as before:
        [attempt] = await submitting(before, old)
        await before.transition(states.in_doubt, End(attempt, "cut off"))
        await before.end_run()
    async with buyer(url, flow_run="one") as first:
        assert await left(first, "one") == {}
        attempt, gone, _ = await submitting(first, doubt, lost, killed)
        await first.transition(states.in_doubt, End(attempt, "cut off"))
        [file] = await first.generated(gone, generation("lost"), ["lost.png"], "out")
        await first.transition(states.lost, FileEnd(file, lost="gone"))
    async with buyer(url, flow_run="two") as other:  # the first was not ended
        [attempt] = await submitting(other, others)
        await other.transition(states.in_doubt, End(attempt, "cut off"))
        in_doubt = {each.key: State.IN_DOUBT for each in (doubt, killed)}
        assert await left(other, "one") == in_doubt | {lost.key: State.LOST}
        assert (await left(other, "two"))[others.key] is State.IN_DOUBT
        doubts = [each for each in await other.read(queries.doubts) if each.job_key != killed.key]
        await other.write(settle, doubts, charged=True, by="ada", why=None)
        assert await left(other, "one") == {killed.key: State.IN_DOUBT, lost.key: State.LOST}
        await other.end_run()


async def test_a_mark_takes_as_long_among_many_marks_as_among_few(tmp_path: Path) -> None:
    """As SQLite counts its steps: of the lookup, the mark, and what a page asks for that knows the others."""

    def steps_of_a_mark(connection: sa.Connection, batch: str) -> int:
        last = connection.scalar(sa.select(sa.func.max(marks_table.c.number)))
        steps = itertools.count()
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        driver.set_progress_handler(lambda: next(steps) and None, 1)
        assert mark(connection, batch, 7, "blurred") == 1
        assert marks.decisions(connection, batch, last or 0)["note"].to_list() == ["blurred"]
        driver.set_progress_handler(None, 1)
        return next(steps)

    steps = []
    for count in (100, 5_000):
        async with buyer(f"sqlite:///{tmp_path}/{count}.db") as ledger:
            await fill_with_marked_files(ledger, count)
            steps.append(await ledger.write(steps_of_a_mark))
            assert (await ledger.read(read_standing)).review == (count - 1, 1, 1)
    assert steps[1] <= 1.5 * steps[0], steps


async def test_reads_that_take_long_keep_no_commit_waiting(url: str) -> None:
    """Nor the renewal of the lease with it."""
    ended = threading.Event()
    async with buyer(url) as ledger:
        reads = [asyncio.create_task(ledger.read(lambda *_: ended.wait())) for _ in range(4)]
        try:
            async with asyncio.timeout(LONGEST):
                await ledger.renew()
        finally:
            ended.set()
        assert await asyncio.gather(*reads) == [True] * 4
