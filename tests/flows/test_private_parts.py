"""What `tasks/private_parts.py` uses of Prefect is as it was when it was read."""

from __future__ import annotations

import hashlib
import inspect
from typing import Any

import pytest
from prefect import _flow_run_suspension as suspension
from prefect.cli import worker
from prefect.context import FlowRunContext
from prefect.input import run_input
from prefect.runner._state_proposer import StateProposer
from prefect.utilities import processutils


@pytest.mark.parametrize(
    "part, as_it_was",
    [
        (suspension.FlowRunSuspensionRequest, "e3bee1037079"),
        (suspension.raise_if_flow_run_suspension_requested, "0d820932a474"),
        (run_input.keyset_from_paused_state, "96dba3b0e666"),
        (run_input.keyset_from_base_key, "3fbccac0fc0a"),
        (StateProposer.propose_cancelled, "ac9151d8c788"),
        (processutils.run_process, "b5f1d15e5eaf"),
        (processutils.setup_signal_handlers_worker, "7f36401896b2"),
        (worker.start, "6d339f6cedbb"),
    ],
)
def test_a_private_part_of_prefect_is_as_it_was_in_3_9_1(part: Any, as_it_was: str) -> None:
    """Where it has changed: read it, mend what uses it in tasks/private_parts.py, and note the release."""
    source = inspect.getsource(inspect.unwrap(part))
    assert hashlib.sha256(source.encode()).hexdigest()[:12] == as_it_was, part.__qualname__


def test_a_flow_run_has_its_request_of_suspension_where_it_is_looked_for() -> None:
    assert "flow_run_suspension_request" in FlowRunContext.model_fields
