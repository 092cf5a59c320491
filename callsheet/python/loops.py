"""Runs a coroutine for code that is not one itself: a script, or a cell of a notebook."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

from callsheet import signals

T = TypeVar("T")
_LOOK = 0.1  # seconds. A signal may wake another thread, and the main one alone runs its handler


def carry_out(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end, and returns its result.

    Where this thread has an event loop already, as in a notebook, the coroutine gets another one in a thread
    of its own, and Ctrl-C (the notebook's stop button) still reaches it.
    """
    if not _has_event_loop():
        return asyncio.run(work)
    with signals.passed_on(), ThreadPoolExecutor(1, "callsheet") as thread:
        future = thread.submit(contextvars.copy_context().run, asyncio.run, work)
        while not future.done():
            wait([future], timeout=_LOOK)
        return future.result()


def _has_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
