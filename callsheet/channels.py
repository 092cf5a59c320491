"""What passes between the steps of a run that work side by side: their work, and what of it is left.

Nothing here does the work, or knows the ledger or storage. All of it is for one event loop.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, Self, TypeVar

from callsheet.records import File

T = TypeVar("T")
_AT_ONCE = datetime.min.replace(tzinfo=UTC)


class Channel(Generic[T]):
    """Carries work from some steps to the next, which iterates over it.

    Args:
        fillers: how many steps fill it; it ends when each of them has left.
    """

    def __init__(self, fillers: int) -> None:
        self._fillers = fillers
        self._items: asyncio.Queue[T | None] = asyncio.Queue()

    def put(self, item: T) -> None:
        """Gives the next step something to do."""
        self._items.put_nowait(item)

    @contextmanager
    def filling(self) -> Iterator[None]:
        """For a step that fills it: at the end the step leaves."""
        try:
            yield
        finally:
            self._fillers -= 1
            if not self._fillers:
                self._items.put_nowait(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if (item := await self._items.get()) is None:
            raise StopAsyncIteration
        return item


class AwaitedCosts:
    """Counts the reserved jobs whose cost is not known yet.

    Attributes:
        count: how many there are.
        ended: how many there were.
    """

    def __init__(self) -> None:
        self.count = self.ended = 0
        self._end = asyncio.Event()

    def begin(self, count: int) -> None:
        """So many jobs are reserved, or were taken over."""
        self.count += count

    def end(self) -> None:
        """The cost of one of them is known, or will not be known by this run."""
        self.count -= 1
        self.ended += 1
        self._end.set()
        self._end = asyncio.Event()

    async def next_end(self) -> bool:
        """Waits until one of them ends; False where there are none."""
        if not self.count:
            return False
        await self._end.wait()
        return True


@dataclass(slots=True)
class Waiting:
    """A file on its way, and what has been tried.

    Attributes:
        file: under its latest URL.
        tries: failed downloads of this run.
        gone: how often the service has said after the file's `deletes_at` that there is no such file.
        began: when this run first took it from the queue to try it, in monotonic seconds; 0 before.
    """

    file: File
    tries: int = 0
    gone: int = 0
    began: float = 0.0


class Downloads:
    """The files that wait to be downloaded, by `deletes_at`. Files without it come first.

    Args:
        side_by_side: how many are downloaded at once: enough to use the network, few enough for the order to
            matter.

    Attributes:
        succeeded: when a download last succeeded, in monotonic seconds; 0 before the first.
    """

    def __init__(self, side_by_side: int = 24) -> None:
        self.side_by_side = side_by_side
        self.succeeded = 0.0
        self._heap: list[tuple[datetime, int, Waiting]] = []
        self._numbers = itertools.count()
        self._ready = asyncio.Semaphore(0)
        self._open = 0  # those that wait, and those that were taken
        self._all_done = asyncio.Event()
        self._seconds_per_file = 0.0
        self._moved = 0.0

    def add(self, file: File) -> None:
        """Puts a file into the queue."""
        self._open += 1
        self._put(Waiting(file))

    async def next(self) -> Waiting:
        """Takes the most urgent file; waits for one."""
        await self._ready.acquire()
        self._moved = time.monotonic()
        waiting = heapq.heappop(self._heap)[-1]
        waiting.began = waiting.began or self._moved
        return waiting

    def again(self, waiting: Waiting, seconds: float) -> None:
        """Puts a file that was taken back into the queue after so many seconds."""
        asyncio.get_running_loop().call_later(seconds, self._put, waiting)

    def done(self, seconds: float) -> None:
        """A file that was taken is dealt with; that took so many seconds."""
        self._moved = time.monotonic()
        took = seconds / self.side_by_side
        # The first one as it is, then a moving average.
        self._seconds_per_file += (took - self._seconds_per_file) / (10 if self._seconds_per_file else 1)
        self._open -= 1
        self._all_done.set()

    async def all_done(self) -> None:
        """Waits until every file that was added is done. No file may be added from then on."""
        while self._open:
            self._all_done.clear()
            await self._all_done.wait()

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
        if not self._heap:
            self._moved = time.monotonic()
        deadline = waiting.file.media.deletes_at or _AT_ONCE
        heapq.heappush(self._heap, (deadline, next(self._numbers), waiting))
        self._ready.release()
