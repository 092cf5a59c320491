"""An answer that is paid for is never dropped, whatever happens to the ledger when it comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from callsheet import places
from callsheet.config.settings import BatchSettings
from callsheet.errors import LedgerError, LedgerUnavailable
from callsheet.ledger import journal, queries, states, sums
from callsheet.ledger.journal import Journal, PaidAnswer
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.settling import settle
from callsheet.ledger.states import End, FileEnd
from callsheet.records import Attempt, ModelType, State
from tests.ledger import reading
from tests.ledger.buying import NOW, STORED, buyer, generation, job, state_of, submitting
from tests.ledger.journals import ACCEPTED, IMAGE, VIDEO, answer, answers, files_in, kept, locked, until
from tests.ledger.other_run import other_run
from tests.ledger.test_leases import LONG_AGO, change

pytestmark = pytest.mark.anyio


@pytest.fixture
def url(tmp_path: Path) -> str:
    """In SQLite alone: the steps by which the ledger takes answers are tried in both in test_ledger.py."""
    return f"sqlite:///{tmp_path}/ledger.db"


MOMENT = 0.2  # seconds after which a write to a locked ledger has failed
ATTEMPT = Attempt("key", 1, ModelType.IMAGE, "a", 1, "m")


async def test_a_ledger_that_is_locked_for_long_gets_the_answer_when_it_is_free(
    url: str, spool: Path
) -> None:
    notes: list[str] = []
    async with buyer(url, journal=spool, notes=notes, busy=MOMENT) as ledger:
        image, video = await submitting(ledger, IMAGE, VIDEO)
        with locked(url):
            both = asyncio.gather(*answers(ledger, image, video))
            await until(lambda: len(kept(spool)) == 2)
            secret = [*files_in(spool), *spool.parent.glob("ledger.db*")]  # they have signed URLs
            assert {path.stat().st_mode & 0o777 for path in secret} == {0o600}
        await both
        assert await state_of(ledger, IMAGE) is State.GENERATED
        assert len(notes) == 1, "the run is told once"
    assert files_in(spool) == []


async def test_what_cannot_be_written_before_the_lease_expires_is_written_by_the_next_run(
    url: str, spool: Path
) -> None:
    async with buyer(url, journal=spool, busy=MOMENT, lease=1) as ledger:
        image, video = await submitting(ledger, IMAGE, VIDEO)
        with locked(url):
            ends = await asyncio.gather(*answers(ledger, image, video), return_exceptions=True)
        assert [type(end) for end in ends] == [LedgerUnavailable, LedgerUnavailable]
    async with buyer(url, journal=spool) as heir:
        videos, files = await heir.read(queries.unfinished, heir.run_id)
        assert [found.generation_id for found in videos] == ["req-video"]
        assert [(file.name, file.media.url) for file in files] == [
            ("i.png", "http://x/1"),
            ("j.png", "http://x/1"),
        ]
        totals = await heir.read(sums.of_batch)
        assert (totals.spent, totals.in_doubt_exposure) == (Decimal("0.05"), 0)
        assert files_in(spool) == []
        assert [await heir.transition(states.stored, FileEnd(file, STORED)) for file in files] == [
            None,
            State.STORED,
        ]
        await heir.generated(videos[0], generation("video"), ["v.mp4"], "out")


async def test_a_run_that_is_killed_between_journal_and_ledger_loses_nothing(url: str, spool: Path) -> None:
    with other_run(url, "b", str(spool), "0.2") as killed:
        killed.do("reserve image other", "intend image", "intend other")
        with locked(url):
            killed.send("generated image")
            await until(lambda: kept(spool) == ["image"])
            killed.kill()
    async with buyer(url, journal=spool) as heir:
        assert await state_of(heir, IMAGE) is State.GENERATED
        assert await state_of(heir, job("other")) is State.IN_DOUBT, "its answer had not come"
        assert files_in(spool) == []


@asynccontextmanager
async def dead_run(url: str, spool: Path) -> AsyncIterator[tuple[Attempt, Journal]]:
    """A run that died with an image and a video in flight: the image's attempt, and the run's journal."""
    async with buyer(url, journal=spool) as ledger:
        image, _ = await submitting(ledger, IMAGE, VIDEO)
        own = Journal(spool, ledger.run_id)
        yield image, own
        own.close()


async def test_a_line_that_is_damaged_keeps_the_file_and_is_reported(url: str, spool: Path) -> None:
    async with dead_run(url, spool) as (image, own):
        own.append(answer(image))
    [path] = files_in(spool)
    path.write_bytes(b"\xff damaged\n" + path.read_bytes())
    notes: list[str] = []
    async with buyer(url, journal=spool, notes=notes) as heir:
        assert await state_of(heir, IMAGE) is State.GENERATED
    assert path.exists()
    assert [str(path) in note and "1 line cannot be read" in note for note in notes] == [True]


async def test_two_runs_share_a_folder_and_each_leaves_the_others_journal_alone_while_it_lives(
    url: str, spool: Path
) -> None:
    async with buyer(url, journal=spool) as first:
        image, _ = await submitting(first, IMAGE, VIDEO)
        own = Journal(spool, first.run_id)
        own.append(answer(image))
        async with buyer(url, journal=spool) as second:
            assert await state_of(second, IMAGE) is State.SUBMITTING
            assert kept(spool) == ["image"]
        await first.end_run()
        own.close()
        async with buyer(url, journal=spool) as third, buyer(url, journal=spool):
            assert await state_of(third, IMAGE) is State.GENERATED
            assert [
                file.attempt.row_id for file in (await third.read(queries.unfinished, third.run_id))[1]
            ] == ["image"]


async def test_the_journal_of_another_batch_is_left_alone(url: str, spool: Path, tmp_path: Path) -> None:
    async with dead_run(url, spool) as (image, own):
        own.append(answer(image))
    before = [path.read_bytes() for path in files_in(spool)]
    for other_url in (url, f"sqlite:///{tmp_path}/another.db"):
        async with buyer(other_url, "another", journal=spool):
            pass
    assert [path.read_bytes() for path in files_in(spool)] == before
    async with buyer(url, journal=spool) as heir:
        assert await state_of(heir, IMAGE) is State.GENERATED


@pytest.mark.parametrize("steps", [0, 1, 2])
async def test_a_journal_that_is_read_again_changes_nothing(url: str, spool: Path, steps: int) -> None:
    """As after a kill between the commit and the removal of the file, and whatever has happened since."""
    async with dead_run(url, spool) as (image, own):
        own.append(answer(image))
        own.append(answer(replace(image, job_key=VIDEO.key), "video", **ACCEPTED))
    [path] = files_in(spool)
    content = path.read_bytes()
    async with buyer(url, journal=spool) as heir:
        videos, files = await heir.read(queries.unfinished, heir.run_id)
        if steps > 0:
            await heir.transition(states.stored, FileEnd(files[0], STORED))
            await heir.transition(states.in_doubt, End(videos[0], "polled, and not found"))
        await heir.end_run()
        if steps > 1:
            await heir.write(settle, await heir.read(queries.doubts), charged=False, by="ada", why=None)
    if steps > 1:
        async with buyer(url, journal=spool) as heir:
            [again] = await submitting(heir, VIDEO)
            await heir.pending(again, "req-again")
            await heir.end_run()
    path.write_bytes(content)
    reader = await Ledger.open(url, "b")
    before = await reader.read(reading.states)
    async with buyer(url, journal=spool):
        assert await reader.read(reading.states) == before
        ids = {row["generation_id"] for row in await reader.read(reading.attempts)}
        assert len(ids) == (3 if steps == 2 else 2)
    await reader.close()
    assert files_in(spool) == []


@pytest.mark.parametrize("decided", ["in doubt", "charged", "not charged"])
async def test_an_answer_counts_more_than_a_doubt_and_a_persons_decision_about_it(
    url: str, spool: Path, decided: str
) -> None:
    """A run that was suspended elsewhere comes back with an answer after its job was put in doubt."""
    with other_run(url, "b", str(spool), "30") as sleeper:
        sleeper.do("reserve image", "intend image")
        change(url, host="elsewhere", lease_until=LONG_AGO)
        async with buyer(url, journal=spool) as second:
            assert await state_of(second, IMAGE) is State.IN_DOUBT
            if decided != "in doubt":
                doubts = await second.read(queries.doubts)
                await second.write(settle, doubts, charged=decided == "charged", by="ada", why=None)
            await second.end_run()
        assert "refuses the step" in sleeper.ask("generated image")
    async with buyer(url, journal=spool) as third:
        assert await state_of(third, IMAGE) is State.GENERATED
        totals = await third.read(sums.of_batch)
        assert (totals.spent, totals.in_doubt_exposure) == (Decimal("0.04"), 0)
        assert files_in(spool) == []


@pytest.mark.parametrize("charged", [True, False])
async def test_a_video_whose_answer_came_after_it_was_settled_may_be_settled_again(
    url: str, spool: Path, charged: bool
) -> None:
    """The answer says that it was accepted; later the service does not know it."""
    with other_run(url, "b", str(spool), "30") as sleeper:
        sleeper.do("reserve video", "intend video")
        change(url, host="elsewhere", lease_until=LONG_AGO)
        async with buyer(url) as second:
            await second.write(settle, await second.read(queries.doubts), charged=False, by="ada", why=None)
            await second.end_run()
        assert "refuses the step" in sleeper.ask("pending video")
    async with buyer(url, journal=spool) as third:
        [video], _ = await third.read(queries.unfinished, third.run_id)
        await third.transition(states.in_doubt, End(video, "not found"))
        await third.end_run()
        await third.write(settle, await third.read(queries.doubts), charged=charged, by="bob", why=None)
        assert await state_of(third, VIDEO) is (State.LOST if charged else State.FAILED)
        [story] = await third.read(lambda *batch: queries.stories(*batch, "video"))
        assert story.decision and (story.decision.charged, story.decision.settled_by) == (charged, "bob")


async def test_the_ledger_knows_all_that_its_report_has_paid_for_whatever_came_after_a_settlement(
    url: str, tmp_path: Path
) -> None:
    places_of_batch = {"report": {"url": f"{tmp_path}/report"}, "storage": {"url": f"{tmp_path}/media"}}
    given = {"batch": "b", "input": {"path": "rows.csv"}, "ledger": {"url": url}, **places_of_batch}
    settings = BatchSettings.model_validate(given)
    async with buyer(url) as ledger:
        [video] = await submitting(ledger, VIDEO)
        await ledger.transition(states.in_doubt, End(video, "no answer"))
        await ledger.write(settle, await ledger.read(queries.doubts), charged=True, by="ada", why=None)
        report = {"batch": "b", "ledger_id": ledger.id}
        report["paid_jobs"] = (await ledger.read(sums.of_batch)).paid_jobs
        (tmp_path / "report").mkdir()
        (tmp_path / "report/report.json").write_text(json.dumps(report))
        accepted = PaidAnswer(video, "req-late", batch="b", ledger_id=ledger.id)
        await ledger.transition(states.recover, accepted, NOW)
        assert await state_of(ledger, VIDEO) is State.PENDING
        assert await places.check(ledger, settings) == ""
        await ledger.transition(states.in_doubt, End(video, "not found"))
        await ledger.end_run()
        await ledger.write(settle, await ledger.read(queries.doubts), charged=False, by="bob", why=None)
        assert await state_of(ledger, VIDEO) is State.FAILED
        assert await places.check(ledger, settings) == ""


async def test_both_answers_count_where_a_job_was_bought_again_before_the_first_one_was_read(
    url: str, spool: Path
) -> None:
    with other_run(url, "b", str(spool), "30") as sleeper:
        sleeper.do("reserve image", "intend image")
        change(url, host="elsewhere", lease_until=LONG_AGO)
        async with buyer(url, journal=spool) as second:
            [again] = await submitting(second, IMAGE, retry_doubt=True)
            [file] = await second.generated(again, generation("again"), ["image.png"], "out")
            await second.transition(states.stored, FileEnd(file, STORED))
            await second.end_run()
        sleeper.ask("generated image")
    async with buyer(url, journal=spool) as third:
        assert await state_of(third, IMAGE) is State.STORED
        assert (await third.read(sums.of_batch)).spent == Decimal("0.08")
        [file] = (await third.read(queries.unfinished, third.run_id))[1]
        assert (file.attempt.number, file.name) == (1, f"image-{IMAGE.key[:12]}.png")


async def test_an_answer_that_the_ledger_cannot_store_stays_in_the_journal_and_stops_no_run(
    url: str, spool: Path
) -> None:
    async with buyer(url, journal=spool) as ledger:
        image, _ = await submitting(ledger, IMAGE, VIDEO)
        odd = generation("image", "0.00000001")
        with pytest.raises(LedgerError, match="six decimals"):
            await ledger.generated(image, odd, ["i.png"], "out")
    notes: list[str] = []
    async with buyer(url, journal=spool, notes=notes) as heir:
        assert await state_of(heir, IMAGE) is State.IN_DOUBT
        assert kept(spool) == ["image"]
        [note] = notes
        assert "row image" in note
        assert "six decimals" in note


async def test_a_journal_that_cannot_be_written_is_reported_and_the_ledger_is_tried_again(
    url: str, tmp_path: Path
) -> None:
    notes: list[str] = []
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "spool"
    async with buyer(url, journal=folder, notes=notes, busy=MOMENT) as ledger:
        image, video = await submitting(ledger, IMAGE, VIDEO)
        with locked(url):
            both = asyncio.gather(*answers(ledger, image, video))
            await until(lambda: len(notes) == 2)
        await both
        assert await state_of(ledger, IMAGE) is State.GENERATED
        assert "what is answered is not kept: the journal cannot be written" in notes[1]


# ---- the files themselves


def test_an_answer_reads_as_it_was_written(spool: Path) -> None:
    attempt = replace(ATTEMPT, number=2, row_id='\u2028\n"x"', quoted=Decimal("0.0400"))
    odd = answer(attempt, service="https://a.example", ledger_id="one")
    written = [odd, answer(replace(attempt, generation_id="req"), **ACCEPTED)]
    own = Journal(spool, "run")
    for each in written:
        own.append(each)
    [left] = journal.left_in(spool)
    assert (left.run_id, list(left.answers), left.unreadable) == ("run", written, 0)


@pytest.mark.parametrize(("cut", "rows"), [(1, ["a", "b"]), (20, ["a"]), (200, ["a"])])
def test_a_last_line_that_was_cut_off_is_ignored(spool: Path, cut: int, rows: list[str]) -> None:
    own = Journal(spool, "run")
    for row in "ab":
        own.append(answer(replace(ATTEMPT, row_id=row)))
    [path] = files_in(spool)
    path.write_bytes(path.read_bytes()[:-cut])
    [left] = journal.left_in(spool)
    assert (kept(spool), left.unreadable) == (rows, 0)


def test_a_journal_that_grew_since_it_was_read_is_not_removed(spool: Path) -> None:
    own = Journal(spool, "run")
    own.append(answer(ATTEMPT))
    [before] = journal.left_in(spool)
    own.append(answer(replace(ATTEMPT, row_id="b")))
    own.close()
    journal.remove(before)
    assert kept(spool) == ["a", "b"]
    [now] = journal.left_in(spool)
    journal.remove(now)
    journal.remove(now)
    assert kept(spool) == []
    own.append(answer(replace(ATTEMPT, row_id="c")))
    assert kept(spool) == ["c"]


def test_a_journal_that_a_person_moves_away_is_begun_anew(spool: Path) -> None:
    own = Journal(spool, "run")
    own.append(answer(ATTEMPT))
    [path] = files_in(spool)
    path.unlink()
    own.append(answer(replace(ATTEMPT, row_id="b")))
    assert kept(spool) == ["b"]
