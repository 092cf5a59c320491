"""What a careful script does that is told the account's limits: a semaphore, and fixed pacing.

It has the methods of `callsheet.limits.turns.Limits` that the simulated client uses. It is told the requests
a minute and the concurrency, and learns nothing: an answer 429 makes it wait, as the interface asks for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from callsheet.records import ModelType

LANES_FULL = 1.0  # seconds to wait after a 429 that does not say how long


class Turn:
    """The permission for one submission."""

    def __init__(self, limits: ToldLimits, model_type: ModelType) -> None:
        self.limits, self.model_type = limits, model_type
        self.kept = False

    def leaves(self) -> None:
        """It was counted before."""

    def answered(self, limit: int, remaining: int, reset: int, date: int | None) -> None:
        """Nothing is learned from it."""

    def window_full(self, retry_after: float) -> None:
        self.limits.wait(self.model_type, retry_after)

    def lanes_full(self) -> None:
        self.limits.wait(self.model_type, LANES_FULL)

    def keep(self) -> None:
        self.kept = True


class ToldLimits:
    """Turns at fixed times, `rpm` a minute of each type, while fewer than `concurrency` are at work."""

    def __init__(self, rpm: Mapping[ModelType, int], concurrency: int) -> None:
        self.lanes = asyncio.Semaphore(concurrency)
        self.gaps = {model_type: 60 / limit for model_type, limit in rpm.items()}  # seconds
        self.next = dict.fromkeys(rpm, 0.0)  # when the next request of a type may leave
        self.queues = {model_type: asyncio.Lock() for model_type in rpm}

    @asynccontextmanager
    async def turn(self, model_type: ModelType) -> AsyncGenerator[Turn, None]:
        turn = Turn(self, model_type)
        async with self.queues[model_type]:
            await self.lanes.acquire()
            now = asyncio.get_running_loop().time
            while (wait := self.next[model_type] - now()) > 0:  # noqa: ASYNC110 - a 429 can put it off
                await asyncio.sleep(wait)
            self.next[model_type] = max(now(), self.next[model_type]) + self.gaps[model_type]
        try:
            yield turn
        finally:
            if not turn.kept:
                self.lanes.release()

    def wait(self, model_type: ModelType, seconds: float) -> None:
        """The next request of a type leaves at the earliest after so many seconds."""
        now = asyncio.get_running_loop().time()
        self.next[model_type] = max(self.next[model_type], now + seconds)

    def release(self) -> None:
        self.lanes.release()
