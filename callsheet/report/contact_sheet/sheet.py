"""The contact sheet of a batch, kept up to date while a run is under way. Begin reading here.

The cards are in scripts of 500. The page loads those that are looked at, and again what has changed; of all
jobs it has the overview (`overview.py`). Every text from users is escaped here once, as JSON or as HTML. The
page puts it into the document as text.
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
from functools import cache, partial
from html import escape
from importlib.resources import files
from string import Template
from typing import Any
from urllib.parse import urlencode, urlsplit

import anyio
import polars as pl

from callsheet.batches.identities import without_signature
from callsheet.cells import as_text
from callsheet.config.settings import BatchSettings
from callsheet.errors import StorageError
from callsheet.ledger import marks
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.marks import Counts
from callsheet.pricing.plan import Plan
from callsheet.records import State, dollars
from callsheet.report.contact_sheet.cards import (
    FOLDER,
    SENT,
    Card,
    Links,
    MediaFile,
    cards,
    facts,
    shown_jobs,
)
from callsheet.report.contact_sheet.overview import OF_ATTEMPTS, overview, texts
from callsheet.report.contact_sheet.thumbnails import Thumbnails, thumbnail_name
from callsheet.report.summary import Summary
from callsheet.standing import Shares, Standing, read_standing
from callsheet.storage.store import Store

ASSETS = (
    *("style.css", "data.js", "marks.js", "cards.js", "blind.js", "filters.js", "grid.js", "zoom.js"),
    *("viewer.js", "compare.js", "keys.js", "page.js"),
)
"""The page's own files beside `index.html`; the scripts in the order in which they need each other."""

INDEX = f"{FOLDER}/index.html"
"""The page inside `report.url`."""

SUMMARY, OVERVIEW, TEXTS = (f"{FOLDER}/data/{name}.js" for name in ("summary", "overview", "texts"))
"""What the page loads first, and again while a run is under way; after the first cards; and for a search."""

NEWS = f"{FOLDER}/data/news.js"
"""What was marked since the page was written."""

PER_PART = 500
"""Cards of one script."""

_ARTICLE = Template(
    '<article class="card plain" data-row-id="$row" data-state="$state"><h2 dir="auto">$row</h2>'
    '<p dir="auto">$prompt</p><p>$facts</p><p dir="auto">$reason</p></article>'
)


