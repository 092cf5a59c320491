"""The contact sheet of a batch, kept up to date while a run is under way. Begin reading here.

The cards are in parts of some hundred, each in a script of its own. A part whose jobs are all stored is never
read again, in this run or in a later one, so a batch that is done costs nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from callsheet.batches.sources import local_copy
from callsheet.config.settings import BatchSettings
from callsheet.errors import InputError, StorageError
from callsheet.ledger.ledger import Ledger
from callsheet.pricing.plan import Plan
from callsheet.report.contact_sheet import page
from callsheet.report.contact_sheet.cards import Card, MediaFile, cards, ledger_jobs, planned_jobs
from callsheet.report.contact_sheet.links import FOLDER, Links, local_path
from callsheet.report.contact_sheet.page import INDEX, PER_PART, PER_SECTION, Header, Part
from callsheet.report.contact_sheet.thumbnails import Decoder, Thumbnails
from callsheet.storage.store import Store

_STATE = f"{FOLDER}/data/state.json"
_FORMAT = 3
_MAKING = 8.0  # seconds of a round in which thumbnails are made at most
_TENTH = 0.1  # of a run's time, in which thumbnails are made at most, all in all
_SHARE = 20  # a round takes at most one part in so many of the time
_LONGEST_PAUSE = 60.0  # seconds between two rounds, also where they are slow
_AT_ONCE = 16  # files whose thumbnails are made together
_MOST_UNREADABLE = 3  # files in a row, before no more are tried


@dataclass
class _Intervals:
    """Seconds between two updates while a run is under way: in a folder, and in a bucket.

    `making`: seconds in which a run may make thumbnails, however short it is.
    """

    folder: float = 3.0
    bucket: float = 15.0
    making: float = 1.0


_intervals = _Intervals()


def set_intervals(folder: float = 3.0, bucket: float = 15.0, making: float = 1.0) -> None:
    """For tests: changes how often the page is updated at most; without arguments, resets.

    Args:
        folder: seconds between two updates of a page on a disk.
        bucket: the same on S3.
        making: seconds in which a run may make thumbnails, however short it is.
    """
    _intervals.folder, _intervals.bucket, _intervals.making = folder, bucket, making


@asynccontextmanager
async def open_sheet(
    ledger: Ledger, settings: BatchSettings, plan: Plan | None, *, hurry: Callable[[], bool] = lambda: False
) -> AsyncIterator[ContactSheet]:
    """The batch's contact sheet; at the end its helper process is ended.

    Args:
        ledger: the ledger, opened for the batch.
        settings: the config.
        plan: the batch's plan; None where the batch is known only from the ledger.
        hurry: whether the run is to end now: then no more thumbnails are made.
    """
    decoder = Decoder()
    try:
        yield ContactSheet(ledger, settings, plan, decoder, hurry)
    finally:
        await asyncio.to_thread(decoder.close)


class ContactSheet:
    """The page of a batch. Use `open_sheet`."""

    def __init__(
        self,
        ledger: Ledger,
        settings: BatchSettings,
        plan: Plan | None,
        decoder: Decoder,
        hurry: Callable[[], bool],
    ) -> None:
        self._ledger = ledger
        self._settings = settings
        self._plan = plan
        self._decoder = decoder
        self._hurry = hurry
        self._store = Store(settings.report.url, endpoint_url=settings.storage.endpoint_url)
        self._links = Links(settings)
        self._thumbnails: Thumbnails | None = None
        self._parts: list[Part] = []
        self._rows = ""  # changes when the rows of the batch file do
        self._section: tuple[int, pl.DataFrame] = (-1, pl.DataFrame())
        self._unreadable: set[str] = set()
        self._unreadable_in_a_row = 0
        self._incomplete = False
        self._began = time.monotonic()
        self._making = 0.0  # seconds in which thumbnails were made
        self._interval = _intervals.folder if local_path(settings.report.url) else _intervals.bucket
        self.url = self._store.url_of(INDEX)

    async def keep(self, header: Callable[[], Header], over: asyncio.Event) -> None:
        """Updates the page now and then until `over` is set, and uses little of the time.

        Args:
            header: what the page says about the batch now.
            over: the end of the run.

        Raises:
            StorageError: the page cannot be written.
            LedgerError: the ledger cannot be read.
        """
        seconds = self._interval
        while True:
            try:
                await asyncio.wait_for(over.wait(), seconds)
            except TimeoutError:
                began, making = time.monotonic(), self._making
                await self._round(header(), began + min(_MAKING, self._allowance()))
                made = self._making - making
                pause = _SHARE * (time.monotonic() - began - made)
                seconds = max(self._interval, min(pause, _LONGEST_PAUSE))
            else:
                return

    def _allowance(self) -> float:
        """Seconds in which thumbnails may still be made, so that a run is hardly slower for them."""
        return _intervals.making + _TENTH * (time.monotonic() - self._began) - self._making

    async def finish(self, header: Header, note: Callable[[str], None], *, all_thumbnails: bool) -> None:
        """Brings the page up to date.

        Args:
            header: what the page says about the batch.
            note: called with what a person should know.
            all_thumbnails: makes all that are missing, however long that takes.

        Raises:
            StorageError: the page cannot be written.
            LedgerError: the ledger cannot be read.
        """
        await self._round(header, None if all_thumbnails else time.monotonic() + self._allowance())
        if not self._decoder.works:
            note("the contact sheet has no thumbnails: the process that makes them could not be started")
        elif self._incomplete and not self._hurry() and not self._unreadable_in_a_row:
            note("thumbnails are missing in the contact sheet: callsheet report CONFIG makes them")

    async def _round(self, header: Header, deadline: float | None) -> None:
        """Updates what may have changed."""
        thumbnails = await self._open()
        self._incomplete = False
        for number, part in enumerate(self._parts):
            if part.settled:
                continue
            read = await self._cards(number)
            began = time.monotonic()
            complete = await self._make_thumbnails(thumbnails, read, deadline)
            self._making += time.monotonic() - began
            self._incomplete = self._incomplete or not complete
            await self._write_part(number, read, thumbnails)
            part.settled = complete and all(card.settled for card in read)
        await thumbnails.write()
        summary = page.summary(
            header,
            self._settings,
            interval=self._interval,
            parts=self._parts,
            thumbnails=thumbnails,
            links=self._links,
        )
        await self._store.write(page.SUMMARY, summary, "text/javascript")
        parts = [[part.version, part.counts, part.settled] for part in self._parts]
        state = {"format": _FORMAT, "page": page.version(), "rows": self._rows, "parts": parts}
        await self._store.write(_STATE, json.dumps(state).encode(), "application/json")

    async def _open(self) -> Thumbnails:
        """Finds out what earlier runs wrote, and writes the page's own files where they are others."""
        if self._thumbnails is None:
            shown = await self._count()
            self._rows = await asyncio.to_thread(self._hash_of_rows, shown)
            self._parts = [Part() for _ in range(0, shown, PER_PART)]
            written = _read_state(await self._store.read(_STATE))
            if (written["format"], written["page"]) != (_FORMAT, page.version()):
                for name, mime_type in page.ASSETS.items():
                    await self._store.write(f"{FOLDER}/{name}", page.asset(name), mime_type)
            elif written["rows"] == self._rows and not self._settings.report.links_valid_for:
                self._parts = [Part(*part) for part in written["parts"]]
            self._thumbnails = await Thumbnails.open(self._store, self._ledger.run_id[:8])
            if not self._parts:
                await self._store.write(INDEX, page.index(self._settings, [], self._links), "text/html")
        return self._thumbnails

    async def _count(self) -> int:
        """How many jobs are shown."""
        most = self._settings.report.contact_sheet
        if self._plan:
            return min(self._plan.jobs, most)
        jobs = await self._ledger.read(lambda connection, batch: ledger_jobs(connection, batch, most))
        self._section = (0, jobs)
        return jobs.height

    def _hash_of_rows(self, shown: int) -> str:
        """Changes when the jobs that are shown, or what the page says of them, do."""
        rows = self._section[1]
        if self._plan:
            rows = self._plan.scan().select("key", "carried").head(shown).collect()
        content = io.BytesIO()
        rows.select(pl.exclude("prompt")).write_ipc(content)
        signed = self._settings.report.links_valid_for is not None
        places = f"{self._settings.report.url}\n{self._settings.storage.url}\n{signed}\n{PER_PART}"
        return hashlib.sha256(content.getbuffer().tobytes() + places.encode()).hexdigest()

    async def _cards(self, number: int) -> list[Card]:
        """The cards of a part, as they are now."""
        jobs = await asyncio.to_thread(self._jobs, number)
        return await self._ledger.read(lambda connection, _: cards(connection, jobs))

    def _jobs(self, number: int) -> pl.DataFrame:
        """The jobs of a part."""
        start = number * PER_PART
        if self._plan is None:
            return self._section[1].slice(start, PER_PART)
        section = start // PER_SECTION
        if self._section[0] != section:
            most = min(PER_SECTION, self._settings.report.contact_sheet - section * PER_SECTION)
            self._section = (section, planned_jobs(self._plan, section * PER_SECTION, most))
        return self._section[1].slice(start - section * PER_SECTION, PER_PART)

    async def _make_thumbnails(
        self, thumbnails: Thumbnails, of: Sequence[Card], deadline: float | None
    ) -> bool:
        """Makes the thumbnails that are missing, until the deadline; whether none is missing."""
        files = {
            file.sha256: file
            for card in of
            for file in card.files
            if file.sha256 not in thumbnails and not page.shows_itself(file, self._links)
        }
        missing = [file for sha256, file in files.items() if sha256 not in self._unreadable]
        for start in range(0, len(missing), _AT_ONCE):
            late = deadline is not None and time.monotonic() > deadline
            if late or self._unreadable_in_a_row >= _MOST_UNREADABLE or self._hurry():
                return False
            some = missing[start : start + _AT_ONCE]
            for file, jpeg in zip(some, await self._thumbnails_of(some), strict=True):
                self._unreadable_in_a_row = 0 if jpeg is not None else self._unreadable_in_a_row + 1
                if not self._decoder.works:
                    return False
                if jpeg is None:
                    self._unreadable.add(file.sha256)
                else:
                    await thumbnails.add(file.sha256, jpeg)
        return all(sha256 in thumbnails for sha256 in files)

    async def _thumbnails_of(self, files: Sequence[MediaFile]) -> list[bytes | None]:
        """The thumbnails of some files; empty where one cannot be shown, None where it cannot be read."""
        with ExitStack() as copies:
            paths = [local_path(file.url) for file in files]
            if None in paths:  # several at once: a bucket answers slowly
                paths = await asyncio.gather(*(asyncio.to_thread(self._path, file, copies) for file in files))

            def make() -> list[bytes | None]:
                return [
                    self._decoder.make(path, file.mime_type) if path and path.is_file() else None
                    for path, file in zip(paths, files, strict=True)
                ]

            return await asyncio.to_thread(make)

    def _path(self, file: MediaFile, copies: ExitStack) -> Path | None:
        """Where a file is on this machine, copied if need be; None where it cannot be read."""
        url = str(local_path(file.url) or file.url)
        with suppress(InputError, StorageError):
            return copies.enter_context(local_copy(url, self._settings.storage.endpoint_url))
        return None

    async def _write_part(self, number: int, read: Sequence[Card], thumbnails: Thumbnails) -> None:
        """Writes the cards of a part, and `index.html` with those of the first, where they have changed."""
        content = await asyncio.to_thread(page.part, number, read, thumbnails, self._links)
        version = hashlib.sha256(content).hexdigest()[:12]
        if version == self._parts[number].version:
            return
        await self._store.write(page.part_name(number), content, "text/javascript")
        self._parts[number].version = version
        self._parts[number].counts = page.counts(read)
        if number == 0:
            html = await asyncio.to_thread(page.index, self._settings, read, self._links)
            await self._store.write(INDEX, html, "text/html")


def _read_state(content: bytes | None) -> dict[str, Any]:
    """What `_STATE` says; nothing where it is missing or damaged."""
    with suppress(ValueError):
        if content:
            state: dict[str, Any] = json.loads(content)
            return state
    return {"format": None, "page": None}
