"""Draws the plots of a batch. Amounts are exact until they become the height of a line or a bar.

The ground is transparent, and the colours are in the middle between light and dark: every plot is read on a
light page and on a dark one. Matplotlib takes a second to import, so this module is imported in a thread, and
only where plots are drawn.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

from matplotlib import dates as untyped_dates
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from callsheet.plain_text import counted, printable
from callsheet.report.plots.activity import Figures

_COLOURS = ("#3b7dd8", "#cf7a12", "#2f9e6e", "#d05288", "#8272dc", "#858a38", "#2f98a8", "#a9744f")
_OTHERS_COLOUR = "#8b8b86"
_INK, _LINE, _ALARM = "#7b7b77", "#80808040", "#dd4b41"
_SIZE = 10.5  # of letters, in points

_MODELS_BY_DAY = 7  # with a colour of their own
_MODELS = 12  # with a line of their own
_DAYS = 62  # bars of one plot
_FEWEST_BARS = 10  # for which there is room, so that one is not a wall
_FEWEST_NAMES = 4  # the same
_LONGEST_NAME = 30
_MINUTES_OF_A_DAY = 1440
_FLAT = 25  # a limit that is so many times what is plotted would leave a flat line

dates: Any = untyped_dates
logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells of fonts that it looks for


@dataclass(frozen=True, slots=True)
class Asked:
    """What is drawn.

    Attributes:
        figures: the numbers.
        limit: the budget's, in dollars, or None.
        limits: submissions a minute by model type, as far as they are known.
    """

    figures: Figures
    limit: Decimal | None
    limits: Mapping[str, int]


def drawn(asked: Asked) -> dict[str, bytes]:
    """A PNG for each plot that has anything to show, by its name. Call it in a thread."""
    images = {}
    for name, draw in PLOTS.items():
        figure = Figure(figsize=(8, 4), dpi=144, layout="constrained")
        if draw(figure, asked):
            _finish(figure)
            content = BytesIO()
            with warnings.catch_warnings(action="ignore"):  # of letters that the font does not have
                figure.savefig(content, format="png", transparent=True, metadata={"Software": None})
            images[name] = content.getvalue()
    return images


def spending(figure: Figure, asked: Asked) -> bool:
    """Spending over time, against the budget."""
    if not asked.figures.spending:
        return False
    axes = figure.add_subplot()
    times, amounts = zip(*asked.figures.spending, strict=True)
    moments, spent, limit = [*map(_moment, times)], amounts[-1], asked.limit
    heights = [float(amount) for amount in amounts]
    axes.plot(moments, heights, color=_COLOURS[0], linewidth=2)
    axes.fill_between(moments, heights, color=_COLOURS[0], alpha=0.15)
    _title(figure, f"Spent {spent:,.4f} USD" + (f" of {limit:,.2f}" if limit is not None else ""))
    if limit is not None and limit <= _FLAT * spent:
        axes.axhline(float(limit), color=_ALARM, linestyle="--", linewidth=1.2)
    axes.set_ylabel("USD, by the time of submission")
    axes.set_ylim(bottom=0)
    _dates(axes)
    return True


def submissions(figure: Figure, asked: Asked) -> bool:
    """Submissions a minute, against the limit: a part of the plot for each type."""
    figures = asked.figures
    width = figures.span / _MINUTES_OF_A_DAY
    parts = figure.subplots(len(figures.submissions), sharex=True, squeeze=False)[:, 0]
    for axes, (of_type, counts) in zip(parts, figures.submissions.items(), strict=True):
        heights = [count for _, count in counts]
        axes.bar([_moment(at) for at, _ in counts], heights, width=width, align="edge", color=_COLOURS[0])
        limit = asked.limits.get(of_type)
        if limit and limit <= _FLAT * max(heights):
            axes.axhline(limit, color=_ALARM, linestyle="--", linewidth=1.2)
        axes.set_ylabel(f"{of_type}s" + (f" (limit {limit:,})" if limit else ""))
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
        _dates(axes)
    starts = [_moment(at) for counts in figures.submissions.values() for at, _ in counts]
    middle, half = (min(starts) + max(starts) + width) / 2, (max(starts) - min(starts) + width) / 2
    half = max(1.04 * half, _FEWEST_BARS / 2 * width)
    parts[-1].set_xlim(middle - half, middle + half)
    every = "a minute" if figures.span == 1 else f"in the busiest minute of {_length(figures.span)}"
    _title(figure, f"Submissions {every}")
    return True


def latency(figure: Figure, asked: Asked) -> bool:
    """Seconds from submission to storage, by model."""
    models = list(asked.figures.latency.items())
    if not models:
        return False
    axes = figure.add_subplot()
    shown = models[:_MODELS][::-1]
    for place, (_, (_, (low, first, middle, third, high))) in enumerate(shown):
        axes.hlines(place, low, high, color=_COLOURS[0], linewidth=1.5)
        axes.hlines(place, first, third, color=_COLOURS[0], linewidth=9, alpha=0.55)
        axes.plot([middle], [place], marker="|", markersize=15, markeredgewidth=2.5, color=_INK)
        axes.annotate(
            _seconds(middle),
            (high, place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=_INK,
            fontsize=_SIZE,
        )
    _names(axes, [f"{_name(model)}  ({count:,})" for model, (count, _) in shown])
    lows, highs = [seconds[0] for _, (_, seconds) in shown], [seconds[-1] for _, (_, seconds) in shown]
    if max(highs) > _FLAT * min(lows):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.margins(x=0.12)
    else:
        axes.set_xlim(0, 1.15 * max(highs))
    left_out = f"; {counted(len(models) - len(shown), 'other model')}" if len(models) > len(shown) else ""
    axes.set_xlabel(f"seconds: the median, the middle half, and 90 % of the files{left_out}")
    _title(figure, "From submission to the stored file")
    return True


def costs(figure: Figure, asked: Asked) -> bool:
    """Cost by model and day; by model alone where there is one day."""
    days = asked.figures.costs
    if not days:
        return False
    totals: dict[str, Decimal] = {}
    for models in days.values():
        for model, cost in models.items():
            totals[model] = totals.get(model, Decimal(0)) + cost
    ranked = sorted(totals, key=lambda model: (-totals[model], model))
    if len(days) == 1:
        _costs_of_a_day(figure, totals, ranked)
        _title(figure, f"Cost by model, {next(iter(days))}")
    else:
        _costs_by_day(figure, days, ranked)
    return True


def _costs_of_a_day(figure: Figure, totals: Mapping[str, Decimal], ranked: list[str]) -> None:
    axes = figure.add_subplot()
    shown = [(_name(model), totals[model]) for model in ranked[:_MODELS]]
    if others := ranked[_MODELS:]:
        rest = sum((totals[model] for model in others), Decimal(0))
        shown.append((counted(len(others), "other model"), rest))
    shown.reverse()
    bars = axes.barh(range(len(shown)), [float(cost) for _, cost in shown], color=_COLOURS[0], height=0.6)
    axes.bar_label(bars, [f"{cost:,.4f}" for _, cost in shown], padding=5, color=_INK, fontsize=_SIZE)
    _names(axes, [name for name, _ in shown])
    axes.margins(x=0.15)
    axes.set_xlabel("USD")


def _costs_by_day(figure: Figure, days: Mapping[str, Mapping[str, Decimal]], ranked: list[str]) -> None:
    axes = figure.add_subplot()
    first, last = _day(min(days)), _day(max(days))
    width = -(-(last - first + 1) // _DAYS)  # days of a bar
    starts = range(first, last + 1, width)
    own, others = ranked[:_MODELS_BY_DAY], ranked[_MODELS_BY_DAY:]
    bottoms = [Decimal(0)] * len(starts)
    groups = [(_name(model), [model], colour) for model, colour in zip(own, _COLOURS, strict=False)]
    if others:
        groups.append((counted(len(others), "other model"), others, _OTHERS_COLOUR))
    for name, models, colour in groups:
        sums = [Decimal(0)] * len(starts)
        for day, costs_of_day in days.items():
            place = (_day(day) - first) // width
            sums[place] += sum((costs_of_day.get(model, Decimal(0)) for model in models), Decimal(0))
        axes.bar(
            [start + width / 2 for start in starts],
            [float(cost) for cost in sums],
            bottom=[float(bottom) for bottom in bottoms],
            width=0.8 * width,
            color=colour,
            label=name,
        )
        bottoms = [bottom + cost for bottom, cost in zip(bottoms, sums, strict=True)]
    axes.set_ylabel("USD")
    every = "and day" if width == 1 else f"in bars of {width} days"
    _title(figure, f"Cost by model {every}")
    _legend(axes, reverse=True)
    _dates(axes)


def _title(figure: Figure, text: str) -> None:
    figure.suptitle(text, color=_INK, fontsize=14, fontweight="bold")


def _dates(axes: Axes) -> None:
    axes.xaxis.axis_date()
    locator = dates.AutoDateLocator(minticks=2, maxticks=8)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    axes.set_xlabel("UTC")


def _moment(moment: datetime) -> float:
    """A moment as matplotlib counts: in days."""
    return moment.timestamp() / 86_400


def _day(text: str) -> int:
    """A UTC day, counted in the same way."""
    return int(_moment(datetime.fromisoformat(text).replace(tzinfo=UTC)))


def _names(axes: Axes, names: list[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    middle, half = (len(names) - 1) / 2, max(len(names), _FEWEST_NAMES) / 2
    axes.set_ylim(middle - half - 0.1, middle + half + 0.1)


def _name(model: str) -> str:
    """A model's name on one line, without its middle where it is long."""
    name = printable(model)
    half = _LONGEST_NAME // 2
    return name if len(name) <= _LONGEST_NAME else f"{name[: half - 1]}…{name[-half:]}"


