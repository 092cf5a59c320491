"""The circuit breaker: when the service fails for every job, the run pauses and probes it.

It counts jobs that were given up because the service said no, in a row. Within a job, backing off is enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

TOLERATED = 20  # jobs given up in a row before the run pauses
PAUSES = (
    5.0,
    10.0,
    20.0,
    40.0,
    60.0,
    60.0,
)  # seconds before each probe; after the last, the run stops buying


class Breaker:
    """Open while the service fails for everyone; then one job at a time is let through, after a pause."""

    def __init__(self) -> None:
        self._given_up = 0
        self._probes = 0
        self._probing = asyncio.Lock()

    @property
    def given_up_on(self) -> bool:
        """Every probe has failed."""
        return self._probes > len(PAUSES)

    def given_up(self) -> None:
        """A job was given up because the service said no."""
        self._given_up += 1

    def worked(self) -> None:
        """The service has accepted a job."""
        self._given_up = self._probes = 0

    @asynccontextmanager
    async def passing(self) -> AsyncIterator[None]:
        """Lets a job through: at once while the service works, else alone and after a pause."""
        if self._given_up < TOLERATED:
            yield
            return
        async with self._probing:
            if self._given_up >= TOLERATED:  # the probe before this one may have worked
                self._probes += 1
                await anyio.sleep(PAUSES[min(self._probes, len(PAUSES)) - 1] if not self.given_up_on else 0)
            yield
