"""Writes the report of a batch under `report.url`, and makes the summary of a run.

    manifest.parquet   a row for each stored file   costs.parquet   a row for each attempt that was submitted
    rejects.csv        a row for each reject        report.json     the summary, as `run --json` prints it

It reads the ledger and changes nothing there.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import polars as pl
import sqlalchemy as sa

from callsheet.errors import Interrupted, Stop
from callsheet.ledger import approvals, leases, queries, running_totals
from callsheet.ledger.columns import MONEY, TIME
from callsheet.ledger.ledger import Ledger
from callsheet.pricing.plan import Plan, Positions
from callsheet.records import State, Totals
from callsheet.report.by_model import ByModel
from callsheet.report.counts import ENDED, current_states
from callsheet.report.plots.activity import Activity
from callsheet.report.problems import Findings
from callsheet.report.summary import Details, Removed, Summary
from callsheet.report.tables import COSTS, MANIFEST, Costs, Manifest
from callsheet.rows import write_rejects
from callsheet.storage.store import Store

_COSTS, _MANIFEST = "costs.parquet", "manifest.parquet"
_PARQUET_TYPE = "application/vnd.apache.parquet"
_SUBMITTED = pl.col("submitted_at").is_not_null() & (pl.col("state") != State.PLANNED)
_OF_REMOVED: dict[str, Any] = {
    "job_key": pl.String,
    "superseded": pl.Boolean,
    "state": pl.String,
    "cost": MONEY,
    "submitted_at": TIME,
}
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
    left_to_buy: int = 0,
    chosen: pl.Series | None = None,
) -> Summary:
    """Writes the report and returns the summary, which `write_summary` writes at the end.

    Args:
        ledger: the ledger, opened for the batch.
        store: where to write the report.
        plan: the batch's plan; None where `collect` finds none, and knows the batch only from the ledger.
        stop: why the run stopped early, if it did.
        seconds: how long the run took.
        submissions: POSTs of this run.
        rate_limited: those of them that were answered 429.
        left_to_buy: jobs that the run was to buy, and has not tried.
        chosen: whether the run was for a job, for every job of the plan; None where it was for all.

    Raises:
        StorageError: `report.url` cannot be written.
        LedgerError: the ledger cannot be read.
    """
    positions = await asyncio.to_thread(plan.positions) if plan else None
    attempts = await ledger.read(lambda connection, batch: read_attempts(connection, batch, positions))
    removed = attempts.removed_jobs()
    in_storage_order = positions is None or bool(removed.height)  # the order of what has no other
    manifest = await ledger.read(
        lambda connection, batch: _read_manifest(connection, batch, positions, ordered=in_storage_order)
    )
    totals, others, asked, estimated = await ledger.read(
        lambda connection, batch: (
            running_totals.of_batch(connection, batch),
            leases.others(connection, batch, ledger.run_id),
            approvals.of_batch(connection, batch),
            queries.estimated_costs(connection, batch),
        )
    )
    counts = current_states(totals.states, removed)
    await store.write_made(_COSTS, attempts.costs.write, _PARQUET_TYPE)
    await store.write_made(_MANIFEST, manifest.write, _PARQUET_TYPE)
    if plan:
        await store.write_made("rejects.csv", partial(write_rejects, plan.rejects), "text/csv")
    details = _details(attempts, plan, stop, attempts.removed_costs(), store.url_of("rejects.csv"))
    if chosen is not None and positions is not None:
        stored = await ledger.read(partial(_stored_among, positions=positions, chosen=chosen))
        details = replace(details, all_chosen_stored=stored == chosen.sum())
    return _summary(
        ledger,
        store,
        plan,
        totals,
        counts=counts,
        stop=stop,
        left_to_buy=left_to_buy,
        details=details,
        seconds=seconds,
        submissions=submissions,
        rate_limited=rate_limited,
        other_runs=tuple(other for other in others if other.jobs),
        approvals=asked,
        estimated_costs=estimated,
    )


def _summary(
    ledger: Ledger,
    store: Store,
    plan: Plan | None,
    totals: Totals,
    *,
    counts: Counter[State],
    stop: Stop | None,
    left_to_buy: int,
    details: Details,
    seconds: float,
    **of_run: Any,
) -> Summary:
    jobs = plan.jobs if plan else counts.total()
    rejected_rows = plan.rejected_rows if plan else 0
    ended = sum(counts[state] for state in ENDED) >= jobs
    stopped = stop and (left_to_buy or (isinstance(stop, Interrupted) and not ended))
    return Summary(
        batch=ledger.batch,
        ledger_id=ledger.id,
        paid_jobs=totals.paid_jobs,
        written_at=datetime.now(UTC),
        outcome="stopped" if stopped else _outcome(counts, jobs, details.removed, rejected_rows),
        stop_reason=stop.reason if stop and stopped else None,
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
        manifest=store.url_of(_MANIFEST),
        costs=store.url_of(_COSTS),
        report=store.url_of("report.json"),
        details=details,
        **of_run,
    )


async def summary_without_report(
    ledger: Ledger,
    store: Store,
    *,
    plan: Plan,
    removed: pl.DataFrame,
    stop: Stop | None,
    seconds: float,
    submissions: int,
    rate_limited: int,
    left_to_buy: int,
) -> Summary:
    """How the batch stands, from the running totals: for a run whose crew's first run writes the report.

    Args:
        ledger: the ledger, opened for the batch.
        store: where the report will be.
        plan: the batch's plan.
        removed: the state of each job that is not in the plan (`counts.refreshed`).
        stop: why the run stopped early, if it did.
        seconds: how long the run took.
        submissions: POSTs of this run.
        rate_limited: those of them that were answered 429.
        left_to_buy: jobs that the run was to buy, and has not tried.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    totals, others, estimated = await ledger.read(
        lambda connection, batch: (
            running_totals.of_batch(connection, batch),
            leases.others(connection, batch, ledger.run_id),
            queries.estimated_costs(connection, batch),
        )
    )
    return _summary(
        ledger,
        store,
        plan,
        totals,
        counts=current_states(totals.states, removed),
        stop=stop,
        left_to_buy=left_to_buy,
        details=Details(stop_message=str(stop) if stop else None, stop_hint=stop.hint if stop else ""),
        seconds=seconds,
        submissions=submissions,
        rate_limited=rate_limited,
        other_runs=tuple(other for other in others if other.jobs),
        estimated_costs=estimated,
    )


