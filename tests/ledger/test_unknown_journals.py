"""A journal of a run that the ledger does not know: its answers are taken up, or nothing is bought.

That is a ledger that was restored from a backup, or lost, or shares the folder of journals with another.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from callsheet.errors import UnknownAnswers
from callsheet.ledger import queries, states, sums, words
from callsheet.ledger.journal import Journal, PaidAnswer
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.states import End, FileEnd
from callsheet.records import Attempt, Job, State
from tests.ledger import journals, reading
from tests.ledger.buying import STORED, generation, intend, job, reserve, state_of, submitting, word
from tests.ledger.journals import ACCEPTED, IMAGE, VIDEO, files_in, kept, locked, until
from tests.ledger.other_run import other_run

pytestmark = pytest.mark.anyio


@pytest.fixture
def url(tmp_path: Path) -> str:
    """In SQLite alone: the steps by which the ledger takes answers are tried in both in test_ledger.py."""
    return f"sqlite:///{tmp_path}/ledger.db"


SERVICE = "https://a.example"
PLAN = replace(IMAGE, carried={"shelf": "7"})


@asynccontextmanager
async def begun(
    url: str, spool: Path | None, *plan: Job, notes: list[str] | None = None, **how: Any
) -> AsyncIterator[Ledger]:
    """A run with a plan of these jobs; `how` it begins."""
    told = [] if notes is None else notes
    async with await Ledger.open(url, "b", service=SERVICE, journal=spool, note=told.append) as ledger:
        await ledger.begin_run(find=lambda keys: {one.key: one for one in plan if one.key in keys}, **how)
        await ledger.write(words.enter_word, word(ledger, "1000000"))
        yield ledger


async def write_journal(url: str, spool: Path, *answers: PaidAnswer) -> Path:
    """The journal of a run that this ledger does not know, and whose answers are for it."""
    ledger, own = await Ledger.open(url, "b"), Journal(spool, "unknown-run")
    for answer in answers:
        own.append(replace(answer, ledger_id=answer.ledger_id or ledger.id))
    own.close()
    await ledger.close()
    [path] = files_in(spool)
    return path


def answer(one: Job = PLAN, name: str = "image", **changes: Any) -> PaidAnswer:
    attempt = Attempt(one.key, 1, one.type, one.row_id, one.sample, one.model, request_key=one.request_key)
    return journals.answer(attempt, name, **{"service": SERVICE} | changes)


async def die_after(ledger: Ledger, steps: str) -> None:
    [(_, attempt)], _ = await reserve(ledger, IMAGE)
    for step in steps.split():
        match step:
            case "sent":
                await intend(ledger, attempt)
            case "refused":
                await ledger.transition(states.failed, End(attempt, "no", "server_error"))
            case "doubtful":
                await ledger.transition(states.in_doubt, End(attempt, "cut off"))
            case "ended":
                await ledger.end_run()


@pytest.mark.parametrize(
    ("before", "attempts", "in_doubt"),
    [
        (None, 1, "0"),
        ("reserved", 1, "0"),
        ("reserved ended", 1, "0"),
        # Another request than the one that was answered: it may have been paid for, too.
        ("reserved sent", 2, "0.04"),
        ("reserved sent refused", 2, "0"),
        ("reserved sent doubtful", 2, "0.04"),
    ],
)
async def test_an_answer_is_taken_up_where_batch_row_and_request_match(
    url: str, spool: Path, before: str | None, attempts: int, in_doubt: str
) -> None:
    """Whatever the ledger knows of the job. Its cost counts, its file is fetched, nobody buys it again."""
    if before:
        async with begun(url, None) as dead:
            await die_after(dead, before)
    await write_journal(url, spool, answer())
    notes: list[str] = []
    async with begun(url, spool, PLAN, job("other"), notes=notes) as ledger:
        assert await state_of(ledger, IMAGE) is State.GENERATED
        assert (notes, files_in(spool)) == ([], [])
        _, [file] = await ledger.read(queries.unfinished, ledger.run_id)
        assert (file.attempt.number, file.attempt.generation_id) == (attempts, "req-image")
        totals = await ledger.read(sums.of_batch)
        assert (totals.spent, totals.in_doubt_exposure) == (Decimal("0.04"), Decimal(in_doubt))
        newest = (await ledger.read(reading.attempts))[-1]
        assert newest["submitted_at"] is not None
        assert (newest["request_key"], newest["quoted"]) == (PLAN.request_key, Decimal("0.04"))
        assert "7" in str(newest["carried"])
        assert await ledger.read(lambda it, _: sums.differences(it)) == []
        assert (await reserve(ledger, PLAN, retry_failed=True, retry_doubt=True))[0] == []
        assert await ledger.transition(states.stored, FileEnd(file, STORED)) is State.STORED


async def test_the_accepted_and_the_finished_video_are_one(url: str, spool: Path) -> None:
    accepted = answer(VIDEO, "video", **ACCEPTED)
    await write_journal(url, spool, accepted, answer(VIDEO, "video"))
    async with begun(url, spool, VIDEO) as ledger:
        assert await state_of(ledger, VIDEO) is State.GENERATED
        assert (await ledger.read(sums.of_batch)).spent == Decimal("0.04")
        assert files_in(spool) == []


@pytest.mark.parametrize(
    "kept_answer, plan, why",
    [
        (answer(), [], "does not have it"),
        (answer(), [replace(PLAN, request_key="another")], "with this request"),
        (answer(ledger_id="another"), [PLAN], "another ledger"),
        (answer(service="https://b.example"), [PLAN], "https://b.example"),
        (answer(usage=generation("image", "0.00000001").usage), [PLAN], "six decimals"),
    ],
)
async def test_what_cannot_be_taken_up_stops_the_buying_and_stays(
    url: str, spool: Path, kept_answer: PaidAnswer, plan: list[Job], why: str
) -> None:
    path = await write_journal(url, spool, kept_answer)
    content = path.read_bytes()
    with pytest.raises(UnknownAnswers, match="1 answer paid for, of a run that the ledger") as caught:
        async with begun(url, spool, *plan):
            pass
    for said in (str(path), "row image", why):
        assert said in caught.value.message
    notes: list[str] = []
    async with begun(url, spool, *plan, buys=False, notes=notes) as ledger:
        assert [str(path) in note and why in note for note in notes] == [True]
        assert await ledger.read(reading.attempts) == []
    assert path.read_bytes() == content
    path.rename(path.with_name("away"))  # a person says that it belongs to another ledger
    async with begun(url, spool, PLAN) as ledger:
        assert len((await reserve(ledger, PLAN))[0]) == 1


async def test_a_line_that_cannot_be_read_stops_the_buying(url: str, spool: Path) -> None:
    path = await write_journal(url, spool, answer())
    path.write_bytes(b"\xff damaged\n" + path.read_bytes())
    with pytest.raises(UnknownAnswers, match="1 line cannot be read"):
        async with begun(url, spool, PLAN):
            pass


async def test_a_ledger_that_takes_the_place_of_a_lost_one_takes_its_answers_up(
    url: str, spool: Path
) -> None:
    await write_journal(url, spool, answer(ledger_id="lost"))
    async with begun(url, spool, PLAN, replaces=True) as ledger:
        assert await state_of(ledger, IMAGE) is State.GENERATED
        assert files_in(spool) == []


async def test_what_the_ledger_has_already_is_known_and_the_file_goes(url: str, spool: Path) -> None:
    async with begun(url, None) as first:
        [attempt] = await submitting(first, IMAGE)
        [file] = await first.generated(attempt, generation("image"), ["i.png"], "out")
        await first.transition(states.stored, FileEnd(file, STORED))
        await first.end_run()
    await write_journal(url, spool, answer(ledger_id="another"))
    async with begun(url, spool) as ledger:
        assert await state_of(ledger, IMAGE) is State.STORED
        assert files_in(spool) == []


@pytest.mark.parametrize("in_hand", [True, False])
async def test_a_job_that_is_bought_twice_already_is_said_and_the_answer_is_kept(
    url: str, spool: Path, in_hand: bool
) -> None:
    async with begun(url, None) as first:
        [attempt] = await submitting(first, IMAGE)
        await first.generated(attempt, generation("again"), ["i.png"], "out")
        if not in_hand:
            await first.end_run()
        await write_journal(url, spool, answer())
        notes: list[str] = []
        async with begun(url, spool, PLAN, notes=notes) as ledger:
            [note] = notes
            for words in ("paid for twice", "req-image", "req-again", str(files_in(spool)[0])):
                assert words in note
            assert kept(spool) == ["image"]
            assert (await ledger.read(sums.of_batch)).spent == Decimal("0.04")


async def test_a_job_that_another_run_is_about_to_send_is_left_to_it(url: str, spool: Path) -> None:
    async with begun(url, None) as first:
        [(_, attempt)], _ = await reserve(first, IMAGE)
        await write_journal(url, spool, answer())
        notes: list[str] = []
        async with begun(url, spool, PLAN, notes=notes):
            assert "at work has this job in hand" in notes[0]
            assert kept(spool) == ["image"]
        await intend(first, attempt)


async def test_the_journal_of_a_run_at_work_in_another_ledger_is_not_taken(url: str, spool: Path) -> None:
    """Also by a ledger that is said to take the place of others: this one has not gone."""
    other = f"sqlite:///{spool.parent}/other.db"
    with other_run(other, "b", str(spool), "0.2") as run:
        run.do("reserve image", "intend image")
        with locked(other):
            run.send("generated image")
            await until(lambda: kept(spool) == ["image"])
            with pytest.raises(UnknownAnswers, match="that run is at work"):
                async with begun(url, spool, PLAN, replaces=True):
                    pass
            assert kept(spool) == ["image"]
        await until(lambda: files_in(spool) == [])
    async with begun(url, spool, PLAN) as ledger:
        assert await state_of(ledger, IMAGE) is None


async def test_a_run_that_the_ledger_knows_may_have_sent_what_it_does_not_know(url: str, spool: Path) -> None:
    """The backup was made while the run was at work."""
    async with begun(url, None) as run:
        own = Journal(spool, run.run_id)
        own.append(answer(ledger_id=run.id))
        own.close()
    async with begun(url, spool, PLAN) as ledger:
        assert await state_of(ledger, IMAGE) is State.GENERATED
        assert files_in(spool) == []
