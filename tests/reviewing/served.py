"""A batch whose review is served, by the command itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from playwright.sync_api import Locator, Page

import callsheet
from tests.servers.browser import aside
from tests.servers.forks import Process, forks
from tests.waiting import wait_until


@dataclass(frozen=True)
class Review:
    """A running `callsheet review`.

    Attributes:
        link: what it has printed.
        folder: of the batch.
        log: what it prints.
    """

    link: str
    folder: Path
    log: Path
    process: Process

    @property
    def address(self) -> str:
        """The server's, without the token."""
        return f"http://{urlsplit(self.link).netloc}"

    @contextmanager
    def client(self) -> Iterator[httpx.Client]:
        """A client that the link has signed in."""
        with httpx.Client(base_url=self.address, trust_env=False) as client:
            client.get(self.link).raise_for_status()
            yield client

    def marks(self) -> dict[str, tuple[str | None, str | None]]:
        """The decision and the note of each file that has one, by row and sample: `mug/2`."""
        return marks(self.folder)


def marks(folder: Path) -> dict[str, tuple[str | None, str | None]]:
    """The same, of the batch in a folder."""
    table = aside(lambda: callsheet.reviews(folder / "batch.yaml", as_arrow=True))
    return {
        f"{row['row_id']}/{row['sample']}": (row["decision"], row["note"])
        for row in table.to_pylist()
        if row["decision"] or row["note"]
    }


@contextmanager
def served(folder: Path, *options: str) -> Iterator[Review]:
    """Serves the review of the batch in `folder`, until Ctrl-C; or until the test kills it."""
    log = folder / "review.log"
    words = ("-m", "callsheet", "review", "batch.yaml", *options)
    with log.open("w") as file, forks().start(*words, cwd=folder, stdout=file, stderr=file) as process:
        try:
            wait_until(lambda: process.poll() is not None or "\n" in log.read_text(), "it prints no link")
            link = log.read_text().partition("\n")[0]
            assert link.startswith("http://127.0.0."), log.read_text()
            yield Review(link, folder, log, process)
        finally:
            process.send_signal(2)


def copied(bought: Path, folder: Path) -> Path:
    """A copy of a batch: what a test marks there, no other test meets."""
    return Path(shutil.copytree(bought, folder))


def visit(page: Page, address: str) -> None:
    """Opens a page and waits until it is drawn."""
    page.goto(address)
    page.locator("html[data-ready]").wait_for()


def card_of(page: Page, row_id: str, sample: int = 1) -> Locator:
    """The card of a sample."""
    cards = page.locator("article").filter(has=page.get_by_role("heading", name=row_id, exact=True))
    return cards.nth(sample - 1)


def press(page: Page, keys: str) -> None:
    for key in keys.split():
        page.keyboard.press(key)


def figure(page: Page, name: str) -> Locator:
    """A figure at the top of the page."""
    return page.locator(".figure").filter(has_text=name).locator("dd")


def filter_button(page: Page, name: str) -> Locator:
    return page.get_by_role("group", name="Review").get_by_role("button", name=name)
