"""Writes the report of a batch under `report.url`, and makes the summary of a run.

    manifest.parquet   a row for each stored file   costs.parquet   a row for each attempt that was submitted
    rejects.csv        a row for each reject        report.json     the summary, as `run --json` prints it

It reads the ledger and changes nothing there.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal

import polars as pl

from callsheet.cells import rejects_csv
from callsheet.config.settings import BatchSettings
from callsheet.errors import Interrupted, Stop
from callsheet.ledger import approvals, leases, marks, queries, writing
from callsheet.ledger.ledger import Ledger
from callsheet.pricing.facts import rejects_in_words
from callsheet.pricing.not_in_ledger import warning_of_ledger
from callsheet.pricing.plan import Plan, last_plan
from callsheet.records import MAY_COST, State
from callsheet.report.counts import ENDED, OPEN, is_complete
from callsheet.report.details import Details, model_lines, most_expensive, problems_of, surcharge_of
from callsheet.report.parquet_tables import (
    COSTS,
    PARQUET_TYPE,
    SUBMITTED,
    costs,
    jobs_of,
    manifest,
    parquet,
    stored_files,
)
from callsheet.report.plots import figures_of
from callsheet.report.summary import Summary
from callsheet.storage.store import Store

_COSTS, _MANIFEST, _REJECTS = "costs.parquet", "manifest.parquet", "rejects.csv"
_TIMES = 4  # that the manifest is written at the most, where it changes meanwhile


@dataclass(frozen=True, slots=True)
class OfRun:
    """What a summary says of one run, which took so many seconds.

    Attributes:
        stop: why it stopped early, if it did.
        submissions: its POSTs, of which `rate_limited` were answered 429.
        left_to_buy: jobs that it was to buy, and has not tried.
        chosen: whether the run was for a job, for every job of the plan; None where it was for all.
    """

    stop: Stop | None = None
    seconds: float = 0.0
    submissions: int = 0
    rate_limited: int = 0
    left_to_buy: int = 0
    chosen: pl.Series | None = None


async def write_report(ledger: Ledger, store: Store, plan: Plan | None, of_run: OfRun) -> Summary:
    """Writes the report and returns the summary, which `write_summary` writes at the end.

    Args:
        store: that of `report.url`.
        plan: None where `collect` finds none, and knows the batch only from the ledger.
        of_run: the run; one that did nothing where there was none.

    Raises:
        StorageError: `report.url` cannot be written.
        LedgerError: the ledger cannot be read.
    """
    jobs = await asyncio.to_thread(jobs_of, plan) if plan else None
    attempts, files = await ledger.read(
        lambda connection, batch: (
            queries.every_attempt(connection, batch, [*COSTS, "superseded"]),
            manifest(stored_files(connection, batch), jobs),
        )
    )
    await store.write(_COSTS, await asyncio.to_thread(parquet, costs(attempts)), PARQUET_TYPE)
    await store.write(_MANIFEST, await asyncio.to_thread(parquet, files), PARQUET_TYPE)
    if plan:
        await store.write(_REJECTS, await asyncio.to_thread(rejects_csv, plan.rejects), "text/csv")
    counting = _counting(attempts, jobs)
    newest = counting.filter(~pl.col("superseded"))
    others = newest.filter(pl.col("position").is_null()) if plan else newest.clear()
    details = replace(
        await asyncio.to_thread(_details, counting, others, files, plan, of_run),
        rejects=store.url_of(_REJECTS),
        figures=await asyncio.to_thread(figures_of, attempts.filter(SUBMITTED), files),
    )
    return await _summary(ledger, store, plan, of_run, details=details, newest=newest, others=others)


async def update_manifest(settings: BatchSettings, ledger: Ledger) -> None:
    """Brings the manifest up to date with what is said of files, where there is one and it is this ledger's.

    A run may write it at the same time, and knows more at its end: so it is read again after it is written.

    Raises:
        StorageError: it cannot be written.
        LedgerError: the ledger cannot be read.
    """
    store = Store(settings.report.url, endpoint_url=settings.storage.endpoint_url, put=settings.storage.put)
    if await store.read(_MANIFEST) is None or await warning_of_ledger(ledger, settings):
        return
    plan = await asyncio.to_thread(last_plan, settings)
    jobs = await asyncio.to_thread(jobs_of, plan) if plan else None
    written: pl.DataFrame | None = None
    for _ in range(_TIMES):
        files = await ledger.read(lambda connection, batch: manifest(stored_files(connection, batch), jobs))
        if written is not None and files.equals(written):
            break
        await store.write(_MANIFEST, await asyncio.to_thread(parquet, files), PARQUET_TYPE)
        written = files


async def write_summary(store: Store, summary: Summary) -> None:
    """Writes `report.json`, as the last of all: its `seconds` are those of the whole run.

    Raises:
        StorageError: `report.url` cannot be written.
    """
    text = json.dumps(summary.as_json(), indent=2, ensure_ascii=False) + "\n"
    await store.write("report.json", text.encode(), "application/json")


async def _summary(
    ledger: Ledger,
    store: Store,
    plan: Plan | None,
    of_run: OfRun,
    *,
    details: Details,
    newest: pl.DataFrame,
    others: pl.DataFrame,
) -> Summary:
    """How the batch stands, by the newest attempts at the jobs that count; `others` are those at jobs that
    the plan does not have.
    """
    states = Counter[State](dict(newest["state"].value_counts().iter_rows()))
    totals, runs, asked, estimated, review = await ledger.read(
        lambda connection, batch: (
            writing.of_batch(connection, batch),
            leases.others(connection, batch, ledger.run_id),
            approvals.of_batch(connection, batch),
            queries.estimated_costs(connection, batch),
            marks.counts(connection, batch),
        )
    )
    jobs = plan.jobs + others.height if plan else states.total()
    stop = of_run.stop
    ended = sum(states[state] for state in ENDED) >= jobs
    stopped = stop and (of_run.left_to_buy or (isinstance(stop, Interrupted) and not ended))
    complete = is_complete(states, jobs, plan)
    return Summary(
        batch=ledger.batch,
        ledger_id=ledger.id,
        paid_jobs=totals.paid_jobs,
        written_at=datetime.now(UTC),
        outcome="stopped" if stopped else "complete" if complete else "partial",
        stop_reason=stop.reason if stop and stopped else None,
        jobs=jobs,
        stored=states[State.STORED],
        failed=states[State.FAILED],
        in_doubt=states[State.IN_DOUBT],
        lost=states[State.LOST],
        pending=sum(states[state] for state in OPEN),
        rejected_rows=plan.rejected_rows if plan else 0,
        quoted=plan.quoted + Decimal(others["quoted"].sum() or 0) if plan else totals.quoted,
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
        **review._asdict(),
        cost_per_kept=review.cost_per_kept(totals.spent),
        other_runs=tuple(run for run in runs if run.jobs),
        approvals=asked,
        details=details,
    )


def _counting(attempts: pl.DataFrame, jobs: pl.DataFrame | None) -> pl.DataFrame:
    """The attempts at the jobs that count: those of the plan, with `line` and `position`, and others that
    have cost money or may have.

    Where nothing is known of the batch file, all jobs count.
    """
    if jobs is None:
        return attempts.with_columns(line=None, position=None)
    may_cost = attempts.filter(~pl.col("superseded"), pl.col("state").is_in(MAY_COST))["job_key"]
    placed = attempts.join(jobs, on="job_key", how="left", maintain_order="left")
    return placed.filter(pl.col("position").is_not_null() | pl.col("job_key").is_in(may_cost.implode()))


def _details(
    counting: pl.DataFrame, others: pl.DataFrame, files: pl.DataFrame, plan: Plan | None, of_run: OfRun
) -> Details:
    """What is told of the run, of the attempts at the jobs that count, and of the stored files."""
    submitted = counting.filter(SUBMITTED)
    problems, other_problems = problems_of(submitted)
    all_chosen_stored = None
    if of_run.chosen is not None:
        stored = counting.filter(pl.col("state") == State.STORED, ~pl.col("superseded"))["position"]
        all_chosen_stored = of_run.chosen.gather(stored.drop_nulls()).sum() == of_run.chosen.sum()
    return Details(
        stop_message=str(of_run.stop) if of_run.stop else None,
        stop_hint=of_run.stop.hint if of_run.stop else "",
        rows=plan.rows if plan else None,
        rejected=tuple(rejects_in_words(plan.rejects)) if plan else (),
        problems=problems,
        other_problems=other_problems,
        surcharge=surcharge_of(submitted),
        kept=plan.kept() if plan else 0,
        others=others.height,
        models=model_lines(submitted, others, files, plan),
        dearest=most_expensive(submitted),
        all_chosen_stored=all_chosen_stored,
    )
