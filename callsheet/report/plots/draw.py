"""Draws the plots of a batch. Amounts are exact until they become the height of a line or a bar.

The ground is transparent, and the colours are in the middle between light and dark: every plot is read on a
light page and on a dark one. Matplotlib takes a second to import, so this module is imported in a thread, and
only where plots are drawn.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from io import BytesIO
from typing import Any

import matplotlib as untyped_matplotlib
from matplotlib import dates as untyped_dates
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from callsheet.plain_text import counted, printable
from callsheet.report.plots.activity import Figures

_COLOURS = ("#3b7dd8", "#cf7a12", "#2f9e6e", "#d05288", "#8272dc", "#858a38", "#2f98a8", "#8b8b86")
_INK, _LINE, _ALARM = "#7b7b77", "#80808040", "#dd4b41"
_STYLE = {
    **{"font.size": 10.5, "text.color": _INK, "text.parse_math": False},
    **{"axes.labelcolor": _INK, "axes.axisbelow": True, "axes.grid": True, "grid.color": _LINE},
    **{f"axes.spines.{side}": False for side in ("left", "right", "top", "bottom")},
    **{f"{axis}tick.color": _INK for axis in "xy"},
    **{f"{axis}tick.{kind}.size": 0 for axis in "xy" for kind in ("major", "minor")},
    **{"figure.titlesize": 14, "figure.titleweight": "bold", "legend.frameon": False},
    "lines.linewidth": 2,
}

_MODELS = 12  # with a line of their own
_FEWEST_BARS = 10  # for which there is room, so that one is not a wall
_FEWEST_NAMES = 4  # the same
_LONGEST_NAME = 30
_FLAT = 25  # times what is plotted: a limit above that would leave a flat line

dates: Any = untyped_dates
matplotlib: Any = untyped_matplotlib
logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells of fonts that it looks for


def drawn(figures: Figures, limit: Decimal | None, limits: Mapping[str, int]) -> dict[str, bytes]:
    """A PNG for each plot that has anything to show, by its name. Call it in a thread.

    Args:
        limit: the budget's, in dollars, or None.
        limits: submissions a minute by model type, as far as they are known.
    """
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings(action="ignore"):  # letters without a font
        plots = {
            "spending": _spending(figures, limit) if figures.spending else None,
            "submissions": _submissions(figures, limits),
            "latency": _latency(figures) if figures.latency else None,
            "costs": _costs(figures.costs) if figures.costs else None,
            "kept": _kept(figures.kept) if figures.kept else None,
        }
        return {name: _png(figure) for name, figure in plots.items() if figure}


def _png(figure: Figure) -> bytes:
    content = BytesIO()
    figure.savefig(content, format="png", transparent=True, metadata={"Software": None})
    return content.getvalue()


def _figure(title: str) -> Figure:
    figure = Figure(figsize=(8, 4), dpi=144, layout="constrained")
    figure.suptitle(title)
    return figure


def _limit(axes: Axes, limit: Decimal | int | None, most: Decimal | int) -> None:
    """A line for a limit, unless what is plotted is tiny next to it."""
    if limit is not None and limit <= _FLAT * most:
        axes.axhline(float(limit), color=_ALARM, linestyle="--", linewidth=1.2)


def _spending(figures: Figures, limit: Decimal | None) -> Figure:
    """Spending over time, against the budget."""
    moments, amounts = zip(*figures.spending, strict=True)
    spent, heights = amounts[-1], [float(amount) for amount in amounts]
    figure = _figure(f"Spent {spent:,.4f} USD" + (f" of {limit:,.2f}" if limit is not None else ""))
    axes = figure.add_subplot()
    axes.plot(moments, heights, color=_COLOURS[0])
    axes.fill_between(moments, heights, color=_COLOURS[0], alpha=0.15)
    _limit(axes, limit, spent)
    axes.set_ylabel("USD, by the time of submission")
    axes.set_ylim(bottom=0)
    _dates(axes)
    return figure


def _submissions(figures: Figures, limits: Mapping[str, int]) -> Figure:
    """Submissions a minute, against the limit: a part of the plot for each type."""
    every = "a minute" if figures.span == 1 else f"in the busiest minute of {figures.span:,} minutes"
    figure = _figure(f"Submissions {every}")
    width = figures.span / 1440  # matplotlib counts in days
    parts = figure.subplots(len(figures.submissions), sharex=True, squeeze=False)[:, 0]
    for axes, (of_type, counts) in zip(parts, figures.submissions.items(), strict=True):
        heights = [count for _, count in counts]
        axes.bar([at for at, _ in counts], heights, width=width, align="edge", color=_COLOURS[0])
        limit = limits.get(of_type)
        _limit(axes, limit, max(heights))
        axes.set_ylabel(f"{of_type}s" + (f" (limit {limit:,})" if limit else ""))
        axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
        _dates(axes)
        axes.label_outer()
    starts = [dates.date2num(at) for counts in figures.submissions.values() for at, _ in counts]
    middle, half = (min(starts) + max(starts) + width) / 2, (max(starts) - min(starts) + width) / 2
    half = max(1.04 * half, _FEWEST_BARS / 2 * width)
    parts[-1].set_xlim(middle - half, middle + half)
    return figure


def _latency(figures: Figures) -> Figure:
    """Seconds from submission to storage, by model."""
    figure = _figure("From submission to the stored file")
    axes = figure.add_subplot()
    shown = list(figures.latency.items())[:_MODELS][::-1]
    for place, (_, (_, (low, first, middle, third, high))) in enumerate(shown):
        axes.hlines(place, low, high, color=_COLOURS[0], linewidth=1.5)
        axes.hlines(place, first, third, color=_COLOURS[0], linewidth=9, alpha=0.55)
        axes.plot([middle], [place], marker="|", markersize=15, markeredgewidth=2.5, color=_INK)
        text = f"{middle:.{0 if middle >= 10 else 1 if middle >= 1 else 2}f} s"
        axes.annotate(text, (high, place), (6, 0), textcoords="offset points", va="center")
    _names(axes, [f"{_name(model)}  ({count:,})" for model, (count, _) in shown])
    seconds = [each for _, (_, quantiles) in shown for each in quantiles]
    if max(seconds) > _FLAT * min(seconds):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.margins(x=0.12)
    else:
        axes.set_xlim(0, 1.15 * max(seconds))
    others = len(figures.latency) - len(shown)
    left_out = f"; {counted(others, 'other model')}" if others else ""
    axes.set_xlabel(f"seconds: the median, the middle half, and 90 % of the files{left_out}")
    return figure


def _costs(days: Mapping[str, Mapping[str, Decimal]]) -> Figure:
    """Cost by model and day; by model alone where there is one day."""
    models = {model for costs in days.values() for model in costs}
    totals = {model: _sum(days.values(), [model]) for model in models}
    ranked = sorted(models, key=lambda model: (-totals[model], model))
    if len(days) == 1:
        shown = [(name, _sum([totals], of_group)) for name, of_group in _grouped(ranked, _MODELS)]
        return _bars(f"Cost by model, {next(iter(days))}", shown, "USD")
    figure = _figure("Cost by model and day")
    axes = figure.add_subplot()
    places: list[Any] = [date.fromisoformat(day) for day in days]
    bottoms = [Decimal(0)] * len(days)
    groups = _grouped(ranked, len(_COLOURS) - 1)  # the last colour is that of all others
    for (name, of_group), colour in zip(groups, _COLOURS, strict=False):
        costs = [_sum([of_day], of_group) for of_day in days.values()]
        axes.bar(places, [*map(float, costs)], bottom=[*map(float, bottoms)], color=colour, label=name)
        bottoms = [bottom + cost for bottom, cost in zip(bottoms, costs, strict=True)]
    axes.set_ylabel("USD")
    if len(ranked) > 1:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), reverse=True)
    _dates(axes)
    return figure


def _kept(models: Mapping[str, tuple[int, Decimal]]) -> Figure:
    """What a file costs that is kept, by model, the cheapest first."""
    shown = [(f"{_name(model)}  ({count:,})", cost) for model, (count, cost) in models.items()][:_MODELS]
    others = len(models) - len(shown)
    left_out = f"; {counted(others, 'dearer model')}" if others else ""
    return _bars("Cost of a kept file by model", shown, f"USD spent over the files kept{left_out}")


def _bars(title: str, shown: list[tuple[str, Decimal]], unit: str) -> Figure:
    """A bar for each amount, the first one on top."""
    figure = _figure(title)
    axes = figure.add_subplot()
    shown = shown[::-1]
    bars = axes.barh(range(len(shown)), [float(cost) for _, cost in shown], color=_COLOURS[0], height=0.6)
    axes.bar_label(bars, [f"{cost:,.4f}" for _, cost in shown], padding=5)
    _names(axes, [name for name, _ in shown])
    axes.margins(x=0.15)
    axes.set_xlabel(unit)
    return figure


def _grouped(models: list[str], most: int) -> list[tuple[str, list[str]]]:
    """The first models, each with its name, and all others together."""
    groups = [(_name(model), [model]) for model in models[:most]]
    others = models[most:]
    return [*groups, (counted(len(others), "other model"), others)] if others else groups


def _sum(days: Iterable[Mapping[str, Decimal]], models: list[str]) -> Decimal:
    return sum((costs.get(model, Decimal(0)) for costs in days for model in models), Decimal(0))


def _dates(axes: Axes) -> None:
    locator = dates.AutoDateLocator(minticks=2, maxticks=8)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    axes.set_xlabel("UTC")


def _names(axes: Axes, names: list[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    middle, half = (len(names) - 1) / 2, max(len(names), _FEWEST_NAMES) / 2
    axes.set_ylim(middle - half - 0.1, middle + half + 0.1)


def _name(model: str) -> str:
    """A model's name on one line, without its middle where it is long."""
    name = printable(model)
    half = _LONGEST_NAME // 2
    return name if len(name) <= _LONGEST_NAME else f"{name[: half - 1]}…{name[-half:]}"
