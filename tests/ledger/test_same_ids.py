"""An answer with an id that another job has is a doubt: nobody knows whose generation it is."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path

import pytest

from callsheet.ledger import queries, running_totals
from callsheet.ledger.journal import Journal
from callsheet.ledger.transitions import SameGeneration
from callsheet.records import ModelType, State
from tests.ledger import reading
from tests.ledger.buying import buyer, generation, job, state_of, submitting
from tests.ledger.journals import answer, files_in

pytestmark = pytest.mark.anyio

HERE, ELSEWHERE = "https://a.example", "https://b.example"
VIDEOS = [job(name, ModelType.VIDEO) for name in "vw"]


async def test_an_image_with_the_id_of_another_row_is_in_doubt_and_names_both_rows(url: str) -> None:
    async with buyer(url, service=HERE) as ledger:
        first, second = await submitting(ledger, job("a"), job("b"))
        assert await ledger.generated(first, generation("x"), ["a.png"], "out")
        doubt = await ledger.generated(second, generation("x"), ["b.png"], "out")
        what = "row b was answered with the id req-x, which row a has already"
        assert doubt == SameGeneration(what)
        [open_] = await ledger.read(queries.doubts)
        assert (open_.row_id, open_.what, open_.generation_id) == ("b", what, None)
        assert await state_of(ledger, job("a")) is State.GENERATED
        totals = await ledger.read(running_totals.of_batch)
        assert (totals.spent, totals.in_doubt_exposure) == (Decimal("0.04"), Decimal("0.04"))


async def test_of_two_answers_with_one_id_in_one_commit_one_is_in_doubt(url: str) -> None:
    async with buyer(url, service=HERE) as ledger:
        attempts = await submitting(ledger, *map(job, "abc"))
        made = zip(attempts, "xyx", strict=True)
        ends = await asyncio.gather(
            *(ledger.generated(one, generation(name), [f"{one.row_id}.png"], "out") for one, name in made)
        )
        assert [isinstance(end, SameGeneration) for end in ends] == [False, False, True]
        states = [await state_of(ledger, job(name)) for name in "abc"]
        assert states == [State.GENERATED, State.GENERATED, State.IN_DOUBT]


async def test_a_video_that_is_accepted_with_the_id_of_another_is_in_doubt_and_never_polled(url: str) -> None:
    async with buyer(url, service=HERE) as ledger:
        first, second = await submitting(ledger, *VIDEOS)
        ends = await asyncio.gather(ledger.pending(first, "req-x"), ledger.pending(second, "req-x"))
        assert ends == [
            None,
            SameGeneration("row w was answered with the id req-x, which row v has already"),
        ]
        videos, _ = await ledger.adopted()
        assert [video.row_id for video in videos] == ["v"]
        assert await ledger.generated(first, generation("x"), ["v.mp4"], "out")  # its own id


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


async def test_a_journal_with_the_id_of_another_row_leaves_its_job_in_doubt(url: str, spool: Path) -> None:
    async with buyer(url, service=HERE) as killed:
        first, second = await submitting(killed, job("a"), job("b"))
        await killed.generated(first, generation("x"), ["a.png"], "out")
        lines = Journal(spool, killed.run_id)
        lines.append(answer(second, "x", service=HERE, ledger_id=killed.id))
        lines.close()
        await killed.end_run()
    async with buyer(url, service=HERE, journal=spool) as ledger:
        [row] = [row for row in await ledger.read(reading.attempts) if row["row_id"] == "b"]
        assert (row["state"], row["generation_id"]) == ("in_doubt", None)
        assert "which row a has already" in row["error_message"]
        assert not files_in(spool)
