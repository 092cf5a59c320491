"""Writes the report of a batch under `report.url`, and makes the summary of a run.

    manifest.parquet   a row for each stored file   costs.parquet   a row for each attempt that was submitted
    rejects.csv        a row for each reject        report.json     the summary, as `run --json` prints it

It reads the ledger and changes nothing there.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

import polars as pl
import sqlalchemy as sa

from callsheet.errors import Stop
from callsheet.ledger import leases, queries, running_totals
from callsheet.ledger.ledger import Ledger
from callsheet.pricing.plan import Plan
from callsheet.records import State
from callsheet.report.counts import ENDED, current_states, removed_jobs
from callsheet.report.problems import Findings
from callsheet.report.summary import Details, Removed, Summary
from callsheet.report.tables import Costs, Manifest, with_quotes
from callsheet.rows import rejects_csv
from callsheet.storage.store import Store

_PARQUET_TYPE = "application/vnd.apache.parquet"
_OPEN = (State.SUBMITTING, State.PENDING, State.GENERATED)


async def write_report(
    ledger: Ledger,
    store: Store,
    *,
    plan: Plan | None,
    stop: Stop | None,
    seconds: float,
    submissions: int,
    rate_limited: int,
) -> Summary:
    """Writes the report and returns the summary.

    Args:
        ledger: the ledger, opened for the batch.
        store: where to write the report.
        plan: the batch's plan; None where `collect` finds none, and knows the batch only from the ledger.
        stop: why the run stopped early, if it did.
        seconds: how long the run took.
        submissions: POSTs of this run.
        rate_limited: those of them that were answered 429.

    Raises:
        StorageError: `report.url` cannot be written.
        LedgerError: the ledger cannot be read.
    """
    removed = await removed_jobs(ledger, plan)
    attempts = await ledger.read(lambda connection, batch: _read_attempts(connection, batch, removed))
    manifest = await ledger.read(_read_manifest)
    totals, others = await ledger.read(
        lambda connection, batch: (
            running_totals.of_batch(connection, batch),
            leases.others(connection, batch, ledger.run_id),
        )
    )
    counts = current_states(totals.states, removed)
    jobs = plan.jobs if plan else counts.total()
    costs_file = await asyncio.to_thread(attempts.costs.parquet)
    costs_url = await store.write("costs.parquet", costs_file, _PARQUET_TYPE)
    manifest_file = await asyncio.to_thread(manifest.parquet, plan)
    manifest_url = await store.write("manifest.parquet", manifest_file, _PARQUET_TYPE)
    if plan:
        await store.write("rejects.csv", rejects_csv(plan.rejects), "text/csv")
    removed_counts = attempts.removed(removed)
    rejected_rows = plan.rejected_rows if plan else 0
    summary = Summary(
        batch=ledger.batch,
        outcome=_outcome(counts, jobs, removed_counts, rejected_rows, stop),
        stop_reason=stop.reason if stop else None,
        jobs=jobs,
        stored=counts[State.STORED],
        failed=counts[State.FAILED],
        in_doubt=counts[State.IN_DOUBT],
        lost=counts[State.LOST],
        pending=sum(counts[state] for state in _OPEN),
        rejected_rows=rejected_rows,
        quoted=plan.quoted if plan else totals.quoted,
        spent=totals.spent,
        in_doubt_exposure=totals.in_doubt_exposure,
        currency="USD",
        seconds=round(seconds, 3),
        submissions=submissions,
        rate_limited=rate_limited,
        manifest=manifest_url,
        costs=costs_url,
        report=store.url_of("report.json"),
        other_runs=tuple(other for other in others if other.jobs),
        details=_details(attempts.findings, plan, stop, removed_counts, store.url_of("rejects.csv")),
    )
    text = json.dumps(summary.as_json(), indent=2, ensure_ascii=False) + "\n"
    await store.write("report.json", text.encode(), "application/json")
    return summary


@dataclass(slots=True)
class _Attempts:
    """What one pass over the batch's attempts finds."""

    costs: Costs = field(default_factory=Costs)
    findings: Findings = field(default_factory=Findings)
    removed_keys: set[str] = field(default_factory=set)  # removed jobs that may have cost money
    removed_spent: Decimal = Decimal(0)

    def removed(self, states: Mapping[str, State]) -> Removed:
        """The removed jobs that may have cost money; `states` are those of all removed jobs."""
        counts = Counter(states[key] for key in self.removed_keys)
        pending = sum(counts[state] for state in _OPEN)
        return Removed(len(self.removed_keys), self.removed_spent, counts[State.IN_DOUBT], pending)


def _read_attempts(connection: sa.Connection, batch: str, removed: Collection[str]) -> _Attempts:
    attempts = _Attempts()
    for part in queries.costs(connection, batch):
        rows = with_quotes(part)
        attempts.costs.add(rows)
        attempts.findings.add(row for row in rows if row["job_key"] not in removed)
        for row in rows:
            if row["job_key"] in removed and (row["cost"] or row["state"] != State.FAILED):
                attempts.removed_keys.add(row["job_key"])
                attempts.removed_spent += row["cost"] or 0
    return attempts


def _read_manifest(connection: sa.Connection, batch: str) -> Manifest:
    manifest = Manifest()
    for rows in queries.manifest(connection, batch):
        manifest.add(rows)
    return manifest


def _outcome(
    counts: Mapping[State, int], jobs: int, removed: Removed, rejected_rows: int, stop: Stop | None
) -> str:
    """How the run ended. A stop before everything was tried comes first, then whatever is left to do."""
    if stop and sum(counts[state] for state in ENDED) < jobs:
        return "stopped"
    every_row_rejected = rejected_rows and not jobs
    left = counts[State.STORED] < jobs or removed.in_doubt or removed.pending
    return "partial" if left or every_row_rejected else "complete"


def _details(
    findings: Findings, plan: Plan | None, stop: Stop | None, removed: Removed, rejects: str
) -> Details:
    lines = _lines(plan, findings.keys()) if plan else {}
    problems, other_problems = findings.problems(lines)
    return Details(
        stop_message=str(stop) if stop else None,
        stop_hint=stop.hint if stop else "",
        rows=plan.rows if plan else None,
        rejects=rejects,
        problems=problems,
        other_problems=other_problems,
        surcharges=findings.surcharges(lines),
        removed=removed,
    )


def _lines(plan: Plan, keys: list[str]) -> dict[str, int]:
    """The line of each of these jobs in the batch file, by key."""
    rows = plan.scan().filter(pl.col("key").is_in(keys)).select("key", "line").collect()
    return dict(rows.iter_rows())
