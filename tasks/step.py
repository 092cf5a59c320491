"""What makes a coroutine a step: a task of Prefect inside a flow run, and a plain coroutine everywhere else.

It never imports Prefect first: where nobody has imported it, no flow run is under way.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def in_flow_run() -> bool:
    """Whether this code runs inside a Prefect flow run."""
    context: Any = sys.modules.get("prefect.context")
    return bool(context and context.FlowRunContext.get())


def step(work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Shows `work` as a task of its name on the page of the flow run, where there is one."""

    @functools.wraps(work)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if in_flow_run():
            task: Any = _task(work)
            result: T = await task(*args, **kwargs)
            return result
        return await work(*args, **kwargs)

    return run


@functools.cache
def _task(work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    from prefect import task
    from prefect.cache_policies import NO_CACHE

    name = work.__name__
    return task(name=name, task_run_name=name, cache_policy=NO_CACHE, persist_result=False)(work)
