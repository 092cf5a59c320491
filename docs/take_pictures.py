"""Takes docs/pictures in Chromium: the demo's batch in its contact sheet, and as the backlot saw it.

`make pictures` runs it; `python -m docs.take_pictures FOLDER` takes them into another folder.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from PIL import Image
from playwright.sync_api import Locator, Page, expect

from backlot.server import Backlot, serve
from backlot.settings import Settings
from callsheet.cli.demo import demo_config
from callsheet.config.load import load
from callsheet.ledger.marks import MediaDecision
from callsheet.reviewing.written_marks import enter_marks, of_row
from callsheet.session import Bounds
from callsheet.steps.batch import Steps, generate
from tests.reviewing.served import served
from tests.servers.browser import aside, browser

PICTURES = Path(__file__).with_name("pictures")
ROOT = Path(__file__).parents[1]
WIDTH = 1280
_MUGS = """id,prompt,aspect_ratio,samples
blue,A blue mug with steam rising on a walnut table,16:9,4
red,A red mug among autumn leaves,16:9,4
tall,A tall glass of tea on a window sill,16:9,4
lamp,A brass desk lamp in warm evening light,16:9,4
"""
_CONFIG = """batch: mugs
service: {base_url: "${CALLSHEET_BASE_URL}"}
input: {path: mugs.csv, defaults: {model: still-1}}
report: {plots: false}
checks: {duplicate: off}
"""
_BLIND = _CONFIG.replace("defaults: {model: still-1}", "matrix: {model: [sketch-1, still-1]}")
_COLOURS = 256  # of a palette: a quarter of the bytes, and it still looks like itself


def main(folder: Path) -> None:
    """Buys the demo's batch from a backlot, and takes pictures of its page."""
    steps = Steps(bounds=Bounds(plots=0.0))  # the batch is small
    with TemporaryDirectory() as work, chdir(work), serve(Settings(port=0, image_seconds=0.2)) as backlot:
        os.environ |= {"CALLSHEET_BASE_URL": backlot.base_url, "CALLSHEET_API_KEY": backlot.api_key}
        summary = asyncio.run(generate(load(demo_config()), approved=False, steps=steps))
        address = Path(summary.details.contact_sheet or "").absolute().as_uri()
        with browser(Path(work)) as chromium, chromium.page() as page:
            take_sheet(page, address, folder)
            take_dashboard(page, backlot, folder)
            take_review(page, folder)
            take_films(page, folder)


def take_films(page: Page, folder: Path) -> None:
    """A production as docs/reviewing.md has it: the films that are made of the stills that are kept."""
    work = Path("films").absolute()
    shutil.copytree(ROOT / "configs", work / "configs")
    with chdir(work):
        stills, films = (load(Path(f"configs/{name}.yaml")) for name in ("stills", "films"))
        aside(lambda: asyncio.run(generate(stills, approved=False)))
        rows = ("harbour/2", "gulls/1", "cabin/3")
        kept = [of_row(row, MediaDecision.KEPT, None, "--keep") for row in rows]
        aside(lambda: asyncio.run(enter_marks(stills, kept)))
        summary = aside(lambda: asyncio.run(generate(films, approved=False)))
        address = Path(summary.details.contact_sheet or "").absolute().as_uri()
    show(page, address, height=520, theme="dark")
    page.locator("html[data-ready]").wait_for()
    loaded(page.locator(".frame img"), 3)
    take(page, folder / "films.png")


def take_review(page: Page, folder: Path) -> None:
    """The review of four rows with four samples each: the grid, and a row side by side."""
    work = Path("review").absolute()
    work.mkdir()
    with chdir(work):
        Path("mugs.csv").write_text(_MUGS)
        Path("batch.yaml").write_text(_CONFIG)
        aside(lambda: asyncio.run(generate(load(Path("batch.yaml")), approved=False)))
    with served(work) as review:
        for theme, keys, name in (
            ("light", "k x x k ArrowRight x k", "review.png"),
            ("dark", "ArrowDown ArrowDown c x k", "review-compare.png"),
        ):
            take_keys(page, review.link, theme, keys, folder / name)
    take_choosing(page, folder)


