"""`callsheet` with a watch on its event loop; at the end it writes what it saw to loop.json.

    python benchmarks/watched_loop.py run CONFIG

A task on the loop sleeps `EVERY` seconds again and again; by how much it wakes late, the loop was blocked.
The longest single callback and the longest garbage collection are timed too, so that there is a name.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from asyncio.events import Handle
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio

from callsheet.__main__ import main

EVERY = 0.002

late: list[float] = []  # seconds, one for each time that the task slept
callbacks: list[tuple[float, float, str]] = [(0.0, 0.0, "")]  # the longest so far: seconds, CPU, its task
collections: list[float] = []  # CPU seconds of each garbage collection
run_loop, run_callback = anyio.run, Handle._run


def run_watched(body: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    """In place of `anyio.run`."""

    async def watch() -> None:
        while True:
            slept = time.perf_counter()
            await asyncio.sleep(EVERY)
            late.append(time.perf_counter() - slept - EVERY)

    async def both() -> Any:
        watching = asyncio.create_task(watch())
        try:
            return await body(*arguments)
        finally:
            watching.cancel()

    return run_loop(both)


def run_timed(handle: Handle) -> None:
    """In place of `Handle._run`."""
    began, cpu = time.perf_counter(), time.thread_time()
    run_callback(handle)
    seconds = time.perf_counter() - began
    if seconds > callbacks[-1][0]:
        task = getattr(handle._callback, "__self__", None)
        name = task.get_name() if isinstance(task, asyncio.Task) else repr(handle._callback)
        callbacks.append((seconds, time.thread_time() - cpu, name))


def time_collection(phase: str, _: object) -> None:
    """A callback of the garbage collector."""
    now = time.thread_time()
    if phase == "start":
        collections.append(now)
    elif collections:
        collections[-1] = now - collections[-1]


if __name__ == "__main__":
    anyio.run, Handle._run = run_watched, run_timed
    gc.callbacks.append(time_collection)
    try:
        main()
    finally:
        seen = {"late": sorted(late), "callback": callbacks[-1], "collection": max(collections)}
        Path("loop.json").write_text(json.dumps(seen))
