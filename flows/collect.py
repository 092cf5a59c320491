"""`collect-media`: polls and downloads what is paid for, and never buys."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.states import Completed

from callsheet.config.load import load
from callsheet.pricing.planning import last_plan
from callsheet.session import open_run
from flows.names import run_name
from tasks.connect import connect
from tasks.download import download
from tasks.poll import poll
from tasks.record import record


@flow(name="collect-media", flow_run_name=run_name, persist_result=False)
async def collect_media(config: str, overrides: list[str] | None = None) -> Any:
    """Takes up every accepted generation of a batch that is not stored yet.

    Args:
        config: the config file, from the working directory.
        overrides: single settings to change, each as `poll.timeout=600`.
    """
    settings = load(Path(config), overrides or ())
    async with (
        await connect(settings) as client,
        open_run(settings, client) as run,
        asyncio.TaskGroup() as steps,
    ):
        run.plan = await asyncio.to_thread(last_plan, settings)  # what the report is about
        run.videos.end().close()  # nobody submits
        run.files.end().close()
        steps.create_task(poll(run))
        steps.create_task(download(run))
        recorded = steps.create_task(record(run))
    summary = recorded.result()
    return Completed(name=summary.outcome.capitalize(), message=summary.line(), data=summary)
