"""What a flow run is called: its config's name, so that the list of runs reads as the batches do."""

from __future__ import annotations

from pathlib import Path

from prefect.runtime import flow_run


def run_name() -> str:
    """`product-shots` for a run of `configs/product-shots.yaml`."""
    return Path(str(flow_run.get_parameters()["config"])).stem
