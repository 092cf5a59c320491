"""The report: what the ledger says of a batch, as files that other programs read, and as the run's summary.

    manifest.parquet   a row per stored file        costs.parquet   a row per attempt that was submitted
    rejects.csv        a row per rejected cell      report.json     the summary, as `run --json` prints it

It reads the ledger and writes files under `report.url`; it changes nothing.
"""

from __future__ import annotations

import io
import itertools
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import polars as pl
import sqlalchemy as sa

from callsheet.errors import CallsheetError, Stop
from callsheet.ledger import queries
from callsheet.ledger.ledger import Ledger
from callsheet.pricing.plan import Plan
from callsheet.records import State, dollars
from callsheet.rows import rejects_csv
from callsheet.storage.store import Store

_MONEY = pl.Decimal(18, 6)
_TIME = pl.Datetime("us", "UTC")
_MANIFEST: dict[str, Any] = {
    "job_key": pl.String,
    "row_id": pl.String,
    "sample": pl.Int64,
    "generation_id": pl.String,
    "index": pl.Int64,
    "model": pl.String,
    "prompt": pl.String,
    "url": pl.String,
    "sha256": pl.String,
    "bytes": pl.Int64,
    "mime_type": pl.String,
    "width": pl.Int64,
    "height": pl.Int64,
    "duration": pl.Float64,
    "fps": pl.Float64,
    "has_sound": pl.Boolean,
    "cost": _MONEY,
    "deletes_at": _TIME,
    "stored_at": _TIME,
}
_COSTS: dict[str, Any] = {
    "job_key": pl.String,
    "row_id": pl.String,
    "sample": pl.Int64,
    "generation_id": pl.String,
    "model": pl.String,
    "type": pl.String,
    "state": pl.String,
    "error_code": pl.String,
    "error_message": pl.String,
    "quoted": _MONEY,
    "cost": _MONEY,
    "currency": pl.String,
    "billable_unit": pl.String,
    "unit_price": _MONEY,
    "quantity": _MONEY,
    "submitted_at": _TIME,
    "finished_at": _TIME,
}

_PARQUET_TYPE = "application/vnd.apache.parquet"
_FOR_PEOPLE = ("stop_message", "problems")
_PROBLEMS = 10


@dataclass(frozen=True, slots=True)
class Summary:
    """A batch after a run: what `run --json` prints, by the same names (`docs/commands.md, "JSON"`).

    Money is in dollars. `submissions`, `rate_limited` and `seconds` are of this run, the rest is of the whole
    batch. `stop_message` says in words what `stop_reason` says in one.
    """

    batch: str
    outcome: str
    stop_reason: str | None
    stop_message: str | None
    problems: tuple[str, ...]
    jobs: int
    stored: int
    failed: int
    in_doubt: int
    lost: int
    pending: int
    rejected_rows: int
    quoted: Decimal
    spent: Decimal
    in_doubt_exposure: Decimal
    currency: str
    seconds: float
    submissions: int
    rate_limited: int
    manifest: str
    costs: str
    report: str

    @property
    def exit_code(self) -> int:
        """0 complete, 3 finished with something open, 4 stopped early."""
        return {"complete": 0, "partial": 3, "stopped": 4}[self.outcome]

    def line(self) -> str:
        """The summary in one line."""
        open_ends = (f"{getattr(self, name)} {name}" for name in ("failed", "in_doubt", "lost", "pending"))
        counts = ", ".join(text for text in open_ends if not text.startswith("0 "))
        stop = f"; stopped: {self.stop_message}" if self.stop_message else ""
        return (
            f"{self.stored} of {self.jobs} jobs stored{', ' if counts else ''}{counts}; "
            f"{dollars(self.spent)} {self.currency} spent{stop}"
        )

    def as_json(self) -> dict[str, Any]:
        """The JSON object; money is a string."""
        fields = {name: getattr(self, name) for name in self.__slots__ if name not in _FOR_PEOPLE}
        return {
            name: dollars(value) if isinstance(value, Decimal) else value for name, value in fields.items()
        }


