"""`collect-media`: polls and downloads what is paid for, and never buys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow

from callsheet.config.load import load
from flows import pipeline
from flows.names import final_state, run_name
from tasks import artifacts


@flow(name="collect-media", flow_run_name=run_name, persist_result=False)
async def collect_media(config: str, overrides: list[str] | None = None) -> Any:
    """Takes up every accepted generation of a batch that is not stored yet.

    Args:
        config: the config file, from the working directory.
        overrides: single settings to change, each as `poll.timeout=600`.
    """
    settings = load(Path(config), overrides or ())
    await artifacts.name_run(settings.batch)
    return final_state(await pipeline.collect(settings))
