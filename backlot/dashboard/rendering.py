"""Templates to answers, with every value escaped and headers that let a page load nothing from elsewhere.

And a bar chart of what is asked, as numbers for an SVG.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi import Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from backlot.accounts import SECONDS, Outcome, Traffic

FOLDER = Path(__file__).parent

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # without a referrer, a form would have no origin either
    "X-Content-Type-Options": "nosniff",
}
WIDTH, HEIGHT = 960, 190  # of the chart, in pixels
LEFT, BASE, TOP = 64, 166, 10  # where its bars begin, stand, and end
LABELLED = 20  # each so many bars, the time is written below
SERIES: dict[str, tuple[Outcome, ...]] = {
    "accepted": ("accepted",),
    "window": ("window",),
    "lanes": ("lanes",),
    "refused": ("refused", "failed"),
}


def moment(seconds: float) -> Markup:
    """Unix seconds as a `time` element with the UTC date and time."""
    at = datetime.fromtimestamp(seconds, UTC)
    return Markup('<time datetime="{0:%Y-%m-%dT%H:%M:%SZ}">{0:%Y-%m-%d %H:%M:%S}</time>').format(at)


def duration(seconds: float) -> str:
    """A length of time in its largest unit: `45 s`, `12 min`, `3 h`, `2 days`."""
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


TEMPLATES = Environment(
    loader=FileSystemLoader(FOLDER / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters |= {"dollars": "{:,.4f}".format, "moment": moment, "duration": duration}


def page(template: str, status: int = 200, **values: Any) -> Response:
    """A page, or a part of one."""
    html = TEMPLATES.get_template(template).render(values)
    return Response(html, status, HEADERS, "text/html")


def chart(traffic: Traffic, now: int) -> dict[str, Any]:
    """The generation requests of each of the last seconds as stacked bars, as chart.html draws them."""
    counts = dict(traffic.seconds)
    columns = []
    for second in range(now - SECONDS + 1, now + 1):
        count = counts.get(second, Counter())
        columns.append((second, {name: sum(count[each] for each in SERIES[name]) for name in SERIES}))
    top = round_up(max(10, *(sum(values.values()) for _, values in columns)))
    scale, step = (BASE - TOP) / top, (WIDTH - LEFT) / SECONDS
    bars = []
    for n, (second, values) in enumerate(columns):
        time, y, parts = f"{datetime.fromtimestamp(second, UTC):%H:%M:%S}", float(BASE), []
        for series, value in values.items():
            y -= value * scale
            parts.append({"series": series, "y": round(y, 2), "height": round(value * scale, 2)})
        words = ", ".join(f"{value} {series}" for series, value in values.items() if value)
        label = "" if n % LABELLED else time
        title = f"{time}: {words or 'none'}"
        bars.append({"x": round(LEFT + step * n, 2), "parts": parts, "title": title, "label": label})
    ticks = [(BASE - top * part * scale, top * part) for part in (0, 0.5, 1)]
    return {"bars": bars, "ticks": ticks, "bar": round(step * 0.8, 2), "width": WIDTH, "height": HEIGHT}


def round_up(value: int) -> int:
    """The next larger number of the form 1, 2 or 5 times a power of ten."""
    power: int = 10 ** (len(str(value)) - 1)
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= value)
