"""The memory of requests with inlined images: how many bytes of them exist at once, and a cache of images.

Knows nothing of jobs and of files: what reads an image is given to it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

LIMIT = 256 * 1024 * 1024
"""Bytes of request bodies that are in use at once."""

CACHE = 128 * 1024 * 1024
"""Bytes of data URLs that are kept for requests to come."""

READERS = 16
"""Images that are read at once."""


class RequestMemory:
    """A limit of bytes in use, and the data URLs used last.

    Args:
        limit: bytes of request bodies that may be in use at once.
        cache: bytes of data URLs that are kept.
    """

    def __init__(self, limit: int = LIMIT, cache: int = CACHE) -> None:
        self._limit = limit
        self._in_use = 0
        self._turn = anyio.Lock()  # first come, first served, so that a large body is not overtaken for ever
        self._released = anyio.Event()
        self._cache = cache
        self._cached = 0
        self._urls: OrderedDict[str, str] = OrderedDict()
        self._reading: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._readers = anyio.CapacityLimiter(READERS)

    @asynccontextmanager
    async def reserve(self, size: int) -> AsyncIterator[None]:
        """Waits until so many bytes are free, and counts them as used until the context ends.

        A body that is larger than the whole limit is let in alone.
        """
        async with self._turn:
            while self._in_use and self._in_use + size > self._limit:
                self._released = anyio.Event()
                await self._released.wait()
            self._in_use += size
        try:
            yield
        finally:
            self._in_use -= size
            self._released.set()

    async def data_url(self, sha256: str, read: Callable[[], str]) -> str:
        """An image's data URL, from the cache, or read in a thread. Requests for the same image read it once.

        Args:
            sha256: of the image, in hex.
            read: reads it. What it raises is raised here.
        """
        lock = self._reading.setdefault(sha256, anyio.Lock())
        async with lock:
            url = self._urls.get(sha256)
            if url is None:
                url = await anyio.to_thread.run_sync(read, limiter=self._readers, abandon_on_cancel=True)
                self._keep(sha256, url)
            self._urls.move_to_end(sha256)
            return url

    def _keep(self, sha256: str, url: str) -> None:
        self._urls[sha256] = url
        self._cached += len(url)
        while len(self._urls) > 1 and self._cached > self._cache:
            _, oldest = self._urls.popitem(last=False)
            self._cached -= len(oldest)


_memory: RunVar[RequestMemory] = RunVar("request_memory")


def request_memory() -> RequestMemory:
    """The memory that all requests of the running event loop share."""
    try:
        return _memory.get()
    except LookupError:
        memory = RequestMemory()
        _memory.set(memory)
        return memory
