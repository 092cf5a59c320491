"""Bar charts as numbers for an SVG. The page has every value in words or in a table, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from backlot.accounts import Workspace
from backlot.traffic import SECONDS, Outcome

WIDTH, HEIGHT = 960, 190
LEFT, BOTTOM, TOP = 64, 24, 10
STEP = 2  # seconds of a bar
SERIES: dict[str, tuple[Outcome, ...]] = {
    "accepted": ("accepted",),
    "window": ("window",),
    "lanes": ("lanes",),
    "refused": ("refused", "failed"),
}
Chart = dict[str, Any]  # what chart.html draws


def traffic(workspace: Workspace, now: float) -> Chart:
    """Generation requests by outcome in the last two minutes."""
    end = int(now) // STEP * STEP + STEP
    counts: dict[int, Counter[Outcome]] = {start: Counter() for start in range(end - SECONDS, end, STEP)}
    for second, outcomes in workspace.traffic.seconds:
        if (start := second // STEP * STEP) in counts:
            counts[start] += outcomes
    series = {
        name: [Decimal(sum(count[each] for each in outcomes)) for count in counts.values()]
        for name, outcomes in SERIES.items()
    }
    names = [f"{datetime.fromtimestamp(start, UTC):%H:%M:%S}" for start in counts]
    words = [
        ", ".join(f"{values[n]} {name}" for name, values in series.items() if values[n]) or "none"
        for n in range(len(names))
    ]
    titles = [f"{name}: {word}" for name, word in zip(names, words, strict=True)]
    return bars(names, series, titles, least=Decimal(10), every=10)


def costs(buckets: Sequence[Mapping[str, Any]]) -> Chart:
    """The costs by day; the buckets are those of INTERFACE 2.12."""
    names = [bucket["date"][5:] for bucket in buckets]
    titles = [f"{bucket['date']}: {bucket['cost']:.4f} USD" for bucket in buckets]
    series = {"cost": [bucket["cost"] for bucket in buckets]}
    return bars(names, series, titles, least=Decimal("0.01"), every=max(len(names) // 8, 1))


def bars(
    names: Sequence[str],
    series: Mapping[str, Sequence[Decimal]],
    titles: Sequence[str],
    *,
    least: Decimal,
    every: int,
) -> Chart:
    """A chart of stacked bars, in pixels.

    Args:
        names: of the bars, from left to right; every `every`-th is written below.
        series: from below, a value for each bar.
        titles: what a bar says when it is pointed at.
        least: the smallest value that the top may stand for.
    """
    top = round_up(max([least, *(sum(values) for values in zip(*series.values(), strict=True))]))
    base, room, step = HEIGHT - BOTTOM, HEIGHT - BOTTOM - TOP, (WIDTH - LEFT) / len(names)
    made = []
    for n, title in enumerate(titles):
        y, parts = float(base), []
        for name, values in series.items():
            height = round(float(values[n] / top) * room, 2)
            y -= height
            if height:
                parts.append({"series": name, "y": round(y, 2), "height": height})
        made.append(
            {"x": round(LEFT + step * n, 2), "width": round(step * 0.8, 2), "parts": parts, "title": title}
        )
    return {
        "bars": made,
        "ticks": [(base - room * n / 2, top * n / 2) for n in range(3)],
        "labels": [(made[n]["x"], names[n]) for n in range(0, len(names), every)],
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "base": base,
    }


def round_up(value: Decimal) -> Decimal:
    """The next larger number of the form 1, 2 or 5 times a power of ten."""
    power = Decimal(10) ** value.adjusted()
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= value)
