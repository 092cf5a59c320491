"""The served page in parts: each is made when it is asked for, and shows what the ledger says."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from callsheet.config.load import load
from callsheet.config.settings import BatchSettings
from callsheet.ledger import marks
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.marks import Mark, MediaDecision
from callsheet.report.contact_sheet import sheet
from callsheet.report.contact_sheet.cards import FOLDER
from callsheet.reviewing import server
from tests.conftest import Project
from tests.ledger.buying import buyer, file_key, fill_with_marked_files, generation, job, mark, submitting

pytestmark = pytest.mark.anyio
FILES = 5


@asynccontextmanager
async def client(settings: BatchSettings) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a review that begins now."""
    async with server.opened(settings, "batch.yaml") as (app, _):
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://review") as opened:
            yield opened


async def shown(review: httpx.AsyncClient, only: int | None = None) -> tuple[dict[int, str], dict[str, Any]]:
    """The scripts with cards, by number, or only one of them; and what the summary says of the batch."""
    text = (await review.get(f"/{sheet.SUMMARY}")).raise_for_status().text
    about = json.loads(text.removeprefix("callsheet.summary(").rstrip().removesuffix(")"))
    numbers = range(len(about["parts"])) if only is None else [only]
    scripts = {n: (await review.get("/" + about["parts"][n]["src"])).raise_for_status().text for n in numbers}
    return scripts, about


async def test_parts_made_when_they_are_asked_for_are_those_of_a_page_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was bought and marked meanwhile; and a part that has not changed keeps its version."""
    monkeypatch.setattr(sheet, "PER_PART", 2)
    monkeypatch.setattr(server, "_SHARE", 0)
    url = f"sqlite:///{tmp_path}/ledger.db"
    given = {"batch": "b", "input": {"path": "x.csv"}, "report": {"url": str(tmp_path / "report")}}
    settings = BatchSettings.model_validate({**given, "ledger": {"url": url}})
    async with buyer(url) as ledger:
        await fill_with_marked_files(ledger, FILES)
        async with client(settings) as review:
            (before, about) = await shown(review, only=1)
            versions = [part["version"] for part in about["parts"]]
            [name] = [key for key in range(FILES) if file_key(key).job_key in before[1]][:1]
            await ledger.write(mark, name, "not this one")
            [attempt] = await submitting(ledger, job("another"))  # since then a job is on its way

            after, about = await shown(review)
            async with client(settings) as anew:
                assert after == (await shown(anew))[0]
            assert "not this one" in after[1]
            assert about["counts"] == {"kept": FILES - 1, "rejected": 1, "to_review": 1}
            now = [part["version"] for part in about["parts"]]
            assert now[1] != versions[1], "a page that has it reads it again"

            await ledger.generated(attempt, generation("another"), ["another.png"], "out")
            later, about = await shown(review)
            changed = [n for n, part in enumerate(about["parts"]) if part["version"] != now[n]]
            assert changed == [n for n, script in later.items() if script != after[n]]
            assert len(changed) == 1


async def test_the_end_of_a_review_is_found_without_a_count_of_all_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_LOOKED_UP", 2)
    async with buyer(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        await fill_with_marked_files(ledger, FILES)
        left = server._Left(ledger)
        assert await left.any()  # the one by which it is filled
        [last] = await ledger.read(marks.left)
        for decision in (None, MediaDecision.KEPT, None):
            await said(ledger, Mark(file_key(1), decision))
            assert await left.any()
        await said(ledger, Mark(last, MediaDecision.REJECTED))
        assert await left.any(), "a mark was taken back"
        await said(ledger, Mark(file_key(1), MediaDecision.KEPT))
        assert not await left.any()
        await said(ledger, Mark(file_key(2), None))
        assert await left.any()


async def said(ledger: Ledger, one: Mark) -> None:
    """A person says it."""
    await ledger.write(marks.mark, [one], "a person")


async def test_a_missing_thumbnail_is_made_when_it_is_looked_at(project: Callable[..., Project]) -> None:
    image = {"model": "sketch-1", "aspect_ratio": "1:1"}
    made = project([{"id": name, "prompt": f"a {name}", **image} for name in ("mug", "lamp", "chair")])
    await asyncio.to_thread(made.run, "report.contact_sheet=0")
    thumbnails = made.folder / "out/report/contact-sheet/thumbs"
    async with client(load(made.config)) as review:
        cards, _ = await shown(review, only=0)
        name = re.findall(r"thumbs/\w+\.jpg", cards[0])[0]
        assert not thumbnails.exists()
        picture = await review.get(f"/{FOLDER}/{name}")
        assert (picture.status_code, picture.headers["content-type"]) == (200, "image/jpeg")
        assert [path.name for path in thumbnails.iterdir()] == [Path(name).name]
        assert (await review.get(f"/{FOLDER}/thumbs/{64 * '0'}.jpg")).status_code == 404
