"""Chromium without a window, driven by Playwright: for pages that draw themselves while one waits.

with browser(folder) as running:
    with running.page() as page:
        page.goto("http://127.0.0.1:...")
        page.get_by_role("button", name="Run").click()   # waits until there is one that can be clicked

No code of a test may use asyncio while a page is open: Playwright's own event loop runs in that thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, sync_playwright

from tests.servers.chromium import CHROMIUM, started
from tests.waiting import LONGEST


@dataclass
class Browser:
    """A running Chromium.

    Attributes:
        address: where it is driven.
        outside: what its pages have asked for from other machines than this one.
    """

    address: str
    outside: list[str] = field(default_factory=list)

    @contextmanager
    def page(self, *, width: int = 1280, height: int = 900) -> Iterator[Page]:
        """An empty page without cookies, one at a time; it waits for what it is told to use.

        It is always the same tab: a window for each test would cost more than what most of them do in it.
        """
        with sync_playwright() as playwright:
            [window] = playwright.chromium.connect_over_cdp(self.address).contexts
            window.set_default_timeout(LONGEST * 1000)
            window.clear_cookies()
            [page] = window.pages
            page.set_viewport_size({"width": width, "height": height})
            page.emulate_media(reduced_motion="reduce", color_scheme="light")
            page.on("request", lambda request: self._asked(request.url))
            try:
                yield page
            finally:
                page.goto("about:blank")

    def _asked(self, url: str) -> None:
        address = urlsplit(url)
        if address.scheme in ("http", "https", "ws", "wss") and address.hostname != "127.0.0.1":
            self.outside.append(url)


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Starts Chromium with a new profile in `folder`; where there is none, skips the test, but not in CI."""
    if CHROMIUM is None:
        missing = "Chromium is not installed: apt-get install chromium"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    with started(folder) as address:
        yield Browser(address)
