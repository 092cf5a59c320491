"""The files of the page: its own ones, and what it loads as scripts. Text in, bytes out; writes nothing.

Every text from users is escaped here once, as JSON or as HTML. The page puts it into the document as text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Any
from urllib.parse import urlsplit

from callsheet.config.settings import BatchSettings
from callsheet.pricing.plan import Plan
from callsheet.records import State, dollars
from callsheet.report.contact_sheet.cards import Card, MediaFile
from callsheet.report.contact_sheet.links import FOLDER, Links
from callsheet.report.contact_sheet.thumbnails import thumbnail_name
from callsheet.report.plots.plots import Plot
from callsheet.report.summary import Summary

ASSETS = {
    "style.css": "text/css",
    "data.js": "text/javascript",
    "filters.js": "text/javascript",
    "cards.js": "text/javascript",
    "grid.js": "text/javascript",
    "viewer.js": "text/javascript",
    "page.js": "text/javascript",
}
"""The page's own files beside `index.html`, with their types."""

INDEX = f"{FOLDER}/index.html"
"""The page inside `report.url`."""

SUMMARY = f"{FOLDER}/data/summary.js"
"""What the page loads first, and again while a run is under way."""

PER_PART = 2_000
"""Cards of one script."""

_PLAIN = 500  # cards that `index.html` has as plain HTML

_ARTICLE = Template(
    '<article class="card plain" data-row-id="$row" data-state="$state"><h2 dir="auto">$row</h2>'
    '<p dir="auto">$prompt</p><p>$facts</p><p dir="auto">$reason</p></article>'
)


@dataclass(frozen=True, slots=True)
class Header:
    """What the page says about the whole batch. Money is in dollars.

    Attributes:
        outcome: as in `Summary`; None while a run is under way.
        stop: why the run stopped early, in words.
        jobs: jobs of the batch file.
        states: how many of them are in each state.
        in_doubt: what may have been spent besides.
        removed: jobs that are paid for, and whose rows the batch file no longer has.
        plots: those that are drawn.
    """

    outcome: str | None
    stop: str | None
    jobs: int
    states: Mapping[State, int]
    spent: Decimal
    quoted: Decimal | None
    rejected_rows: int
    in_doubt: Decimal = Decimal(0)
    removed: int = 0
    plots: Sequence[Plot] = ()

    @classmethod
    def of(cls, summary: Summary, plan: Plan | None, plots: Sequence[Plot]) -> Header:
        """What it says of a batch that no run is at work on."""
        return cls(
            outcome=summary.outcome,
            stop=summary.stop_message,
            jobs=summary.jobs,
            states={
                State.STORED: summary.stored,
                State.FAILED: summary.failed,
                State.IN_DOUBT: summary.in_doubt,
                State.LOST: summary.lost,
                State.PENDING: summary.pending,
            },
            spent=summary.spent,
            quoted=plan.quoted if plan else None,
            rejected_rows=summary.rejected_rows,
            in_doubt=summary.in_doubt_exposure,
            removed=summary.details.removed.jobs,
            plots=plots,
        )


def part_name(number: int) -> str:
    """The name of the file with the cards of a part, inside `report.url`."""
    return f"{FOLDER}/data/jobs-{number:04d}.js"


def asset(name: str) -> bytes:
    """One of the page's own files."""
    return files(__package__).joinpath("assets", name).read_bytes()


@cache
def _version() -> str:
    """Changes when the page itself does."""
    contents = b"".join(asset(name) for name in ("index.html", *ASSETS))
    return hashlib.sha256(contents).hexdigest()[:12]


def script(function: str, *values: Any) -> bytes:
    """A script that gives values to the page: `callsheet.<function>(...)`."""
    texts = (json.dumps(value, ensure_ascii=False, separators=(",", ":")) for value in values)
    return f"callsheet.{function}({','.join(texts)})\n".encode()


def part(number: int, cards: Sequence[Card], pictured: Collection[str], links: Links) -> bytes:
    """The script with the cards of a part.

    Args:
        number: of the part.
        cards: the cards.
        pictured: the SHA-256 of each file that has a thumbnail.
        links: for the addresses of media and thumbnails.
    """
    rows = [
        {
            "key": card.key[:20],
            "row": card.row_id,
            "sample": card.sample,
            "type": card.type,
            "model": card.model,
            "prompt": card.prompt,
            "asked": card.asked,
            "state": card.state,
            "cost": card.cost,
            "quoted": card.quoted,
            "id": card.generation_id,
            "code": card.code,
            "reason": card.reason,
            "sent": card.submitted_at and card.submitted_at.isoformat(timespec="milliseconds"),
            "ended": card.finished_at and card.finished_at.isoformat(timespec="milliseconds"),
            "carried": [*card.carried.items()],
            "files": [_file(file, pictured, links) for file in card.files],
        }
        for card in cards
    ]
    return script("part", number, rows)


