"""The steps of a batch, in their order and side by side: the same with Prefect and without it.

Inside a flow run of Prefect each step is a task on its page (`tasks/step.py`). Nothing here decides about
money.
"""

from __future__ import annotations

import asyncio
import time

from callsheet import signals
from callsheet.config.settings import Settings
from callsheet.errors import Stop
from callsheet.pricing.choice import ALL, Choice
from callsheet.pricing.planning import is_outdated, last_plan
from callsheet.pricing.quote import Quote
from callsheet.report.summary import Summary
from callsheet.service.client import Client
from callsheet.session import after_buying, open_run
from callsheet.watch import BEGAN
from tasks import events
from tasks.approve import approve
from tasks.connect import connect
from tasks.download import download
from tasks.poll import poll
from tasks.price import price
from tasks.read import read
from tasks.record import record
from tasks.submit import submit


async def generate(settings: Settings, *, approved: bool, choice: Choice = ALL) -> Summary:
    """Buys every job of a batch that is not bought yet, and stores its media.

    Args:
        settings: the config.
        approved: somebody has said yes already to whatever a person must approve.
        choice: which jobs of the batch to buy.

    Raises:
        CallsheetError: what broke the run off; `exit_code` says whether it may have bought anything.
        Interrupted: a signal came before the buying began, or a second one.
    """
    began = BEGAN.get() or time.monotonic()
    with signals.cancelled_by_signals():
        async with await connect(settings) as client:
            rows = await read(settings)
            plan = await price(rows, settings, client)
            pilot: Summary | None = None
            while True:
                with after_buying(bought=pilot is not None):
                    quote, stop = await approve(plan, settings, client, approved, choice=choice, pilot=pilot)
                    if not stop and await is_outdated(plan, settings, client):
                        plan = await price(rows, settings, client)
                        continue
                summary = await _buy(settings, client, quote, stop, began=began, pilot=pilot)
                if summary.stop_reason or not quote.is_pilot:
                    return summary
                pilot = summary


async def _buy(
    settings: Settings,
    client: Client,
    quote: Quote,
    stop: Stop | None,
    *,
    began: float,
    pilot: Summary | None,
) -> Summary:
    """Carries out the four steps that run side by side, for what is quoted."""
    async with open_run(settings, client, quote=quote, stop=stop) as run:
        run.began = began
        if pilot:  # of the same run
            run.limits.submissions, run.limits.rate_limited = pilot.submissions, pilot.rate_limited
        run.listeners.append(events.of_jobs(settings.batch))
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
        async with await connect(settings) as client, open_run(settings, client) as run:
            run.began = began
            run.listeners.append(events.of_jobs(settings.batch))
            run.plan = await asyncio.to_thread(last_plan, settings)  # what the report is about
            run.videos.end().close()  # nobody submits
            run.files.end().close()
            async with asyncio.TaskGroup() as steps:
                steps.create_task(poll(run))
                steps.create_task(download(run))
                recorded = steps.create_task(record(run))
            signals.done()
    return recorded.result()
