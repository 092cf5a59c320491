"""What makes a coroutine a step: a task of Prefect inside a flow run, and a plain coroutine everywhere else.

It never imports Prefect first: where nobody has imported it, no flow run is under way.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def in_flow_run() -> bool:
    """Whether this code runs inside a Prefect flow run."""
    context: Any = sys.modules.get("prefect.context")
    return bool(context and context.FlowRunContext.get())


def step(work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Shows `work` as a task of its name on the page of the flow run, where there is one.

    When a person has suspended the run, Prefect raises `Pause` where a task begins or has ended, and one of
    the steps that run side by side would break the others off. So a step ends as its work does; what Suspend
    does is in `tasks/pressed.py`.
    """

    @functools.wraps(work)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if not in_flow_run():
            return await work(*args, **kwargs)
        from prefect.exceptions import Pause

        outcome: Future[T] = Future()
        try:
            await _task(work, outcome)(*args, **kwargs)
        except Pause:
            if not outcome.done():  # it has not begun
                return await work(*args, **kwargs)
        return outcome.result()

    return run


def _task(
    work: Callable[P, Coroutine[Any, Any, T]], outcome: Future[T]
) -> Callable[P, Coroutine[Any, Any, None]]:
    """A task of Prefect that does `work`, and says in `outcome` how that has ended."""
    from prefect import task
    from prefect.cache_policies import NO_CACHE

    @functools.wraps(work)
    async def kept(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            outcome.set_result(await work(*args, **kwargs))
        except BaseException as error:
            outcome.set_exception(error)
            raise

    name = work.__name__
    return task(name=name, task_run_name=name, cache_policy=NO_CACHE, persist_result=False)(kept)
