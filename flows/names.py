"""What flow runs are called and tagged, so that the list of runs reads as the batches do."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from prefect import tags
from prefect.runtime import flow_run


def run_name() -> str:
    """`product-shots` for a run of `configs/product-shots.yaml`."""
    return Path(str(flow_run.get_parameters()["config"])).stem


def tagged() -> AbstractContextManager[set[str]]:
    """Within it, runs that start outside a deployment are tagged as its runs are."""
    return tags("callsheet")