def take_choosing(page: Page, folder: Path) -> None:
    """Two models that were compared blind, and a photo with what was made of it."""
    work = Path("choosing").absolute()
    work.mkdir()
    with chdir(work):
        Path("batch.yaml").write_text(_BLIND)
        Path("mugs.csv").write_text(_MUGS.replace(",4\n", ",1\n"))
        aside(lambda: asyncio.run(generate(load(Path("batch.yaml")), approved=False)))
    with served(work) as review:
        keys = "b x k k x k k x k"
        take_keys(page, review.link, "light", keys, folder / "review-blind.png")
    photos = Path("photos").absolute()
    photos.mkdir()
    [photo, *_] = sorted(Path("review/out/media").rglob("blue*.jpeg"))
    with chdir(photos):
        shutil.copy(work.parent / photo, "blue.jpeg")
        Path("batch.yaml").write_text(_CONFIG)
        Path("mugs.csv").write_text('id,prompt,images\nblue,The same mug in autumn,"[""blue.jpeg""]"\n')
        aside(lambda: asyncio.run(generate(load(Path("batch.yaml")), approved=False)))
    with served(photos) as review:
        take_keys(page, review.link, "dark", "o o", folder / "review-original.png")


def take_keys(page: Page, link: str, theme: Literal["light", "dark"], keys: str, file: Path) -> None:
    """The served page after some keys."""
    show(page, link, height=800, theme=theme)
    page.locator("html[data-ready]").wait_for()
    expect(page.locator(".frame img").first).not_to_have_js_property("naturalWidth", 0)
    for key in keys.split():
        page.keyboard.press(key)
    page.wait_for_timeout(1_500)  # the large images
    take(page, file)


def take_sheet(page: Page, address: str, folder: Path) -> None:
    """The batch's contact sheet: the cards on a light page, the plots on a dark one."""
    show(page, address, height=800, theme="light")
    page.locator("html[data-ready]").wait_for()
    loaded(page.locator(".frame img"), 10)
    take(page, folder / "contact-sheet.png")
    show(page, address, height=900, theme="dark")
    page.get_by_text("Plots", exact=True).click()
    loaded(page.locator("#plots img"), 1)
    take(page, folder / "plots.png")


def take_dashboard(page: Page, backlot: Backlot, folder: Path) -> None:
    """What the backlot saw of the batch: the overview on a light page, the generations on a dark one."""
    page.goto(backlot.dashboard or "")
    page.wait_for_url(f"{backlot.base_url}/")
    for path, theme, name in (
        ("/", "light", "dashboard.png"),
        ("/generations", "dark", "dashboard-generations.png"),
    ):
        show(page, backlot.base_url + path, height=1080, theme=theme)
        loaded(page.locator("img"), 6)
        page.wait_for_timeout(2_000)  # the videos' posters
        take(page, folder / name)


def show(page: Page, address: str, *, height: int, theme: Literal["light", "dark"]) -> None:
    """Opens a page in a window of this height."""
    page.set_viewport_size({"width": WIDTH, "height": height})
    page.emulate_media(color_scheme=theme)
    page.goto("about:blank")  # otherwise the same address is scrolled as it was
    page.goto(address)


def loaded(images: Locator, count: int) -> None:
    """Waits until so many images are there, the first ones of these, and each has its content."""
    for place in range(count):
        expect(images.nth(place)).not_to_have_js_property("naturalWidth", 0)


def take(page: Page, file: Path) -> None:
    """A screenshot in a palette of colours."""
    file.parent.mkdir(exist_ok=True)
    page.screenshot(path=file)
    shrink(file)


def shrink(file: Path) -> None:
    """Writes a picture anew, in a palette of colours."""
    with Image.open(file) as image:
        full = image.convert("RGB")
    palette = full.quantize(_COLOURS)
    small = full.quantize(palette=palette, dither=Image.Dither.NONE)
    small.save(file, optimize=True)
    sys.stdout.write(f"{file}: {file.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else PICTURES)