def summary(
    header: Header,
    settings: BatchSettings,
    *,
    shown: int,
    interval: float,
    parts: Sequence[str],
    links: Links,
) -> bytes:
    """The script with the header, and with which scripts there are in which version.

    Args:
        header: what the page says about the batch.
        settings: the config.
        shown: how many jobs the page shows.
        interval: seconds after which a page may look again while a run is under way.
        parts: the version of each script with cards.
        links: for the addresses of scripts and plots.
    """
    limit = settings.budget.limit
    about = {
        "batch": settings.batch,
        "outcome": header.outcome,
        "stop": header.stop,
        "jobs": header.jobs,
        "shown": shown,
        "states": {state.value: header.states[state] for state in State if header.states.get(state)},
        "spent": dollars(header.spent),
        "inDoubt": dollars(header.in_doubt) if header.in_doubt else None,
        "quoted": None if header.quoted is None else dollars(header.quoted),
        "limit": None if limit is None else dollars(limit),
        "rejected": header.rejected_rows,
        "rejects": links.to_own("rejects.csv"),
        "removed": header.removed,
        "plots": [
            {"src": _address(plot.file, plot.version, links), "text": plot.text} for plot in header.plots
        ],
        "written": datetime.now(UTC).isoformat(timespec="microseconds"),
        "interval": interval,
        "parts": [
            {"src": _address(part_name(number), version, links), "version": version}
            for number, version in enumerate(parts)
        ],
    }
    return script("summary", about)


def _address(name: str, version: str, links: Links) -> str:
    """The address of one of the page's own files. A signed one cannot have the version in it."""
    href = links.to_own(name)
    return href if links.signs_own_files else f"{href}?{version}"


def _file(file: MediaFile, pictured: Collection[str], links: Links) -> dict[str, Any]:
    return {
        "href": links.to_media(file.url),
        "url": file.url,
        "thumb": links.to_own(thumbnail_name(file.sha256)) if file.sha256 in pictured else None,
        "type": file.mime_type,
        "width": file.width,
        "height": file.height,
        "duration": file.duration,
        "fps": file.fps,
        "sound": file.has_sound,
        "bytes": file.bytes,
    }


def index(settings: BatchSettings, cards: Sequence[Card], links: Links) -> bytes:
    """`index.html`, with the first cards as plain HTML for who reads it without JavaScript.

    Args:
        settings: the config.
        cards: the first ones.
        links: for the page's own files, and the addresses from which it may load anything.
    """
    own = {name: _address(f"{FOLDER}/{name}", _version(), links) for name in (*ASSETS, "data/summary.js")}
    scripts = [href for name, href in own.items() if not name.endswith(".css")]
    template = Template(files(__package__).joinpath("assets", "index.html").read_text("utf-8"))
    text = template.substitute(
        batch=escape(settings.batch),
        sources=escape(" ".join(_sources(cards, settings.storage.url, links))),
        style=escape(own["style.css"]),
        scripts="\n".join(f'<script defer src="{escape(href)}"></script>' for href in scripts),
        cards="\n".join(map(_article, cards[:_PLAIN])),
    )
    return text.encode()


def _sources(cards: Sequence[Card], storage_url: str, links: Links) -> list[str]:
    """What the page may load scripts, styles, images and videos from."""
    hrefs = [links.to_media(file.url) for card in cards for file in card.files]
    hrefs += [links.to_media(f"{storage_url}/any"), links.to_own(SUMMARY)]
    origins = {
        f"{parts.scheme}://{parts.netloc}" for parts in map(urlsplit, filter(None, hrefs)) if parts.netloc
    }
    return ["'self'", *(["file:"] if links.on_disk else []), *sorted(origins)]


def _article(card: Card) -> str:
    facts = (card.state.replace("_", " "), card.model, card.asked, f"{card.cost} USD" if card.cost else "")
    text = {
        "row": escape(card.row_id),
        "state": escape(card.state),
        "prompt": escape(card.prompt),
        "facts": escape(" · ".join(filter(None, facts))),
        "reason": escape(card.reason or ""),
    }
    return _ARTICLE.substitute(text)
