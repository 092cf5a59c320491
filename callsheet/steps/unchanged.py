"""Whether anything has changed since a run has left nothing to do: then the next one has its result at once.

Such a run keeps its summary beside the plan, with what it went by: the batch's revision in the ledger, what
its rows are made from and the images they name, the config, the catalogue's entries that price it, the files
of the report, and this Callsheet's version. The next run compares these, and reads neither rows nor ledger
where all are the same; `collect` leaves out the rows and what prices them. An answer that is damaged is none.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from importlib.metadata import version
from pathlib import Path

import polars as pl
import sqlalchemy as sa
from pydantic import TypeAdapter

from callsheet import places, s3
from callsheet.batches.formats import is_glob
from callsheet.cells import IMAGE_COLUMNS
from callsheet.config.settings import Settings
from callsheet.errors import CallsheetError, InputError, InvalidApiKey, LedgerError
from callsheet.files import PartialFile, with_home
from callsheet.ledger import journal, leases, queries, services, words
from callsheet.ledger.databases import exists
from callsheet.ledger.ledger import Ledger
from callsheet.pricing.plan import Plan
from callsheet.pricing.references import LAST_FRAME, batch_file, beside
from callsheet.pricing.sources import version_of_rows
from callsheet.records import MADE_FROM, canonical
from callsheet.report.contact_sheet.sheet import INDEX
from callsheet.report.report import COSTS_FILE, MANIFEST, REPORT, report_json
from callsheet.report.summary import Did, Summary
from callsheet.service.client import Client
from callsheet.service.models import Catalogue
from callsheet.storage.spool import work_folder
from callsheet.storage.store import Store

ANSWER = "nothing-to-do.json"
"""In the work folder: the sha256 of the second line, and that line."""

_COARSE = 2_000_000_000  # ns: a file may change again without another time, where a file system is coarse


@dataclass(frozen=True, slots=True)
class _FileState:
    """A file as it was: it is the same by its size and time, or by its sha256, where that is known."""

    path: str
    size: int
    changed_at: int  # ns; 0 where the time says nothing
    sha256: str | None = None

    def is_same(self) -> bool:
        with suppress(OSError):
            now = Path(self.path).stat()
            if (now.st_size, now.st_mtime_ns) == (self.size, self.changed_at):
                return True
            return self.sha256 is not None and _sha256_of(self.path) == self.sha256
        return False


@dataclass(frozen=True, slots=True)
class _Answer:
    """A summary, and what it went by."""

    version: str
    settings: str
    ledger_id: str
    revision: str
    models: tuple[str, ...] | None  # None: all of the catalogue
    catalogue: str
    report: str
    rows: str
    files: tuple[_FileState, ...]
    absent: tuple[str, ...]  # an image of one of these places would come before one of `files`
    etags: dict[str, str]  # of the images on S3, by URL
    summary: Summary


class _NoAnswer(Exception):
    """A run leaves nothing by which the next one could end at once."""


class Unchanged:
    """What a run finds of the last one and leaves to the next; made before it reads its rows."""

    def __init__(self, settings: Settings, flow_run: str | None = None) -> None:
        self._settings = settings
        self._flow_run = flow_run
        self._began = time.time_ns()
        self._rows = ""  # the version of what the rows are made from

    async def summary(self, client: Client, began: float, *, buys: bool) -> Summary | None:
        """What the last run has found, as this one would; None where something has changed, or is to do.

        Args:
            began: when a person began to wait for it, in monotonic seconds.
            buys: whether this one is to buy, and goes by its rows and their prices, too.

        Raises:
            InvalidApiKey: the service does not accept it.
        """
        settings = self._settings
        if settings.ledger.new or settings.storage.new:
            return None
        if buys:
            with suppress(CallsheetError, OSError):
                self._rows = _digest((await version_of_rows(settings)).encode())
        answer = await asyncio.to_thread(self._kept)
        if answer is None or (buys and answer.rows != self._rows):
            return None
        try:
            if not await self._stands(answer, client):
                return None
            if buys and not await self._asks_for_the_same(answer, client):
                return None
        except InvalidApiKey:
            raise
        except CallsheetError:  # the whole way says what is wrong
            return None
        did = Did(buys=buys, bought=0, cost=Decimal(0), fetched=0)
        seconds = round(time.monotonic() - began, 3)
        details = replace(answer.summary.details, did=did)
        return replace(answer.summary, details=details, seconds=seconds, submissions=0, rate_limited=0)

    async def _stands(self, answer: _Answer, client: Client) -> bool:
        """Whether report and ledger are as an answer goes by."""
        settings = self._settings
        report = await Store.of(settings.report.url, settings.storage).read(REPORT)
        if _digest(report or b"") != answer.report or not exists(settings.ledger.url):
            return False
        async with await Ledger.open(settings.ledger.url, settings.batch, looks=True) as ledger:
            revision = await ledger.read(_left_alone, self._flow_run)
            is_as_before = (ledger.id, revision) == (answer.ledger_id, answer.revision)
            if not is_as_before or await places.check(ledger, settings):
                return False
            await ledger.read(services.check, client.base_url)
        return True

    async def _asks_for_the_same(self, answer: _Answer, client: Client) -> bool:
        """Whether prices and the images on S3 are as an answer goes by."""
        if _priced_by(await client.models(), answer.models) != answer.catalogue:
            return False
        states = await asyncio.to_thread(self._on_s3, answer.etags)
        return {url: state.etag for url, state in states.items()} == answer.etags

    def keep(self, summary: Summary, plan: Plan) -> None:
        """Keeps a run's summary for the next one, if the run has left nothing to do. A disk that fails takes
        nothing but that.
        """
        path = self._path()
        try:
            content = _as_json().dump_json(self._answer(summary, plan))
        except (_NoAnswer, InputError, OSError):  # and what is gone already
            with suppress(OSError):
                path.unlink()
            return
        with suppress(OSError), PartialFile(path) as file:
            file.file.write(f"{_digest(content)}\n".encode() + content)
            file.commit()

    def _answer(self, summary: Summary, plan: Plan) -> _Answer:
        """What the next run goes by.

        Raises:
            _NoAnswer: something is left to do, or cannot be looked at so quickly.
            InputError: an image on S3 is not to be seen.
            OSError: a file is not to be seen.
        """
        names_images = {*IMAGE_COLUMNS} & {*plan.columns.used, *self._settings.input.defaults}
        if not (summary.details.done_at and self._rows):
            raise _NoAnswer
        if plan.rejected_rows and names_images:  # one may be there by then
            raise _NoAnswer
        carried = plan.table.schema["carried"]
        fields = carried.fields if isinstance(carried, pl.Struct) else ()
        if any(field.name == MADE_FROM and isinstance(field.dtype, pl.List) for field in fields):
            raise _NoAnswer  # cells name kept files (`cast.py`), and others may be kept by then
        images = plan.table.select(pl.col("inlined").explode()).unnest("inlined").drop_nulls().unique()
        is_on_s3 = pl.col("source").str.starts_with("s3://")
        local_images = images.filter(~is_on_s3).select("source", "sha256").rows()
        has_all_rows = not (plan.rejected_rows or plan.unpriced_rows)
        models = tuple(plan.table["model"].unique().sort()) if has_all_rows else None
        return _Answer(
            version=version("callsheet"),
            settings=_of_settings(self._settings),
            ledger_id=summary.ledger_id,
            revision=summary.details.done_at,
            models=models,
            catalogue=_priced_by(plan.catalogue, models),
            report=_digest(report_json(summary)),
            rows=self._rows,
            files=(*(self._read(*image) for image in local_images), *self._written(plan)),
            absent=self._earlier_places(images["source"]),
            etags=self._etags(images.filter(is_on_s3)["source"]),
            summary=replace(summary, details=replace(summary.details, figures=None)),
        )

    def _path(self) -> Path:
        return work_folder(self._settings, make=False) / ANSWER

    def _kept(self) -> _Answer | None:
        """The last answer, if it is whole, about these settings, and of this version, and its files are the
        same; and no run has left an answer that the ledger does not have.
        """
        path = self._path()
        with suppress(OSError, ValueError, LedgerError):
            digest, _, content = path.read_bytes().partition(b"\n")
            if digest.decode() != _digest(content):
                return None
            answer = _as_json().validate_json(content)
            now = version("callsheet"), _of_settings(self._settings)
            if (answer.version, answer.settings) != now or self._has_old_links(answer.summary):
                return None
            if all(file.is_same() for file in answer.files) and not any(map(os.path.lexists, answer.absent)):
                return None if journal.left_in(path.with_name("spool")) else answer
        return None

    def _has_old_links(self, summary: Summary) -> bool:
        """Whether half the time is over for which the links of a page work: then they are made anew."""
        valid_for = self._settings.report.links_valid_for
        age = datetime.now(UTC) - summary.written_at
        return valid_for is not None and age.total_seconds() > valid_for / 2

    def _earlier_places(self, places: pl.Series) -> tuple[str, ...]:
        """Where images that are not beside the batch file would be looked for before these places.

        Raises:
            _NoAnswer: that is not known, or one is there.
        """
        file = batch_file(self._settings)
        folder = file.rpartition("/")[0]
        earlier = {beside(place, file) for place in places} - {*places}
        if any(map(os.path.lexists, earlier)) or (earlier and ("://" in folder or is_glob(folder))):
            raise _NoAnswer
        return tuple(sorted(earlier))

    def _etags(self, urls: Iterable[str]) -> dict[str, str]:
        """The ETags of the images of these URLs, as the run has read them.

        Raises:
            _NoAnswer: one may have changed since.
            InputError: one is not to be seen.
        """
        states = self._on_s3(urls)
        run_time = (time.time_ns() - self._began + _COARSE) / 1e9
        if any(state.age < run_time for state in states.values()):
            raise _NoAnswer
        return {url: state.etag for url, state in states.items()}

    def _on_s3(self, urls: Iterable[str]) -> dict[str, s3.ObjectState]:
        """The images of these URLs as they are now.

        Raises:
            InputError: one is not to be seen.
        """

        def state(url: str) -> s3.ObjectState:
            with s3.errors_as(InputError, url):
                return s3.state_of(url.removesuffix(LAST_FRAME), self._settings.storage.endpoint_url)

        urls = [*urls]
        with ThreadPoolExecutor(s3.THREADS, "states") as threads:
            return dict(zip(urls, threads.map(state, urls), strict=True))

    def _written(self, plan: Plan) -> Iterator[_FileState]:
        """The plan, and what is local of the report."""
        settings = self._settings
        names = [MANIFEST, COSTS_FILE, *([INDEX] if settings.report.contact_sheet else [])]
        report = [] if "://" in settings.report.url else [Path(settings.report.url, name) for name in names]
        for path in (plan.path, *report):
            status = path.stat()
            yield _FileState(str(path), status.st_size, status.st_mtime_ns)

    def _read(self, place: str, sha256: str) -> _FileState:
        """An image that this run has read: where it changed meanwhile, or just before, its bytes tell."""
        path = with_home(place.removesuffix(LAST_FRAME))
        status = Path(path).stat()
        is_old = status.st_mtime_ns < self._began - _COARSE
        return _FileState(path, status.st_size, status.st_mtime_ns if is_old else 0, sha256)


def _left_alone(connection: sa.Connection, batch: str, flow_run: str | None) -> str:
    """The batch's revision, where no run of it is at work, and none has left work; otherwise empty. Nor has a
    flow run that begins again: it may bring an answer, and says what it did before.
    """
    if leases.alive(connection, batch) or leases.have_left_work(connection, batch):
        return ""
    if flow_run and (leases.began(connection, batch, flow_run) or words.last_of(connection, flow_run, batch)):
        return ""
    return queries.revision(connection, batch)


def _priced_by(catalogue: Catalogue, models: Collection[str] | None) -> str:
    """A hash of the catalogue's entries of these models; None: of all."""
    names = sorted(catalogue if models is None else models)
    entries = [catalogue[name].model_dump(mode="json") if name in catalogue else None for name in names]
    return _digest(canonical([names, entries]).encode())


def _of_settings(settings: Settings) -> str:
    return _digest(canonical([str(Path.cwd()), settings.model_dump(mode="json")]).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _sha256_of(path: str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def _as_json() -> TypeAdapter[_Answer]:
    return TypeAdapter(_Answer)
