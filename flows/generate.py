"""`generate-batch`: from a batch file to priced, paid-for, stored and accounted media."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow

from callsheet.config.load import load
from flows import pipeline
from flows.names import final_state, run_name


@flow(name="generate-batch", flow_run_name=run_name, persist_result=False)
async def generate_batch(config: str, overrides: list[str] | None = None, approved: bool = False) -> Any:
    """Buys every job of a batch that is not bought yet, and stores its media.

    Args:
        config: the config file, from the working directory.
        overrides: single settings to change, each as `budget.limit=5.00`.
        approved: buy also when the quote is above `budget.approve_above`.
    """
    return final_state(await pipeline.generate(load(Path(config), overrides or ()), approved=approved))
