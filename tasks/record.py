"""Record: while a run is under way its progress is shown; at its end the report is written.

The ledger is written by the steps themselves, as things happen; here it is only read.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from prefect import task
from prefect.artifacts import acreate_markdown_artifact, acreate_progress_artifact, aupdate_progress_artifact
from prefect.cache_policies import NO_CACHE

from callsheet.errors import StorageError
from callsheet.ledger import queries
from callsheet.records import dollars
from callsheet.report import report
from callsheet.report.report import Summary
from callsheet.session import Run
from callsheet.storage.store import Store
from callsheet.watch import WATCHER, Progress
from tasks.artifacts import shown

TICK = 0.5  # seconds between two looks at the ledger
ARTIFACT_EVERY = 6  # ticks between two updates of the progress artifact, which cost the server 7 ms each


@task(name="record", task_run_name="record", cache_policy=NO_CACHE, persist_result=False)
async def record(run: Run) -> Summary:
    """Shows the progress until every file is dealt with, then writes the report and the cost summary."""
    artifact = await shown(acreate_progress_artifact(progress=0.0, key="progress", description="Jobs done"))
    jobs = run.plan.jobs if run.plan else sum((await run.ledger.read(queries.totals)).states.values())
    over, tick = False, 0
    while not over:
        with suppress(TimeoutError):
            await asyncio.wait_for(run.collected.wait(), TICK)
        over = run.collected.is_set()
        progress = Progress(jobs, await run.ledger.read(queries.totals))
        WATCHER.get().progress(progress)
        if artifact and (over or tick % ARTIFACT_EVERY == 0):
            share = 100.0 * min(1.0, progress.done / jobs) if jobs else 100.0
            update = aupdate_progress_artifact(artifact, progress=share, description=progress.line())
            artifact = artifact if await shown(update) is not None else None
        tick += 1
    try:
        summary = await report.write(
            run.ledger,
            Store(run.settings.report.url, endpoint_url=run.settings.storage.endpoint_url),
            plan=run.plan,
            stop=run.stop,
            seconds=time.monotonic() - run.began,
            submissions=run.limits.submissions,
            rate_limited=run.limits.rate_limited,
        )
    except StorageError as error:
        lost = "Nothing that was bought is lost: the same command writes the report."
        error.hint = f"{error.hint} {lost}".strip()
        raise
    WATCHER.get().finished(summary)
    if artifact:
        title = f"Costs of {summary.batch}"
        await shown(acreate_markdown_artifact(markdown(summary), key="costs", description=title))
    return summary


def markdown(summary: Summary) -> str:
    """The cost summary as people see it in the Prefect UI."""
    rows = [
        ("Jobs", summary.jobs),
        ("Stored", summary.stored),
        ("Failed", summary.failed),
        ("In doubt", summary.in_doubt),
        ("Lost", summary.lost),
        ("Pending", summary.pending),
        ("Rejected rows", summary.rejected_rows),
        ("Quoted", f"{dollars(summary.quoted)} {summary.currency}"),
        ("Spent", f"{dollars(summary.spent)} {summary.currency}"),
        ("In doubt, at most", f"{dollars(summary.in_doubt_exposure)} {summary.currency}"),
        ("Manifest", f"`{summary.manifest}`"),
        ("Costs", f"`{summary.costs}`"),
    ]
    stop = f"\n\nStopped early: {summary.stop_message}" if summary.stop_message else ""
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    return f"# {summary.batch}: {summary.outcome}{stop}\n\n| | |\n|---|---|\n{table}\n"
