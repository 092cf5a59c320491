"""The studio: worker processes that make media, and a cache of what they made.

The event loop only waits. Media is made when it is first fetched: the recipe is all that needs to be kept.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import ParamSpec, TypeVar

from backlot.media.recipe import Recipe

P = ParamSpec("P")
T = TypeVar("T")


def live_with_parent() -> None:
    """Begin a worker: leave Ctrl-C to the server, and end when the server is gone, however it went."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None  # noqa: S101 - a worker has a parent

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


@functools.cache
def workers() -> ProcessPoolExecutor:
    """One pool for all servers of this process, started by its first use."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(os.cpu_count() or 1, mp_context=context, initializer=live_with_parent)
    atexit.register(pool.shutdown, wait=False, cancel_futures=True)
    return pool


async def in_worker(task: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a module-level function in a worker; a pool that has lost a worker is replaced, once."""
    call = functools.partial(task, *args, **kwargs)
    try:
        return await asyncio.wrap_future(workers().submit(call))
    except BrokenProcessPool:
        workers.cache_clear()
        return await asyncio.wrap_future(workers().submit(call))


def make(recipe: Recipe) -> bytes:
    """The media of a recipe, as a file's bytes. Runs in a worker."""
    from backlot.media import films, pictures

    return films.film(recipe) if recipe.format == "mp4" else pictures.picture(recipe)


def reduce(data: bytes, mime_type: str) -> bytes:
    """An inline picture, checked and made small enough to keep. Runs in a worker."""
    from backlot.media import pictures

    return pictures.reduce(data, mime_type)


class Studio:
    """Makes each recipe once while it is in the cache, which holds at most `capacity` bytes."""

    def __init__(self, capacity: int = 256 * 2**20) -> None:
        self.capacity = capacity
        self.held = 0
        self.files: OrderedDict[bytes, bytes] = OrderedDict()
        self.making: dict[bytes, asyncio.Task[bytes]] = {}

    async def get(self, recipe: Recipe) -> bytes:
        """The file of a recipe. Requests for the same one wait for the same work."""
        digest = recipe.digest()
        if (made := self.files.get(digest)) is not None:
            self.files.move_to_end(digest)
            return made
        task = self.making.get(digest)
        if task is None:
            task = self.making[digest] = asyncio.create_task(in_worker(make, recipe))
            task.add_done_callback(lambda _: self.making.pop(digest))
        made = await asyncio.shield(task)
        self.keep(digest, made)
        return made

    def keep(self, digest: bytes, made: bytes) -> None:
        """Put a file into the cache; the least recently used make room."""
        if digest not in self.files:
            self.files[digest] = made
            self.held += len(made)
        while self.held > self.capacity and self.files:
            self.held -= len(self.files.popitem(last=False)[1])