def _seconds(seconds: float) -> str:
    digits = 0 if seconds >= 10 else 1 if seconds >= 1 else 2
    return f"{seconds:.{digits}f} s"


def _length(minutes: int) -> str:
    if minutes % 60:
        return f"{minutes} minutes"
    return counted(minutes // 60, "hour")


def _legend(axes: Axes, *, reverse: bool = False) -> None:
    if len(axes.get_legend_handles_labels()[1]) > 1:
        legend = axes.legend(
            loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=_SIZE, reverse=reverse
        )
        for text in legend.get_texts():
            text.set_color(_INK)


def _finish(figure: Figure) -> None:
    """Colours, and no text that is taken for a formula."""
    for axes in figure.axes:
        axes.grid(axis="both", color=_LINE, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(which="both", colors=_INK, labelsize=_SIZE, length=0)
        axes.label_outer()
        for side in axes.spines.values():
            side.set_visible(False)
        for label in (axes.xaxis.label, axes.yaxis.label, axes.xaxis.get_offset_text()):
            label.set_color(_INK)
            label.set_fontsize(_SIZE)
        legend = axes.get_legend()
        for text in (*axes.get_yticklabels(), *(legend.get_texts() if legend else ())):
            text.set_parse_math(False)


PLOTS: Mapping[str, Callable[[Figure, Asked], bool]] = {
    "spending": spending,
    "submissions": submissions,
    "latency": latency,
    "costs": costs,
}
"""The plots by their names, which are the files' too."""
