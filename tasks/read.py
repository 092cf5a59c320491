"""Read: the batch file becomes checked rows, and rejects with their line numbers."""

from __future__ import annotations

import asyncio

from callsheet.batches.read import Batch, read_batch
from callsheet.config.settings import Settings
from tasks.step import step


@step
async def read(settings: Settings) -> Batch:
    """Reads and checks the config's batch, off the event loop."""
    return await asyncio.to_thread(read_batch, settings)
