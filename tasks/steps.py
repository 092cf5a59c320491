"""The steps of a batch as tasks of Prefect, for `steps.batch.generate` and `collect`: `STEPS` is the table.

Each does what the library's step does. Shown besides are the quote as the run's name and page, the progress,
and the costs; and a person is asked in the UI where one must approve. To show the quote is no task: it takes
no time, and belongs to the page of the whole run.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, TypeVar

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.exceptions import Pause

from callsheet.config.settings import Settings
from callsheet.errors import ApprovalRefused, CallsheetError
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.words import Reason
from callsheet.present import results
from callsheet.pricing.choice import Choice
from callsheet.pricing.plan import last_plan, price_batch
from callsheet.pricing.quote import quote_plan
from callsheet.pricing.sources import read_rows
from callsheet.report.summary import Summary, read_review
from callsheet.session import Run
from callsheet.steps import download, poll, submit
from callsheet.steps import price as price_step
from callsheet.steps import record as record_step
from callsheet.steps.approve import ask_about
from callsheet.steps.batch import Steps
from callsheet.watch import Asked
from tasks import artifacts, suspend
from tasks.pressed import Pressed, heed, heeding, pressed
from tasks.service_block import connect

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

        task_name = name or work.__name__
        as_task = task(
            name=task_name,
            task_run_name=task_name,
            cache_policy=NO_CACHE,
            persist_result=False,
            retries=0,  # said here, a profile cannot say otherwise: a retry would buy
            retry_delay_seconds=0,
        )
        try:
            await as_task(kept)(*args, **kwargs)
        except Pause:
            if not outcome.done():  # it has not begun
                return await work(*args, **kwargs)
        return outcome.result()

    return run


@step
async def record(run: Run) -> Summary:
    """Does what `callsheet/steps/record.py` does, with a progress bar and the costs as artifacts."""
    summary = await record_step.record(run, _progress_shown(run))
    _, again = await read_review(run.ledger, run.settings)
    await artifacts.show_costs(summary, run.settings, again)
    if not run.is_pilot:
        refused = "refused, " if isinstance(run.stop, ApprovalRefused) else ""
        await artifacts.name_run(summary.batch, results.topic(summary, refused))
    return summary


@asynccontextmanager
async def _progress_shown(run: Run) -> AsyncIterator[None]:
    async with artifacts.progress_of(run):
        yield
    if run.interrupted:
        await heed(run)  # a signal may have been a Cancel in the Prefect UI: the report says so


async def ask_to_go_on(settings: Settings, choice: Choice, summary: Summary) -> None:
    """Where a person has suspended this run of a deployment, asks in the UI whether to buy what is left.

    It is the question about the quote, which Resume shows; whoever answers may set another limit.

    Raises:
        Pause: (Prefect's) the run waits for a person; it begins again with the answer.
    """
    if await pressed() is not Pressed.SUSPEND or (plan := last_plan(settings)) is None:
        return
    ui = suspend.UI.of_this_run(settings)
    asker = ui.flow_run if ui else None
    async with await Ledger.open(settings.ledger.url, settings.batch, flow_run=asker) as ledger:
        try:
            async with await connect(settings) as client:
                left = await quote_plan(plan, settings, client, ledger, choice)
        except CallsheetError:  # then Resume asks nothing
            return
        if not left.to_buy:
            return
        word = await ask_about(ledger, settings, left, {Reason.SUSPENDED: "the run was suspended"})
    await suspend.stay(results.line(summary), Asked(word, left))


read = step(read_rows, "read")
price = step(price_step.price)
price_at_once = step(price_batch, "price")  # for who only looks: a service that is down is not waited for
STEPS = Steps(
    connect=connect,
    read=read,
    price=price,
    show_quote=artifacts.show_quote,
    ui=suspend.UI.of_this_run,
    submit=step(submit.submit),
    poll=step(poll.poll),
    download=step(download.download),
    record=record,
    beside=heeding,
    before_portion=heed,
)
