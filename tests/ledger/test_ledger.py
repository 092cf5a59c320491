"""The ledger keeps the states' rules, the budget's wall, and everything through a dead run."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from callsheet.errors import LedgerError
from callsheet.ledger import queries, running_totals
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.names import other_name
from callsheet.ledger.policy import Policy
from callsheet.records import Job, State, StoredFile
from tests.ledger import reading
from tests.ledger.buying import NOW, buyer, generation, intend, job, reserve, state_of


def test_a_job_walks_from_intent_to_stored_and_the_totals_say_what_it_cost(url: str) -> None:
    async def scenario() -> None:
        async with buyer(url) as ledger:
            one = job("one")
            [(_, attempt)], _ = await reserve(ledger, one)
            await intend(ledger, attempt)
            assert await state_of(ledger, one) is State.SUBMITTING
            [file] = await ledger.generated(attempt, generation("one", "0.0500"), ["b/one.png"], "out")
            assert await state_of(ledger, one) is State.GENERATED
            stored = StoredFile("out/b/one.png", "ab" * 32, 7, NOW, "image/png")
            assert await ledger.stored(file, stored) is State.STORED
            totals = await ledger.read(running_totals.of_batch)
            assert totals.states == {State.STORED: 1}
            assert totals.spent == totals.exposure == Decimal("0.05")
            [row] = await ledger.read(reading.manifest)
            assert (row["prompt"], row["sha256"], row["cost"]) == ("a one", "ab" * 32, Decimal("0.05"))

    asyncio.run(scenario())


def test_a_generation_of_several_files_is_stored_with_the_last_one(url: str) -> None:
    async def scenario() -> None:
        async with buyer(url) as ledger:
            [(_, attempt)], _ = await reserve(ledger, job("one"))
            await intend(ledger, attempt)
            files = await ledger.generated(attempt, generation("one", files=2), ["a.png", "b.png"], "out")
            stored = StoredFile("u", "ab" * 32, 7, NOW, "image/png")
            assert await ledger.stored(files[0], stored) is None
            assert await ledger.lost(files[1], "gone") is State.LOST

    asyncio.run(scenario())


def test_all_files_of_a_generation_can_be_stored_in_one_commit_beside_those_of_others(url: str) -> None:
    async def scenario() -> None:
        async with buyer(url) as ledger:
            reserved, _ = await reserve(ledger, *map(job, "ab"))
            files = []
            for (one, attempt), count in zip(reserved, (2, 1), strict=True):
                await intend(ledger, attempt)
                names = [f"{one.row_id}{number}.png" for number in range(count)]
                files += await ledger.generated(attempt, generation(one.row_id, files=count), names, "out")
            stored = StoredFile("u", "ab" * 32, 7, NOW, "image/png")
            ends = await asyncio.gather(*(ledger.stored(file, stored) for file in files))
            assert ends == [None, State.STORED, State.STORED]
            assert (await ledger.read(running_totals.of_batch)).states == {State.STORED: 2}

    asyncio.run(scenario())


def test_a_write_whose_caller_is_cancelled_is_made_with_those_of_the_others(url: str) -> None:
    async def scenario() -> None:
        async with buyer(url) as ledger:
            jobs = [*map(job, "abc")]
            reserved, _ = await reserve(ledger, *jobs)
            writes = [asyncio.create_task(intend(ledger, attempt)) for _, attempt in reserved]
            await asyncio.sleep(0)  # they wait for the commit
            writes[1].cancel()
            await asyncio.wait(writes)
            assert [write.cancelled() for write in writes] == [False, True, False]
            assert [await state_of(ledger, one) for one in jobs] == [State.SUBMITTING] * 3

    asyncio.run(scenario())


@pytest.mark.parametrize("limit, fit", [("0.0799", 1), ("0.0800", 2), ("0.1200", 3), ("0.0300", 0)])
def test_the_wall_lets_jobs_through_in_order_until_one_does_not_fit(url: str, limit: str, fit: int) -> None:
    async def scenario() -> None:
        async with buyer(url) as ledger:
            reserved, considered = await reserve(ledger, *map(job, "abc"), limit=limit)
            assert [one.row_id for one, _ in reserved] == list("abc")[:fit]
            assert considered == fit

    asyncio.run(scenario())


def test_a_job_that_is_too_dear_is_passed_over_for_cheaper_ones_only_if_asked_for(url: str) -> None:
    async def scenario() -> None:
        async with buyer(url) as ledger:
            jobs = [job("cheap"), job("dear", price="0.5000"), job("cheap too"), job("third")]
            assert (await reserve(ledger, *jobs[1:], limit="0.08"))[1] == 0
            result = await ledger.reserve(jobs, Policy(), limit=Decimal("0.08"), skip=True)
            assert [one.row_id for one, _ in result.reserved] == ["cheap", "cheap too"]
            assert [one.row_id for one in result.left] == ["dear", "third"]

    asyncio.run(scenario())


async def store(ledger: Ledger, *jobs: Job) -> None:
    reserved, _ = await reserve(ledger, *jobs)
    for one, attempt in reserved:
        await intend(ledger, attempt)
        [file] = await ledger.generated(attempt, generation(one.row_id), [f"{one.row_id}.png"], "out")
        await ledger.stored(file, StoredFile(f"out/{one.row_id}.png", "ab" * 32, 7, NOW, "image/png"))


def test_another_batchs_files_stand_for_the_same_request_once_a_batch_and_only_if_asked_for(url: str) -> None:
    async def scenario() -> None:
        same = job("one").request_key
        first, second, third = (replace(job(f"mine {n}"), request_key=same) for n in range(3))
        async with buyer(url, "theirs") as theirs:
            await store(theirs, job("one"), replace(job("two"), request_key=same))
        async with buyer(url, "mine") as mine:
            result = await mine.reserve(
                [first, second, third, job("another")],
                Policy(reuse=True),
                limit=Decimal("0.08"),
            )
            assert [one.row_id for one, _ in result.reserved] == ["mine 2", "another"]
            assert result.left == []
            assert await state_of(mine, first) is State.STORED
            rows = {row["row_id"]: row for row in await mine.read(reading.manifest)}
            assert {name: row["url"] for name, row in rows.items()} == {
                "mine 0": "out/one.png",
                "mine 1": "out/two.png",
            }
            assert (rows["mine 0"]["job_key"], rows["mine 0"]["cost"]) == (first.key, Decimal(0))
            assert (await mine.read(running_totals.of_batch)).exposure == Decimal("0.08"), (
                "what is reused is free"
            )
            submitted = [row["row_id"] for row in await mine.read(reading.attempts) if row["submitted_at"]]
            assert submitted == []
        async with buyer(url, "unasked") as unasked:
            [_], _ = await reserve(unasked, replace(job("x"), request_key=same))

    asyncio.run(scenario())


def test_a_refusal_gives_its_reservation_back_and_doubt_does_not(url: str) -> None:
    async def scenario() -> None:
        async with buyer(url) as ledger:
            reserved, _ = await reserve(ledger, job("a"), job("b"), limit="0.08")
            for _, attempt in reserved:
                await intend(ledger, attempt)
            assert (await reserve(ledger, job("c"), limit="0.08"))[1] == 0
            await ledger.failed(reserved[0][1], "content_policy_violation", "no")
            await ledger.doubt(reserved[1][1], "cut off")
            assert (await reserve(ledger, job("c"), limit="0.08"))[1] == 1
            assert (await reserve(ledger, job("d"), limit="0.08"))[1] == 0
            assert (await ledger.read(running_totals.of_batch)).in_doubt_exposure == Decimal("0.04")

    asyncio.run(scenario())


def test_two_runs_at_once_never_reserve_the_same_job(url: str) -> None:
    async def scenario() -> None:
        async with buyer(url) as first, buyer(url) as second:
            jobs = [job(f"j{n}") for n in range(40)]
            both = await asyncio.gather(
                *(reserve(ledger, *jobs[at : at + 8]) for at in range(0, 40, 8) for ledger in (first, second))
            )
            bought = [one.key for reserved, _ in both for one, _ in reserved]
            assert sorted(bought) == sorted(one.key for one in jobs)

    asyncio.run(scenario())


def test_an_illegal_step_is_refused_and_leaves_the_steps_beside_it_alone(url: str) -> None:
    async def scenario() -> None:
        async with buyer(url) as ledger:
            reserved, _ = await reserve(ledger, job("a"), job("b"))
            (_, a), (_, b) = reserved
            results = await asyncio.gather(
                intend(ledger, a), ledger.pending(b, "req-b"), ledger.release(a), return_exceptions=True
            )
            assert [type(result) for result in results] == [type(None), LedgerError, type(None)]
            assert await state_of(ledger, job("a")) is State.PLANNED

    asyncio.run(scenario())


def test_failed_and_doubtful_jobs_are_attempted_anew_only_when_asked_for(url: str) -> None:
    async def scenario() -> None:
        async with buyer(url) as ledger:
            reserved, _ = await reserve(ledger, job("a"), job("b"))
            for _, attempt in reserved:
                await intend(ledger, attempt)
            await ledger.failed(reserved[0][1], "server_error", "no")
            await ledger.doubt(reserved[1][1], "cut off")
            assert await reserve(ledger, job("a"), job("b")) == ([], 2)
            again, _ = await reserve(ledger, job("a"), job("b"), retry_failed=True, retry_doubt=True)
            assert [one.row_id for one, _ in again] == ["b"], "a run tries a job once, unless it is in doubt"
            await ledger.end_run()
        async with buyer(url) as ledger:
            assert await reserve(ledger, job("a"), retry_failed=True, attempts=1) == ([], 1)
            again, _ = await reserve(ledger, job("a"), job("b"), retry_failed=True, retry_doubt=True)
            assert [attempt.number for _, attempt in again] == [2, 2]
            assert (await ledger.read(running_totals.of_batch)).in_doubt_exposure == Decimal("0.04")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "kind, again",
    [
        (False, set()),
        ("server_error", {"server_error", "http_503"}),
        ("gateway", {"http_403", "http_503", "waf_block"}),
        (
            "all",
            {"server_error", "http_503", "http_403", "waf_block", "content_policy_violation", "not_found"},
        ),
    ],
)
def test_failed_jobs_are_attempted_anew_by_their_kind(url: str, kind: Any, again: set[str]) -> None:
    """What the service refused with a code of its own is only sent again with `all`."""
    codes = ["server_error", "http_503", "http_403", "waf_block", "content_policy_violation", "not_found"]

    async def scenario() -> None:
        async with buyer(url) as ledger:
            reserved, _ = await reserve(ledger, *map(job, codes))
            for of, attempt in reserved:
                await intend(ledger, attempt)
                await ledger.failed(attempt, of.row_id, "no")
            await ledger.end_run()
        async with buyer(url) as ledger:
            policy = Policy(retry_failed=kind)
            known = pl.concat(await ledger.read(lambda *of: list(queries.known_jobs(*of, policy))))
            keys = {job(code).key: code for code in codes}
            assert {keys[key] for key in known.filter("to_buy")["job_key"]} == again
            assert {keys[key] for key in known.filter(~pl.col("final"))["job_key"]} == again
            anew, _ = await reserve(ledger, *map(job, codes), retry_failed=kind)
            assert {of.row_id for of, _ in anew} == again

    asyncio.run(scenario())


def test_a_job_in_doubt_has_so_many_attempts_over_all_runs(url: str) -> None:
    """An attempt that was reserved and never sent does not count."""

    async def scenario() -> None:
        for number, sent in ((1, True), (2, False), (2, True), (3, False), (3, True)):
            async with buyer(url) as ledger:
                [(_, attempt)], _ = await reserve(ledger, job("a"), retry_doubt=True, attempts=3)
                assert attempt.number == number
                if sent:
                    await intend(ledger, attempt)
                    await ledger.doubt(attempt, "cut off")
                await ledger.end_run()
        async with buyer(url) as ledger:
            assert await reserve(ledger, job("a"), retry_doubt=True, attempts=3) == ([], 1)
            [], _ = await reserve(ledger, job("a"), retry_doubt=True, attempts=2)
            [(_, fourth)], _ = await reserve(ledger, job("a"), retry_doubt=True, attempts=4)
            assert fourth.number == 4

    asyncio.run(scenario())


def test_what_was_planned_before_a_price_rose_is_reserved_at_the_new_one(url: str) -> None:
    async def scenario() -> None:
        async with buyer(url) as ledger:
            await reserve(ledger, *map(job, "abc"))
            await ledger.end_run()
        async with buyer(url) as ledger:
            dearer = [job(each, price="0.0800") for each in "abc"]
            assert [each.key for each in dearer] == [job(each).key for each in "abc"]
            reserved, _ = await reserve(ledger, *dearer, limit="0.20")
            assert [one.row_id for one, _ in reserved] == ["a", "b"]
            assert (await ledger.read(running_totals.of_batch)).exposure == Decimal("0.16")

    asyncio.run(scenario())


def test_two_files_never_share_a_name(url: str) -> None:
    async def scenario() -> None:
        async with buyer(url) as ledger:
            reserved, _ = await reserve(ledger, job("a"), job("b"))
            names = []
            for one, attempt in reserved:
                await intend(ledger, attempt)
                [file] = await ledger.generated(attempt, generation(one.row_id), ["same.png"], "out")
                names.append(file.name)
            assert names == ["same.png", f"same-{reserved[1][0].key[:12]}.png"]

    asyncio.run(scenario())


@pytest.mark.parametrize("second", ["SAME.png", "Same.PNG", "e\u0301.png", "STRASSE.png"])
def test_names_that_differ_only_in_case_or_encoding_are_one_name(url: str, second: str) -> None:
    """On the disks of macOS and Windows they are one file."""

    async def scenario() -> None:
        async with buyer(url) as ledger:
            taken = ["same.png", "\u00e9.png", "straße.png"]
            one, *others = [job(str(number)) for number in range(4)]
            reserved, _ = await reserve(ledger, *others, one)
            names = []
            for (job_, attempt), name in zip(reserved, [*taken, second], strict=True):
                await intend(ledger, attempt)
                [file] = await ledger.generated(attempt, generation(job_.row_id), [name], "out")
                names.append(file.name)
            assert names[:3] == taken
            assert names[3] == other_name(second, reserved[3][1], 0)
            await ledger.renamed(file, "Another.png")
            [(_, last)], _ = await reserve(ledger, job("last"))
            await intend(ledger, last)
            [file] = await ledger.generated(last, generation("last"), ["another.png"], "out")
            assert file.name == other_name("another.png", last, 0)

    asyncio.run(scenario())


def test_the_files_of_one_answer_never_share_a_name_either(url: str) -> None:
    async def scenario() -> None:
        async with buyer(url) as ledger:
            [(_, attempt)], _ = await reserve(ledger, job("a"))
            await intend(ledger, attempt)
            files = await ledger.generated(attempt, generation("a", files=3), ["same.png"] * 3, "out")
            key = attempt.job_key[:12]
            assert [file.name for file in files] == ["same.png", f"same-{key}_1.png", f"same-{key}_2.png"]

    asyncio.run(scenario())


def test_what_the_ledger_cannot_hold_leaves_the_others_in_its_commit_alone(url: str) -> None:
    async def scenario() -> None:
        async with buyer(url) as ledger:
            reserved, _ = await reserve(ledger, *map(job, "abc"))
            attempts = [attempt for _, attempt in reserved]
            await asyncio.gather(*(intend(ledger, attempt) for attempt in attempts))
            ends = await asyncio.gather(
                ledger.failed(attempts[0], "server_error", "no"),
                ledger.failed(attempts[1], "server_error", "half an emoji: \ud83d"),
                ledger.failed(attempts[2], "server_error", "no"),
                return_exceptions=True,
            )
            assert [type(end) for end in ends] == [type(None), LedgerError, type(None)]
            states = await ledger.read(reading.states)
            assert [states[one.key] for one, _ in reserved] == [State.FAILED, State.SUBMITTING, State.FAILED]

    asyncio.run(scenario())


def test_a_cost_with_more_than_six_decimals_is_a_bug_not_a_rounding(url: str) -> None:
    async def scenario() -> None:
        async with buyer(url) as ledger:
            [(_, attempt)], _ = await reserve(ledger, job("a"))
            await intend(ledger, attempt)
            with pytest.raises(LedgerError, match="six decimals"):
                await ledger.generated(attempt, generation("a", "0.0000001"), ["a.png"], "out")

    asyncio.run(scenario())


def test_a_ledger_that_cannot_be_opened_says_which_and_what_to_check(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match="cannot be opened") as caught:
        asyncio.run(Ledger.open(f"sqlite:///{tmp_path}/file/ledger.db", "b"))
    assert "ledger.url" in caught.value.hint
    (tmp_path / "ledger.db").write_text(
        "this is no database, but long enough to look like one to SQLite " * 9
    )
    with pytest.raises(LedgerError, match="not a database"):
        asyncio.run(Ledger.open(f"sqlite:///{tmp_path}/ledger.db", "b"))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://me:secret@127.0.0.1:9/x",
        "mysql://me:secret@h/x",
        "me:secret@h",
        "p://me:secret@h:x/",
    ],
)
def test_a_ledgers_password_stays_out_of_messages(url: str) -> None:
    with pytest.raises(LedgerError) as caught:
        asyncio.run(Ledger.open(url, "b"))
    assert "secret" not in caught.value.message + caught.value.hint


def test_a_settled_doubt_is_settled_once_and_all_or_none_are(url: str) -> None:
    async def scenario() -> None:
        async with buyer(url) as ledger:
            reserved, _ = await reserve(ledger, job("a"), job("b"))
            for _, attempt in reserved:
                await intend(ledger, attempt)
                await ledger.doubt(attempt, "cut off")
            a, b = await ledger.read(queries.doubts)
            await ledger.settle([a], charged=True, by="ada", why=None)
            with pytest.raises(LedgerError, match="no longer in doubt"):
                await ledger.settle([b, a], charged=False, by="bob", why=None)
            assert await ledger.read(queries.doubts) == [b]
            await ledger.settle([b], charged=False, by="bob", why=None)
            totals = await ledger.read(running_totals.of_batch)
            assert totals.states == {State.LOST: 1, State.FAILED: 1}
            assert (totals.spent, totals.exposure) == (Decimal("0.04"), Decimal("0.04"))
            again, _ = await reserve(ledger, job("a"), job("b"))
            assert [(one.row_id, attempt.number) for one, attempt in again] == [("b", 2)]

    asyncio.run(scenario())


def test_nobody_can_say_what_an_unpriced_job_has_cost(url: str) -> None:
    async def scenario() -> None:
        async with buyer(url) as ledger:
            [(_, attempt)], _ = await reserve(ledger, replace(job("a"), price=None))
            await intend(ledger, attempt)
            await ledger.doubt(attempt, "cut off")
            await ledger.settle(await ledger.read(queries.doubts), charged=True, by="ada", why=None)
            [row] = await ledger.read(reading.attempts)
            assert (row["state"], row["cost"]) == (State.LOST, None)

    asyncio.run(scenario())
