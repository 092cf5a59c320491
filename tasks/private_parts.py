"""What Callsheet uses of Prefect beside its documented interface: all of it, as it was read in release 3.9.1.

A newer release may change it without a word: `tests/flows/test_private_parts.py` names what it has changed.
"""

from __future__ import annotations

import os
import signal
import stat
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any

from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule, RRuleSchedule
from prefect.context import FlowRunContext
from prefect.input.run_input import Keyset, keyset_from_base_key
from prefect.server.schemas import schedules as server_schedules
from rich.console import Console

from callsheet import signals

_MOST_PLANNED = 1_000  # runs of a schedule in a day


def suspend_breaks_no_step_off() -> None:
    """From now on, Suspend does to this flow run what `pressed.py` does, and nothing else.

    Prefect watches for it, too, and raises `Pause` where a task begins or has ended. Of the steps that run
    side by side one would break the others off, with what they have on the wire.
    """
    if context := FlowRunContext.get():
        request: Any = context.flow_run_suspension_request
        request.raise_if_requested = lambda: None


async def planned_runs(deployment: DeploymentResponse, start: datetime, end: datetime) -> int:
    """How many runs a deployment's schedules ask for between two moments, up to a thousand of each.

    The server itself plans the next few alone.
    """
    if deployment.paused:
        return 0
    of_server = {
        CronSchedule: server_schedules.CronSchedule,
        IntervalSchedule: server_schedules.IntervalSchedule,
        RRuleSchedule: server_schedules.RRuleSchedule,
    }
    runs = 0
    for entry in deployment.schedules:
        schedule: Any = of_server.get(type(entry.schedule))
        if entry.active and schedule:
            dates = schedule.model_validate(entry.schedule.model_dump())
            runs += len(await dates.get_dates(_MOST_PLANNED, start=start, end=end))
    return runs


def end_with_the_worker() -> None:
    """From now on the end of the worker that has started this flow run tells it to stop, as a SIGTERM does.

    A worker gives its runs a pipe as stdin and writes nothing to it, so it ends with the worker, in whichever
    way. What a run prints has no reader then: the next line of Prefect's log would end the process in the
    middle of its work, with what is on the wire.
    """
    if "PREFECT__WORKER_NAME" not in os.environ or not stat.S_ISFIFO(os.fstat(0).st_mode):
        return

    def quiet(self: Console) -> None:
        self.quiet = True

    def tell_at_end_of_stdin() -> None:
        while os.read(0, 1024):  # not sys.stdin, whose lock blocks the end of the interpreter
            pass
        signals.tell_main_thread(signal.SIGTERM)

    Console.on_broken_pipe = quiet  # type: ignore[method-assign]
    threading.Thread(target=tell_at_end_of_stdin, daemon=True).start()


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
