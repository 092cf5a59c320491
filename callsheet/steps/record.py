"""Record: while a run is under way its progress is shown; at its end the report is written.

The steps themselves write the ledger, as things happen; here it is only read.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal

import anyio

from callsheet.errors import StorageError
from callsheet.ledger import running_totals
from callsheet.ledger.policy import Policy
from callsheet.limits.pace import WINDOW
from callsheet.pricing.quote import policy_of
from callsheet.records import ModelType, State
from callsheet.report.counts import current_states, left_to_buy, refreshed, removed_jobs
from callsheet.report.report import OfRun, write_report, write_summary
from callsheet.report.summary import Summary
from callsheet.session import Run
from callsheet.steps.contact_sheet import Sheet, sheet_of
from callsheet.steps.plots import plots_of
from callsheet.storage.store import Store
from callsheet.watch import WATCHER, Pacing, Progress

TICK = 0.5  # seconds between two looks at the ledger


async def record(run: Run) -> Summary:
    """Shows the progress until no file is left to store; then writes report, plots and contact sheet."""
    async with sheet_of(run) as sheet:
        await show_progress(run)
        return await write(run, sheet)


async def write(run: Run, sheet: Sheet) -> Summary:
    """Writes what a run leaves at its end: report, plots and contact sheet."""
    store = Store(run.settings.report.url, endpoint_url=run.settings.storage.endpoint_url)
    with _nothing_lost():
        summary = await _report(run, store)
    summary = await sheet.finish(summary, await plots_of(run, summary))
    summary = replace(summary, seconds=round(time.monotonic() - run.began, 3))
    with _nothing_lost():
        await write_summary(store, summary)
    if not run.is_pilot:
        WATCHER.get().finished(summary)
    return summary


async def _report(run: Run, store: Store) -> Summary:
    of_run = OfRun(
        stop=run.stop,
        seconds=time.monotonic() - run.began,
        submissions=run.limits.submissions,
        rate_limited=run.limits.rate_limited,
        left_to_buy=await _left_to_buy(run),
        chosen=run.quote.chosen if run.quote else None,
    )
    return await write_report(run.ledger, store, run.plan, of_run)


async def _left_to_buy(run: Run) -> int:
    """Jobs that a run which has stopped leaves untried; what it could not collect is none of them."""
    if run.stop is None or run.plan is None:
        return 0
    if run.quote is None:  # `collect` buys nothing, and leaves what was never sent
        return await left_to_buy(run.ledger, run.plan, Policy(), None)
    return await left_to_buy(run.ledger, run.plan, policy_of(run.settings), run.quote.marks.to_buy)


@contextmanager
def _nothing_lost() -> Iterator[None]:
    """Where the report cannot be written, says that what was bought is safe."""
    try:
        yield
    except StorageError as error:
        safe = "Nothing that was bought is lost: the same command writes the report."
        error.hint = f"{error.hint} {safe}".strip()
        raise


async def show_progress(run: Run) -> None:
    """Shows it until everything of this run is collected."""
    removed = run.quote.marks.removed if run.quote else await removed_jobs(run.ledger, run.plan)
    over = False
    while not over:
        with anyio.move_on_after(TICK):
            await run.collected.wait()
        over = run.collected.is_set()
        removed = await refreshed(run.ledger, removed)  # this run may poll and store them
        totals = await run.ledger.read(running_totals.of_batch)
        states = current_states(totals.states, removed)
        progress = _progress(run, states, totals.spent)
        WATCHER.get().progress(progress)
        run.progress = progress


def _progress(run: Run, states: Mapping[State, int], spent: Decimal) -> Progress:
    limits = run.limits
    now = limits.now()
    submitted = {model_type: pace.last_minute(now) for model_type, pace in limits.paces.items()}
    return Progress(
        jobs=run.plan.jobs - _left_out(run) if run.plan else sum(states.values()),
        states=states,
        spent=spent,
        limit=run.settings.budget.limit,
        videos=len(run.adopted_videos) + (run.quote.to_buy_of(ModelType.VIDEO) if run.quote else 0),
        videos_ended=run.videos_ended,
        pacing={
            model_type: Pacing(count, limits.paces[model_type].known_limit(), _wait(run, model_type, now))
            for model_type, count in submitted.items()
            if count
        },
        seconds_left=_left(run),
    )


def _wait(run: Run, model_type: ModelType, now: float) -> float:
    """Seconds until the next submission of a type may leave; 0 where none is left or nothing tells."""
    wait = run.limits.paces[model_type].wait(now)
    has_more = run.quote is not None and run.quote.to_buy_of(model_type) > run.tried[model_type]
    return round(wait, 1) if has_more and not run.stop and wait < math.inf else 0.0


def _left_out(run: Run) -> int:
    """Jobs that this run is not for."""
    return run.quote.left_out if run.quote else 0


def _left(run: Run) -> float | None:
    """Seconds until the last job is sent: those of a type that are left, over its limit."""
    if run.stop or not run.quote or not run.quote.to_buy:
        return None
    fit = run.quote.fits / run.quote.to_buy
    times = [0.0]
    for model_type, pace in run.limits.paces.items():
        left = run.quote.to_buy_of(model_type) * fit - run.tried[model_type]
        limit = pace.known_limit()
        if left > 0 and not limit:
            return None
        times += [left * WINDOW / limit] if limit else []
    return max(times)
