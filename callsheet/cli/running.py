"""Runs a batch for the person at the terminal."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from callsheet import signals
from callsheet.cli import STARTED

if TYPE_CHECKING:
    from callsheet.cli.screens import Screen
    from callsheet.report.summary import Summary


def run_watched(start: Callable[[], Awaitable[Summary]], screen: Screen) -> Summary:
    """Carries out the steps of a batch in this process.

    Args:
        start: imports the steps, and returns what carries them out.
        screen: the run's watcher.

    Raises:
        Interrupted: a signal came before the buying began, or a second one.
    """
    import anyio

    from callsheet.watch import BEGAN, WATCHER

    steps = start()  # before there is an event loop that would wait for the imports

    async def watched() -> Summary:
        WATCHER.set(screen)
        BEGAN.set(STARTED)
        with signals.cancelled_by_signals():
            return await steps

    try:
        gc.freeze()  # a collection that looks at all that is imported holds the loop up for 50 ms
        return anyio.run(watched)
    finally:
        screen.close()
