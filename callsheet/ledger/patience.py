"""How long an open run waits for a database that fails: as long as its lease lives, which other runs respect.

It knows no database: what is tried again is given to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from callsheet.errors import LedgerUnavailable

T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0  # seconds between two tries


class Patience:
    """Of one run.

    Attributes:
        until: when the run's lease expires; None where there is no lease, and nothing is tried again.
    """

    def __init__(self) -> None:
        self.until: datetime | None = None
        self._ended = asyncio.Event()

    def end(self) -> None:
        """From now on nothing is tried again; what waits for its next try has it now."""
        self._ended.set()

    async def tried(
        self,
        work: Callable[[], Awaitable[T]],
        failed: Callable[[LedgerUnavailable], Awaitable[None]] | None = None,
    ) -> T:
        """Does work on the database; again and again while the database fails and the lease lives.

        Args:
            work: what to do. It is idempotent: a database that fails may have done it.
            failed: called after each failure that is not the last.

        Raises:
            LedgerUnavailable: the database failed until the lease expired, or patience ended.
        """
        pause = _FIRST_PAUSE
        while True:
            try:
                return await work()
            except LedgerUnavailable as error:
                if not self._lasts(pause):
                    raise
                if failed:
                    await failed(error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _lasts(self, seconds: float) -> bool:
        if self._ended.is_set():
            return False
        return self.until is not None and datetime.now(UTC) + timedelta(seconds=seconds) < self.until
