"""`generate-batch`: from a batch file to priced, paid-for, stored and accounted media."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.states import Completed

from callsheet.config.load import load
from callsheet.pricing.planning import is_outdated
from callsheet.session import open_run
from flows.names import run_name
from tasks.approve import approve
from tasks.connect import connect
from tasks.download import download
from tasks.poll import poll
from tasks.price import price
from tasks.read import read
from tasks.record import record
from tasks.submit import submit


@flow(name="generate-batch", flow_run_name=run_name, persist_result=False)
async def generate_batch(config: str, overrides: list[str] | None = None, approved: bool = False) -> Any:
    """Buys every job of a batch that is not bought yet, and stores its media.

    Args:
        config: the config file, from the working directory.
        overrides: single settings to change, each as `budget.limit=5.00`.
        approved: buy also when the quote is above `budget.approve_above`.
    """
    settings = load(Path(config), overrides or ())
    async with await connect(settings) as client:
        rows = await read(settings)
        plan = await price(rows, settings, client)
        quote, stop = await approve(plan, settings, client, approved)
        while await is_outdated(plan, settings, client):
            plan = await price(rows, settings, client)
            quote, stop = await approve(plan, settings, client, approved)
        async with open_run(settings, client, quote=quote, stop=stop) as run, asyncio.TaskGroup() as steps:
            for step in (submit, poll, download):
                steps.create_task(step(run))
            recorded = steps.create_task(record(run))
    summary = recorded.result()
    return Completed(name=summary.outcome.capitalize(), message=summary.line(), data=summary)
