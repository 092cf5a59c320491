"""`python -m flows.prefect_worker OPTIONS`: `prefect worker start`, whose cancelled runs keep their message.

Prefect's worker writes "Flow run was cancelled successfully." over what a run has said at its end.
"""

from __future__ import annotations

import sys
from typing import Any

from prefect.cli import app
from prefect.client.schemas.objects import FlowRun
from prefect.runner._state_proposer import StateProposer

_write = StateProposer.propose_cancelled


async def _unless_it_has_said_so(
    self: StateProposer, flow_run: FlowRun, state_updates: dict[str, Any] | None = None
) -> bool:
    now = (await self._client.read_flow_run(flow_run.id)).state
    if now and not now.is_cancelling():  # the run has said how it ended, or somebody has retried it since
        return True
    return await _write(self, flow_run, state_updates)


if __name__ == "__main__":
    StateProposer.propose_cancelled = _unless_it_has_said_so  # type: ignore[method-assign]
    sys.argv[1:1] = ["worker", "start"]
    app()
