"""Files that are deleted soon: no more is bought than can be had in time, and the most urgent go first."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from backlot.faults import RULES, Faults, Matched
from callsheet.channels import Downloads
from callsheet.records import Attempt, File, ModelType
from callsheet.session import Bounds
from tests.conftest import Project
from tests.ledger.buying import generation


class Observed(Faults):
    """Faults of the service, and the prompts whose files were asked for."""

    def __init__(self, *rules: dict[str, Any]) -> None:
        super().__init__(RULES.validate_python(rules))
        self.downloads: list[str] = []

    def match(self, endpoint: Any, model: str = "", prompt: str = "") -> Matched:
        if endpoint == "downloads":
            self.downloads.append(prompt)
        return super().match(endpoint, model, prompt)


def images(name: str, count: int) -> list[dict[str, Any]]:
    return [{"id": f"{name}{n}", "prompt": f"{name} {n}", "model": "sketch-1"} for n in range(count)]


def test_buying_waits_when_the_files_would_hardly_be_had_in_time() -> None:
    until = datetime.now(UTC) + timedelta(seconds=100)
    media = generation("g").media[0].model_copy(update={"deletes_at": until})
    file = File(Attempt("k", 1, ModelType.IMAGE, "r", 1, "m"), 0, "f", media)

    async def late() -> list[bool]:
        downloads = Downloads()
        downloads.add(file)
        answers = [downloads.late()]  # nobody has had the time to take it
        for more in (39, 20):
            for _ in range(more):
                downloads.add(file)
            await downloads.next()
            downloads.done(downloads.side_by_side)  # a second for each file, as so many are fetched at once
            answers.append(downloads.late())
        return answers

    assert asyncio.run(late()) == [False, False, True], "39 and 58 s of work; half of what is left is 50 s"


@pytest.mark.soak  # it rests on a machine that does not become much slower in the middle
def test_no_more_is_bought_than_can_be_downloaded_in_time(project: Callable[..., Project]) -> None:
    """The files live for less time than it takes to download them all, so about 30 would be lost.

    How long this machine takes for the same batch when nothing is slow is the measure of all times.
    """
    made = project(images("s", 120), image_rpm=10**6, concurrency=1000)
    service = made.backlot.service
    made.set(batch="measure")
    unit = max(1.0, made.run().seconds)
    made.set(batch="test")
    service.settings = service.settings.model_copy(update={"media_ttl": math.ceil(3 * unit)})
    service.faults = slow = Observed({"endpoint": "downloads", "do": "delay", "seconds": 0.7 * unit})
    summary = made.run()
    assert (summary.stored, summary.lost, summary.exit_code) == (120, 0, 0)
    assert len(slow.downloads) == 120
    assert summary.seconds > 5 * unit


@pytest.mark.soak
def test_nothing_is_bought_on_and_on_that_cannot_be_downloaded(project: Callable[..., Project]) -> None:
    """The service takes half a minute to make them all, and the run's patience is a second."""
    made = project(images("s", 60), concurrency=2, image_seconds=1)
    made.set(poll={"timeout": 1})
    service = made.backlot.service
    service.faults = Observed({"endpoint": "downloads", "do": "error", "status": 503})
    summary = made.run()
    assert (summary.outcome, summary.stored, summary.exit_code) == ("stopped", 0, 4)
    assert 0 < summary.submissions < 60
    assert "503" in (summary.stop_message or "")
    service.faults, service.settings = Observed(), service.settings.model_copy(update={"image_seconds": 0})
    assert (made.run().stored, made.run().submissions) == (60, 0)


@pytest.mark.soak
def test_the_files_that_are_deleted_first_are_downloaded_first(project: Callable[..., Project]) -> None:
    """An earlier run has left files, and those bought last are deleted first."""
    made = project()
    service = made.backlot.service
    made.set(poll={"timeout": 1})
    rows = []
    for name, seconds in ("late", 3600), ("early", 600), ("middle", 1800):
        service.faults = Observed({"endpoint": "downloads", "do": "error", "status": 503})
        service.settings = service.settings.model_copy(update={"media_ttl": seconds})
        rows += images(name, 3)
        made.rows(*rows)
        assert made.run().pending == len(rows)
    made.bounds = Bounds(downloads=1)
    service.faults = well = Observed()
    assert made.collect().stored == 9
    assert [prompt.split()[0] for prompt in well.downloads] == ["early"] * 3 + ["middle"] * 3 + ["late"] * 3
