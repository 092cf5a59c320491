"""Worker processes that make media, and a cache of the files.

The event loop only waits. Media is made when it is first fetched, so only the recipe has to be stored.
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
    """Prepares a worker: it ignores Ctrl-C, and ends when the server process has ended in any way."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None  # noqa: S101 - a worker has a parent

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


@functools.cache
def workers() -> ProcessPoolExecutor:
    """One pool for all servers of this process. It starts when it is first used."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(os.cpu_count() or 1, mp_context=context, initializer=live_with_parent)
    atexit.register(pool.shutdown, wait=False, cancel_futures=True)
    return pool


async def in_worker(task: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs a module-level function in a worker. A pool that has lost a worker is replaced once."""
    call = functools.partial(task, *args, **kwargs)
    try:
        return await asyncio.wrap_future(workers().submit(call))
    except BrokenProcessPool:
        workers.cache_clear()
        return await asyncio.wrap_future(workers().submit(call))


def make(recipe: Recipe) -> bytes:
    """The file of a recipe. Runs in a worker."""
    from backlot.media import images, videos

    return videos.make_video(recipe) if recipe.format == "mp4" else images.make_image(recipe)


def make_thumbnail(recipe: Recipe) -> bytes:
    """A small picture of a recipe. Runs in a worker."""
    from backlot.media import images

    return images.make_thumbnail(recipe)


def reduce(data: bytes, mime_type: str) -> bytes:
    """An inline image, checked and made small enough to store. Runs in a worker.

    Raises:
        ValueError: the bytes are not a readable image of that type.
    """
    from backlot.media import images

    return images.reduce(data, mime_type)


class MediaCache:
    """Makes the file of a recipe, and keeps the last `capacity` bytes of files."""

    def __init__(self, capacity: int = 256 * 2**20) -> None:
        self.capacity = capacity
        self.size = 0
        self.files: OrderedDict[bytes, bytes] = OrderedDict()
        self.making: dict[bytes, asyncio.Task[bytes]] = {}

    async def get(self, recipe: Recipe, task: Callable[[Recipe], bytes] = make) -> bytes:
        """The file of a recipe, or what another `task` makes of it. Equal requests wait for the same task."""
        digest = task.__name__.encode() + recipe.digest()
        if (file := self.files.get(digest)) is not None:
            self.files.move_to_end(digest)
            return file
        making = self.making.get(digest)
        if making is None:
            making = self.making[digest] = asyncio.create_task(in_worker(task, recipe))
            making.add_done_callback(lambda _: self.making.pop(digest))
        file = await asyncio.shield(making)
        self.keep(digest, file)
        return file

    def keep(self, digest: bytes, file: bytes) -> None:
        """Puts a file into the cache, and removes the least recently used files when it is full."""
        if digest not in self.files:
            self.files[digest] = file
            self.size += len(file)
        while self.size > self.capacity and self.files:
            self.size -= len(self.files.popitem(last=False)[1])
