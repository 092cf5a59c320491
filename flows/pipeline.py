"""The steps of a batch, in their order and side by side: the same with Prefect and without it.

Inside a flow run of Prefect each step is a task on its page (`tasks/step.py`). Nothing here decides about
money.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from callsheet import signals
from callsheet.config.settings import Settings
from callsheet.errors import Stop
from callsheet.pricing import approval
from callsheet.pricing.choice import ALL, Choice
from callsheet.pricing.not_in_ledger import check_report
from callsheet.pricing.plan import adopt, is_outdated, shared
from callsheet.pricing.quote import Quote, quote_plan
from callsheet.report.summary import Summary
from callsheet.service.client import Client
from callsheet.session import after_buying, open_run
from callsheet.watch import BEGAN
from tasks import artifacts, events
from tasks.approve import approve, ask_to_go_on
from tasks.connect import connect
from tasks.download import download
from tasks.poll import poll
from tasks.pressed import heeding
from tasks.price import price
from tasks.read import read
from tasks.record import record
from tasks.submit import submit

if TYPE_CHECKING:
    from flows.crew import Crew


async def generate(
    settings: Settings, *, approved: bool, choice: Choice = ALL, crew: Crew | None = None
) -> Summary:
    """Buys every job of a batch that is not bought yet, and stores its media.

    Args:
        settings: the config.
        approved: somebody has said yes already to whatever a person must approve.
        choice: which jobs of the batch to buy.
        crew: starts other runs that buy beside this one; not for a pilot.

    Raises:
        CallsheetError: what broke the run off; `exit_code` says whether it may have bought anything.
        Interrupted: a signal came before the buying began, or a second one.
        Pause: (Prefect's) the run waits for a person, who is asked in the UI or has suspended it there.
    """
    began = BEGAN.get() or time.monotonic()
    with signals.cancelled_by_signals():
        await check_report(settings)
        async with await connect(settings) as client:
            plan = await price(await read(settings), settings, client)
            pilot: Summary | None = None
            while True:
                with after_buying(bought=pilot is not None):
                    quote, stop = await approve(plan, settings, client, approved, choice=choice, pilot=pilot)
                    if not stop and await is_outdated(plan, settings, client):
                        plan = await price(await read(settings), settings, client)  # rows take memory
                        continue
                if not stop:
                    quote = replace(quote, plan=await adopt(quote.plan, settings))
                buy = partial(_buy, settings, client, quote, stop, began=began, pilot=pilot)
                if crew and quote.to_buy and not stop and not quote.is_pilot:
                    summary = await crew.buy(quote, settings, partial(buy, leads=True))
                else:
                    summary = await buy()
                if summary.stop_reason or not quote.is_pilot:
                    await ask_to_go_on(quote, summary, settings, client)
                    return summary
                pilot = summary


async def join(settings: Settings, plan: str) -> Summary:
    """Buys beside the first run of a crew, from the plan that it has shared; that one writes the report.

    Args:
        settings: the config, with the budget that was approved.
        plan: the plan's `sha256`.

    Raises:
        InputError: the shared plan is not there, or is another one by now.
        CallsheetError: what broke the run off.
        Interrupted: a second signal came, or one before the run began.
    """
    began = time.monotonic()
    with signals.cancelled_by_signals():
        async with await connect(settings) as client:
            quote = await quote_plan(await shared(settings, plan), settings, client)
            await artifacts.name_run(settings.batch)
            return await _buy(settings, client, quote, approval.objection(quote), began=began, joined=True)


async def _buy(
    settings: Settings,
    client: Client,
    quote: Quote,
    stop: Stop | None,
    *,
    began: float,
    pilot: Summary | None = None,
    leads: bool = False,
    joined: bool = False,
) -> Summary:
    """Carries out the four steps that run side by side, for what is quoted."""
    listeners = [events.of_jobs(settings.batch)]
    opened = open_run(settings, client, quote=quote, stop=stop, listeners=listeners)
    async with opened as run, heeding(run):
        run.began, run.leads, run.joined = began, leads, joined
        if pilot:  # of the same run
            run.limits.submissions, run.limits.rate_limited = pilot.submissions, pilot.rate_limited
        async with asyncio.TaskGroup() as steps:
            for step in (submit, poll, download):
                steps.create_task(step(run))
            recorded = steps.create_task(record(run))
        if not run.is_pilot:
            signals.done()
    return recorded.result()


async def collect(settings: Settings) -> Summary:
    """Polls and downloads what is paid for and not stored yet. It never buys.

    Raises:
        CallsheetError: what broke the run off.
        Interrupted: a second signal came, or one before the run began.
    """
    began = BEGAN.get() or time.monotonic()
    with signals.cancelled_by_signals():
        await check_report(settings)
        listeners = [events.of_jobs(settings.batch)]
        async with (
            await connect(settings) as client,
            open_run(settings, client, listeners=listeners) as run,
            heeding(run),
        ):
            run.began = began
            run.videos.end().close()  # nobody submits
            run.files.end().close()
            async with asyncio.TaskGroup() as steps:
                steps.create_task(poll(run))
                steps.create_task(download(run))
                recorded = steps.create_task(record(run))
            signals.done()
    return recorded.result()
