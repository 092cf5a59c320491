"""The plots of a batch: one page of four, `plots.png` in the report. What was spent over time, and by model;
how many files are kept; how long a file takes until it is stored. `plots.json` has the numbers. And what a
ledger came to, day by day (`callsheet costs --plot`).

A plot is for looking: where it cannot be drawn, a person is told so, and nothing else changes. Amounts are
exact until they become the height of a line or the length of a bar. The ground is transparent, and the
colours are in the middle between light and dark: it is read on a light page and on a dark one. Matplotlib
takes a second to import, so that is done in a thread, and only where something is drawn.
"""

from __future__ import annotations

import asyncio
import json
import logging
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from io import BytesIO
from itertools import accumulate
from math import ceil
from typing import Any

import polars as pl

from callsheet.config.settings import BatchSettings
from callsheet.ledger.marks import Counts
from callsheet.plain_text import counted, printable
from callsheet.records import State, dollars
from callsheet.report.month import LedgerCosts
from callsheet.standing import Share
from callsheet.storage.store import Store

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Of the seconds that files took, which the plot shows."""

PLOTS, _NUMBERS = "plots.png", "plots.json"  # the numbers are written last: with them, the plots are complete
_POINTS = 240  # of the line, at most
_MODELS = 8  # with a bar of their own
_LONGEST_NAME = 24
_FLAT = 25  # times what is plotted: a limit above that would leave a flat line
_INK, _LINE, _ALARM = "#7b7b77", "#80808040", "#dd4b41"
_BLUE, _GREEN, _GREY = "#3b7dd8", "#2f9e6e", "#8b8b86"
_STYLE: Any = {
    **{"font.size": 10, "text.color": _INK, "text.parse_math": False, "axes.labelcolor": _INK},
    **{"axes.axisbelow": True, "axes.grid": True, "grid.color": _LINE, "axes.titleweight": "bold"},
    **{"axes.titlelocation": "left", "axes.titlepad": 10, "legend.frameon": False, "lines.linewidth": 2},
    **{f"figure.constrained_layout.{side}_pad": 0.15 for side in "wh"},  # inches
    **{f"axes.spines.{side}": False for side in ("left", "right", "top", "bottom")},
    **{f"{axis}tick.color": _INK for axis in "xy"},
    **{f"{axis}tick.{kind}.size": 0 for axis in "xy" for kind in ("major", "minor")},
}


@dataclass(frozen=True, slots=True)
class Figures:
    """The numbers behind the plots: a few hundred, however large the batch is.

    Attributes:
        spent: moments, and what had been spent in dollars until then, by the time of submission.
        by_model: what was spent in dollars; the dearest first.
        kept: by model: how many files are kept, rejected, and not decided; the most files first.
        seconds: by model: how many files, and the seconds from submission to storage at each of `QUANTILES`.
    """

    spent: Sequence[tuple[datetime, Decimal]]
    by_model: dict[str, Decimal]
    kept: dict[str, Counts]
    seconds: dict[str, tuple[int, Sequence[float]]]


def figures_of(submitted: pl.DataFrame, by_model: Sequence[Share]) -> Figures | None:
    """The numbers to plot; None where nothing was submitted.

    Args:
        submitted: attempts that were, with `finished_at` (`Standing.submitted`).
        by_model: what the batch has of each model.
    """
    if submitted.is_empty():
        return None
    dearest = sorted(by_model, key=lambda share: (-share.spent, share.value))
    most_files = sorted(by_model, key=lambda share: (-share.files, share.value))
    return Figures(
        _spent(submitted.filter(pl.col("cost") > 0).sort("submitted_at")),
        {str(share.value): share.spent for share in dearest if share.spent},
        {str(share.value): share.review for share in most_files if share.files},
        _seconds(submitted),
    )


def _numbered(columns: Iterable[pl.Expr]) -> list[pl.Expr]:
    return [column.alias(str(nth)) for nth, column in enumerate(columns)]


def _spent(paid: pl.DataFrame) -> list[tuple[datetime, Decimal]]:
    """From nothing to all that was spent, by the time of submission."""
    point = pl.int_range(pl.len()) // ceil(max(paid.height, 1) / _POINTS)
    moment, cost = pl.col("submitted_at").last(), pl.col("cost").sum()
    moments, costs = paid.group_by(point, maintain_order=True).agg(moment, cost)[:, 1:]
    points = [*zip(moments, accumulate(costs), strict=True)]
    return [(paid["submitted_at"][0] - timedelta(seconds=1), Decimal(0)), *points] if points else []


def _seconds(attempts: pl.DataFrame) -> dict[str, tuple[int, Sequence[float]]]:
    """Of each model; those with the most files first."""
    seconds = (pl.col("finished_at") - pl.col("submitted_at")).dt.total_microseconds() / 1e6
    stored = attempts.filter(pl.col("state") == State.STORED).select(model="made_by", seconds=seconds)
    places = _numbered(pl.col("seconds").quantile(quantile, "nearest").round(4) for quantile in QUANTILES)
    models = stored.filter(pl.col("seconds") > 0).group_by("model").agg(pl.len().alias("files"), *places)
    rows = models.sort("files", "model", descending=[True, False]).iter_rows()
    return {model: (count, quantiles) for model, count, *quantiles in rows}


async def write_plots(
    settings: BatchSettings, figures: Figures | None, note: Callable[[str], None], *, may_draw: bool = True
) -> bool:
    """Draws and stores the plots, unless the config asks for none, or those of the same numbers are there.

    Args:
        figures: what to show; None where nothing was submitted.
        note: called with the reason where they cannot be drawn or stored.
        may_draw: false finds only what is drawn already.

    Returns:
        Whether `PLOTS` shows them. Never raises where they cannot be drawn.
    """
    if figures is None or not settings.report.plots:
        return False
    store = Store.of(settings.report.url, settings.storage)
    limit = settings.budget.limit
    plotted = {"batch": settings.batch, "limit": limit} | asdict(figures)
    numbers = json.dumps(plotted, indent=1, ensure_ascii=False, default=_as_json).encode()
    try:
        if await store.read(_NUMBERS) != numbers:
            if not may_draw:
                return False
            await store.write(PLOTS, await asyncio.to_thread(_drawn, figures, limit), "image/png")
            await store.write(_NUMBERS, numbers, "application/json")
    except Exception as error:  # noqa: BLE001 - a plot is for looking, and nothing that goes wrong with it matters
        note(f"the plots are not drawn: {error}")
        return False
    return True


def month_plot(spent: LedgerCosts) -> bytes:
    """What a ledger came to, day by day, with the line of the month before, as a PNG."""
    return _png(lambda page: _draw_month(page.subplots(), spent), (11, 4))


def _draw_month(axes: Any, spent: LedgerCosts) -> None:
    """The days are counted from the first of each time, so both lines begin at the left."""
    times = (
        (spent.before_since, spent.since - timedelta(days=1), _GREY, "--", "the month before"),
        (spent.since, spent.until, _BLUE, "-", f"{spent.since} to {spent.until}"),
    )
    for first, last, colour, style, label in times:
        days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
        amounts = accumulate(spent.spent_by_day.get(day.isoformat(), Decimal(0)) for day in days)
        heights = [float(amount) for amount in amounts]
        axes.plot(range(1, len(days) + 1), heights, color=colour, linestyle=style, label=label)
    axes.set_title(f"Spent {spent.total.spent:,.4f} USD")
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=1)
    axes.set_xlabel("UTC days, from the first of each", loc="left")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(loc="upper left")


def _as_json(value: Any) -> str:
    return dollars(value) if isinstance(value, Decimal) else str(value.isoformat())


def _drawn(figures: Figures, limit: Decimal | None) -> bytes:
    """The page as a PNG. Call it in a thread."""

    def draw(page: Any) -> None:
        axes = page.subplots(2, 2).flat
        _draw_spent(axes[0], figures, limit)
        _draw_models(axes[1], figures)
        _draw_kept(axes[2], figures)
        _draw_seconds(axes[3], figures)

    return _png(draw, (11, 6.5))


def _png(draw: Callable[[Any], None], inches: tuple[float, float]) -> bytes:
    """What is drawn on a page of this size."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells of fonts that it looks for
    content = BytesIO()
    with mpl.rc_context(_STYLE), warnings.catch_warnings(action="ignore"):  # letters without a font
        page = Figure(figsize=inches, dpi=144, layout="constrained")
        draw(page)
        page.savefig(content, format="png", transparent=True, metadata={"Software": None})
    return content.getvalue()


