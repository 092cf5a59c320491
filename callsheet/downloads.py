"""Files that wait to be downloaded: the most urgent first, not too many, and none of them too late.

It keeps the order and the count. It downloads nothing, and knows neither the ledger nor storage.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from callsheet.records import File

MOST = 1_000
"""Files that wait at once; the steps that bring more wait with them."""

SIDE_BY_SIDE = 24
"""Downloads at once: enough to use the network, few enough for the order by deadline to matter."""

_AT_ONCE = datetime.min.replace(tzinfo=UTC)


@dataclass(slots=True)
class Waiting:
    """A file on its way, and what has been tried.

    Attributes:
        file: under its latest URL.
        tries: failed downloads of this run.
        gone: how often the service has said after the file's `deletes_at` that there is no such file.
        began: when this run first tried, in monotonic seconds.
    """

    file: File
    tries: int = 0
    gone: int = 0
    began: float = field(default_factory=time.monotonic)


class Downloads:
    """A queue by `deletes_at`, for one event loop. Files without it come first.

    Attributes:
        succeeded: when a download last succeeded, in monotonic seconds; 0 before the first.
    """

    def __init__(self) -> None:
        self.succeeded = 0.0
        self._heap: list[tuple[datetime, int, Waiting]] = []
        self._numbers = itertools.count()
        self._room = asyncio.Semaphore(MOST)
        self._ready = asyncio.Semaphore(0)
        self._seconds_per_file = 0.0
        self._moved = 0.0

    async def add(self, file: File) -> None:
        """Puts a file into the queue; waits while `MOST` files are not done."""
        await self._room.acquire()
        self._put(Waiting(file))

    async def next(self) -> Waiting:
        """Takes the most urgent file; waits for one."""
        await self._ready.acquire()
        self._moved = time.monotonic()
        return heapq.heappop(self._heap)[-1]

    def again(self, waiting: Waiting, seconds: float) -> None:
        """Puts a file that was taken back into the queue after so many seconds."""
        asyncio.get_running_loop().call_later(seconds, self._put, waiting)

    def done(self, seconds: float) -> None:
        """A file that was taken is dealt with; that took so many seconds."""
        self._moved = time.monotonic()
        took = seconds / SIDE_BY_SIDE
        # The first one as it is, then a moving average.
        self._seconds_per_file += (took - self._seconds_per_file) / (10 if self._seconds_per_file else 1)
        self._room.release()

    async def all_done(self) -> None:
        """Waits until every file that was added is done. No file may be added from then on."""
        for _ in range(MOST):
            await self._room.acquire()

    def late(self) -> bool:
        """Whether the files that wait will hardly be downloaded in time, so that no more should be bought.

        Before the first one is done, and while none gets done, the time since the last change counts.
        """
        if not self._heap or self._heap[0][0] == _AT_ONCE:  # then no deadline is known
            return False
        left = (self._heap[0][0] - datetime.now(UTC)).total_seconds()
        seconds = max(self._seconds_per_file, time.monotonic() - self._moved)
        return len(self._heap) * seconds > left / 2

    def _put(self, waiting: Waiting) -> None:
        deadline = waiting.file.media.deletes_at or _AT_ONCE
        heapq.heappush(self._heap, (deadline, next(self._numbers), waiting))
        self._ready.release()
