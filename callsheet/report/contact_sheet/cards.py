"""Reads the jobs of a contact sheet: what the batch file asks for, and what the ledger says of it.

And how the page reaches each file: by a relative path, by a signed address, by the server of the page, or not
at all. It reads the plan and the ledger, some jobs at a time. It opens no file and writes nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl
import sqlalchemy as sa

from callsheet import s3
from callsheet.batches.identities import without_signature
from callsheet.cells import carried_as_json
from callsheet.config.load import load_without_service
from callsheet.config.settings import BatchSettings
from callsheet.errors import CallsheetError, StorageError
from callsheet.files import path_of, with_home
from callsheet.ledger import marks, origins, queries
from callsheet.ledger.tables import attempts, checks, media
from callsheet.ledger.tables import marks as ledger_marks
from callsheet.pricing.references import LAST_FRAME
from callsheet.records import MADE_FROM, State, dollars, made_from
from callsheet.report.remedies import remedies
from callsheet.standing import SETTINGS, Standing, with_source_flags

FOLDER = "contact-sheet"
"""The page's folder inside `report.url`."""

_SERVED = 600  # seconds: a file on S3 that the served page has asked for


class Links:
    """The links of a batch's contact sheet.

    Attributes:
        on_disk: whether the page is on this machine.
        signs_own_files: whether the page reaches its own files by signed addresses.
        may_end_early: whether temporary credentials have signed an address: it works no longer than these.
        marks: where the page sends and reads marks; None where the browser keeps them.
    """

    marks: str | None = None

    def __init__(self, settings: BatchSettings) -> None:
        self._seconds = settings.report.links_valid_for
        self._endpoint_url = settings.storage.endpoint_url
        self._report_url = settings.report.url.rstrip("/")
        report = local_path(settings.report.url)
        self._folder = (report / FOLDER).absolute() if report else None
        self._other = settings.input.other
        self._sheets: dict[str, str | None] = {}
        self._signed: dict[str, str] = {}  # so that a page that is written again does not change
        self.on_disk = report is not None
        self.signs_own_files = report is None and self._seconds is not None
        self.may_end_early = False

    def to_media(self, url: str, name: str) -> str | None:
        """The address in the page of the media file at `url`; None where a browser cannot open it.

        `name` says which file of the batch it is: `<job_key>/<attempt>/<index>`. Raises as `loaded_from`.
        """
        return self.loaded_from(url)

    def loaded_from(self, url: str) -> str | None:
        """Where a browser loads a media file from in the end; None where it cannot.

        A local file has a path that is relative to the page, so that both can be moved together.

        Raises:
            StorageError: the AWS settings of this machine cannot sign it.
        """
        path = local_path(url)
        if path is None:
            return self._sign(url) if self._seconds else None
        return _way(self._folder, path) if self._folder else None

    def to_original(self, place: str, name: str) -> str | None:
        """The address in the page of an image that a job is made from; None where a browser cannot open it.

        `name` says which one of which job it is. An address of the network is given away as it is, but not
        with a signature. Raises as `loaded_from`.
        """
        if place.startswith("https://"):
            return place if without_signature(place) == place else None
        return None if place.endswith(LAST_FRAME) else self.loaded_from(with_home(place))

    def follow_from(self, facts: Facts) -> tuple[object, ...]:
        """What the links in the cards of some jobs follow from, besides the addresses of their files."""
        paths = (f"$.{MADE_FROM}.batch", f"$.{MADE_FROM}[0].batch")  # of one file, and of several
        carried = facts.jobs["carried"]
        batches = pl.concat([carried.str.json_path_match(path) for path in paths]).drop_nulls().unique()
        return self._seconds, self._folder, Path.cwd(), [self.to_sheet(batch) for batch in sorted(batches)]

    def to_sheet(self, batch: str) -> str | None:
        """The address of the contact sheet of the batch from which this one is made; None where a browser
        cannot go there from this page, or there is none.
        """
        if batch not in self._sheets:
            self._sheets[batch] = self._sheet_of(batch)
        return self._sheets[batch]

    def _sheet_of(self, batch: str) -> str | None:
        if not (self.on_disk and self._folder and self._other):
            return None
        with suppress(CallsheetError):
            origin = load_without_service(Path(self._other))
            report = local_path(origin.report.url)
            if origin.batch == batch and report and (page := report / FOLDER / "index.html").is_file():
                return _way(self._folder, page)
        return None

    def to_own(self, name: str, version: str = "") -> str:
        """The address of one of the page's own files, by its name inside `report.url`.

        `version` changes when the file does, so that a browser that has it reads it anew. A signed address
        cannot have it, and does not need it. Raises as `loaded_from`.
        """
        if self.signs_own_files:
            return self._sign(f"{self._report_url}/{name}")
        return os.path.relpath(name, FOLDER).replace(os.sep, "/") + (f"?{version}" if version else "")

    def _sign(self, url: str) -> str:
        if url not in self._signed:
            with s3.errors_as(StorageError, url):
                address = s3.signed(url, self._endpoint_url, self._seconds or 0)
            self._signed[url] = address
            self.may_end_early |= s3.by_temporary_credentials(address)
        return self._signed[url]