def _draw_spent(axes: Any, figures: Figures, limit: Decimal | None) -> None:
    from matplotlib import dates as untyped

    dates: Any = untyped
    spent = figures.spent[-1][1] if figures.spent else Decimal(0)
    of_limit = f" of {limit:,.2f}" if limit is not None else ""
    axes.set_title(f"Spent {spent:,.4f}{of_limit} USD")
    if figures.spent:
        moments, heights = [at for at, _ in figures.spent], [float(amount) for _, amount in figures.spent]
        axes.plot(moments, heights, color=_BLUE)
        axes.fill_between(moments, heights, color=_BLUE, alpha=0.15)
    if limit is not None and limit <= _FLAT * spent:
        axes.axhline(float(limit), color=_ALARM, linestyle="--", linewidth=1.2)
    axes.set_ylim(bottom=0)
    locator = dates.AutoDateLocator(minticks=2, maxticks=6)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    axes.set_xlabel("by the time of submission, UTC", loc="left")


def _draw_models(axes: Any, figures: Figures) -> None:
    models = [*figures.by_model.items()][:_MODELS]
    axes.set_title("Spent by model")
    bars = axes.barh(range(len(models)), [float(cost) for _, cost in models], color=_BLUE, height=0.6)
    axes.bar_label(bars, [f"{cost:,.4f}" for _, cost in models], padding=5)
    axes.margins(x=0.2)
    _rows(axes, [_name(model) for model, _ in models], "USD", len(figures.by_model))


