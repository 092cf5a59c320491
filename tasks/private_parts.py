"""What Callsheet uses of Prefect beside its documented interface: all of it, as it was read in release 3.9.1.

A newer release may change it without a word: `tests/flows/test_private_parts.py` names what it has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext
from prefect.input.run_input import Keyset, keyset_from_base_key


def suspend_breaks_no_step_off() -> None:
    """From now on, Suspend does to this flow run what `pressed.py` does, and nothing else.

    Prefect watches for it, too, and raises `Pause` where a task begins or has ended. Of the steps that run
    side by side one would break the others off, with what they have on the wire.
    """
    if context := FlowRunContext.get():
        request: Any = context.flow_run_suspension_request
        request.raise_if_requested = lambda: None


def keys_of_suspension(key: str) -> Keyset:
    """Where Prefect keeps the form and the answer of a suspension with this key."""
    return keyset_from_base_key(f"suspended-{key}")


def listen_to_signals(listen: Callable[..., None]) -> None:
    """A worker calls `listen` in place of its own handling of signals, just before it looks for runs."""
    from prefect.utilities import processutils

    processutils.setup_signal_handlers_worker = listen


def cancelled_runs_have_the_last_word() -> None:
    """A worker writes "Flow run was cancelled successfully." over no run that has said how it ended."""
    from prefect.runner._state_proposer import StateProposer  # 60 ms, which a run does not need

    propose_cancelled = StateProposer.propose_cancelled

    async def unless_it_has_said_so(
        self: StateProposer, flow_run: FlowRun, state_updates: dict[str, Any] | None = None
    ) -> bool:
        now = (await self._client.read_flow_run(flow_run.id)).state
        if now and not now.is_cancelling():  # it has said so, or somebody has retried it since
            return True
        return await propose_cancelled(self, flow_run, state_updates)

    StateProposer.propose_cancelled = unless_it_has_said_so  # type: ignore[method-assign]
