"""Reads the jobs of a contact sheet: what the batch file asks for, and what the ledger says of it.

It reads the plan and the ledger, some jobs at a time, and writes nothing.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import polars as pl
import sqlalchemy as sa

from callsheet.ledger import columns, queries
from callsheet.ledger.tables import attempts, media
from callsheet.pricing.plan import Plan
from callsheet.records import State, dollars

_LONGEST = 1_000  # characters of a carried value and of a reason that the page shows
_JOB = ("row_id", "sample", "type", "model", "prompt", "quoted")
_ATTEMPT = [
    *("job_key", "state", "generation_id", "error_code", "error_message", "cost"),
    *("submitted_at", "finished_at"),
]
_FILE = ["index", "url", "mime_type", "width", "height", "duration", "fps", "has_sound", "sha256", "bytes"]
_SETTLED = (State.STORED, State.LOST)


@dataclass(frozen=True, slots=True)
class MediaFile:
    """A stored file of a card. Sizes are in pixels, `duration` is in seconds."""

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


@dataclass(frozen=True, slots=True)
class Card:
    """A job as the page shows it.

    Attributes:
        asked: the aspect ratio, the resolution and so on that the request names.
        cost: in dollars, as text; None while it is not known.
        quoted: in dollars, as text; None where the catalogue has no price.
        reason: why it failed, is in doubt or lost.
        carried: the batch file's other columns, as text.
        files: what is stored of it.
    """

    key: str
    row_id: str
    sample: int
    type: str
    model: str
    prompt: str
    asked: str
    state: State
    cost: str | None
    quoted: str | None
    generation_id: str | None
    code: str | None
    reason: str | None
    submitted_at: datetime | None
    finished_at: datetime | None
    carried: dict[str, str]
    files: list[MediaFile]

    @property
    def settled(self) -> bool:
        """Whether nothing about it will change any more."""
        return self.state in _SETTLED


def planned_jobs(plan: Plan, most: int) -> pl.DataFrame:
    """The first jobs of the plan, in the batch file's order, with the columns that `cards` needs."""
    names = ["key", "row_id", "sample", "type", "model", "request", "carried", "price"]
    rows = plan.table.select(names).head(most)
    asked = pl.concat_str(
        [pl.col("request").str.json_path_match(f"$.{name}") for name in ("aspect_ratio", "resolution")],
        separator=" · ",
        ignore_nulls=True,
    )
    seconds = pl.col("request").str.json_path_match("$.duration")
    return rows.select(
        job_key="key",
        row_id="row_id",
        sample="sample",
        type="type",
        model="model",
        prompt=pl.col("request").str.json_path_match("$.prompt"),
        asked=pl.concat_str([asked, seconds + " s"], separator=" · ", ignore_nulls=True),
        quoted="price",
        carried="carried",
    )


def ledger_jobs(connection: sa.Connection, batch: str, most: int) -> pl.DataFrame:
    """The first jobs that the ledger knows, in order of submission: for a batch whose plan is not here."""
    names = ["job_key", *_JOB, "carried"]
    query = (
        sa.select(*(attempts.c[name] for name in names))
        .where(attempts.c.batch == batch, ~attempts.c.superseded)
        .order_by(attempts.c.submitted_at, attempts.c.job_key)
        .limit(most)
    )
    rows = pl.concat(columns.parts(connection, query))
    return rows.with_columns(asked=pl.lit(""))


def cards(connection: sa.Connection, jobs: pl.DataFrame) -> list[Card]:
    """The cards of some jobs, in their order.

    Args:
        connection: the transaction.
        jobs: from `planned_jobs` or `ledger_jobs`.
    """
    attempt_of: dict[str, dict[str, Any]] = {}
    files_of: defaultdict[str, list[MediaFile]] = defaultdict(list)
    newest = sa.select(*(attempts.c[name] for name in _ATTEMPT)).where(~attempts.c.superseded)
    stored = (
        sa.select(attempts.c.job_key, *(media.c[name] for name in _FILE))
        .join_from(attempts, media, queries.FILES_OF)
        .where(~attempts.c.superseded, media.c.stored_at.is_not(None))
        .order_by(attempts.c.job_key, media.c.index)
    )
    for these in queries.of_jobs(jobs["job_key"].to_list()):
        for row in connection.execute(newest.where(these)).mappings():
            attempt_of[row["job_key"]] = dict(row)
        for key, *file in connection.execute(stored.where(these)):
            files_of[key].append(MediaFile(*file))
    return [
        _card(job, attempt_of.get(job["job_key"], {}), files_of[job["job_key"]])
        for job in jobs.iter_rows(named=True)
    ]


def _card(job: dict[str, Any], attempt: dict[str, Any], files: list[MediaFile]) -> Card:
    return Card(
        key=job["job_key"],
        row_id=job["row_id"],
        sample=job["sample"],
        type=job["type"],
        model=job["model"],
        prompt=job["prompt"] or "",
        asked=job["asked"],
        state=State(attempt.get("state") or State.PLANNED),
        cost=_money(attempt.get("cost")),
        quoted=_money(job["quoted"]),
        generation_id=attempt.get("generation_id"),
        code=attempt.get("error_code"),
        reason=(attempt.get("error_message") or "")[:_LONGEST] or None,
        submitted_at=attempt.get("submitted_at"),
        finished_at=attempt.get("finished_at"),
        carried=_carried(job["carried"]),
        files=files,
    )


def _money(amount: Decimal | None) -> str | None:
    return None if amount is None else dollars(amount)


def _carried(value: Any) -> dict[str, str]:
    """Carried columns as text: the plan has a struct, the ledger has JSON."""
    values = json.loads(value) if isinstance(value, str) else value or {}
    return {name: _text(cell) for name, cell in values.items() if cell is not None}


def _text(cell: object) -> str:
    text = cell if isinstance(cell, str) else json.dumps(cell, ensure_ascii=False, default=str)
    return f"{text[: _LONGEST - 1]}…" if len(text) > _LONGEST else text
