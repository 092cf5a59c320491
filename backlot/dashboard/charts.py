"""Bar charts as numbers for an SVG. The page has every value in words or in a table, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

WIDTH, HEIGHT = 960, 190
LEFT, BOTTOM, TOP = 64, 24, 10


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar, in pixels; `series` is its class."""

    series: str
    y: Decimal
    height: Decimal


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar: its place in pixels, its parts from below, and what it says when it is pointed at."""

    x: Decimal
    width: Decimal
    segments: tuple[Segment, ...]
    title: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of `WIDTH` by `HEIGHT`: its bars, and the places and texts of both axes."""

    bars: tuple[Bar, ...]
    values: tuple[tuple[Decimal, Decimal], ...]
    labels: tuple[tuple[Decimal, str], ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    base: int = HEIGHT - BOTTOM


def bars(
    names: Sequence[str],
    series: Mapping[str, Sequence[Decimal]],
    titles: Sequence[str],
    *,
    least: Decimal,
    every: int,
) -> Chart:
    """A chart of stacked bars.

    Args:
        names: of the bars, from left to right; every `every`-th is written below.
        series: from below, a value for each bar.
        titles: of the bars.
        least: the smallest value that the top may stand for.
    """
    sums = [sum(values, Decimal(0)) for values in zip(*series.values(), strict=True)]
    top = round_up(max([least, *sums]))
    room = Decimal(HEIGHT - BOTTOM - TOP)
    step = Decimal(WIDTH - LEFT) / max(len(names), 1)
    made = []
    for n, title in enumerate(titles):
        y, parts = Decimal(HEIGHT - BOTTOM), []
        for name, values in series.items():
            height = (values[n] / top * room).quantize(Decimal("0.01"))
            y -= height
            if height:
                parts.append(Segment(name, y, height))
        width = (step * Decimal("0.8")).quantize(Decimal("0.01"))
        made.append(Bar((LEFT + step * n).quantize(Decimal("0.01")), width, tuple(parts), title))
    ticks = [(HEIGHT - BOTTOM - room * n / 2, top * n / 2) for n in range(3)]
    labels = [(made[n].x, names[n]) for n in range(0, len(names), every)]
    return Chart(tuple(made), tuple(ticks), tuple(labels))


def round_up(value: Decimal) -> Decimal:
    """The next larger number of the form 1, 2 or 5 times a power of ten."""
    power = Decimal(10) ** value.adjusted()
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= value)
