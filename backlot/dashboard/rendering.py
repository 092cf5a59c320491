"""Templates to answers, with every value escaped and headers that let a page load nothing from elsewhere.

And bar charts as numbers for an SVG; the page has every value in words or in a table, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from fastapi import Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

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
WIDTH, HEIGHT = 960, 190  # of a chart, in pixels
LEFT, BASE, TOP = 64, 166, 10  # where its bars begin, stand, and end


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


def chart(
    bars: Sequence[tuple[str, str, Mapping[str, Decimal]]], *, least: Decimal, every: int
) -> dict[str, Any]:
    """A chart of stacked bars, as chart.html draws it.

    Args:
        bars: the name of each, what it says when it is pointed at, and its values by series, from below.
        least: the smallest value that the top may stand for.
        every: which names are written below: the first, and each so many bars after it.
    """
    top = round_up(max([least, *(sum(values.values(), Decimal(0)) for _, _, values in bars)]))
    room, step = BASE - TOP, (WIDTH - LEFT) / len(bars)
    drawn = []
    for n, (name, title, values) in enumerate(bars):
        y, parts = float(BASE), []
        for series, value in values.items():
            height = float(value / top) * room
            y -= height
            parts.append({"series": series, "y": round(y, 2), "height": round(height, 2)})
        x, label = round(LEFT + step * n, 2), "" if n % every else name
        drawn.append({"x": x, "width": round(step * 0.8, 2), "parts": parts, "title": title, "label": label})
    ticks = [(BASE - room * n / 2, top * n / 2) for n in range(3)]
    return {"bars": drawn, "ticks": ticks, "width": WIDTH, "height": HEIGHT, "left": LEFT, "base": BASE}


def round_up(value: Decimal) -> Decimal:
    """The next larger number of the form 1, 2 or 5 times a power of ten."""
    power = Decimal(10) ** value.adjusted()
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= value)
