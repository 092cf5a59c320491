"""Read: the batch file becomes checked rows, the first ones now and the others while they are priced."""

from __future__ import annotations

import asyncio

from callsheet.batches.read import Batch
from callsheet.config.settings import Settings
from tasks.step import step


@step
async def read(settings: Settings) -> Batch:
    """Begins to read the config's batch (`batches.read.Batch`), off the event loop."""
    return await asyncio.to_thread(Batch, settings)
