"""The files of the page: its own ones, and what it loads as scripts. Text in, bytes out; writes nothing.

Every text from users is escaped here once, as JSON or as HTML. The page puts it into the document as text.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from html import escape
from importlib.resources import files
from string import Template
from typing import Any
from urllib.parse import urlsplit

from callsheet.config.settings import BatchSettings
from callsheet.ledger.marks import Counts
from callsheet.pricing.plan import Plan
from callsheet.records import State, dollars
from callsheet.report.contact_sheet.cards import Card, MediaFile
from callsheet.report.contact_sheet.links import FOLDER, Links
from callsheet.report.contact_sheet.thumbnails import thumbnail_name
from callsheet.report.summary import Summary

ASSETS = (
    *("style.css", "data.js", "marks.js", "cards.js", "filters.js", "grid.js", "viewer.js", "compare.js"),
    *("keys.js", "page.js"),
)
"""The page's own files beside `index.html`; the scripts in the order in which they need each other."""

INDEX = f"{FOLDER}/index.html"
"""The page inside `report.url`."""

SUMMARY = f"{FOLDER}/data/summary.js"
"""What the page loads first, and again while a run is under way."""

PER_PART = 2_000
"""Cards of one script."""

_PLAIN = 500  # cards that `index.html` has as plain HTML
_STATES = (State.STORED, State.FAILED, State.IN_DOUBT, State.LOST, State.PENDING)

_ARTICLE = Template(
    '<article class="card plain" data-row-id="$row" data-state="$state"><h2 dir="auto">$row</h2>'
    '<p dir="auto">$prompt</p><p>$facts</p><p dir="auto">$reason</p></article>'
)


@dataclass(frozen=True, slots=True)
class Header:
    """What the page says about the whole batch. Money is in dollars.

    Attributes:
        jobs: those that count (`report/counts.py`).
        quoted: their price; None where there is no plan.
        outcome: as in `Summary`; None while a run is under way.
        stop: why the run stopped early, in words; or why it waits (`refused_in_words`).
        in_doubt: what may have been spent besides.
        plots: what each plot that is drawn shows, in words, by its file's name inside `report.url`.
    """

    jobs: int
    states: Mapping[State, int]
    spent: Decimal
    quoted: Decimal | None
    rejected_rows: int
    outcome: str | None = None
    stop: str | None = None
    in_doubt: Decimal = Decimal(0)
    plots: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, summary: Summary, plan: Plan | None, plots: Mapping[str, str]) -> Header:
        """What it says of a batch that no run is at work on."""
        return cls(
            outcome=summary.outcome,
            stop=summary.stop_message,
            jobs=summary.jobs,
            states={state: summary[state.value] for state in _STATES},
            spent=summary.spent,
            quoted=summary.quoted if plan else None,
            rejected_rows=summary.rejected_rows,
            in_doubt=summary.in_doubt_exposure,
            plots=plots,
        )


def refused_in_words(why: str) -> str | None:
    """What the page says while the service refuses every submission in these words; None without words."""
    return f"The service refuses every submission, and the run waits: {why}" if why else None


def part_name(number: int) -> str:
    """The name of the file with the cards of a part, inside `report.url`."""
    return f"{FOLDER}/data/jobs-{number:04d}.js"


def asset(name: str) -> bytes:
    """One of the page's own files."""
    return files(__package__).joinpath("assets", name).read_bytes()


def part(number: int, cards: Sequence[Card], made: Collection[str], links: Links) -> bytes:
    """The script with the cards of a part; `made` has the SHA-256 of each file that has a thumbnail."""

    def shown(file: MediaFile, key: str) -> dict[str, Any]:
        thumbnail = links.to_own(thumbnail_name(file.sha256)) if file.sha256 in made else None
        href = links.to_media(file.url, f"{key}/{file.attempt}/{file.index}")
        return vars(file) | {"href": href, "thumbnail": thumbnail}

    return _script(
        "part",
        number,
        [vars(card) | {"files": [shown(file, card.job_key) for file in card.files]} for card in cards],
    )


def summary(
    header: Header,
    settings: BatchSettings,
    *,
    ledger_id: str,
    counts: Counts,
    shown: int,
    interval: float,
    parts: Sequence[str],
    links: Links,
) -> bytes:
    """The script with the header, and with which scripts there are.

    Args:
        ledger_id: the ledger's: marks that a browser keeps are of that one.
        counts: how far the batch is reviewed.
        shown: how many jobs the page shows.
        interval: seconds after which a page may look again while a run is under way.
        parts: the version of each script with cards.
    """
    limit, written = settings.budget.limit, datetime.now(UTC).isoformat(timespec="microseconds")
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
        "plots": [{"src": links.to_own(name, written), "text": text} for name, text in header.plots.items()],
        "written": written,
        "interval": interval,
        "counts": counts._asdict(),
        "key": f"{settings.batch} {ledger_id}",
        "marks": links.marks,
        "parts": [
            {"src": links.to_own(part_name(number), version), "version": version}
            for number, version in enumerate(parts)
        ],
    }
    return _script("summary", about)


def index(settings: BatchSettings, cards: Sequence[Card], links: Links) -> bytes:
    """`index.html`, with the first of these cards as plain HTML for who reads it without JavaScript."""
    style, *scripts = (links.to_own(f"{FOLDER}/{name}") for name in (*ASSETS, "data/summary.js"))
    template = Template(asset("index.html").decode())
    text = template.substitute(
        batch=escape(settings.batch),
        sources=escape(" ".join(_sources(cards, settings.storage.url, links))),
        connect="'self'" if links.marks else "'none'",
        style=escape(style),
        scripts="\n".join(f'<script defer src="{escape(href)}"></script>' for href in scripts),
        cards="\n".join(map(_article, cards[:_PLAIN])),
    )
    return text.encode()


def _script(function: str, *values: Any) -> bytes:
    """A script that gives values to the page: `callsheet.<function>(...)`."""
    texts = (json.dumps(value, ensure_ascii=False, separators=(",", ":")) for value in values)
    return f"callsheet.{function}({','.join(texts)})\n".encode()


def _sources(cards: Sequence[Card], storage_url: str, links: Links) -> list[str]:
    """What the page may load scripts, styles, images and videos from."""
    hrefs = [links.loaded_from(file.url) for card in cards for file in card.files]
    hrefs += [links.loaded_from(f"{storage_url}/any"), links.to_own(SUMMARY)]
    origins = {
        f"{parts.scheme}://{parts.netloc}" for parts in map(urlsplit, filter(None, hrefs)) if parts.netloc
    }
    return ["'self'", *(["file:"] if links.on_disk else []), *sorted(origins)]


def _article(card: Card) -> str:
    cost = f"{card.cost} USD" if card.cost else ""
    facts = " · ".join(filter(None, (card.state.replace("_", " "), card.model, card.asked, cost)))
    text = {"row": card.row_id, "state": card.state, "prompt": card.prompt, "facts": facts}
    text["reason"] = card.reason or ""
    return _ARTICLE.substitute({name: escape(value) for name, value in text.items()})
