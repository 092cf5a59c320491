"""The steps of a batch, in their order and side by side.

`Steps()` are the library's own; a flow run of Prefect puts tasks in their place, which do the same. Nothing
here decides about money.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from callsheet import signals
from callsheet.batches.read import Batch, read_batch
from callsheet.config.settings import Settings
from callsheet.errors import InputError, Stop
from callsheet.pricing.choice import ALL, Choice
from callsheet.pricing.not_in_ledger import check_report
from callsheet.pricing.plan import Plan, adopt, is_outdated, price_batch
from callsheet.pricing.quote import Quote
from callsheet.report.summary import Summary
from callsheet.service.client import Client
from callsheet.session import Run, after_buying, open_run
from callsheet.steps import approve
from callsheet.steps.connect import connect
from callsheet.steps.download import download
from callsheet.steps.poll import poll
from callsheet.steps.record import record
from callsheet.steps.submit import submit
from callsheet.watch import BEGAN


async def read(settings: Settings) -> Batch:
    """Reads and checks the config's batch, off the event loop."""
    return await asyncio.to_thread(read_batch, settings)


def _alone(_: Run) -> AbstractAsyncContextManager[None]:
    return nullcontext()


@dataclass(frozen=True, slots=True)
class Steps:
    """What carries out each step.

    Attributes:
        connect: makes the client.
        read: reads the batch file.
        price: makes the plan.
        show: makes the quote, and shows it.
        approve: asks a person, where one must be asked.
        submit: buys.
        poll: asks for videos.
        download: stores files.
        record: shows the progress, and writes the report.
        beside: what is open beside these four.
    """

    connect: Callable[[Settings], Awaitable[Client]] = connect
    read: Callable[[Settings], Awaitable[Batch]] = read
    price: Callable[[Batch, Settings, Client], Awaitable[Plan]] = price_batch
    show: Callable[[Plan, Settings, Client, Choice], Awaitable[Quote]] = approve.show
    approve: Callable[..., Awaitable[tuple[Quote, Stop | None]]] = approve.approve
    submit: Callable[[Run], Coroutine[Any, Any, None]] = submit
    poll: Callable[[Run], Coroutine[Any, Any, None]] = poll
    download: Callable[[Run], Coroutine[Any, Any, None]] = download
    record: Callable[[Run], Coroutine[Any, Any, Summary]] = record
    beside: Callable[[Run], AbstractAsyncContextManager[None]] = _alone

    async def plan(self, settings: Settings, client: Client) -> Plan:
        """Reads and prices the batch."""
        return await self.price(await self.read(settings), settings, client)


async def generate(
    settings: Settings,
    *,
    approved: bool,
    choice: Choice = ALL,
    plan: str | None = None,
    steps: Steps = Steps(),
) -> Summary:
    """Buys every job of a batch that is not bought yet, and stores its media.

    Args:
        settings: the config.
        approved: somebody has said yes already to whatever a person must approve.
        choice: which jobs of the batch to buy.
        plan: the `sha256` of the plan that was approved: nothing is bought of another.
        steps: what carries them out.

    Raises:
        CallsheetError: what broke the run off; `exit_code` says whether it may have bought anything.
        Interrupted: a signal came before the buying began, or a second one.
        Pause: (Prefect's) the run waits for a person, who is asked in the UI or has suspended it there.
    """
    began = BEGAN.get() or time.monotonic()
    with signals.cancelled_by_signals():
        await check_report(settings)
        async with await steps.connect(settings) as client:
            made = await steps.plan(settings, client)
            pilot: Summary | None = None
            while True:
                with after_buying(bought=pilot is not None):
                    await _check_plan(made, plan)
                    shown = await steps.show(made, settings, client, choice)
                    quote, stop = await steps.approve(shown, settings, approved, pilot=pilot)
                    if not stop and await is_outdated(made, settings, client):
                        made = await steps.plan(settings, client)
                        continue
                if not stop:
                    quote = replace(quote, plan=await adopt(quote.plan, settings))
                summary = await _buy(settings, client, quote, stop, steps, began=began, pilot=pilot)
                if summary.stop_reason or not quote.is_pilot:
                    return summary
                pilot = summary


async def _check_plan(made: Plan, approved: str | None) -> None:
    if approved is not None and await asyncio.to_thread(made.sha256) != approved:
        raise InputError(
            "the batch or its prices are not those that were approved, so this run buys nothing",
            hint="Run the batch again; it quotes what it would buy now.",
        )


async def _buy(
    settings: Settings,
    client: Client,
    quote: Quote,
    stop: Stop | None,
    steps: Steps,
    *,
    began: float,
    pilot: Summary | None,
) -> Summary:
    """Carries out the four steps that run side by side, for what is quoted."""
    async with open_run(settings, client, quote=quote, stop=stop) as run, steps.beside(run):
        run.began = began
        if pilot:  # of the same run
            run.limits.submissions, run.limits.rate_limited = pilot.submissions, pilot.rate_limited
        async with asyncio.TaskGroup() as group:
            for step in (steps.submit, steps.poll, steps.download):
                group.create_task(step(run))
            recorded = group.create_task(steps.record(run))
        if not run.is_pilot:
            signals.done()
    return recorded.result()


async def collect(settings: Settings, *, steps: Steps = Steps()) -> Summary:
    """Polls and downloads what is paid for and not stored yet. It never buys.

    Raises:
        CallsheetError: what broke the run off.
        Interrupted: a second signal came, or one before the run began.
    """
    began = BEGAN.get() or time.monotonic()
    with signals.cancelled_by_signals():
        await check_report(settings)
        async with (
            await steps.connect(settings) as client,
            open_run(settings, client) as run,
            steps.beside(run),
        ):
            run.began = began
            run.videos.end().close()  # nobody submits
            run.files.end().close()
            async with asyncio.TaskGroup() as group:
                for step in (steps.poll, steps.download):
                    group.create_task(step(run))
                recorded = group.create_task(steps.record(run))
            signals.done()
    return recorded.result()
