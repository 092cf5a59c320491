"""Takes docs/pictures in Chromium: the demo's batch in its contact sheet, and as the backlot saw it.

`make pictures` runs it; `python -m docs.take_pictures FOLDER` takes them into another folder.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from backlot.server import Backlot, serve
from backlot.settings import Settings
from callsheet.cli.demo import demo_config
from callsheet.config.load import load
from flows import pipeline
from tasks import plots
from tests.servers.chromium import Browser, Page, chromium

PICTURES = Path(__file__).with_name("pictures")
WIDTH, HEIGHT = 1280, 800
_COLOURS = 256  # of a palette: a quarter of the bytes, and it still looks like itself


def main(folder: Path) -> None:
    """Buys the demo's batch from a backlot, and takes pictures of its page."""
    plots.WORTH = 0.0  # the batch is small
    with TemporaryDirectory() as work, chdir(work), serve(Settings(port=0, image_seconds=0.2)) as backlot:
        os.environ |= {"CALLSHEET_BASE_URL": backlot.base_url, "CALLSHEET_API_KEY": backlot.api_key}
        summary = asyncio.run(pipeline.generate(load(demo_config()), approved=False))
        address = Path(summary.details.contact_sheet or "").absolute().as_uri()
        with chromium(Path(work)) as browser:
            with browser.page(address, width=WIDTH, height=HEIGHT) as page:
                page.until("document.documentElement.dataset.ready === ''")
                page.until("[...document.querySelectorAll('.frame img')].filter(i => i.complete).length > 9")
                take(page, folder / "contact-sheet.png")
            with browser.page(address, width=WIDTH, height=900, prefers_color_scheme="dark") as page:
                page.until("document.documentElement.dataset.ready === ''")
                page.point("#plots summary", click=True)
                page.until("[...document.querySelectorAll('#plots img')].every((each) => each.complete)")
                take(page, folder / "plots.png")
            take_dashboard(browser, backlot, folder)


def take_dashboard(browser: Browser, backlot: Backlot, folder: Path) -> None:
    """What the backlot saw of the batch: the overview on a light page, the generations on a dark one."""
    for path, theme, name in (
        ("/", "light", "dashboard.png"),
        ("/generations", "dark", "dashboard-generations.png"),
    ):
        link = backlot.dashboard or ""
        with browser.page(link, width=WIDTH, height=1080, prefers_color_scheme=theme) as page:
            page.until("location.pathname === '/' && document.readyState === 'complete'")
            page.evaluate(f"location.href = '{path}'")
            page.until(f"location.pathname === '{path}' && document.readyState === 'complete'")
            page.until("[...document.images].filter((each) => each.naturalWidth > 100).length > 5")
            page.evaluate("new Promise((done) => setTimeout(done, 2000))")  # the videos' posters
            take(page, folder / name)


def take(page: Page, file: Path) -> None:
    """A screenshot in a palette of colours."""
    file.parent.mkdir(exist_ok=True)
    page.screenshot(file)
    shrink(file)


def shrink(file: Path, dither: Image.Dither = Image.Dither.FLOYDSTEINBERG) -> None:
    """Writes a picture anew, in a palette of colours."""
    with Image.open(file) as image:
        full = image.convert("RGB")
    palette = full.quantize(_COLOURS)
    small = full.quantize(palette=palette, dither=dither)
    small.save(file, optimize=True)
    sys.stdout.write(f"{file}: {file.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else PICTURES)
