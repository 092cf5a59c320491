"""Files that are deleted soon: no more is bought than can be had in time, and the most urgent go first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from backlot.faults import RULES, Faults, Matched
from tasks import download
from tests.conftest import Project


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


def test_no_more_is_bought_than_can_be_downloaded_in_time(project: Callable[..., Project]) -> None:
    """All are bought within a second when nothing holds them back, but it takes 5 s to download them.

    Their files live for 3 to 4 s: about 30 would be lost.
    """
    made = project(images("s", 120), media_ttl=3, image_rpm=10**6, concurrency=1000)
    slow = Observed({"endpoint": "downloads", "do": "delay", "seconds": 0.7})
    made.backlot.service.faults = slow
    summary = made.run()
    assert (summary.stored, summary.lost, summary.exit_code) == (120, 0, 0)
    assert len(slow.downloads) == 120


def test_nothing_is_bought_on_and_on_that_cannot_be_downloaded(project: Callable[..., Project]) -> None:
    made = project(images("s", 60), concurrency=2, image_seconds=0.2)
    made.set(poll={"timeout": 1})
    made.backlot.service.faults = Observed({"endpoint": "downloads", "do": "error", "status": 503})
    summary = made.run()
    assert (summary.outcome, summary.stored, summary.exit_code) == ("stopped", 0, 4)
    assert 0 < summary.submissions < 60
    assert "503" in (summary.stop_message or "")
    made.backlot.service.faults = Observed()
    assert (made.run().stored, made.run().submissions) == (60, 0)


def test_the_files_that_are_deleted_first_are_downloaded_first(
    project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch
) -> None:
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
    monkeypatch.setattr(download, "SIDE_BY_SIDE", 1)
    service.faults = well = Observed()
    assert made.collect().stored == 9
    assert [prompt.split()[0] for prompt in well.downloads] == ["early"] * 3 + ["middle"] * 3 + ["late"] * 3
