"""Reads the jobs of a contact sheet: what the batch file asks for, and what the ledger says of it.

It reads the plan and the ledger, some jobs at a time, and writes nothing.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import polars as pl
import sqlalchemy as sa

from callsheet.ledger import marks, queries
from callsheet.ledger.marks import FileKey
from callsheet.ledger.tables import attempts, media
from callsheet.pricing.plan import Plan
from callsheet.records import MAY_COST, State, dollars
from callsheet.report.summary import mending

_LONGEST = 1_000  # characters of a carried value and of a reason that the page shows
_JOB = ("job_key", "row_id", "sample", "type", "model", "quoted", "request")
_ATTEMPT = (
    *("job_key", "state", "generation_id", "error_code", "error_message", "cost"),
    *("submitted_at", "finished_at"),
)
_WITHOUT_FILES = [state for state in State if state not in (State.PLANNED, State.STORED)]
_FILE = ("index", "url", "mime_type", "width", "height", "duration", "fps", "has_sound", "sha256", "bytes")
_DECIDED = ("decision", "note", "decided_by")
_FOUND = ("flags", "score")

Opinions = Mapping[FileKey, dict[str, Any]]
"""Some fields of `MediaFile` for each file of which something is said."""


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


@dataclass(frozen=True)
class Card:
    """A job as the page shows it; its script names the same fields. Money is in dollars, as text.

    Attributes:
        asked: the aspect ratio, the resolution and so on that the request names.
        reason: why it failed, is in doubt or lost.
        submitted_at: in ISO 8601, as `finished_at`.
        carried: the batch file's other columns, each with its value as text.
        sent: the settings of the request as it was sent, but for model and prompt; None of what is stored, or
            was never sent.
        steps: what to do about it, a sentence each that begins with a command.
    """

    job_key: str
    row_id: str
    sample: int
    type: str
    model: str
    prompt: str
    asked: str
    quoted: str | None
    carried: list[tuple[str, str]]
    files: list[MediaFile]
    state: State = State.PLANNED
    cost: str | None = None
    generation_id: str | None = None
    code: str | None = None
    reason: str | None = None
    submitted_at: str | None = None
    finished_at: str | None = None
    sent: dict[str, Any] | None = None
    steps: Sequence[str] = ()


def shown_jobs(connection: sa.Connection, batch: str, plan: Plan | None, most: int) -> pl.DataFrame:
    """The first jobs that a contact sheet shows, with the columns that `cards` needs.

    They are those of the plan, in the batch file's order, and all others of the batch that have cost money or
    may have: after the jobs of their row, where the plan has it, and otherwise at the end. Where there is no
    plan, they are all that the ledger knows. What only the ledger knows is by row, in order of its first
    submission, and then by sample.
    """
    if plan is None:
        return _described(_in_ledger(connection, [attempts.c.batch == batch], most))
    planned = plan.table.head(most).rename({"key": "job_key", "price": "quoted"}).with_row_index("place")
    carried = pl.col("carried")
    if isinstance(planned["carried"].dtype, pl.Struct):
        carried = carried.struct.json_encode()
    planned = planned.select(*_JOB, carried, "place")
    known = queries.jobs(connection, batch, ["job_key", "state"]).filter(pl.col("state").is_in(MAY_COST))
    keys = known.join(plan.table, left_on="job_key", right_on="key", how="anti")["job_key"].to_list()
    if not keys:
        return _described(planned)
    found = _in_ledger(connection, queries.of_jobs(keys))
    row = planned.group_by("row_id").agg(pl.col("place").max())
    found = found.join(row, on="row_id", how="left", maintain_order="left")
    shown = pl.concat([planned, found.select(planned.columns)], how="vertical_relaxed")
    return _described(shown.sort("place", nulls_last=True, maintain_order=True).head(most))


def _in_ledger(
    connection: sa.Connection, which: Iterable[sa.ColumnElement[bool]], most: int | None = None
) -> pl.DataFrame:
    """Jobs that the ledger knows, in order of submission; the samples of a row are beside each other."""
    order = ("submitted_at", "job_key")
    query = sa.select(*(attempts.c[name] for name in (*_JOB, "carried", "submitted_at")))
    query = query.where(~attempts.c.superseded).order_by(*(attempts.c[name] for name in order)).limit(most)
    jobs = pl.concat(queries.read(connection, query.where(these)) for these in which)
    return jobs.sort(pl.col("submitted_at").min().over("row_id"), "row_id", "sample", *order)


def _described(jobs: pl.DataFrame) -> pl.DataFrame:
    """Jobs with what their request says; what is bought and not offered any more has none in a plan."""

    def asked(name: str) -> pl.Expr:
        return pl.col("request").str.json_path_match(f"$.{name}")

    facts = (asked("aspect_ratio"), asked("resolution"), asked("duration") + " s")
    return jobs.select(
        *(name for name in _JOB if name != "request"),
        "carried",
        prompt=asked("prompt").fill_null(""),
        asked=pl.concat_str(facts, separator=" · ", ignore_nulls=True),
    )


def opinions(connection: sa.Connection, batch: str) -> Opinions:
    """What is said of the files of the batch: the newest decision, and what checks found."""
    said: defaultdict[FileKey, dict[str, Any]] = defaultdict(dict)
    decided = marks.decisions(connection, batch).select(*marks.FILE, *_DECIDED)
    for *file, decision, note, decided_by in decided.iter_rows():
        said[FileKey(*file)] |= {"decision": decision, "note": note, "decided_by": decided_by}
    for *file, flags, score in marks.findings(connection, batch).select(*marks.FILE, *_FOUND).iter_rows():
        said[FileKey(*file)] |= {"flags": json.loads(flags), "score": score}
    return said


def cards(connection: sa.Connection, jobs: pl.DataFrame, said: Opinions) -> list[Card]:
    """The cards of some jobs, from `shown_jobs`, in their order; `said` is of `opinions`."""
    attempt_of: dict[str, Any] = {}
    files_of: defaultdict[str, list[MediaFile]] = defaultdict(list)
    sent = sa.case((attempts.c.state.in_(_WITHOUT_FILES), attempts.c.request)).label("sent")
    newest = sa.select(*(attempts.c[name] for name in _ATTEMPT), sent).where(~attempts.c.superseded)
    stored = (
        sa.select(attempts.c.job_key, *(media.c[name] for name in _FILE), attempts.c.attempt)
        .join_from(attempts, media, queries.FILES_OF)
        .where(~attempts.c.superseded, media.c.stored_at.is_not(None))
        .order_by(attempts.c.job_key, media.c.index)
    )
    for these in queries.of_jobs(jobs["job_key"].to_list()):
        for row in connection.execute(newest.where(these)):
            attempt_of[row.job_key] = row
        for key, *file in connection.execute(stored.where(these)):
            opinion = said.get(FileKey(key, file[-1], file[0]), {})
            files_of[key].append(MediaFile(*file, **opinion))
    rows = jobs.iter_rows(named=True)
    return [_card(job, attempt_of.get(job["job_key"]), files_of[job["job_key"]]) for job in rows]


def _card(job: dict[str, Any], attempt: Any, files: list[MediaFile]) -> Card:
    fields = job | {"quoted": _money(job["quoted"]), "carried": _carried(job["carried"]), "files": files}
    if attempt is None:
        return Card(**fields)
    state, code = State(attempt.state), attempt.error_code
    sent = json.loads(attempt.sent or "{}")
    fields |= {
        "prompt": job["prompt"] or sent.get("prompt", ""),
        "state": state,
        "cost": _money(attempt.cost),
        "generation_id": attempt.generation_id,
        "code": code,
        "reason": attempt.error_message and attempt.error_message[:_LONGEST],
        "submitted_at": _moment(attempt.submitted_at),
        "finished_at": _moment(attempt.finished_at),
        "sent": {name: value for name, value in sent.items() if name not in ("model", "prompt")} or None,
        "steps": mending(state, [code or ""] if state is State.FAILED else []),
    }
    return Card(**fields)


def _money(amount: Decimal | None) -> str | None:
    return None if amount is None else dollars(amount)


def _moment(moment: datetime | None) -> str | None:
    return moment.isoformat(timespec="milliseconds") if moment else None


def _carried(text: str | None) -> list[tuple[str, str]]:
    """Carried columns as text, from their JSON."""
    return [(name, _text(cell)) for name, cell in json.loads(text or "{}").items() if cell is not None]


def _text(cell: object) -> str:
    text = cell if isinstance(cell, str) else json.dumps(cell, ensure_ascii=False, default=str)
    return f"{text[: _LONGEST - 1]}…" if len(text) > _LONGEST else text
