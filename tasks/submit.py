"""`submit`: sends what may be bought."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from callsheet.session import Run
from callsheet.steps import submit as library


@task(
    name="submit",
    task_run_name="submit",
    retries=0,  # said here, a profile cannot say otherwise
    retry_delay_seconds=0,
    cache_policy=NO_CACHE,
    persist_result=False,
)
async def submit(run: Run) -> None:
    """Sends each job that the gate lets through, at the pace of the account; ends when none is left."""
    await library.submit(run)
