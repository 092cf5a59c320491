"""The contact sheet of a batch, kept up to date while a run is under way. Begin reading here.

The cards are in scripts of 2,000, so that the page reads only those again that have changed. Every text
from users is escaped here once, as JSON or as HTML. The page puts it into the document as text.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Any
from urllib.parse import urlencode, urlsplit

import anyio
import polars as pl

from callsheet.cells import as_text
from callsheet.config.settings import BatchSettings
from callsheet.ledger import marks
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.marks import Counts
from callsheet.pricing.plan import Plan
from callsheet.records import State, dollars
from callsheet.report.contact_sheet.cards import (
    FOLDER,
    OPINIONS,
    SENT,
    Card,
    Links,
    MediaFile,
    cards,
    facts,
    shown_jobs,
)
from callsheet.report.contact_sheet.thumbnails import Thumbnails, thumbnail_name
from callsheet.report.summary import Summary
from callsheet.standing import Share, Shares, read_standing
from callsheet.storage.store import Store

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
        jobs: those that count (`report/summary.py`).
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


def refused_in_words(refusal: str) -> str | None:
    """What the page says while the service refuses every submission in these words; None without words."""
    return f"The service refuses every submission, and the run waits: {refusal}" if refusal else None


def part_name(number: int) -> str:
    """The name of the file with the cards of a part, inside `report.url`."""
    return f"{FOLDER}/data/jobs-{number:04d}.js"


def asset(name: str) -> bytes:
    """One of the page's own files."""
    return files(__package__).joinpath("assets", name).read_bytes()


@cache
def made_by() -> str:
    """A digest of what makes cards and page from the ledger: another Callsheet makes them anew."""
    of_package = files(__package__)
    code = (of_package.joinpath(name).read_bytes() for name in ("cards.py", "sheet.py", "assets/index.html"))
    return hashlib.sha256(b"".join(code)).hexdigest()


def part(number: int, cards: Sequence[Card], with_thumbnail: Collection[str], links: Links) -> bytes:
    """The script with the cards of a part; `with_thumbnail` has the SHA-256 of each file that has one."""

    def file_fields(file: MediaFile, key: str) -> dict[str, Any]:
        thumbnail = links.to_own(thumbnail_name(file.sha256)) if file.sha256 in with_thumbnail else None
        href = links.to_media(file.url, f"{key}/{file.attempt}/{file.index}")
        return vars(file) | {"href": href, "thumbnail": thumbnail}

    def origin(card: Card) -> dict[str, Any] | None:
        if card.made_from is None:
            return None
        sheet = links.to_sheet(card.made_from["batch"])
        row = urlencode({"search": card.made_from["row"]})
        return {**card.made_from, "href": f"{sheet}#{row}" if sheet else None}

    def card_fields(card: Card) -> dict[str, Any]:
        files = [file_fields(file, card.job_key) for file in card.files]
        return vars(card) | {"files": files, "made_from": origin(card)}

    return _script("part", number, [card_fields(card) for card in cards])


def summary(
    header: Header,
    settings: BatchSettings,
    *,
    ledger_id: str,
    counts: Counts,
    shares_by_name: Shares,
    jobs_shown: int,
    interval: float,
    parts: Sequence[str],
    links: Links,
) -> bytes:
    """The script with the header, and with which scripts there are.

    Args:
        ledger_id: the ledger's: marks that a browser keeps are of that one.
        counts: how far the batch is reviewed.
        shares_by_name: the same by model, and by each setting that is compared.
        jobs_shown: how many jobs the page shows.
        interval: seconds after which a page may look again while a run is under way.
        parts: the version of each script with cards.
    """
    limit, written = settings.budget.limit, datetime.now(UTC).isoformat(timespec="microseconds")
    content = {
        "batch": settings.batch,
        "outcome": header.outcome,
        "stop": header.stop,
        "jobs": header.jobs,
        "shown": jobs_shown,
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
        "shares": {name: [_share(share) for share in values] for name, values in shares_by_name.items()},
        "key": f"{settings.batch} {ledger_id}",
        "marks": links.marks,
        "parts": [
            {"src": links.to_own(part_name(number), version), "version": version}
            for number, version in enumerate(parts)
        ],
    }
    return _script("summary", content)


def _share(share: Share) -> dict[str, Any]:
    return {"value": as_text(share.value), **share.review._asdict(), "spent": dollars(share.spent)}


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


_IN_A_FOLDER, _IN_A_BUCKET = 3.0, 15.0  # seconds between two updates while a run is under way
_SHARE = 20  # an update takes at most one part in so many of the time


@asynccontextmanager
async def open_sheet(
    ledger: Ledger, settings: BatchSettings, plan: Plan | None
) -> AsyncIterator[ContactSheet]:
    """The batch's contact sheet; at the end what it does in the background is ended.

    Without a plan, the batch is known only from the ledger.
    """
    thumbnails = Thumbnails(settings)
    store = Store.of(settings.report.url, settings.storage)
    links = Links(settings)
    interval = _IN_A_FOLDER if links.on_disk else _IN_A_BUCKET
    try:
        page = ContactSheet(ledger, settings, plan, thumbnails, store.write, links, interval)
        if settings.report.links_valid_for is None:  # others end, and are made anew
            page.get = store.read
        yield page
    finally:
        await thumbnails.close()


