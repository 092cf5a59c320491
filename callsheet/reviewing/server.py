"""Serves the contact sheet on this machine, for looking and marking: `callsheet review CONFIG`.

It is the page of the report, made anew from the ledger when something has changed, and kept in memory. A
mark is in the ledger before it is answered. No request buys, or changes anything but marks.

The server listens on loopback, unless a person names another address of this machine. Who may use it says
`guard.py`.
"""

from __future__ import annotations

import asyncio
import errno
import secrets
import shlex
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, Any, NamedTuple

import sqlalchemy as sa
import uvicorn
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from callsheet import signals
from callsheet.config.load import with_value
from callsheet.config.settings import MOST_JOBS, BatchSettings
from callsheet.errors import CallsheetError, ConfigError, InputError, LedgerError, StorageError
from callsheet.ledger import leases, marks, origins, sums
from callsheet.ledger.databases import check_exists
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.marks import FileKey, Mark, MediaDecision
from callsheet.ledger.tables import attempts
from callsheet.media_types import recognise_image
from callsheet.present import under_way
from callsheet.present.amounts import jobs_for
from callsheet.pricing.plan import PLAN, Plan, ToBuyAgain, last_plan
from callsheet.pricing.references import read_as_sent, reading_of
from callsheet.processes import user_name
from callsheet.records import Totals
from callsheet.report.contact_sheet import sheet
from callsheet.report.contact_sheet.cards import (
    FOLDER,
    Original,
    ServedLinks,
    local_path,
    originals,
    request_field,
)
from callsheet.report.contact_sheet.sheet import ContactSheet
from callsheet.report.contact_sheet.thumbnails import Thumbnails, thumbnail_name
from callsheet.report.report import update_manifest
from callsheet.report.sidecars import mark_sidecars
from callsheet.report.summary import ReviewResult, outcome_of, read_result, read_review
from callsheet.reviewing.guard import LOOPBACK, Guard
from callsheet.reviewing.written_marks import LONGEST_NAME, LONGEST_NOTE
from callsheet.standing import Standing
from callsheet.storage.spool import work_folder
from callsheet.storage.store import Store

_INTERVAL = 3.0  # seconds between two looks of a page at the jobs
_SHARE = 4  # making the page takes at most one part in so many of the time
_LOOKED_UP = 100  # files at once, to see whether one is left to be marked
_LARGEST = 10_000_000  # bytes of a request: of a thousand marks, each with the longest note
_DRAWN = 4  # thumbnails at once: those that nobody looks at any more leave the queue
_KEEP = {"Cache-Control": "private, max-age=86400, immutable"}  # a thumbnail has the name of its content
_KEEP_FOR_NOW = {"Cache-Control": "private, max-age=600"}
_NEVER_KEEP = {"Cache-Control": "no-store"}
_FILE_ONLY = {"Content-Security-Policy": "default-src 'none'; sandbox"}
"""A stored file is shown, and nothing that it may contain is carried out."""


WhenReviewed = Callable[[ReviewResult, ToBuyAgain], None]
"""Called with a batch that is reviewed, and what is to be bought again."""


class _OneMark(BaseModel):
    """What the page says of a file."""

    model_config = ConfigDict(extra="forbid")

    job_key: str
    attempt: int
    index: int
    decision: MediaDecision | None
    note: Annotated[str, Field(max_length=LONGEST_NOTE)] | None


class _Marks(BaseModel):
    model_config = ConfigDict(extra="forbid")

    marks: Annotated[list[_OneMark], Field(min_length=1, max_length=1_000)]
    by: Annotated[str, Field(max_length=LONGEST_NAME)] | None = None
    """Who says so, as that person has typed it; None where nobody has."""