async def write_summary(store: Store, summary: Summary) -> None:
    """Writes `report.json`, as the last of all: its `seconds` are those of the whole run.

    Raises:
        StorageError: `report.url` cannot be written.
    """
    text = json.dumps(summary.as_json(), indent=2, ensure_ascii=False) + "\n"
    await store.write("report.json", text.encode(), "application/json")


@dataclass(slots=True)
class _Attempts:
    """What one pass over the batch's attempts finds; `removed` are those at jobs that are not in the plan."""

    costs: Costs = field(default_factory=Costs)
    findings: Findings = field(default_factory=Findings)
    by_model: ByModel = field(default_factory=ByModel)
    activity: Activity = field(default_factory=Activity)
    removed: list[pl.DataFrame] = field(default_factory=lambda: [pl.DataFrame(schema=_OF_REMOVED)])

    def removed_jobs(self) -> pl.DataFrame:
        """`job_key` and `state` of each job that the plan does not have."""
        return pl.concat(self.removed).filter(~pl.col("superseded")).select("job_key", "state")

    def removed_costs(self) -> Removed:
        """The removed jobs that may have cost money."""
        may_cost = (pl.col("cost") > 0) | (pl.col("state") != State.FAILED)
        attempts = pl.concat(self.removed).filter(_SUBMITTED, may_cost)
        jobs = self.removed_jobs().join(attempts, on="job_key", how="semi")
        counts = Counter(jobs["state"])
        return Removed(
            jobs=jobs.height,
            spent=sum(attempts["cost"].drop_nulls(), Decimal(0)),
            in_doubt=counts[State.IN_DOUBT],
            pending=sum(counts[state] for state in _OPEN),
        )


def read_attempts(connection: sa.Connection, batch: str, positions: Positions | None) -> _Attempts:
    """All attempts of the batch; without `positions`, nothing counts as removed."""
    found = _Attempts()
    for attempts in queries.every_attempt(connection, batch, [*COSTS, "superseded"]):
        submitted = attempts.filter(_SUBMITTED)
        found.costs.add(submitted)
        found.activity.add(submitted)
        current = submitted
        if positions is not None:
            removed = attempts.filter(positions.of(attempts["job_key"]).is_null())
            if removed.height:
                found.removed.append(removed.select([*_OF_REMOVED]))
                current = submitted.join(removed, on="job_key", how="anti", maintain_order="left")
        found.findings.add(current)
        found.by_model.add(current)
    return found


def _read_manifest(
    connection: sa.Connection, batch: str, positions: Positions | None, *, ordered: bool
) -> Manifest:
    manifest = Manifest(positions)
    for files in queries.stored_files(connection, batch, MANIFEST, ordered=ordered):
        manifest.add(files)
    return manifest


def _stored_among(connection: sa.Connection, batch: str, *, positions: Positions, chosen: pl.Series) -> int:
    """How many of the chosen jobs are stored."""
    stored = 0
    for part in queries.states(connection, batch):
        places = positions.of(part.filter(pl.col("state") == State.STORED)["job_key"]).drop_nulls()
        stored += int(chosen.gather(places).sum())
    return stored


def _outcome(counts: Mapping[State, int], jobs: int, removed: Removed, rejected_rows: int) -> str:
    """How a run ended that has tried everything."""
    every_row_rejected = rejected_rows and not jobs
    left = counts[State.STORED] < jobs or removed.in_doubt or removed.pending
    return "partial" if left or every_row_rejected else "complete"


def _details(
    attempts: _Attempts, plan: Plan | None, stop: Stop | None, removed: Removed, rejects: str
) -> Details:
    findings = attempts.findings
    lines = plan.lines([*findings.keys(), *attempts.by_model.dearest["job_key"]]) if plan else {}
    problems, other_problems = findings.problems(lines)
    return Details(
        stop_message=str(stop) if stop else None,
        stop_hint=stop.hint if stop else "",
        rows=plan.rows if plan else None,
        rejects=rejects,
        problems=problems,
        other_problems=other_problems,
        surcharges=findings.surcharges(lines),
        kept=plan.kept() if plan else 0,
        removed=removed,
        models=attempts.by_model.lines(plan),
        figures=attempts.activity.figures(),
        dearest=attempts.by_model.most_expensive(lines),
    )
