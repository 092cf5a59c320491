"""`read`: a batch file as rows that are checked."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from callsheet.batches.read import Batch
from callsheet.config.settings import Settings
from callsheet.pricing.sources import read_rows


@task(
    name="read",
    task_run_name="read",
    retries=0,  # said here, a profile cannot say otherwise
    retry_delay_seconds=0,
    cache_policy=NO_CACHE,
    persist_result=False,
)
async def read(settings: Settings) -> Batch:
    """Reads the batch file of a config; rejected rows are in the batch, with their line numbers."""
    return await read_rows(settings)