class _Pages:
    """The page of a batch, made anew when the ledger or the plan has changed."""

    def __init__(self, ledger: Ledger, settings: BatchSettings) -> None:
        self._ledger = ledger
        # Here a part is made when somebody asks for it: so all jobs are shown, whatever a page on a disk has.
        self._settings = with_value(settings, "report.contact_sheet", MOST_JOBS)
        self.thumbnails = Thumbnails(self._settings)
        self._files: dict[str, tuple[bytes, str]] = {}  # of the page: content and type
        self._sheet: ContactSheet | None = None
        self._drawing = asyncio.Semaphore(_DRAWN)
        self._unmade = secrets.token_hex(4)  # the version of a part until it has changed
        self._lock = asyncio.Lock()
        self._sources: object = None  # what the page was made from
        self._began = self._took = float("-inf")

    async def file(self, name: str) -> Response:
        """One of the page's files."""
        if name in (sheet.INDEX, sheet.SUMMARY) or not self._files:
            async with self._lock:
                await self._refresh()
        elif name not in self._files:
            await self._make(name)
        content, mime_type = self._files.get(name) or (None, "")
        return _answer(content, mime_type, _NEVER_KEEP)

    async def draw(self, sha256: str, is_wanted: Callable[[], Awaitable[bool]]) -> None:
        """Makes the thumbnail of a file that the page shows, if it is still wanted when its turn comes."""
        picture = self._sheet.pictures.get(sha256) if self._sheet else None
        async with self._drawing:
            if picture and await is_wanted():
                await asyncio.shield(self.thumbnails.look_at(sha256, *picture))

    def original(self, job_key: str, number: int) -> Original | None:
        """An image from which a job of the page is made."""
        jobs = self._sheet.jobs.filter(job_key=job_key) if self._sheet else None
        if jobs is None or jobs.is_empty():
            return None
        images = jobs.select(request_field("images")).item()
        return dict(enumerate(originals(images, jobs["inlined"].to_list()[0]))).get(number)

    async def _make(self, name: str) -> None:
        """Makes what is asked for the first time; what has no such name is none."""
        async with self._lock:
            page = self._sheet
            if page is None or name in self._files:
                return
            if name in page.of_all:
                await page.write_of_all([name])
            numbers = range(len(page.digests))
            number = next((part for part in numbers if sheet.part_name(part) == name), None)
            if number is not None:
                await page.write_part(number)

    async def _put(self, name: str, content: bytes, mime_type: str) -> None:
        self._files[name] = content, mime_type

    async def _refresh(self) -> None:
        if time.monotonic() - self._began < _SHARE * self._took:
            return
        now = await self._ledger.read(_now)
        path = work_folder(self._settings, make=False) / PLAN
        made_at = path.stat().st_mtime_ns if path.exists() else None
        sources = (now, made_at)
        if sources == self._sources:
            return
        self._began = time.monotonic()
        plan = await asyncio.to_thread(last_plan, self._settings)
        page = ContactSheet(
            *(self._ledger, self._settings, plan, self.thumbnails),
            put=self._put,
            links=ServedLinks(self._settings),
            interval=_INTERVAL,
            when_asked=True,
        )
        parts = self._settings.report.contact_sheet // sheet.PER_PART + 1
        old_page = self._sheet
        page.versions = [*(old_page.versions if old_page else ()), *[self._unmade] * parts]
        page.digests = [*old_page.digests] if old_page else []
        # The first one is for `index.html`. Of the others those are looked at again that a page has.
        left_out = [
            number
            for number in range(1, parts)
            if not page.digests[number : number + 1] or not page.digests[number]
        ]
        of_all = [name for name in (sheet.OVERVIEW, sheet.TEXTS) if name in self._files]
        await page.write(partial(_header, now, plan), left_out=left_out, of_all=of_all)
        self._sheet = page
        self._sources, self._took = sources, time.monotonic() - self._began


def _header(now: _Now, plan: Plan | None, standing: Standing) -> sheet.Header:
    return sheet.Header(
        outcome=None if now.at_work else outcome_of(standing, plan),
        stop=under_way.waits(now.refusal) if now.at_work and now.refusal else None,
        jobs=standing.counting.height,
        states=standing.states,
        spent=now.totals.spent,
        credits=now.totals.credits,
        quoted=standing.quoted if plan else None,
        rejected_rows=plan.rejected_rows if plan else 0,
        in_doubt=now.totals.in_doubt_exposure,
    )


