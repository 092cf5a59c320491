"""Chromium without a window, driven by Playwright: for pages as their readers see and use them.

While a page is open, Playwright's own event loop runs in that thread, and no other can: `aside` calls code
that uses asyncio in another thread.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Dialog, Page, Request, expect, sync_playwright

from tests.waiting import LONGEST, wait_until

Value = TypeVar("Value")

CHROMIUM = next(
    (p for p in map(Path, ("/usr/bin/chromium", "/usr/bin/chromium-browser")) if p.exists()), None
)
"""The browser; None where this machine has none."""


@dataclass
class Browser:
    """A running Chromium.

    Attributes:
        address: where it is driven.
        complaints: what its page has said in the console and in dialogs, and the errors that nothing caught.
        requests: the addresses of everything that its page asked for, but for `data:`.
        failures: the requests that failed, with the reason; not those that the page itself gave up.
    """

    address: str
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @contextmanager
    def page(self, *, width: int = 1280, height: int = 900) -> Iterator[Page]:
        """An empty page, one at a time; it waits for what it is told to use, as `expect` does.

        It is always the same tab: a window for each test would cost more than what most of them do in it.
        So would Playwright's own process, half a second of processor time: the tests of a file share a page,
        and `empty` it.
        """
        expect.set_options(timeout=LONGEST * 1000)
        with sync_playwright() as playwright:
            [window] = playwright.chromium.connect_over_cdp(self.address).contexts
            window.set_default_timeout(LONGEST * 1000)
            [page] = window.pages
            page.on("console", lambda message: self.complaints.append(message.text))
            page.on("pageerror", lambda error: self.complaints.append(str(error)))
            page.on("dialog", self._asked)
            page.on("request", lambda request: self.requests.append(request.url))
            page.on("websocket", lambda socket: self.requests.append(socket.url))
            page.on("requestfailed", self._failed)
            self.empty(page, width=width, height=height)
            try:
                yield page
            finally:
                self._leave(page)

    def empty(self, page: Page, *, width: int = 1280, height: int = 900) -> None:
        """Leaves a page as a new one is: empty, without cookies, and nothing has been heard of it."""
        self._leave(page)
        page.context.clear_cookies()
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(reduced_motion="reduce", color_scheme="light")
        self.forget()

    def _leave(self, page: Page) -> None:
        """Leaves a page, and what it has kept: all pages of the disk share that."""
        page.evaluate("() => { try { localStorage.clear() } catch { /* an empty page has none */ } }")
        page.goto("about:blank")

    def forget(self) -> None:
        """Forgets what has been heard until now."""
        for heard in (self.complaints, self.requests, self.failures):
            heard.clear()

    @property
    def outside(self) -> list[str]:
        """What has been asked for from other machines than this one."""
        addresses = [(url, urlsplit(url)) for url in self.requests]
        return [
            url
            for url, address in addresses
            if address.scheme in ("http", "https", "ws", "wss") and address.hostname != "127.0.0.1"
        ]

    def _asked(self, dialog: Dialog) -> None:
        if dialog.type == "beforeunload":
            dialog.accept()  # a test is over, and leaves its page
            return
        self.complaints.append(dialog.message)
        dialog.dismiss()  # it waits for an answer

    def _failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":
            self.failures.append(f"{request.url}: {request.failure}")


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Starts Chromium with a new profile in `folder`; where there is none, skips the test, but not in CI."""
    if CHROMIUM is None:
        missing = "Chromium is not installed: apt-get install chromium"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    command = [
        *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
        # What only costs time here: asking its makers for news, and renderers for pages that may come.
        *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
        "--disable-features=SpareRendererForSitePerProcess",
        *("--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"),
    ]
    log = folder / "chromium.log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        yield Browser(_address(log, process.poll))
    finally:
        process.kill()  # asked to end, it can wait for ever; and its profile is not needed
        process.wait()


def _address(log: Path, ended: Callable[[], int | None]) -> str:
    deadline = time.monotonic() + LONGEST
    while not (found := re.search(r"ws://\S+", log.read_text())):
        assert ended() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)
    return found[0]


def aside(call: Callable[[], Value]) -> Value:
    """Calls code that uses asyncio while a page is open: in a thread of its own, whose end it waits for."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(copy_context().run, call).result()


def until(page: Page, script: str) -> None:
    """Waits until a script is true. `wait_for_function` would be stopped by the pages' policies."""
    wait_until(lambda: page.evaluate(script), f"never true: {script}")
