"""The plots: exact sums whatever the size of the batch, drawn beside the report, never in a run's way."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from PIL import Image

from callsheet.ledger.marks import Counts
from callsheet.ledger.queries import MONEY, TIME
from callsheet.records import State, dollars
from callsheet.report.plots import PLOTS, Figures, figures_of, write_plots
from callsheet.session import Bounds
from callsheet.standing import MODEL, Share
from tests.cli.test_rows import printed
from tests.conftest import Project
from tests.report.contact_sheets import settings_for
from tests.report.test_report import images, watched

Make = Callable[..., Project]
BEGAN = datetime(2026, 5, 1, 12, 0, 3, tzinfo=UTC)
SCHEMA: dict[str, Any] = {
    "made_by": pl.String,
    "type": pl.String,
    "state": pl.String,
    "cost": MONEY,
    "submitted_at": TIME,
    "finished_at": TIME,
}


def attempts(count: int, *, every: float = 1.0, models: int = 3, cost: str = "0.0015") -> pl.DataFrame:
    """Images that are stored two seconds after they were sent."""
    sent = [BEGAN + timedelta(seconds=every * number) for number in range(count)]
    rows = [
        (f"model-{n % models}", "image", "stored", Decimal(cost), at, at + timedelta(seconds=2))
        for n, at in enumerate(sent)
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def shares(table: pl.DataFrame) -> list[Share]:
    """What there is of each model, of which every second file is kept."""
    made = []
    for (model,), rows in table.sort("made_by").group_by("made_by", maintain_order=True):
        counts, spent = Counts(-(-rows.height // 2), rows.height // 2, 0), rows["cost"].sum()
        made.append(
            Share(MODEL, model, rows.height, Counter({State.STORED: rows.height}), spent, spent, counts)
        )
    return made


def figures(table: pl.DataFrame) -> Figures:
    made = figures_of(table, shares(table))
    assert made is not None
    return made


def test_the_sums_are_exact() -> None:
    table = attempts(5_000, every=0.37, cost="0.000001")
    made = figures(table)
    assert made.spent[-1][1] == Decimal("0.005000")
    assert made.by_model == {f"model-{n}": Decimal(f"0.00166{7 - n // 2}") for n in range(3)}
    assert made.seconds["model-0"] == (1667, [2.0] * 5)
    assert made.kept["model-0"] == (834, 833, 0)


ODD = "$x_1$ \x1b[31m " + "long" * 30
MANY = attempts(300, every=3_000, models=40).with_columns(made_by=pl.concat_str(pl.lit(ODD), "made_by"))


@pytest.mark.parametrize("table", [attempts(1), MANY], ids=["one job", "many models with odd names"])
def test_every_batch_can_be_drawn_and_is_read_on_a_light_and_on_a_dark_page(
    table: pl.DataFrame, tmp_path: Path
) -> None:
    notes: list[str] = []
    settings = settings_for(tmp_path, budget={"limit": "1.00"})
    is_drawn = asyncio.run(write_plots(settings, figures(table), notes.append))
    assert (notes, is_drawn) == ([], True)
    for ground in (255, 22):  # as the contact sheet has it
        assert _contrast_of_the_title(tmp_path / PLOTS, ground) > 3


def _contrast_of_the_title(file: Path, ground: int) -> float:
    """By the rule of WCAG 2, at least 4.5 for small letters and 3 for large ones."""
    with Image.open(file) as image:
        assert image.size == (1584, 936)
        title = image.crop((0, 0, 792, 60))
        page = Image.new("RGBA", title.size, (ground,) * 3)
        greys = Image.alpha_composite(page, title).convert("L").getextrema()
    dark, light = (((grey / 255 + 0.055) / 1.055) ** 2.4 + 0.05 for grey in greys)
    return float(light / dark)


def test_a_run_draws_what_has_changed_and_report_draws_it_anew(project: Make) -> None:
    """A short run draws none, and the page keeps those that there are."""
    made = project(images("a", "b"))
    made.set(report={"plots": True, "contact_sheet": 10}, budget={"limit": "1.00"})
    plots, numbers = (made.folder / "out/report" / name for name in ("plots.png", "plots.json"))
    made.bounds, long = Bounds(), made.bounds
    made.run()
    assert not plots.exists()
    made.bounds = long
    made.rows(*images("a", "b", "c"))
    summary, recorder = watched(made)
    assert (summary.exit_code, recorder.notes) == (0, [])
    known = json.loads(numbers.read_text())
    assert (known["spent"][-1][1], known["limit"]) == (dollars(summary.spent), "1.0000")
    drawn = plots.stat().st_mtime_ns

    made.bounds = Bounds()
    made.run()
    printed("report", str(made.config))
    assert plots.stat().st_mtime_ns == drawn, "nothing has changed"
    page = made.folder / "out/report/contact-sheet/data/summary.js"
    assert "plots.png" in page.read_text()
    numbers.unlink()
    printed("report", str(made.config))
    assert plots.stat().st_mtime_ns != drawn


def test_plots_that_cannot_be_drawn_or_stored_change_nothing_else(
    project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = project(images("a"))
    made.set(report={"plots": True})
    plots = made.folder / "out/report/plots.png"
    plots.mkdir(parents=True)
    for reason in ("out/report/.plots.png", "import of matplotlib halted"):
        summary, recorder = watched(made)
        assert (summary.exit_code, summary.outcome) == (0, "complete")
        [note] = recorder.notes
        assert note.startswith("the plots are not drawn: ")
        assert reason in note
        if plots.exists():
            plots.rmdir()
        made.rows(*images("a", "b"))
        monkeypatch.setitem(sys.modules, "matplotlib", None)