@dataclass
class ContactSheet:
    """The page of a batch. For a page that is written to `report.url`, use `open_sheet`.

    `put` takes a file of the page (name, content, type) in place of an older one, and `links` says how the
    page reaches it. A page may look again after `interval` seconds while a run is under way. `get` finds what
    an earlier run has written, which is left where nothing has changed; None: all is made anew.
    """

    ledger: Ledger
    settings: BatchSettings
    plan: Plan | None
    thumbnails: Thumbnails
    put: Callable[[str, bytes, str], Awaitable[object]]
    links: Links
    interval: float
    get: Callable[[str], Awaitable[bytes | None]] | None = None
    _jobs: pl.DataFrame | None = None
    said: pl.DataFrame = field(default_factory=pl.DataFrame)  # of the files, when it was written
    versions: list[str] = field(default_factory=list)  # of the scripts with cards, as the page knows them
    digests: list[str] = field(default_factory=list)  # of what they are made from; empty: not written yet

    async def update_until(self, header: Callable[[], Header], over: asyncio.Event) -> None:
        """Updates the page now and then until `over` is set, with what `header` says of the batch then.

        Raises as `write`.
        """
        pause = self.interval
        while True:
            with anyio.move_on_after(pause):
                await over.wait()
                return
            began = time.monotonic()
            await self.write(header())
            pause = max(self.interval, _SHARE * (time.monotonic() - began))

    async def finish(self, header: Header, note: Callable[[str], None], *, wait_for: int | None) -> None:
        """Brings the page up to date; `note` is called with what a person should know.

        It waits for missing thumbnails, unless they are more than `wait_for`, or always where that is None.
        Raises as `write`.
        """
        drawn = self.thumbnails.drawn
        await self.write(header)
        if wait_for is None or self.thumbnails.waiting <= wait_for:
            await self.thumbnails.finish()
            if self.thumbnails.drawn > drawn:  # while it was written, or since
                await self.write(header)
        if not self.thumbnails.decoder.works:
            note("the contact sheet has no thumbnails: the process that makes them could not be started")
        elif self.thumbnails.waiting and wait_for:
            note("thumbnails are missing in the contact sheet: callsheet report CONFIG makes them")
        if self.links.may_end_early:
            note(
                "the contact sheet's links to S3 are signed with temporary AWS credentials: they end when "
                "these expire, which may be before report.links_valid_for is over"
            )

    async def write(self, header: Header, *, left_out: Collection[int] = ()) -> None:
        """Writes what has changed, and asks for the thumbnails that are missing.

        `left_out`: the parts for `write_part` when somebody asks for them.

        Raises:
            StorageError: the page cannot be written.
            LedgerError: the ledger cannot be read.
        """
        standing = await self.ledger.read(
            read_standing,
            self.plan.table if self.plan else None,
            of_attempts=SENT,
            of_files=["sha256"],
        )
        self.said = standing.files.select(*marks.FILE, *OPINIONS)
        if self._jobs is None:  # the page's own files, and the jobs that are shown
            await self.thumbnails.find_made()
            jobs = shown_jobs(standing, self.settings.report.contact_sheet)
            for name in ASSETS:
                mime_type = "text/css" if name.endswith(".css") else "text/javascript"
                await self.put(f"{FOLDER}/{name}", asset(name), mime_type)
            parts = max(1, -(-jobs.height // PER_PART))
            for by_part in (self.versions, self.digests):
                by_part[:] = (by_part + [""] * parts)[:parts]
            self._jobs = jobs
        for number in range(len(self.versions)):
            if number not in left_out:
                await self.write_part(number)
        content = summary(
            header,
            self.settings,
            ledger_id=self.ledger.id,
            counts=standing.review,
            shares_by_name=standing.compared,
            jobs_shown=self._jobs.height,
            interval=self.interval,
            parts=self.versions,
            links=self.links,
        )
        await self.put(SUMMARY, content, "text/javascript")

    async def write_part(self, number: int) -> None:
        """Writes the cards of a part, and `index.html` with those of the first, where they have changed.

        What is said of files is that of the last `write`, as the counts of the page are. Raises as that.
        """
        assert self._jobs is not None  # noqa: S101 - `write` comes first
        jobs = self._jobs.slice(number * PER_PART, PER_PART)
        opinions, with_thumbnail = self.said, self.thumbnails.made
        part_facts = await self.ledger.read(lambda connection, _: facts(connection, jobs, opinions))
        pictures = part_facts.files.select("sha256", "url", "mime_type").iter_rows()
        missing = [picture for picture in pictures if picture[0] not in with_thumbnail]
        for picture in missing:
            self.thumbnails.look_at(*picture)
        digest = await asyncio.to_thread(
            lambda: part_facts.digest(made_by(), self.links.follow_from(part_facts), missing)
        )
        written = f"// {digest}\n".encode()  # at its end: a file that ends so is whole
        if not self.digests[number] and await self._ends(number, written):
            self.versions[number] = self.digests[number] = digest
        if digest == self.digests[number]:
            return
        part_cards = await asyncio.to_thread(cards, part_facts)
        if number == 0:
            html = await asyncio.to_thread(index, self.settings, part_cards, self.links)
            await self.put(INDEX, html, "text/html")
        content = await asyncio.to_thread(part, number, part_cards, with_thumbnail, self.links)
        await self.put(part_name(number), content + written, "text/javascript")
        if self.digests[number] or not self.versions[number]:
            self.versions[number] = digest
        self.digests[number] = digest

    async def _ends(self, number: int, end: bytes) -> bool:
        """Whether an earlier run has written a part that ends so, and with the first one the page."""
        if self.get is None or (number == 0 and await self.get(INDEX) is None):
            return False
        return (await self.get(part_name(number)) or b"").endswith(end)
