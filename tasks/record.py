"""Record: the progress is shown while a run is under way; at its end the report is written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from callsheet.ledger import marks
from callsheet.records import dollars
from callsheet.report.summary import Summary
from callsheet.session import Run
from callsheet.steps import record as library
from tasks import artifacts
from tasks.pressed import heed
from tasks.step import step


@step
async def record(run: Run) -> Summary:
    """Does what `callsheet/steps/record.py` does, with a progress bar and the costs as artifacts."""
    summary = await library.record(run, _shown(run))
    again = await run.ledger.read(partial(marks.to_buy_again, samples=run.settings.review.samples))
    await artifacts.show_costs(summary, run.settings, again)
    if not run.is_pilot:
        in_doubt = f", {summary.in_doubt:,} in doubt" if summary.in_doubt else ""
        stored = f"{summary.stored:,} of {summary.jobs:,} stored"
        await artifacts.name_run(summary.batch, f"{stored}{in_doubt}, {dollars(summary.spent)} USD")
    return summary


@asynccontextmanager
async def _shown(run: Run) -> AsyncIterator[None]:
    async with artifacts.progress_of(run):
        yield
    if run.interrupted:
        await heed(run)  # a signal may have been a Cancel in the Prefect UI: the report says so
