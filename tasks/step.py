"""What makes a step of the library a task of Prefect."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.exceptions import Pause

P = ParamSpec("P")
T = TypeVar("T")


def step(
    work: Callable[P, Coroutine[Any, Any, T]], name: str | None = None
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Shows `work` as a task of a name, or of its own, on the page of the flow run.

    When a person has suspended the run, Prefect raises `Pause` where a task begins or has ended, and one of
    the steps that run side by side would break the others off. So a step ends as its work does; what Suspend
    does is in `tasks/pressed.py`.
    """

    @functools.wraps(work)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        outcome: Future[T] = Future()

        @functools.wraps(work)
        async def kept(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                outcome.set_result(await work(*args, **kwargs))
            except BaseException as error:
                outcome.set_exception(error)
                raise

        shown = name or work.__name__
        as_task = task(name=shown, task_run_name=shown, cache_policy=NO_CACHE, persist_result=False)(kept)
        try:
            await as_task(*args, **kwargs)
        except Pause:
            if not outcome.done():  # it has not begun
                return await work(*args, **kwargs)
        return outcome.result()

    return run
