"""The screens of the commands, as pictures in docs/screens: whoever changes one sees it in the diff.

To draw them anew: CALLSHEET_DRAW=1 pytest tests/cli/test_screens.py
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from rich import _export_format
from rich.console import Console

from callsheet.cli import output
from callsheet.cli.terminal import Terminal, screen
from callsheet.errors import ConfigError
from callsheet.present import under_way
from callsheet.present.console import print_page
from callsheet.present.results import screen as results
from callsheet.records import Attempt, Change, ModelType, Pacing, Progress, State
from tests.cli.test_rows import printed
from tests.conftest import Project

Make = Callable[..., Project]
SCREENS = Path(__file__).parents[2] / "docs/screens"
WIDTH = 80
FORMAT = re.sub(r"@font-face \{\{.*?\}\}", "", _export_format.CONSOLE_SVG_FORMAT, flags=re.DOTALL)
MASKED = {  # what differs from run to run, by as many characters
    r"20\d\d-\d\d-\d\d(&#160;|T)\d\d:\d\d:\d\d": r"2026-05-01\g<1>12:00:00",
    r"20\d\d-\d\d-\d\d(?=&#160;|<)": "2026-05-01",
    r"(?<=req-)[0-9a-f]+": "7c2f9b1e" * 4,
    r"[0-9a-f]{64}": "5d1e" * 16,
    r"[\d.]+(?=&#160;s&#160;later)": "1.2",
    r"[\d,]+(?=&#160;bytes)": "801,288",
    r"127\.0\.0\.1:\d+": "127.0.0.1:8080",
}
ROWS = [
    {"id": "lamp", "prompt": "a brass desk lamp", "model": "sketch-1", "shelf": "7"},
    {"id": "chair", "prompt": "=forbidden-test-word", "model": "sketch-1", "shelf": "8"},
    {"id": "", "prompt": "a wool rug", "model": "sketch-1", "shelf": "9"},
    {"id": "film", "prompt": "a lamp is switched on", "model": "reel-1", "shelf": "7"},
    {"id": "clock", "prompt": "a clock", "model": "sketch-9", "shelf": "1"},
]
CUT_OFF = {"endpoint": "images", "prompt": "a wool rug", "nth": 1, "do": "drop", "when": "after_charging"}


@contextmanager
def drawn(name: str, title: str, console: Console = output.out) -> Iterator[None]:
    """Compares what is printed meanwhile with the picture `name`."""
    console.record, width = True, console.width
    console.width, console.soft_wrap = WIDTH, False
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setenv("TTY_COMPATIBLE", "1")  # lines are broken as on a terminal
    try:
        yield
        picture = console.export_svg(title=title, code_format=FORMAT, unique_id="screen")
    finally:
        monkeypatch.undo()
        console.record, console.width, console.soft_wrap = False, width, True
    for pattern, text in MASKED.items():
        picture = re.sub(pattern, text, picture)
    file = SCREENS / f"{name}.svg"
    if os.environ.get("CALLSHEET_DRAW"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(picture)
    assert picture == file.read_text(), "draw it anew with CALLSHEET_DRAW=1, and look at it"


@pytest.fixture
def shop(project: Make) -> Project:
    made = project(ROWS, faults={"rules": [CUT_OFF]})
    made.set(batch="autumn-catalogue", budget={"limit": "0.55"})
    return made


def test_a_quote(shop: Project) -> None:
    with drawn("quote", "callsheet quote batch.yaml"):
        printed("quote", "batch.yaml")


def test_a_quote_above_the_budget(shop: Project) -> None:
    with drawn("quote-above-budget", "callsheet quote batch.yaml --set budget.limit=0.01"):
        printed("quote", "batch.yaml", "--set", "budget.limit=0.01")


def test_a_batch_that_was_bought_and_what_became_of_its_rows(shop: Project) -> None:
    summary = replace(shop.run(), seconds=8.4, submissions=4)
    with drawn("summary", "callsheet run batch.yaml"):
        print_page(output.out, results(summary, "batch.yaml", media="out/media"))
    with drawn("status", "callsheet status batch.yaml"):
        printed("status", "batch.yaml")
    with drawn("status-of-all", "callsheet status"):
        printed("status")
    with drawn("show", "callsheet show batch.yaml film"):
        printed("show", "batch.yaml", "film")
    with drawn("failed", "callsheet failed batch.yaml"):
        printed("failed", "batch.yaml")
    with drawn("resolve", "callsheet resolve batch.yaml"):
        printed("resolve", "batch.yaml", code=3)


def test_a_run_that_stopped_at_its_budget(project: Make) -> None:
    made = project([{"id": f"row{number}", "prompt": "a lamp", "model": "sketch-1"} for number in range(9)])
    made.set(batch="autumn-catalogue", budget={"limit": "0.01"})
    summary = replace(made.run(), seconds=2.1)
    with drawn("summary-stopped", "callsheet run batch.yaml"):
        print_page(output.out, results(summary, "batch.yaml", media="out/media"))


def test_the_progress_of_a_run() -> None:
    progress = Progress(
        jobs=360,
        states={State.SUBMITTING: 8, State.PENDING: 12, State.STORED: 240, State.FAILED: 2},
        spent=Decimal("18.2450"),
        limit=Decimal("30.0000"),
        videos=40,
        videos_ended=18,
        pacing={ModelType.IMAGE: Pacing(112, 120), ModelType.VIDEO: Pacing(9, None)},
        seconds_left=310.0,
    )
    assert under_way.line(progress) == (
        "242 of 360 done: 8 submitting, 12 pending, 240 stored, 2 failed; 18.2450 of 30.0000 USD spent; "
        "112 of 120 images this minute; 9 videos this minute; about 5 min left"
    )
    with drawn("progress", "callsheet run batch.yaml", output.err):
        output.err.print(screen(progress))


def test_a_line_for_each_job() -> None:
    attempt = Attempt("a" * 64, 1, ModelType.IMAGE, "lamp", 1, "sketch-1")
    terminal = Terminal(verbose=True)
    with drawn("verbose", "callsheet run batch.yaml --verbose", output.err):
        terminal.changed(Change(attempt, State.GENERATED, "img_7c2f9b1e", Decimal("0.0015")))
        terminal.changed(Change(attempt, State.STORED, "out/media/autumn-catalogue/lamp-1-0.png"))
        terminal.changed(
            Change(replace(attempt, row_id="chair", sample=2), State.FAILED, "The prompt was refused.")
        )


def test_an_error() -> None:
    with drawn("error", "callsheet run batch.yaml", output.err):
        output.show_error(
            ConfigError("batch.yaml, line 9: budget.limit: is not an amount", hint='limit: "30.00"')
        )