@dataclass(frozen=True, slots=True)
class Header:
    """What the page says about the whole batch. Money is in dollars.

    Attributes:
        jobs: those that count (`Standing.counting`).
        quoted: their price; None where there is no plan.
        outcome: as in `Summary`; None while a run is under way.
        stop: why the run stopped early, in words; or why it waits.
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
    credits: Decimal = Decimal(0)
    plots: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, summary: Summary, plan: Plan | None, plots: Mapping[str, str]) -> Header:
        """What it says of a batch that no run is at work on."""
        return cls(
            outcome=summary.outcome,
            stop=summary.stop_message,
            jobs=summary.jobs,
            states=summary.states,
            spent=summary.spent,
            quoted=summary.quoted if plan else None,
            rejected_rows=summary.rejected_rows,
            in_doubt=summary.in_doubt_exposure,
            credits=summary.credits,
            plots=plots,
        )


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
    code = (
        of_package.joinpath(name).read_bytes()
        for name in ("cards.py", "overview.py", "sheet.py", "assets/index.html")
    )
    return hashlib.sha256(b"".join(code)).hexdigest()


def part(number: int, cards: Sequence[Card], without_thumbnail: Collection[str], links: Links) -> bytes:
    """The script with the cards of a part; `without_thumbnail` has the SHA-256 of each file that has none."""

    def file_fields(file: MediaFile, key: str) -> dict[str, Any]:
        has_thumbnail = file.sha256 not in without_thumbnail
        href = links.to_media(file.url, f"{key}/{file.attempt}/{file.index}")
        return vars(file) | {
            "href": href,
            "thumbnail": links.to_own(thumbnail_name(file.sha256)) if has_thumbnail else None,
        }

    def origin(card: Card) -> dict[str, Any] | None:
        if card.made_from is None:
            return None
        sheet = links.to_sheet(card.made_from["batch"])
        row = urlencode({"search": card.made_from["row"]})
        return {**card.made_from, "href": f"{sheet}#{row}" if sheet else None}

    def original(card: Card, number: int) -> dict[str, str | None]:
        image = card.originals[number]
        name = without_signature(image.place).partition("?")[0].rpartition("/")[2]
        href = links.to_original(image.place, f"{card.job_key}/{number}")
        return {"role": image.role, "name": name, "href": href}

    def card_fields(card: Card) -> dict[str, Any]:
        files = [file_fields(file, card.job_key) for file in card.files]
        originals = [original(card, number) for number in range(len(card.originals))]
        return vars(card) | {"files": files, "made_from": origin(card), "originals": originals}

    return _script("part", number, [card_fields(card) for card in cards])


def summary(
    header: Header,
    settings: BatchSettings,
    *,
    ledger_id: str,
    newest_mark: int,
    counts: Counts,
    shares_by_name: Shares,
    jobs_shown: int,
    interval: float,
    parts: Sequence[str],
    of_all: Mapping[str, str],
    links: Links,
) -> bytes:
    """The script with the header, and with which scripts there are.

    Args:
        ledger_id: the ledger's: marks that a browser keeps are of that one.
        newest_mark: its number; the page asks for those after it.
        counts: how far the batch is reviewed.
        shares_by_name: the same by model, and by each setting that is compared.
        jobs_shown: how many jobs the page shows.
        interval: seconds after which a page may look again while a run is under way.
        parts: the version of each script with cards.
        of_all: that of `OVERVIEW` and of `TEXTS`.
    """

    def address(name: str, version: str) -> dict[str, str]:
        return {"src": links.to_own(name, version), "version": version}

    limit, written = settings.budget.limit, datetime.now(UTC).isoformat(timespec="microseconds")
    content = {
        "batch": settings.batch,
        "outcome": header.outcome,
        "stop": header.stop,
        "jobs": header.jobs,
        "shown": jobs_shown,
        "states": {state.value: header.states[state] for state in State if header.states.get(state)},
        "spent": dollars(header.spent),
        "net": dollars(header.spent - header.credits),
        "credits": dollars(header.credits) if header.credits else None,
        "inDoubt": dollars(header.in_doubt) if header.in_doubt else None,
        "quoted": None if header.quoted is None else dollars(header.quoted),
        "limit": None if limit is None else dollars(limit),
        "rejected": header.rejected_rows,
        "rejects": links.to_own("rejects.csv"),
        "plots": [{"src": links.to_own(name, written), "text": text} for name, text in header.plots.items()],
        "written": written,
        "interval": interval,
        "newestMark": newest_mark,
        "counts": counts._asdict(),
        "shares": _shares(shares_by_name),
        "key": _key(settings, ledger_id),
        "marks": links.marks,
        "perPart": PER_PART,
        "parts": [address(part_name(number), version) for number, version in enumerate(parts)],
        "overview": address(OVERVIEW, of_all[OVERVIEW]),
        "texts": address(TEXTS, of_all[TEXTS]),
        "news": links.to_own(NEWS),
    }
    return _script("summary", content)


def _shares(shares_by_name: Shares) -> dict[str, list[dict[str, Any]]]:
    return {
        name: [
            {"value": as_text(share.value), **share.review._asdict(), "spent": dollars(share.spent)}
            | {"orderedAs": share.ordered_as}
            for share in shares
        ]
        for name, shares in shares_by_name.items()
    }


def news(decisions: pl.DataFrame, since: int, again: str = "") -> dict[str, Any]:
    """What a page that knows the marks up to the number `since` has to be told.

    `decisions` are the later ones (`marks.decisions`); `again` is what is to be bought again, in words.
    """
    number = decisions["number"][-1] if decisions.height else since
    return {"number": number, "marks": decisions.drop("decided_at").to_dicts(), "again": again}


async def write_news(settings: BatchSettings, ledger: Ledger) -> None:
    """Tells the page under `report.url` what was marked since it was written, where it is of this ledger.

    Raises:
        StorageError: it cannot be written.
        LedgerError: the ledger cannot be read.
    """
    store = Store.of(settings.report.url, settings.storage)
    try:
        script = await store.read(SUMMARY)
        try:
            about = json.loads((script or b"").partition(b"(")[2].rstrip(b")\n"))
        except ValueError:  # there is no page
            return
        if about["key"] == _key(settings, ledger.id):
            decisions = await ledger.read(partial(marks.decisions, since=about["newestMark"]))
            await store.write(NEWS, _script("news", news(decisions, about["newestMark"])), "text/javascript")
    except StorageError as error:
        error.hint = f"{error.hint} The marks are kept: callsheet report CONFIG writes the page anew.".strip()
        raise


def _key(settings: BatchSettings, ledger_id: str) -> str:
    """Whose marks a browser keeps."""
    return f"{settings.batch} {ledger_id}"


def index(settings: BatchSettings, cards: Sequence[Card], links: Links, hosts: Sequence[str] = ()) -> bytes:
    """`index.html`, with these cards as plain HTML for who reads it without JavaScript.

    `hosts` have images from which jobs are made.
    """
    style, *scripts = (links.to_own(f"{FOLDER}/{name}") for name in (*ASSETS, "data/summary.js"))
    template = Template(asset("index.html").decode())
    text = template.substitute(
        batch=escape(settings.batch),
        sources=escape(" ".join(_sources(cards, settings.storage.url, links))),
        hosts=escape(" ".join(hosts)),
        connect="'self'" if links.marks else "'none'",
        style=escape(style),
        scripts="\n".join(f'<script defer src="{escape(href)}"></script>' for href in scripts),
        cards="\n".join(map(_article, cards)),
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


def _hosts(jobs: pl.DataFrame) -> list[str]:
    """From where the service fetches images of these jobs."""
    requests = jobs["request"].filter(jobs["request"].str.contains('"url":"https://', literal=True))
    addresses = requests.str.extract_all(r'"url":"https://[^/?#"]+').explode().drop_nulls()
    return addresses.str.slice(len('"url":"')).unique().sort().to_list()


def _article(card: Card) -> str:
    cost = f"{card.cost} USD" if card.cost else ""
    facts = " · ".join(
        filter(None, (card.state.replace("_", " "), card.model_delivered or card.model, card.asked, cost))
    )
    text = {"row": card.row_id, "state": card.state, "prompt": card.prompt, "facts": facts}
    text["reason"] = card.reason or ""
    return _ARTICLE.substitute({name: escape(value) for name, value in text.items()})


_IN_A_FOLDER, _IN_A_BUCKET = 3.0, 15.0  # seconds between two updates while a run is under way
_SHARE = 20  # an update takes at most one part in so many of the time


@asynccontextmanager
async def open_sheet(
    ledger: Ledger, settings: BatchSettings, plan: Plan | None
) -> AsyncIterator[ContactSheet | None]:
    """The batch's contact sheet, None where the config wants none; at the end what it does in the background
    is ended.

    Without a plan, the batch is known only from the ledger.
    """
    if not settings.report.contact_sheet:
        yield None
        return
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
    an earlier run has written, which is left where nothing has changed; None: all is made anew. With
    `when_asked` every file has a thumbnail, which is made when somebody asks for it.
    """

    ledger: Ledger
    settings: BatchSettings
    plan: Plan | None
    thumbnails: Thumbnails
    put: Callable[[str, bytes, str], Awaitable[object]]
    links: Links
    interval: float
    get: Callable[[str], Awaitable[bytes | None]] | None = None
    when_asked: bool = False
    jobs: pl.DataFrame = field(default_factory=pl.DataFrame)  # that are shown; no column before `write`
    versions: list[str] = field(default_factory=list)  # of the scripts with cards, as the page knows them
    digests: list[str] = field(default_factory=list)  # of what they are made from; empty: not written yet
    of_all: dict[str, str] = field(default_factory=dict)  # the versions of `OVERVIEW` and `TEXTS`
    pictures: dict[str, tuple[str, str]] = field(default_factory=dict)  # by SHA-256: address and type
    hosts: list[str] = field(default_factory=list)  # that have images from which jobs are made

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
            await self.write(lambda _: header())
            pause = max(self.interval, _SHARE * (time.monotonic() - began))

    async def finish(self, header: Header, note: Callable[[str], None], *, wait_for: int | None) -> None:
        """Brings the page up to date; `note` is called with what a person should know.

        It waits for missing thumbnails, unless they are more than `wait_for`, or always where that is None.
        Raises as `write`.
        """
        thumbnails = self.thumbnails
        drawn = thumbnails.drawn
        await self.write(lambda _: header)
        if wait_for is None or thumbnails.waiting <= wait_for:
            await thumbnails.finish()
            if thumbnails.drawn > drawn:  # while it was written, or since
                await self.write(lambda _: header)
        if not thumbnails.decoder.works:
            note("the contact sheet has no thumbnails: the process that makes them could not be started")
        elif thumbnails.waiting and wait_for:
            note("thumbnails are missing in the contact sheet: callsheet report CONFIG makes them")
        if self.links.may_end_early:
            note(
                "the contact sheet's links to S3 are signed with temporary AWS credentials: they end when "
                "these expire, which may be before report.links_valid_for is over"
            )

    async def write(
        self,
        header: Callable[[Standing], Header],
        *,
        left_out: Collection[int] = (),
        of_all: Sequence[str] = (OVERVIEW, TEXTS),
    ) -> None:
        """Writes what has changed, and asks for the thumbnails that are missing.

        Args:
            header: what the page says of the batch, which stands so.
            left_out: the parts for `write_part` when somebody asks for them.
            of_all: which of `OVERVIEW` and `TEXTS` are written now, not when somebody asks for them.

        Raises:
            StorageError: the page cannot be written.
            LedgerError: the ledger cannot be read.
        """
        standing, newest_mark = await self.ledger.read(
            lambda connection, batch: (
                read_standing(connection, batch, self._planned, of_attempts=SENT),
                marks.newest(connection, batch),
            )
        )
        if not self.jobs.columns:  # the page's own files, and the jobs that are shown
            if not self.when_asked:
                await self.thumbnails.find_made()
            jobs = shown_jobs(standing, self.settings.report.contact_sheet)
            for name in ASSETS:
                mime_type = "text/css" if name.endswith(".css") else "text/javascript"
                await self.put(f"{FOLDER}/{name}", asset(name), mime_type)
            nothing = {"number": 0, "marks": [], "again": ""}
            await self.put(NEWS, _script("news", nothing), "text/javascript")
            parts = max(1, -(-jobs.height // PER_PART))
            for by_part in (self.versions, self.digests):
                by_part[:] = (by_part + [""] * parts)[:parts]
            self.jobs, self.hosts = jobs, _hosts(jobs)
        for number in range(len(self.versions)):
            if number not in left_out:
                await self.write_part(number)
        # What is said of all jobs follows from their cards; where these are made later, it may have changed.
        known = self.digests if all(self.digests) else [datetime.now(UTC)]
        version = _digest(*known, standing.review, standing.compared)
        changed = [name for name in (OVERVIEW, TEXTS) if self.of_all.get(name) != version]
        self.of_all = dict.fromkeys((OVERVIEW, TEXTS), version)
        if new := [name for name in changed if name in of_all and not await self._ends(name, _end(version))]:
            await self.write_of_all(new)
        content = summary(
            header(standing),
            self.settings,
            ledger_id=self.ledger.id,
            newest_mark=newest_mark,
            counts=standing.review,
            shares_by_name=standing.compared,
            jobs_shown=self.jobs.height,
            interval=self.interval,
            parts=self.versions,
            of_all=self.of_all,
            links=self.links,
        )
        await self.put(SUMMARY, content, "text/javascript")

    async def write_part(self, number: int) -> None:
        """Writes the cards of a part, and `index.html` with those of the first, where they have changed.

        `write` comes first. Raises as that.
        """
        jobs, missing = self.jobs.slice(number * PER_PART, PER_PART), set[str]()
        part_facts = await self.ledger.read(lambda connection, _: facts(connection, jobs))
        files = part_facts.files.select("sha256", "url", "mime_type", pl.col("removed_at").is_null())
        for sha256, url, mime_type, is_there in files.iter_rows():
            self.pictures[sha256] = url, mime_type
            if not self.when_asked and sha256 not in self.thumbnails.made:
                missing.add(sha256)
                if is_there:
                    self.thumbnails.look_at(sha256, url, mime_type)
        digest = await asyncio.to_thread(
            lambda: part_facts.digest(
                made_by(), self.links.follow_from(part_facts), sorted(missing), number or self.hosts
            )
        )
        is_written = number > 0 or self.get is None or await self.get(INDEX) is not None
        if not self.digests[number] and is_written and await self._ends(part_name(number), _end(digest)):
            self.versions[number] = self.digests[number] = digest
        if digest == self.digests[number]:
            return
        part_cards = await asyncio.to_thread(cards, part_facts)
        if number == 0:
            html = await asyncio.to_thread(index, self.settings, part_cards, self.links, self.hosts)
            await self.put(INDEX, html, "text/html")
        content = await asyncio.to_thread(part, number, part_cards, missing, self.links)
        await self.put(part_name(number), content + _end(digest), "text/javascript")
        if self.digests[number] or not self.versions[number]:
            self.versions[number] = digest
        self.digests[number] = digest

    async def write_of_all(self, names: Sequence[str]) -> None:
        """Writes `OVERVIEW`, `TEXTS` or both, as the ledger is now. `write` comes first. Raises as that."""
        jobs = self.jobs
        standing = await self.ledger.read(
            read_standing, self._planned, of_attempts=(*SENT, *OF_ATTEMPTS), of_files=["sha256"]
        )

        def content(name: str) -> bytes:
            if name == TEXTS:
                return _script("texts", texts(jobs, standing))
            counts, shares = standing.review._asdict(), _shares(standing.compared)
            return _script(
                "overview", overview(jobs, standing, shares.keys()) | {"counts": counts, "shares": shares}
            )

        for name in names:
            script = await asyncio.to_thread(content, name)
            await self.put(name, script + _end(self.of_all[name]), "text/javascript")

    @property
    def _planned(self) -> pl.DataFrame | None:
        return self.plan.table if self.plan else None

    async def _ends(self, name: str, end: bytes) -> bool:
        """Whether an earlier run has written a script that ends so."""
        return self.get is not None and (await self.get(name) or b"").endswith(end)


def _end(version: str) -> bytes:
    """The end of a script: one that ends so is whole."""
    return f"// {version}\n".encode()


def _digest(*values: object) -> str:
    return hashlib.sha256(str(values).encode()).hexdigest()[:12]
