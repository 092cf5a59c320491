"""`quote-batch`: what a batch would cost, as an artifact in the Prefect UI. It buys nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow
from prefect.states import Completed

from callsheet.config.load import load
from flows.names import run_name
from tasks.approve import show
from tasks.connect import connect
from tasks.price import price
from tasks.read import read


@flow(name="quote-batch", flow_run_name=run_name, persist_result=False)
async def quote_batch(config: str, overrides: list[str] | None = None) -> Any:
    """Prices a batch exactly and freezes its plan.

    Args:
        config: the config file, from the working directory.
        overrides: single settings to change, each as `budget.limit=5.00`.
    """
    settings = load(Path(config), overrides or ())
    async with await connect(settings) as client:
        rows = await read(settings)
        plan = await price(rows, settings, client)
        quote = await show(plan, settings, client)
    return Completed(message=quote.line(), data=quote)
