"""The review in a browser: one page, and a batch that is bought once for each file of tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.conftest import Project
from tests.report.contact_sheets import with_sheet
from tests.reviewing.served import Review, copied, served
from tests.servers.browser import Browser, aside

Make = Callable[..., Project]
IMAGE = {"model": "sketch-1", "aspect_ratio": "1:1", "resolution": "0.5K"}


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Page]:
    """The page in which all tests open theirs."""
    with browser.page() as opened:
        yield opened


@pytest.fixture
def page(tab: Page, browser: Browser) -> Page:
    browser.empty(tab)
    return tab


@pytest.fixture(scope="module")
def the_batch() -> list[Path]:
    """The folder of a real batch, once it is there: the first test that needs it buys the batch."""
    return []


@pytest.fixture
def batch(
    the_batch: list[Path],
    project: Make,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """A batch of four rows with seven stored files, and one that is refused; in the working directory."""
    if not the_batch:
        rows = [
            {"id": "mug", "prompt": "a red mug", "samples": 4, "shot": "hero", **IMAGE},
            {"id": "lamp", "prompt": "a brass lamp", "samples": 1, "shot": "grid", **IMAGE},
            {"id": "chair", "prompt": "a chair", "samples": 2, "shot": "grid", **IMAGE},
            {"id": "refused", "prompt": "a forbidden-test-word", "samples": 1, "shot": "hero", **IMAGE},
        ]
        made = with_sheet(project(rows))
        aside(made.run)
        the_batch.append(copied(made.folder, tmp_path_factory.mktemp("bought") / "batch"))
    folder = copied(the_batch[0], tmp_path_factory.mktemp("review") / "batch")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def review(batch: Path) -> Iterator[Review]:
    """The served review of the batch."""
    with served(batch) as running:
        yield running


@pytest.fixture
def compared(project: Make) -> Project:
    """A batch that has asked three models for each of its rows; in the working directory."""
    made = with_sheet(project([{"id": name, "prompt": f"a {name}"} for name in ("mug", "lamp")]))
    made.set(input={"matrix": {"model": ["sketch-1", "still-1", "poster-1"], "aspect_ratio": ["1:1"]}})
    aside(made.run)
    return made
