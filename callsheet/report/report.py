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
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial

import polars as pl

from callsheet.errors import Interrupted, Stop
from callsheet.ledger import approvals, leases, queries, running_totals
from callsheet.ledger.ledger import Ledger
from callsheet.pricing.plan import Plan
from callsheet.records import State
from callsheet.report.by_model import model_lines, most_expensive
from callsheet.report.counts import ENDED, current_states
from callsheet.report.plots.activity import figures_of
from callsheet.report.problems import problems_of, surcharges_of
from callsheet.report.summary import Details, Removed, Summary
from callsheet.report.tables import COSTS, MANIFEST, SUBMITTED, costs, jobs_of, manifest, write
from callsheet.rows import write_rejects
from callsheet.storage.store import Store

_COSTS, _MANIFEST = "costs.parquet", "manifest.parquet"
_PARQUET_TYPE = "application/vnd.apache.parquet"
_OPEN = (State.SUBMITTING, State.PENDING, State.GENERATED)


@dataclass(frozen=True, slots=True)
class OfRun:
    """What a summary says of one run.

    Attributes:
        stop: why it stopped early, if it did.
        seconds: how long it took.
        submissions: its POSTs.
        rate_limited: those of them that were answered 429.
        left_to_buy: jobs that it was to buy, and has not tried.
    """

    stop: Stop | None = None
    seconds: float = 0.0
    submissions: int = 0
    rate_limited: int = 0
    left_to_buy: int = 0


async def write_report(
    ledger: Ledger, store: Store, plan: Plan | None, of_run: OfRun, *, chosen: pl.Series | None = None
) -> Summary:
    """Writes the report and returns the summary, which `write_summary` writes at the end.

    Args:
        ledger: the ledger, opened for the batch.
        store: where to write the report.
        plan: the batch's plan; None where `collect` finds none, and knows the batch only from the ledger.
        of_run: the run; one that did nothing where there was none.
        chosen: whether the run was for a job, for every job of the plan; None where it was for all.

    Raises:
        StorageError: `report.url` cannot be written.
        LedgerError: the ledger cannot be read.
    """
    jobs = await asyncio.to_thread(jobs_of, plan) if plan else None
    attempts, files = await ledger.read(
        lambda connection, batch: (
            queries.every_attempt(connection, batch, [*COSTS, "superseded"]),
            manifest(queries.stored_files(connection, batch, MANIFEST), jobs),
        )
    )
    current, removed = _split(attempts, jobs)
    await store.write_made(_COSTS, partial(write, costs(attempts)), _PARQUET_TYPE)
    await store.write_made(_MANIFEST, partial(write, files), _PARQUET_TYPE)
    if plan:
        await store.write_made("rejects.csv", partial(write_rejects, plan.rejects), "text/csv")
    details = replace(
        await asyncio.to_thread(_details, current.filter(SUBMITTED), plan),
        rejects=store.url_of("rejects.csv"),
        removed=_removed(removed),
        figures=await asyncio.to_thread(figures_of, attempts.filter(SUBMITTED)),
    )
    if chosen is not None:
        stored = current.filter(pl.col("state") == State.STORED, ~pl.col("superseded"))["position"]
        details = replace(details, all_chosen_stored=chosen.gather(stored).sum() == chosen.sum())
    return await _summary(
        ledger, store, plan, of_run, removed=removed.filter(~pl.col("superseded")), details=details
    )


async def _summary(
    ledger: Ledger,
    store: Store,
    plan: Plan | None,
    of_run: OfRun,
    *,
    removed: pl.DataFrame,
    details: Details,
) -> Summary:
    """How the batch stands, from the running totals; `removed` are the jobs that are not in the plan."""
    totals, others, asked, estimated = await ledger.read(
        lambda connection, batch: (
            running_totals.of_batch(connection, batch),
            leases.others(connection, batch, ledger.run_id),
            approvals.of_batch(connection, batch),
            queries.estimated_costs(connection, batch),
        )
    )
    stop = of_run.stop
    told = replace(details, stop_message=str(stop) if stop else None, stop_hint=stop.hint if stop else "")
    counts = current_states(totals.states, removed)
    jobs = plan.jobs if plan else counts.total()
    rejected_rows = plan.rejected_rows if plan else 0
    ended = sum(counts[state] for state in ENDED) >= jobs
    stopped = stop and (of_run.left_to_buy or (isinstance(stop, Interrupted) and not ended))
    return Summary(
        batch=ledger.batch,
        ledger_id=ledger.id,
        paid_jobs=totals.paid_jobs,
        written_at=datetime.now(UTC),
        outcome="stopped" if stopped else _outcome(counts, jobs, told.removed, rejected_rows),
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
        seconds=round(of_run.seconds, 3),
        submissions=of_run.submissions,
        rate_limited=of_run.rate_limited,
        manifest=store.url_of(_MANIFEST),
        costs=store.url_of(_COSTS),
        report=store.url_of("report.json"),
        estimated_costs=estimated,
        other_runs=tuple(other for other in others if other.jobs),
        approvals=asked,
        details=told,
    )


async def write_summary(store: Store, summary: Summary) -> None:
    """Writes `report.json`, as the last of all: its `seconds` are those of the whole run.

    Raises:
        StorageError: `report.url` cannot be written.
    """
    text = json.dumps(summary.as_json(), indent=2, ensure_ascii=False) + "\n"
    await store.write("report.json", text.encode(), "application/json")


def _split(attempts: pl.DataFrame, jobs: pl.DataFrame | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The attempts at jobs of the plan, with `line` and `position`, and those at jobs that it does not have.

    Where nothing is known of the batch file, no job counts as removed.
    """
    if jobs is None:
        return attempts.with_columns(line=None, position=None), attempts.clear()
    placed = attempts.join(jobs, on="job_key", how="left", maintain_order="left")
    is_current = pl.col("position").is_not_null()
    return placed.filter(is_current), placed.filter(~is_current)


def _removed(attempts: pl.DataFrame) -> Removed:
    """The removed jobs that may have cost money, of the attempts at all removed jobs."""
    may_cost = (pl.col("cost") > 0) | (pl.col("state") != State.FAILED)
    costing = attempts.filter(SUBMITTED, may_cost)
    jobs = attempts.filter(~pl.col("superseded")).join(costing, on="job_key", how="semi")
    counts = Counter(jobs["state"])
    return Removed(
        jobs=jobs.height,
        spent=sum(costing["cost"].drop_nulls(), Decimal(0)),
        in_doubt=counts[State.IN_DOUBT],
        pending=sum(counts[state] for state in _OPEN),
    )


def _outcome(counts: Mapping[State, int], jobs: int, removed: Removed, rejected_rows: int) -> str:
    """How a run ended that has tried everything."""
    every_row_rejected = rejected_rows and not jobs
    left = counts[State.STORED] < jobs or removed.in_doubt or removed.pending
    return "partial" if left or every_row_rejected else "complete"


def _details(submitted: pl.DataFrame, plan: Plan | None) -> Details:
    """What is told of the attempts that were submitted at the batch file's jobs."""
    problems, other_problems = problems_of(submitted)
    return Details(
        rows=plan.rows if plan else None,
        problems=problems,
        other_problems=other_problems,
        surcharges=surcharges_of(submitted),
        kept=plan.kept() if plan else 0,
        models=model_lines(submitted, plan),
        dearest=most_expensive(submitted),
    )
