"""Read: the batch file becomes checked rows, and rejects with their line numbers."""

from __future__ import annotations

import asyncio

from prefect import task
from prefect.cache_policies import NO_CACHE

from callsheet.batches import read as batches
from callsheet.batches.read import Batch
from callsheet.config.settings import Settings


@task(name="read", task_run_name="read", cache_policy=NO_CACHE, persist_result=False)
async def read(settings: Settings) -> Batch:
    """Reads the config's batch (`batches.read`), off the event loop."""
    return await asyncio.to_thread(batches.read, settings)
