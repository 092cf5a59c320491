"""Tests in virtual time: time jumps to the next timer, so a test of ten minutes takes no time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

from benchmarks.simulated_service import SHAPES, run_virtual
from callsheet.limits.limits import AccountLimits, Turn
from callsheet.records import ModelType

IMAGE, VIDEO = ModelType.IMAGE, ModelType.VIDEO
FIXED = [shape for shape in SHAPES if shape.startswith("fixed")]


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs an async test in virtual time."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        run_virtual(test(*args, **kwargs))

    return run


def now() -> float:
    return asyncio.get_running_loop().time()


async def let_others_run() -> None:
    """Lets every task run that need not wait; no time passes."""
    for _ in range(20):
        await asyncio.sleep(0)


@asynccontextmanager
async def sent(limits: AccountLimits, model_type: ModelType) -> AsyncGenerator[Turn, None]:
    """A turn whose request leaves at once."""
    async with limits.turn(model_type) as turn:
        turn.leaves()
        yield turn


def start_caller(
    limits: AccountLimits, model_type: ModelType, times: list[float], *, lasts: float = 0.0
) -> asyncio.Task[None]:
    """A caller that records the time of its turn."""

    async def caller() -> None:
        async with sent(limits, model_type):
            times.append(now())
            await asyncio.sleep(lasts)

    return asyncio.create_task(caller())
