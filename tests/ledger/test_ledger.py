"""The ledger keeps the states' rules, the budget's wall, and everything through a dead run."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from callsheet.errors import LedgerError
from callsheet.ledger import queries, running_totals
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.media import other_name
from callsheet.ledger.policy import Policy
from callsheet.records import State
from tests.ledger import reading
from tests.ledger.buying import STORED, buyer, generation, intend, job, reserve, state_of, submitting

pytestmark = pytest.mark.anyio


async def test_a_job_walks_from_intent_to_stored_and_the_totals_say_what_it_cost(ledger: Ledger) -> None:
    [attempt] = await submitting(ledger, job("one"))
    assert await state_of(ledger, job("one")) is State.SUBMITTING
    [file] = await ledger.generated(attempt, generation("one", "0.0500"), ["b/one.png"], "out")
    assert await state_of(ledger, job("one")) is State.GENERATED
    assert await ledger.stored(file, STORED) is State.STORED
    totals = await ledger.read(running_totals.of_batch)
    assert totals.states == {State.STORED: 1}
    assert totals.spent == totals.exposure == Decimal("0.05")
    [row] = await ledger.read(reading.manifest)
    assert (row["prompt"], row["sha256"], row["cost"]) == ("a one", "ab" * 32, Decimal("0.05"))


async def test_a_job_of_several_files_ends_with_the_last_one(ledger: Ledger) -> None:
    """Also where all come in one commit, beside those of other jobs; one that is lost makes the job lost."""
    a, b, c = await submitting(ledger, *map(job, "abc"))
    files = await ledger.generated(a, generation("a", files=2), ["a0.png", "a1.png"], "out")
    files += await ledger.generated(b, generation("b"), ["b.png"], "out")
    ends = await asyncio.gather(*(ledger.stored(file, STORED) for file in files))
    assert ends == [None, State.STORED, State.STORED]
    files = await ledger.generated(c, generation("c", files=2), ["c0.png", "c1.png"], "out")
    assert await ledger.lost(files[0], "gone") is None
    assert await ledger.stored(files[1], STORED) is State.LOST
    assert (await ledger.read(running_totals.of_batch)).states == {State.STORED: 2, State.LOST: 1}


async def test_a_write_whose_caller_is_cancelled_is_made_with_those_of_the_others(ledger: Ledger) -> None:
    jobs = [*map(job, "abc")]
    reserved, _ = await reserve(ledger, *jobs)
    writes = [asyncio.create_task(intend(ledger, attempt)) for _, attempt in reserved]
    await asyncio.sleep(0)  # they wait for the commit
    writes[1].cancel()
    await asyncio.wait(writes)
    assert [write.cancelled() for write in writes] == [False, True, False]
    assert [await state_of(ledger, one) for one in jobs] == [State.SUBMITTING] * 3


@pytest.mark.parametrize("limit, fit", [("0.0799", 1), ("0.0800", 2), ("0.1200", 3), ("0.0300", 0)])
async def test_the_wall_lets_jobs_through_in_order_until_one_does_not_fit(
    ledger: Ledger, limit: str, fit: int
) -> None:
    reserved, considered = await reserve(ledger, *map(job, "abc"), limit=limit)
    assert [one.row_id for one, _ in reserved] == list("abc")[:fit]
    assert considered == fit


async def test_another_batchs_files_stand_for_the_same_request_once_a_batch_and_only_if_asked_for(
    url: str,
) -> None:
    same = job("one").request_key
    first, second, third = (replace(job(f"mine {n}"), request_key=same) for n in range(3))
    async with buyer(url, "theirs") as theirs:
        for attempt in await submitting(theirs, job("one"), replace(job("two"), request_key=same)):
            name = attempt.row_id
            [file] = await theirs.generated(attempt, generation(name), [f"{name}.png"], "out")
            await theirs.stored(file, replace(STORED, url=f"out/{name}.png"))
    async with buyer(url, "mine") as mine:
        reserved, considered = await reserve(
            mine, first, second, third, job("another"), limit="0.08", reuse=True
        )
        assert ([one.row_id for one, _ in reserved], considered) == (["mine 2", "another"], 4)
        assert await state_of(mine, first) is State.STORED
        rows = {row["row_id"]: row for row in await mine.read(reading.manifest)}
        urls = {name: row["url"] for name, row in rows.items()}
        assert urls == {"mine 0": "out/one.png", "mine 1": "out/two.png"}
        assert (rows["mine 0"]["job_key"], rows["mine 0"]["cost"]) == (first.key, Decimal(0))
        exposure = (await mine.read(running_totals.of_batch)).exposure
        assert exposure == Decimal("0.08"), "what is reused is free"
        assert not any(row["submitted_at"] for row in await mine.read(reading.attempts))
    async with buyer(url, "unasked") as unasked:
        [_], _ = await reserve(unasked, replace(job("x"), request_key=same))


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
async def test_failed_jobs_are_attempted_anew_by_their_kind(url: str, kind: Any, again: set[str]) -> None:
    """What the service refused with a code of its own is only sent again with `all`."""
    codes = ["server_error", "http_503", "http_403", "waf_block", "content_policy_violation", "not_found"]
    async with buyer(url) as ledger:
        for attempt in await submitting(ledger, *map(job, codes)):
            await ledger.failed(attempt, attempt.row_id, "no")
    async with buyer(url) as ledger:
        policy = Policy(retry_failed=kind)
        known = pl.concat(await ledger.read(lambda *of: list(queries.known_jobs(*of, policy))))
        keys = {job(code).key: code for code in codes}
        assert {keys[key] for key in known.filter("to_buy")["job_key"]} == again
        assert {keys[key] for key in known.filter(~pl.col("final"))["job_key"]} == again
        anew, _ = await reserve(ledger, *map(job, codes), retry_failed=kind)
        assert {of.row_id for of, _ in anew} == again


async def test_what_was_planned_before_a_price_rose_is_reserved_at_the_new_one(url: str) -> None:
    async with buyer(url) as ledger:
        await reserve(ledger, *map(job, "abc"))
        await ledger.end_run()
    async with buyer(url) as ledger:
        dearer = [job(each, price="0.0800") for each in "abc"]
        assert [each.key for each in dearer] == [job(each).key for each in "abc"]
        reserved, _ = await reserve(ledger, *dearer, limit="0.20")
        assert [one.row_id for one, _ in reserved] == ["a", "b"]
        assert (await ledger.read(running_totals.of_batch)).exposure == Decimal("0.16")


@pytest.mark.parametrize("second", ["SAME.png", "Same.PNG", "e\u0301.png", "STRASSE.png"])
async def test_names_that_differ_only_in_case_or_encoding_are_one_name(ledger: Ledger, second: str) -> None:
    """On the disks of macOS and Windows they are one file."""
    taken = ["same.png", "\u00e9.png", "straße.png"]
    attempts = await submitting(ledger, *map(job, "abcd"))
    names = []
    for attempt, name in zip(attempts, [*taken, second], strict=True):
        [file] = await ledger.generated(attempt, generation(attempt.row_id), [name], "out")
        names.append(file.name)
    assert names == [*taken, other_name(second, attempts[3], 0)]
    await ledger.renamed(file, "Another.png")
    [last] = await submitting(ledger, job("last"))
    [file] = await ledger.generated(last, generation("last"), ["another.png"], "out")
    assert file.name == other_name("another.png", last, 0)


async def test_the_files_of_one_answer_never_share_a_name_either(ledger: Ledger) -> None:
    [attempt] = await submitting(ledger, job("a"))
    files = await ledger.generated(attempt, generation("a", files=3), ["same.png"] * 3, "out")
    key = attempt.job_key[:12]
    assert [file.name for file in files] == ["same.png", f"same-{key}_1.png", f"same-{key}_2.png"]


async def test_what_the_ledger_cannot_hold_leaves_the_others_in_its_commit_alone(ledger: Ledger) -> None:
    attempts = await submitting(ledger, *map(job, "abc"))
    words = ("no", "half an emoji: \ud83d", "no")
    failing = (
        ledger.failed(attempt, "server_error", said) for attempt, said in zip(attempts, words, strict=True)
    )
    ends = await asyncio.gather(*failing, return_exceptions=True)
    assert [type(end) for end in ends] == [type(None), LedgerError, type(None)]
    states = [await state_of(ledger, job(name)) for name in "abc"]
    assert states == [State.FAILED, State.SUBMITTING, State.FAILED]


async def test_a_cost_with_more_than_six_decimals_is_a_bug_not_a_rounding(ledger: Ledger) -> None:
    [attempt] = await submitting(ledger, job("a"))
    with pytest.raises(LedgerError, match="six decimals"):
        await ledger.generated(attempt, generation("a", "0.0000001"), ["a.png"], "out")


async def test_a_settled_doubt_is_settled_once_and_all_or_none_are(ledger: Ledger) -> None:
    for attempt in await submitting(ledger, job("a"), job("b")):
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


async def test_nobody_can_say_what_an_unpriced_job_has_cost(ledger: Ledger) -> None:
    [attempt] = await submitting(ledger, replace(job("a"), price=None))
    await ledger.doubt(attempt, "cut off")
    await ledger.settle(await ledger.read(queries.doubts), charged=True, by="ada", why=None)
    [row] = await ledger.read(reading.attempts)
    assert (row["state"], row["cost"]) == (State.LOST, None)
