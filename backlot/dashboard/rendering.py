"""Templates to answers: every value escaped, and headers that let a page load nothing from elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from fastapi import Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

FOLDER = Path(__file__).parent
STATIC = FOLDER / "static"

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


def dollars(amount: Decimal) -> str:
    """An amount as the interface writes it: four fractional digits."""
    return f"{amount:,.4f}"


def moment(seconds: float) -> str:
    """Unix seconds as a UTC date and time."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"


def machine_moment(seconds: float) -> str:
    """Unix seconds as the `datetime` attribute takes it."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def duration(seconds: float) -> str:
    """A length of time in its largest unit: `45 s`, `12 min`, `3 h`, `2 days`."""
    for size, unit in ((172_800, "days"), (7200, "h"), (120, "min")):
        if seconds >= size:
            return f"{seconds // {'days': 86400, 'h': 3600, 'min': 60}[unit]:.0f} {unit}"
    return f"{seconds:.0f} s"


TEMPLATES = Environment(
    loader=FileSystemLoader(FOLDER / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters |= {
    "dollars": dollars,
    "moment": moment,
    "machine_moment": machine_moment,
    "duration": duration,
}


def page(template: str, status: int = 200, **values: Any) -> Response:
    """A page, or a part of one."""
    html = TEMPLATES.get_template(template).render(values)
    return Response(html, status, HEADERS, "text/html")
