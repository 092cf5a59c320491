"""What passes between the steps of a run that work side by side: their work, and the count of open jobs."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

T = TypeVar("T")


class Channel(Generic[T]):
    """Carries work from some steps to the next; it ends when every step that fills it has left.

    Args:
        fillers: how many steps fill it.
    """

    def __init__(self, fillers: int) -> None:
        streams = anyio.create_memory_object_stream[T](1_000)
        first: MemoryObjectSendStream[T] = streams[0]
        self.items: MemoryObjectReceiveStream[T] = streams[1]
        self._ends = [first, *(first.clone() for _ in range(fillers - 1))]

    def end(self) -> MemoryObjectSendStream[T]:
        """One filler's end: to be used in a `with`, so that leaving is seen."""
        return self._ends.pop()


class OpenJobs:
    """Counts the reserved jobs whose cost is not known yet."""

    def __init__(self) -> None:
        self.count = 0
        self.ended = 0
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
