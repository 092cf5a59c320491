"""What people see of a run in the Prefect UI. No run rests on it: without the server it goes on unseen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import httpx
from prefect.exceptions import PrefectException

from callsheet.watch import WATCHER

T = TypeVar("T")
PATIENCE = 5.0  # seconds for the server to answer


async def shown(artifact: Awaitable[T]) -> T | None:
    """Waits for an artifact to be made or changed; None, and a note, when the server cannot be reached."""
    try:
        return await asyncio.wait_for(artifact, PATIENCE)
    except (httpx.HTTPError, PrefectException, TimeoutError):
        WATCHER.get().note("the Prefect server does not answer; the run goes on without it")
        return None