class ServedLinks(Links):
    """The links of a served page, which has every file from its server. They are relative to its address."""

    marks = "marks"

    def __init__(self, settings: BatchSettings) -> None:
        super().__init__(settings)
        self.on_disk = self.signs_own_files = False

    def to_media(self, url: str, name: str) -> str | None:
        """See `Links`. The server answers for a file on S3 with the address that `loaded_from` signs."""
        return f"media/{name}"

    def to_original(self, place: str, name: str) -> str | None:
        """See `Links`. The server reads every other one, and answers only where it is as it was sent."""
        return super().to_original(place, name) if place.startswith("https://") else f"originals/{name}"

    def loaded_from(self, url: str) -> str | None:
        """See `Links`. A signed address is good for some minutes."""
        if local_path(url):
            return None
        with s3.errors_as(StorageError, url):
            return s3.signed(url, self._endpoint_url, _SERVED)

    def to_own(self, name: str, version: str = "") -> str:
        """See `Links`."""
        return name + (f"?{version}" if version else "")


def browser_address(url: str) -> str:
    """The address of a local file for a browser and a terminal: `file:///...`; another URL stays as it is."""
    path = local_path(url)
    return path.absolute().as_uri() if path else url


def local_path(url: str) -> Path | None:
    """The path of a file or folder on this machine; None for one on S3."""
    if url.startswith("s3://"):
        return None
    return path_of(url)


def _way(folder: Path, path: Path) -> str:
    """The address of a file in a page that is in the folder: a relative one, unless another drive has it."""
    try:
        return quote(os.path.relpath(path, folder).replace(os.sep, "/"))
    except ValueError:
        return path.absolute().as_uri()


_LONGEST = 1_000  # characters of a carried value and of a reason that the page shows
SENT = ("type", "request", "carried")
"""Columns of attempts that `shown_jobs` needs."""

_JOB = ("job_key", "row_id", "sample", "type", "model", "quoted", "request")
_IN_ROW = ("ordinal", "of", "number", "highest")
_ATTEMPT = (
    *("job_key", "state", "model_delivered", "generation_id", "error_message", "cost"),
    *("submitted_at", "finished_at"),
)
_SENT_WITHOUT_FILES = [state for state in State if state not in (State.PLANNED, State.STORED)]
"""The states of jobs that were sent and are not stored: their cards show the settings as they were sent."""
_FILE = ("index", "url", "mime_type", "width", "height", "duration", "fps", "has_sound", "sha256", "bytes")


@dataclass(frozen=True)
class MediaFile:
    """A stored file of a card. Sizes are in pixels, `duration` is in seconds.

    What was decided about it is in `decision` (`kept`, `rejected`), `note` and `decided_by`; what checks
    found is in `flags`, in words, and `score`, which is of the user's program.
    """

    index: int
    url: str
    mime_type: str
    width: int | None
    height: int | None
    duration: float | None
    fps: float | None
    has_sound: bool | None
    sha256: str
    bytes: int
    attempt: int
    decision: str | None = None
    note: str | None = None
    decided_by: str | None = None
    flags: Sequence[str] = ()
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Original:
    """An image that a job is made from: its role, where it was read, and its SHA-256 where it was inlined."""

    role: str
    place: str
    sha256: str = ""


@dataclass(frozen=True)
class Card:
    """A job as the page shows it; its script names the same fields. Money is in dollars, as text.

    Attributes:
        model_delivered: as the answer names it, where that is another one than was ordered (`model`).
        ordinal, of: which of the jobs of its row it is, that stand beside each other.
        number, highest: its number in its row, as `callsheet review --keep` has it, and the highest there. A
            job that was never reserved has the number that is next.
        asked: the aspect ratio, the resolution and so on that the request names.
        settings: these by name, as text.
        reason: why it failed, is in doubt or lost.
        submitted_at: in ISO 8601, as `finished_at`.
        carried: the batch file's other columns, each with its value as text.
        sent: the settings of the request as it was sent, but for model and prompt; None of what is stored, or
            was never sent.
        steps: what to do about it, a sentence each that begins with a command.
        made_from: the file of another batch that it is made from (`records.MADE_FROM_FIELDS`).
        originals: the images that it is made from.
    """

    job_key: str
    row_id: str
    sample: int
    ordinal: int
    of: int
    type: str
    model: str
    prompt: str
    asked: str
    quoted: str | None
    carried: list[tuple[str, str]]
    files: list[MediaFile]
    number: int = 1
    highest: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    state: State = State.PLANNED
    cost: str | None = None
    generation_id: str | None = None
    code: str | None = None
    reason: str | None = None
    submitted_at: str | None = None
    finished_at: str | None = None
    sent: dict[str, Any] | None = None
    steps: Sequence[str] = ()
    made_from: Mapping[str, Any] | None = None
    originals: Sequence[Original] = ()
    model_delivered: str | None = None


