"""The ids of stored files by which another batch knows them: none changes with what is bought later."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from callsheet.ledger import states
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.marks import FileKey, Mark, MediaDecision, mark
from callsheet.ledger.states import End, FileEnd
from callsheet.pricing import originals
from callsheet.records import Job
from callsheet.standing import read_standing
from tests.ledger.buying import STORED, generation, job, submitting

pytestmark = pytest.mark.anyio


async def store(ledger: Ledger, one: Job, *, files: int = 1, stored: int | None = None) -> None:
    [attempt] = await submitting(ledger, one)
    names = [f"{one.key[:6]}-{at}.png" for at in range(files)]
    made = await ledger.generated(attempt, generation(one.key[:6], files=files), names, "out")
    assert isinstance(made, list)
    for file in made[:stored]:
        await ledger.transition(states.stored, FileEnd(file, STORED))


async def files(ledger: Ledger) -> pl.DataFrame:
    return await ledger.read(
        lambda connection, batch: originals.files(connection, batch, read_standing(connection, batch))
    )


async def ids(ledger: Ledger) -> list[str]:
    return sorted((await files(ledger))["id"])


async def test_an_id_says_row_and_number_and_the_index_where_a_generation_has_several_files(
    ledger: Ledger,
) -> None:
    await store(ledger, job("cup"))
    await store(ledger, replace(job("cup 2"), row_id="cup", sample=2), files=3, stored=1)
    assert await ids(ledger) == ["cup/1", "cup/2/0"], "also while the others are not stored"


async def test_what_a_row_is_bought_as_later_has_the_next_number_and_the_first_keeps_its_id(
    ledger: Ledger,
) -> None:
    first, second = job("cup"), replace(job("another cup"), row_id="cup")
    await store(ledger, first)
    assert await ids(ledger) == ["cup/1"]
    await store(ledger, second)
    assert await ids(ledger) == ["cup/1", "cup/2"]
    former = (await files(ledger))["former_id"].to_list()
    assert sorted(former) == ["cup/1", f"cup/1/{second.key[:8]}"], "by these films may be bought already"
    again = originals.with_bought_ids(await files(ledger), former)
    assert again["id"].to_list() == former


async def test_a_first_job_that_failed_stays_the_first(ledger: Ledger) -> None:
    first, second = job("cup"), replace(job("another cup"), row_id="cup")
    [attempt] = await submitting(ledger, first)
    await store(ledger, second)
    before = await ids(ledger)
    await ledger.transition(states.failed, End(attempt, "no", code="server_error"))
    assert await ids(ledger) == before == ["cup/2"]


async def test_each_file_has_the_decision_that_was_taken_last(ledger: Ledger) -> None:
    await store(ledger, one := job("cup"))
    assert (await files(ledger))["decision"].to_list() == [None]
    for decision in (MediaDecision.REJECTED, MediaDecision.KEPT):
        await ledger.write(mark, [Mark(FileKey(one.key, 1, 0), decision)], "a person")
    assert (await files(ledger))["decision"].to_list() == ["kept"]