class _Left:
    """Whether a file is left to be marked, without counting all of them at each mark.

    Those that were left some time ago are kept, and the last of them are looked up again: people
    mark from the beginning. When all of these are marked, it is read anew which are left.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._files: list[FileKey] = []

    async def any(self) -> bool:
        """Whether there is one. Raises LedgerError where the ledger cannot be read."""
        while self._files:
            last = self._files[-_LOOKED_UP:]
            del self._files[-_LOOKED_UP:]
            left = await self._ledger.read(partial(marks.undecided, files=last))
            self._files += left
            if left:
                return True
        self._files = await self._ledger.read(marks.left)
        return bool(self._files)


class _Tables:
    """The sidecars and the page under `report.url`, brought up to date some seconds after a mark and at the
    end; the manifest, when nothing was marked for a while. At the end it is left to who needs it next.
    """

    def __init__(self, settings: BatchSettings, ledger: Ledger, since: int) -> None:
        self._settings, self._ledger = settings, ledger
        self._since = since  # the number of the last mark that they have
        self.marked = asyncio.Event()

    async def update_after_marks(self) -> None:
        while True:
            await self.marked.wait()
            while self.marked.is_set():
                self.marked.clear()
                await asyncio.sleep(_INTERVAL)
            with suppress(StorageError, LedgerError):  # at the end it is said
                await self.tell()
                await update_manifest(self._settings, self._ledger)

    async def tell(self) -> None:
        """Tells the sidecars and the page, where anything was marked since the last time."""
        newest = await self._ledger.read(marks.newest)
        if newest == self._since:
            return
        await mark_sidecars(self._settings, self._ledger, self._since)
        await sheet.write_news(self._settings, self._ledger)
        self._since = newest


async def serve(
    settings: BatchSettings, config: str, host: str, port: int, announce: Callable[[str], None]
) -> ReviewResult:
    """Serves the page until Ctrl-C.

    Args:
        config: the path of the config, for the commands that the page shows.
        host: the address of this machine at which it is served: `LOOPBACK`, or one that others reach.
        port: 0 for any that is free.
        announce: called with the link that opens the page, as soon as it can be opened.

    Raises:
        ConfigError: the address or the port cannot be used.
        LedgerError: there is no ledger, or it cannot be read.
    """
    with signals.cancelled_by_signals():
        async with opened(settings, config) as (app, ledger):
            with listening(app, port, host=host) as (link, server, listener):

                def end(_: object) -> None:
                    server.force_exit, server.should_exit = server.should_exit, True

                with signals.listening(end):
                    announce(link)
                    await server.serve(sockets=[listener])
            return await read_result(ledger, settings)


@asynccontextmanager
async def opened(
    settings: BatchSettings, config: str, reviewed: WhenReviewed = lambda *_: None
) -> AsyncIterator[tuple[ASGIApp, Ledger]]:
    """What is served of a batch, and its ledger; sidecars and manifest are brought up to date with marks.

    Args:
        config: the path of the config, for the commands that the page shows.
        reviewed: is called when, by marks that the page has shown, no stored file is left to be marked.

    Raises:
        LedgerError: there is no ledger, or it cannot be read.
    """
    check_exists(settings.ledger.url)
    async with await Ledger.open(settings.ledger.url, settings.batch) as ledger:
        newest = await ledger.read(marks.newest)
        pages, tables = _Pages(ledger, settings), _Tables(settings, ledger, newest)
        keeping = asyncio.create_task(tables.update_after_marks())
        try:
            left = _Left(ledger)
            again = f"callsheet run {shlex.quote(config)} --again"
            reviewed_before = not await left.any()
            served = _App(ledger, settings, pages, tables.marked, left, reviewed, again, reviewed_before)
            yield served.app(), ledger
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])
            await pages.thumbnails.close()
        await tables.tell()


class _Server(uvicorn.Server):
    def capture_signals(self) -> Any:
        """Signals are heard by `signals.py`."""
        return nullcontext()


@contextmanager
def listening(
    app: ASGIApp, port: int, token: str | None = None, host: str = LOOPBACK
) -> Iterator[tuple[str, uvicorn.Server, socket.socket]]:
    """The link to what is served, the server that has not begun, and the socket that it is to serve.

    `app` is served to whom the guard lets pass. `port` 0 is any that is free, and `token` None a new one.

    Raises:
        ConfigError: the address or the port cannot be used.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        code = getattr(error, "errno", None)
        if host != LOOPBACK and code not in (None, errno.EADDRINUSE, errno.EACCES):
            hint = "Name the address that this machine has in your network, such as 192.168.1.20."
            raise ConfigError(f"{host} is no address of this machine", hint=hint) from None
        reason = "another program uses it" if code == errno.EADDRINUSE else "it cannot be used"
        hint = "Without --port any free one is taken."
        raise ConfigError(f"port {port} of {host}: {reason}", hint=hint) from None
    with listener:
        guard = Guard(app, host, listener.getsockname()[1], token)
        config = uvicorn.Config(
            guard,
            ws="none",
            lifespan="off",
            access_log=False,
            log_level="critical",
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        yield guard.link, _Server(config), listener


@dataclass
class _App:
    """What is served; `marked` is set after a mark. `Guard` decides who may ask for it.

    `command` buys again what was rejected.
    """

    ledger: Ledger
    settings: BatchSettings
    pages: _Pages
    marked: asyncio.Event
    left: _Left
    reviewed: WhenReviewed
    command: str
    is_reviewed: bool
    again: str = ""  # what is to be bought again, when the newest mark was `as_of`
    as_of: int = -1
    not_before: float = 0.0  # by the monotonic clock, it is found anew

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/", self.own),
                Route("/contact-sheet/thumbs/{sha256:str}.jpg", self.thumbnail),
                Route("/contact-sheet/{name:path}", self.own),
                Route("/rejects.csv", self.rejects),
                Route("/media/{job_key:str}/{attempt:int}/{index:int}", self.media),
                Route("/originals/{job_key:str}/{number:int}", self.original),
                Route("/marks", self.newer),
                Route("/marks", self.mark, methods=["POST"]),
            ],
            exception_handlers={CallsheetError: _failed},
        )

    @cached_property
    def _report(self) -> Store:
        return Store.of(self.settings.report.url, self.settings.storage)

    async def own(self, request: Request) -> Response:
        name = request.path_params.get("name")
        return await self.pages.file(sheet.INDEX if name is None else f"{FOLDER}/{name}")

    async def thumbnail(self, request: Request) -> Response:
        sha256 = request.path_params["sha256"]
        content = await self._report.read(thumbnail_name(sha256))
        if content is None:

            async def is_wanted() -> bool:
                return not await request.is_disconnected()

            await self.pages.draw(sha256, is_wanted)
            content = await self._report.read(thumbnail_name(sha256))
        return _answer(content, "image/jpeg", _KEEP | _FILE_ONLY)

    async def rejects(self, _: Request) -> Response:
        return _answer(await self._report.read("rejects.csv"), "text/csv", _NEVER_KEEP | _FILE_ONLY)

    async def media(self, request: Request) -> Response:
        name = request.path_params
        key = FileKey(name["job_key"], name["attempt"], name["index"])
        stored = await self.ledger.read(
            lambda connection, batch: marks.stored(connection, batch, [key.job_key])
        )
        if key not in stored:
            raise HTTPException(404)
        url, mime_type = stored[key]
        path = local_path(url)
        if path is None:
            return RedirectResponse(ServedLinks(self.settings).loaded_from(url) or "", headers=_NEVER_KEEP)
        if not path.is_file():
            raise HTTPException(404)
        return FileResponse(path, media_type=mime_type, headers=_FILE_ONLY)

    async def original(self, request: Request) -> Response:
        image = self.pages.original(request.path_params["job_key"], request.path_params["number"])
        if image is None or not image.sha256:
            raise HTTPException(404)
        reading = reading_of(self.settings)
        try:
            content = await asyncio.to_thread(read_as_sent, image.place, image.sha256, reading)
        except InputError as error:
            raise HTTPException(404, error.message) from None
        return Response(content, media_type=recognise_image(content), headers=_KEEP_FOR_NOW | _FILE_ONLY)

    async def _again(self, number: int) -> str:
        """The same as `_news`, found anew where there is a newer mark than at the last time.

        Where all is reviewed, to find it takes a moment with many marks, so not at each of them: a page asks
        again some seconds later.
        """
        if number != self.as_of and time.monotonic() >= self.not_before:
            began = time.monotonic()
            self.again, self.as_of = await self._news(), number
            self.not_before = time.monotonic() + _SHARE * (time.monotonic() - began) * self.is_reviewed
        return self.again

    async def _news(self) -> str:
        """Where no file is left to be marked: what is to be bought again, in words; and it is said once."""
        was_reviewed, self.is_reviewed = self.is_reviewed, not await self.left.any()
        if not self.is_reviewed:
            return ""
        result, again = await read_review(self.ledger, self.settings)
        if not was_reviewed:
            self.reviewed(result, again)
        return f"{jobs_for(again.jobs, again.quoted)}: {self.command}" if again.jobs else ""

    async def newer(self, request: Request) -> Response:
        text = request.query_params.get("since", "0")
        if not text.isdecimal() or len(text) > 18:
            raise HTTPException(400, "since is the number of a mark")
        since = int(text)
        decisions = await self.ledger.read(
            lambda connection, batch: marks.decisions(connection, batch, since)
        )
        told = sheet.news(decisions, since)
        told["again"] = await self._again(told["number"])
        return JSONResponse(told, headers=_NEVER_KEEP)

    async def mark(self, request: Request) -> Response:
        try:
            sent = _Marks.model_validate_json(await _body(request))
        except ValidationError as error:
            raise HTTPException(400, error.errors(include_url=False)[0]["msg"]) from None
        new_marks = [
            Mark(
                FileKey(mark.job_key, mark.attempt, mark.index),
                mark.decision,
                (mark.note or "").strip() or None,
            )
            for mark in sent.marks
        ]
        keys = {mark.job_key for mark in sent.marks}
        stored = await self.ledger.read(lambda connection, batch: marks.stored(connection, batch, keys))
        if any(mark.file not in stored for mark in new_marks):
            raise HTTPException(404, "the batch has no such file")
        await self.ledger.write(marks.mark, new_marks, (sent.by or "").strip() or user_name())
        self.marked.set()
        return Response(status_code=204)


