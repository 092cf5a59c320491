"""`record`: follows the other steps, and writes the report, with what the Prefect UI shows of both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prefect import task
from prefect.cache_policies import NO_CACHE

from callsheet.config.settings import Settings
from callsheet.errors import ApprovalRefused
from callsheet.ledger.ledger import Ledger
from callsheet.present import results
from callsheet.pricing.plan import ToBuyAgain
from callsheet.report.summary import Summary, read_review
from callsheet.session import Run
from callsheet.steps import record as library
from tasks import artifacts
from tasks.pressed import heed


@task(
    name="record",
    task_run_name="record",
    retries=0,  # said here, a profile cannot say otherwise
    retry_delay_seconds=0,
    cache_policy=NO_CACHE,
    persist_result=False,
)
async def record(run: Run) -> Summary:
    """Writes the report when the other steps have ended, with a progress bar and the costs as artifacts."""
    summary = await library.record(run, _progress_shown(run))
    _, again = await read_review(run.ledger, run.settings)
    await artifacts.show_costs(summary, run.settings, again)
    if not run.is_pilot:
        refused = "refused, " if isinstance(run.stop, ApprovalRefused) else ""
        await artifacts.name_run(summary.batch, results.topic(summary, refused))
    return summary


async def show_unchanged(summary: Summary, settings: Settings) -> None:
    """The costs and the name of a run that has found everything as the last one has left it."""
    again = ToBuyAgain()
    if summary.rejected:
        async with await Ledger.open(settings.ledger.url, settings.batch, looks=True) as ledger:
            _, again = await read_review(ledger, settings)
    await artifacts.show_costs(summary, settings, again)
    await artifacts.name_run(summary.batch, results.topic(summary))


@asynccontextmanager
async def _progress_shown(run: Run) -> AsyncIterator[None]:
    async with artifacts.progress_of(run):
        yield
    if run.interrupted:
        await heed(run)  # a signal may have been a Cancel in the Prefect UI: the report says so