def shown_jobs(standing: Standing, limit: int) -> pl.DataFrame:
    """The first of the batch's jobs, with the columns `_JOB`, `carried` as text, the plan's `inlined`, and
    `_IN_ROW`: which of the jobs of its row it is, which are neighbours in the order of their numbers.

    The rows of the plan are in its order. The others are at the end, in order of their first submission. The
    attempts have the columns `SENT`.
    """
    jobs = standing.counting.with_columns(
        first_sent=pl.col("submitted_at").min().over("row_id"), place=pl.col("position").min().over("row_id")
    )
    order = ("place", "first_sent", "row_id", "file_number", "position", "key")
    shown = jobs.sort(order, nulls_last=True).head(limit)
    shown = shown.with_columns(
        ordinal=pl.int_range(1, pl.len() + 1).over("row_id"), of=pl.len().over("row_id")
    )
    highest, is_new = pl.col("file_number").max().over("row_id").fill_null(0), pl.col("file_number").is_null()
    number = pl.coalesce("file_number", highest + is_new.cum_sum().over("row_id"))
    shown = shown.with_columns(number=number).with_columns(highest=pl.col("number").max().over("row_id"))
    shown = shown.with_columns(job_key="key").drop("key", "place")
    if standing.has_plan:
        shown = shown.with_columns(carried_as_json(shown.schema["carried"]))
    sent = standing.newest.select("job_key", *SENT)
    shown = shown.join(sent, on="job_key", how="left", suffix="_sent", maintain_order="left")
    if standing.has_plan:
        is_others = pl.col("position").is_null()
        shown = shown.with_columns(
            pl.when(is_others).then(f"{name}_sent").otherwise(name).alias(name) for name in SENT
        )
    if "inlined" not in shown.columns:
        shown = shown.with_columns(inlined=pl.lit(None))
    return shown.select(*_JOB, *_IN_ROW, "carried", "inlined")


def request_field(name: str, request: str = "request") -> pl.Expr:
    """What a request says, as text; null where it says nothing of it."""
    return pl.col(request).str.json_path_match(f"$.{name}")