def _draw_kept(axes: Any, figures: Figures) -> None:
    models = [*figures.kept.items()][:_MODELS]
    axes.set_title("Files kept")
    starts = [0] * len(models)
    colours = ((_GREEN, "kept"), (_ALARM, "rejected"), (_GREY, "not decided"))
    for place, (colour, label) in enumerate(colours):
        widths = [counts[place] for _, counts in models]
        axes.barh(range(len(models)), widths, left=starts, color=colour, height=0.6, label=label)
        starts = [start + width for start, width in zip(starts, widths, strict=True)]
    axes.legend(loc="lower right")
    names = [f"{_name(model)}  {counts[0]:,} of {sum(counts):,}" for model, counts in models]
    _rows(axes, names, "files", len(figures.kept))


def _draw_seconds(axes: Any, figures: Figures) -> None:
    models = [*figures.seconds.items()][:_MODELS]
    axes.set_title("Time from submission to the stored file")
    for place, (_, (_, (low, first, middle, third, high))) in enumerate(models):
        axes.hlines(place, low, high, color=_BLUE, linewidth=1.5)
        axes.hlines(place, first, third, color=_BLUE, linewidth=9, alpha=0.55)
        axes.plot([middle], [place], marker="|", markersize=15, markeredgewidth=2.5, color=_INK)
        digits = 0 if middle >= 10 else 1 if middle >= 1 else 2
        axes.annotate(
            f"{middle:.{digits}f} s", (high, place), (6, 0), textcoords="offset points", va="center"
        )
    seconds = [quantile for _, (_, quantiles) in models for quantile in quantiles]
    if seconds and max(seconds) > _FLAT * min(seconds):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.margins(x=0.15)
    elif seconds:
        axes.set_xlim(0, 1.2 * max(seconds))
    _rows(
        axes,
        [_name(model) for model, _ in models],
        "seconds: the median, half and 90 %",
        len(figures.seconds),
    )


def _rows(axes: Any, names: list[str], unit: str, models: int) -> None:
    """A row for each model, the first on top, with room for at least four: one is no wall."""
    axes.set_yticks(range(len(names)), names)
    middle, half = (len(names) - 1) / 2, max(len(names), 4) / 2
    axes.set_ylim(middle + half + 0.1, middle - half - 0.1)
    left_out = models - len(names)
    axes.set_xlabel(unit + (f"; {counted(left_out, 'other model')} left out" if left_out > 0 else ""))


def _name(model: str) -> str:
    """A model's name on one line, without its middle where it is long."""
    name = printable(model)
    half = _LONGEST_NAME // 2
    return name if len(name) <= _LONGEST_NAME else f"{name[: half - 1]}…{name[-half:]}"
