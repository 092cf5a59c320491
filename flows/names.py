"""What flow runs are called, tagged, and end as, so that the list of runs reads as the batches do."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from prefect import tags
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed

from callsheet.report.summary import Summary


def run_name() -> str:
    """`product-shots` for a run of `configs/product-shots.yaml`."""
    return Path(str(flow_run.get_parameters()["config"])).stem


def tagged() -> AbstractContextManager[set[str]]:
    """Within it, runs that start outside a deployment are tagged as its runs are."""
    return tags("callsheet")


def final_state(summary: Summary) -> State[Summary]:
    """The state that a flow run ends in, with the summary as its message and its result."""
    return Completed(name=summary.outcome.capitalize(), message=summary.line(), data=summary)