def _answer(content: bytes | None, mime_type: str, headers: dict[str, str]) -> Response:
    """A file; without content there is none."""
    if content is None:
        raise HTTPException(404)
    return Response(content, media_type=mime_type, headers=headers)


async def _body(request: Request) -> bytes:
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise HTTPException(415, "a mark is JSON")
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > _LARGEST:
            raise HTTPException(413, "too large")
    return content


class _Now(NamedTuple):
    """What the page shows of the ledger, but for marks, which it reads by itself."""

    totals: Totals
    at_work: frozenset[str]  # the runs that are
    refusal: str  # in which words the service refuses every submission
    checked: tuple[int, int]  # how many files, and how many of them to the end
    old_files: int  # how many attempts are made from one


def _now(connection: sa.Connection, batch: str) -> _Now:
    at_work = frozenset(run.run_id for run in leases.others(connection, batch, None))
    refusal, checked = leases.refusal(connection, batch), marks.checked(connection, batch)
    old_files = origins.flags(connection, attempts.c.batch == batch).height
    return _Now(sums.of_batch(connection, batch), at_work, refusal, checked, old_files)


async def _failed(_: Request, error: Any) -> Response:
    """The ledger or the storage cannot be used now (a CallsheetError); the page shows why."""
    return Response(f"{error.message}. {error.hint}".strip(), 503, media_type="text/plain")
