"""`download`: fetches what is paid for, and stores it."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from callsheet.session import Run
from callsheet.steps import download as library


@task(
    name="download",
    task_run_name="download",
    retries=0,  # said here, a profile cannot say otherwise
    retry_delay_seconds=0,
    cache_policy=NO_CACHE,
    persist_result=False,
)
async def download(run: Run) -> None:
    """Fetches each file that is ready, verifies it, and stores it."""
    await library.download(run)
