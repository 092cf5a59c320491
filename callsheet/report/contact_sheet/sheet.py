"""The contact sheet of a batch, kept up to date while a run is under way. Begin reading here.

The cards are in scripts of 2,000, so that the page reads only those again that have changed.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import polars as pl

from callsheet.config.settings import BatchSettings
from callsheet.ledger import marks
from callsheet.ledger.ledger import Ledger
from callsheet.pricing.plan import Plan
from callsheet.report.contact_sheet import page
from callsheet.report.contact_sheet.cards import Opinions, cards, opinions, shown_jobs
from callsheet.report.contact_sheet.links import FOLDER, Links
from callsheet.report.contact_sheet.page import INDEX, PER_PART, Header
from callsheet.report.contact_sheet.thumbnails import Thumbnails
from callsheet.storage.store import Store

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
    store = Store(settings.report.url, endpoint_url=settings.storage.endpoint_url, put=settings.storage.put)
    links = Links(settings)
    interval = _IN_A_FOLDER if links.on_disk else _IN_A_BUCKET
    try:
        yield ContactSheet(ledger, settings, plan, thumbnails, store.write, links, interval)
    finally:
        await thumbnails.close()


@dataclass
class ContactSheet:
    """The page of a batch. For a page that is written to `report.url`, use `open_sheet`.

    `put` takes a file of the page (name, content, type) in place of an older one, and `links` says how the
    page reaches it. A page may look again after `interval` seconds while a run is under way.
    """

    ledger: Ledger
    settings: BatchSettings
    plan: Plan | None
    thumbnails: Thumbnails
    put: Callable[[str, bytes, str], Awaitable[object]]
    links: Links
    interval: float
    _jobs: pl.DataFrame | None = None
    _versions: list[str] = field(default_factory=list)  # of the scripts with cards; empty: not written yet

    async def keep(self, header: Callable[[], Header], over: asyncio.Event) -> None:
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
        await self.write(header)
        if self.thumbnails.waiting and (wait_for is None or self.thumbnails.waiting <= wait_for):
            await self.thumbnails.finish()
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

    async def write(self, header: Header) -> None:
        """Writes what has changed, and asks for the thumbnails that are missing.

        Raises:
            StorageError: the page cannot be written.
            LedgerError: the ledger cannot be read.
        """
        if self._jobs is None:
            self._jobs = await self._begin()
        said, counts = await self.ledger.read(
            lambda connection, batch: (opinions(connection, batch), marks.counts(connection, batch))
        )
        for number in range(len(self._versions)):
            await self._write_part(number, self._jobs.slice(number * PER_PART, PER_PART), said)
        summary = page.summary(
            header,
            self.settings,
            ledger_id=self.ledger.id,
            counts=counts,
            shown=self._jobs.height,
            interval=self.interval,
            parts=self._versions,
            links=self.links,
        )
        await self.put(page.SUMMARY, summary, "text/javascript")

    async def _begin(self) -> pl.DataFrame:
        """Writes the page's own files. Returns the jobs that are shown."""
        await self.thumbnails.look()
        plan, most = self.plan, self.settings.report.contact_sheet
        jobs = await self.ledger.read(lambda connection, batch: shown_jobs(connection, batch, plan, most))
        for name in page.ASSETS:
            mime_type = "text/css" if name.endswith(".css") else "text/javascript"
            await self.put(f"{FOLDER}/{name}", page.asset(name), mime_type)
        self._versions = [""] * max(1, -(-jobs.height // PER_PART))
        return jobs

    async def _write_part(self, number: int, jobs: pl.DataFrame, said: Opinions) -> None:
        """Writes the cards of a part, and `index.html` with those of the first, where they have changed."""
        read = await self.ledger.read(lambda connection, _: cards(connection, jobs, said))
        for card in read:
            for file in card.files:
                self.thumbnails.ask(file)
        content = await asyncio.to_thread(page.part, number, read, self.thumbnails.made, self.links)
        version = hashlib.sha256(content).hexdigest()[:12]
        if version == self._versions[number]:
            return
        await self.put(page.part_name(number), content, "text/javascript")
        self._versions[number] = version
        if number == 0:
            html = await asyncio.to_thread(page.index, self.settings, read, self.links)
            await self.put(INDEX, html, "text/html")
