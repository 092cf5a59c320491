"""The served review in Chromium, of large batches next to a small one: its first picture, the middle, a key.

What the server and the browser take together is their CPU, from the link on until the picture is drawn.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil
from playwright.sync_api import Page

from benchmarks import sink
from benchmarks.bench_pages import store
from benchmarks.measuring import CALLSHEET, Figure, environment, project
from tests.servers.browser import browser

KEYS = 20
PICTURE = """[...document.querySelectorAll("article")].some((card) => {
  const { top, bottom } = card.getBoundingClientRect();
  return top > 0 && bottom < innerHeight && card.querySelector("img")?.naturalWidth > 0;
})"""


class Cost(NamedTuple):
    """CPU seconds of the server and the browser, and seconds until it was there."""

    cpu: float
    seconds: float


class Review(NamedTuple):
    """What a person waits for, and the memory of the page's JavaScript in the middle, in MB."""

    picture: Cost
    middle: Cost
    key: Cost
    mb: float


def measure(*, quick: bool) -> Iterator[Figure]:
    """What a person waits for in batches of three sizes."""
    sizes = (50, 200, 600) if quick else (1_000, 20_000, 100_000)
    pictures, middles, keys, mb = zip(*map(of_rows, sizes), strict=True)
    yield Figure(
        "first picture in Chromium, of 1,000, 20,000 and 100,000 files",
        in_line(f"{cost.seconds:.2f}" for cost in pictures) + " s",
        "at most 1 s; 2 s of 100,000",
    )
    yield Figure(
        "the same: CPU of server and browser", in_line(f"{cost.cpu:.2f}" for cost in pictures) + " s"
    )
    what = "the same: a picture of the middle after the first"
    yield Figure(what, in_line(f"{cost.seconds:.2f}" for cost in middles) + " s", "at most 1 s")
    yield Figure("the same: CPU of a key", in_line(f"{1_000 * cost.cpu:.0f}" for cost in keys) + " ms")
    yield Figure("the same: memory of the page", in_line(f"{value:.0f}" for value in mb) + " MB")


def in_line(values: Iterable[str]) -> str:
    """The values of the three sizes."""
    return ", ".join(values)


def of_rows(rows: int) -> Review:
    """A batch with so many files, which is stored and reviewed."""
    with sink.running() as base_url, project(rows) as folder:
        store(folder, base_url)
        with served(folder, base_url) as link, browser(folder) as chromium, chromium.page() as page:
            picture = cost_of(page, lambda: opened(page, link))
            page.locator("html[data-ready]").wait_for()
            middle = cost_of(page, lambda: page.evaluate("scrollTo(0, document.body.scrollHeight / 2)"))
            page.locator("article").nth(30).focus()
            keys = cost_of(page, lambda: [page.keyboard.press("k") for _ in range(KEYS)])
            page.context.new_cdp_session(page).send("HeapProfiler.collectGarbage")
            mb = page.evaluate("performance.memory.usedJSHeapSize") / 1e6
    return Review(picture, middle, Cost(*(value / KEYS for value in keys)), mb)


def opened(page: Page, link: str) -> None:
    """Waits for the first card: a page before it only sets a cookie."""
    page.goto(link)
    page.locator("article img").first.wait_for(state="attached")


def cost_of(page: Page, act: Callable[[], object]) -> Cost:
    """What it costs until a picture is on the screen."""
    cpu, began = cpu_so_far(), time.monotonic()
    act()
    while not page.evaluate(PICTURE):
        time.sleep(0.02)
    return Cost(cpu_so_far() - cpu, time.monotonic() - began)


def cpu_so_far() -> float:
    """CPU seconds of the server and of the browser, but not of what drives it."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if process.name() != "node":
                cpu = process.cpu_times()
                total += cpu.user + cpu.system
    return total


@contextmanager
def served(folder: Path, base_url: str) -> Iterator[str]:
    """The link of the review of the batch in the folder."""
    log = folder / "review.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [*CALLSHEET, "review", "batch.yaml"],
            cwd=folder,
            env=environment(base_url, folder),
            stdout=file,
            stderr=file,
        )
    try:
        while not (link := re.search(r"http://\S+", log.read_text())):
            if process.poll() is not None:
                raise SystemExit(log.read_text())
            time.sleep(0.05)
        yield link[0]
    finally:
        process.send_signal(2)
        process.wait()