def _described(jobs: pl.DataFrame) -> pl.DataFrame:
    """Jobs with what their request says; what is bought and not offered any more has none in a plan."""

    facts = request_field("aspect_ratio"), request_field("resolution"), request_field("duration") + " s"
    return jobs.select(
        *(name for name in _JOB if name != "request"),
        *(*_IN_ROW, "carried", "inlined"),
        images=request_field("images"),
        prompt=request_field("prompt").fill_null(""),
        asked=pl.concat_str(facts, separator=" · ", ignore_nulls=True),
        settings=pl.struct(request_field(name).alias(name) for name in SETTINGS),
    )


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the cards of some jobs are made from.

    Attributes:
        jobs: from `shown_jobs`.
        attempts: the newest at each of them that the ledger knows.
        files: their stored files, with what is said of these.
    """

    jobs: pl.DataFrame
    attempts: pl.DataFrame
    files: pl.DataFrame

    def digest(self, *values: object) -> str:
        """12 hex digits that change when one of these facts does, or another thing with a plain `str`."""
        texts = (*(table.write_ndjson() for table in (self.jobs, self.attempts, self.files)), str(values))
        return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


def facts(connection: sa.Connection, jobs: pl.DataFrame) -> Facts:
    """What the ledger has of some jobs, from `shown_jobs`: of a large batch, those of a part that is made."""
    sent = sa.case((attempts.c.state.in_(_SENT_WITHOUT_FILES), attempts.c.request)).label("sent")
    newest = sa.select(*(attempts.c[name] for name in _ATTEMPT), queries.ERROR_CODE, sent).where(
        ~attempts.c.superseded
    )
    of_file = (attempts.c.job_key, attempts.c.attempt, media.c.index)
    said = (ledger_marks.c.decision, ledger_marks.c.note, ledger_marks.c.decided_by)
    tables = attempts.join(media, queries.FILES_OF)
    tables = tables.outerjoin(ledger_marks, sa.and_(_is_of(ledger_marks, of_file), marks.IS_NEWEST))
    tables = tables.outerjoin(checks, _is_of(checks, of_file))
    stored = (
        sa.select(*of_file[:2], *(media.c[name] for name in (*_FILE, "removed_at")), *said)
        .add_columns(checks.c.flags, checks.c.score)
        .select_from(tables)
        .where(~attempts.c.superseded, media.c.stored_at.is_not(None))
        .order_by(attempts.c.job_key, media.c.index)
    )
    conditions = [*queries.of_jobs(jobs["job_key"].to_list())] or [sa.false()]
    newest_attempts, files = (
        pl.concat(queries.read(connection, query.where(condition)) for condition in conditions)
        for query in (newest, stored)
    )
    files = files.with_columns(pl.col("flags").str.json_decode(pl.List(pl.String)))
    for of_jobs in queries.of_jobs(jobs["job_key"].to_list()):
        files = with_source_flags(files, origins.flags(connection, of_jobs))
    return Facts(jobs, newest_attempts, files)


def _is_of(table: sa.Table, of_file: Sequence[sa.Column[Any]]) -> sa.ColumnElement[bool]:
    return sa.and_(*(table.c[name] == column for name, column in zip(marks.FILE, of_file, strict=True)))


def cards(facts: Facts) -> list[Card]:
    """The cards of the jobs, in their order."""
    attempt_of = {row["job_key"]: row for row in facts.attempts.iter_rows(named=True)}
    files_of: defaultdict[str, list[MediaFile]] = defaultdict(list)
    for row in facts.files.iter_rows(named=True):
        key, flags, _ = row.pop("job_key"), row.pop("flags") or [], row.pop("removed_at")
        files_of[key].append(MediaFile(**row, flags=flags))
    rows = _described(facts.jobs).iter_rows(named=True)
    return [_card(job, attempt_of.get(job["job_key"]), files_of[job["job_key"]]) for job in rows]


def _card(job: dict[str, Any], attempt: dict[str, Any] | None, files: list[MediaFile]) -> Card:
    origin, carried = cells(job["carried"])
    images = originals(job.pop("images"), job.pop("inlined"))
    settings = {name: value for name, value in job["settings"].items() if value is not None}
    fields = job | {"quoted": _money(job["quoted"]), "carried": carried, "files": files}
    fields |= {"settings": settings, "made_from": origin, "originals": images}
    if attempt is None:
        return Card(**fields)
    state, code = State(attempt["state"]), attempt["error_code"]
    sent, reason = json.loads(attempt["sent"] or "{}"), attempt["error_message"]
    delivered = attempt["model_delivered"]
    fields |= {
        "prompt": job["prompt"] or sent.get("prompt", ""),
        "state": state,
        "model_delivered": None if delivered == job["model"] else delivered,
        "cost": _money(attempt["cost"]),
        "generation_id": attempt["generation_id"],
        "code": code,
        "reason": reason and reason[:_LONGEST],
        "submitted_at": _moment(attempt["submitted_at"]),
        "finished_at": _moment(attempt["finished_at"]),
        "sent": {name: value for name, value in sent.items() if name not in ("model", "prompt")} or None,
        "steps": remedies(state, [code or ""] if state is State.FAILED else []),
    }
    return Card(**fields)


def originals(images: str | None, inlined: Sequence[Mapping[str, str]] | None) -> list[Original]:
    """The images of a request, from its JSON and the places from which they are inlined.

    What is in the cell of the batch file itself, as a data URL, is none that has a place.
    """
    places = {f"sha256:{image['sha256']}": image for image in inlined or ()}
    found = []
    for image in json.loads(images or "[]"):
        if of_file := places.get(image["url"]):
            found.append(Original(image["role"], of_file["source"], of_file["sha256"]))
        elif image["url"].startswith("https://"):
            found.append(Original(image["role"], image["url"]))
    return found


def _money(amount: Decimal | None) -> str | None:
    return None if amount is None else dollars(amount)


def _moment(moment: datetime | None) -> str | None:
    return moment.isoformat(timespec="milliseconds") if moment else None


def cells(carried: str | None) -> tuple[dict[str, Any] | None, list[tuple[str, str]]]:
    """The file of another batch that a job is made from, and its carried columns as text."""
    origin, cells = made_from(json.loads(carried or "{}"))
    texts = []
    for name, cell in cells.items():
        if cell is not None:
            text = cell if isinstance(cell, str) else json.dumps(cell, ensure_ascii=False, default=str)
            texts.append((name, f"{text[: _LONGEST - 1]}…" if len(text) > _LONGEST else text))
    return origin, texts