async def write(
    ledger: Ledger,
    store: Store,
    *,
    plan: Plan | None,
    stop: CallsheetError | None,
    seconds: float,
    submissions: int,
    rate_limited: int,
) -> Summary:
    """Writes the report and returns the summary.

    Args:
        ledger: whose batch it is about.
        store: where to write it.
        plan: the batch's plan; None where `collect` finds none, and knows only what the ledger knows.
        stop: why the run stopped early, if it did.
        seconds: how long the run took.
        submissions: POSTs of this run.
        rate_limited: those of them that were answered 429.

    Raises:
        StorageError: `report.url` cannot be written.
        LedgerError: the ledger cannot be read.
    """
    manifest = await store.write("manifest.parquet", await ledger.read(_manifest), _PARQUET_TYPE)
    table, problems = await ledger.read(_costs)
    costs = await store.write("costs.parquet", table, _PARQUET_TYPE)
    if plan:
        await store.write("rejects.csv", rejects_csv(plan.rejects), "text/csv")
    totals = await ledger.read(queries.totals)
    counts, jobs = _count(await ledger.read(queries.states), plan)
    summary = Summary(
        batch=ledger.batch,
        outcome=_outcome(counts, jobs, stop),
        stop_reason=stop.reason if stop else None,
        stop_message=str(stop) if stop else None,
        problems=tuple(problems),
        jobs=jobs,
        stored=counts[State.STORED],
        failed=counts[State.FAILED],
        in_doubt=counts[State.IN_DOUBT],
        lost=counts[State.LOST],
        pending=counts[State.SUBMITTING] + counts[State.PENDING] + counts[State.GENERATED],
        rejected_rows=plan.rejected_rows if plan else 0,
        quoted=plan.quoted if plan else totals.quoted,
        spent=totals.spent,
        in_doubt_exposure=totals.in_doubt_exposure,
        currency="USD",
        seconds=round(seconds, 3),
        submissions=submissions,
        rate_limited=rate_limited,
        manifest=manifest,
        costs=costs,
        report=store.url_of("report.json"),
    )
    text = json.dumps(summary.as_json(), indent=2, ensure_ascii=False) + "\n"
    await store.write("report.json", text.encode(), "application/json")
    return summary


def _count(states: Mapping[str, State], plan: Plan | None) -> tuple[Counter[State], int]:
    """Jobs by state, and how many jobs the batch has.

    A job that is no longer in the plan (its row was changed or removed) counts only where money hangs on it.
    """
    planned = set(plan.keys()["key"]) if plan else set(states)
    counted = {
        key: state
        for key, state in states.items()
        if key in planned or state not in (State.PLANNED, State.FAILED)
    }
    return Counter(counted.values()), len(planned | counted.keys())


def _problems(attempts: queries.Rows) -> Iterator[str]:
    for row in attempts:
        if row["state"] in (State.FAILED, State.IN_DOUBT, State.LOST) and not row["superseded"]:
            yield f"row {row['row_id']} {row['state'].replace('_', ' ')}: {row['error_message']}"


def _outcome(counts: Counter[State], jobs: int, stop: CallsheetError | None) -> str:
    if counts[State.STORED] == jobs:
        return "complete"
    return "stopped" if isinstance(stop, Stop) else "partial"


def _costs(connection: sa.Connection, batch: str) -> tuple[bytes, list[str]]:
    """`costs.parquet`, and the first problems in words."""
    parts, problems = [pl.DataFrame(schema=_COSTS)], list[str]()
    for rows in queries.costs(connection, batch):
        parts.append(_frame(rows, _COSTS))
        problems += itertools.islice(_problems(rows), _PROBLEMS - len(problems))
    return _parquet(parts), problems


def _manifest(connection: sa.Connection, batch: str) -> bytes:
    """`manifest.parquet`, with the batch file's carried columns behind its own."""
    parts = [pl.DataFrame(schema=_MANIFEST)]
    for rows in queries.manifest(connection, batch):
        carried = dict.fromkeys(name for row in rows for name in row["carried"])
        others = [
            pl.Series(
                _column(name, carried),
                [row["carried"].get(name) for row in rows],
                strict=False,
            )
            for name in carried
        ]
        parts.append(_frame(rows, _MANIFEST).with_columns(others))
    return _parquet(parts)


def _column(name: str, carried: Collection[str]) -> str:
    """What a carried column is called in the manifest: as in the batch file, unless that name is taken."""
    column = name
    while column in _MANIFEST or (column != name and column in carried):
        column = f"input_{column}"
    return column


def _frame(rows: queries.Rows, schema: Mapping[str, Any]) -> pl.DataFrame:
    return pl.DataFrame({name: [row[name] for row in rows] for name in schema}, schema=dict(schema))


def _parquet(parts: Sequence[pl.DataFrame]) -> bytes:
    buffer = io.BytesIO()
    pl.concat(parts, how="diagonal_relaxed").write_parquet(buffer)
    return buffer.getvalue()
