"""Backlots for many tests, in one event loop of a thread: none waits until another has stopped.

Each has its own port, service and database. When one is closed its port is closed at once; requests that it
still carries out go on.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from backlot.faults import RULE, Faults, Matched
from backlot.server import Backlot, opened
from backlot.service import Service
from backlot.settings import Settings


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


@contextmanager
def serve(settings: Settings, clock: Callable[[], float] = time.time) -> Iterator[Backlot]:
    """Serves as `backlot.server.serve`."""
    with opened(settings, clock) as (lot, server, listener):
        serving = asyncio.run_coroutine_threadsafe(server.serve([listener]), _loop())
        while not server.started:
            assert not serving.done(), serving
            time.sleep(0.001)
        try:
            yield lot
        finally:
            asyncio.run_coroutine_threadsafe(_close(server), _loop()).result()


class Observed(Faults):
    """Faults of the service, and the prompts for which each endpoint was called."""

    def __init__(self, *rules: dict[str, Any]) -> None:
        super().__init__(map(RULE.validate_python, rules))
        self.prompts: defaultdict[str, list[str]] = defaultdict(list)

    def match(self, endpoint: Any, model: str = "", prompt: str = "") -> Matched:
        self.prompts[endpoint].append(prompt)
        return super().match(endpoint, model, prompt)


def finish_videos(service: Service) -> None:
    """Every video that the service is making is due now."""
    now = int(service.clock() * 1000)
    service.store.db.execute("UPDATE generations SET due_at = ? WHERE state = 'pending'", [now])


async def _close(server: uvicorn.Server) -> None:
    """Closes the port now; the server ends when it next looks, without waiting for its requests."""
    for each in server.servers:
        each.close()
    server.should_exit = server.force_exit = True
