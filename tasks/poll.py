"""`poll`: asks after videos until they are ready."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from callsheet.session import Run
from callsheet.steps import poll as library


@task(
    name="poll",
    task_run_name="poll",
    retries=0,  # said here, a profile cannot say otherwise
    retry_delay_seconds=0,
    cache_policy=NO_CACHE,
    persist_result=False,
)
async def poll(run: Run) -> None:
    """Asks after each video that is pending, and hands it on when it is ready."""
    await library.poll(run)
