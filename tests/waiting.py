"""Waiting for what happens outside a test, with a limit that no slow machine reaches."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

LONGEST = 300.0
"""Seconds after which a test gives up on something that should happen at once."""


def wait_until(condition: Callable[[], object], reason: str, every: float = 0.05) -> None:
    """Waits until `condition()` is true; looks `every` so many seconds.

    Raises:
        AssertionError: it was not true within `LONGEST` seconds; the message is `reason`.
    """
    deadline = time.monotonic() + LONGEST
    while not condition():
        assert time.monotonic() < deadline, reason
        time.sleep(every)


def runs(process: psutil.Process) -> bool:
    """Whether a process still runs. One that has ended stays a zombie where nobody waits for it."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
