"""What a flow's runs are called and end as, in the list of runs and on the command line."""

from __future__ import annotations

import argparse
import asyncio
import functools
import inspect
import logging
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec

from prefect import get_client, tags
from prefect.client.schemas.objects import FlowRun, State
from prefect.exceptions import Pause
from prefect.flows import FlowStateHook
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL
from prefect.states import Cancelled, Completed, Crashed, Failed

from callsheet import signals
from callsheet.cli.output import show_error
from callsheet.config.load import load_without_service
from callsheet.config.settings import BatchSettings, Settings
from callsheet.errors import ApprovalNeeded, ApprovalRefused, CallsheetError, ends_as, known_error
from callsheet.present import results
from callsheet.records import State as JobState
from callsheet.report.summary import Summary
from callsheet.service.transport import tls_context
from callsheet.steps.record import report_anew
from callsheet.watch import WATCHER
from flows import server_errors
from tasks import artifacts, events, morning, suspend
from tasks.events import Events, leaves
from tasks.pressed import Pressed, pressed
from tasks.private_parts import end_with_the_worker, suspend_breaks_no_step_off

P = ParamSpec("P")
_BUYS: ContextVar[BatchSettings | None] = ContextVar("buys", default=None)  # what the run buys or collects
Work = Callable[P, Coroutine[Any, Any, State[Any]]]


def ends_in_a_state(work: Work[P]) -> Work[P]:
    """Below `@flow`: a CallsheetError is the state that the run ends in, and so is what a person has pressed.

    Prefect would make each error a Failed of its own, with a stack trace.
    """

    @functools.wraps(work)
    async def ended(*args: P.args, **kwargs: P.kwargs) -> State[Any]:
        state: State[Any] | None = None
        with signals.cancelled_by_signals():
            end_with_the_worker()
            try:
                try:
                    with signals.cancelled_by_signals():
                        state = await work(*args, **kwargs)
                except Exception as error:
                    if (callsheet_error := known_error(error)) is None:
                        raise
                    signals.done()
                    state = state_of(callsheet_error)
                    await _say_what_has_ended_it(callsheet_error, state.message or "")
                signals.done()
                return await _unless_pressed(state)
            finally:  # also where the run waits for a person
                if isinstance(settings := _BUYS.get(), Settings):
                    await morning.renew(settings, state)

    signed: Any = ended  # Prefect would look for the names of the types in this module
    signed.__signature__ = inspect.signature(work, eval_str=True)
    return ended


def say_what_is_left(settings_of: Callable[[Mapping[str, Any]], BatchSettings]) -> FlowStateHook[..., Any]:
    """For `on_crashed`: the worker calls it for a run whose process was killed.

    Args:
        settings_of: the settings of a run's batch, by its parameters.
    """

    async def say(flow: Any, flow_run: FlowRun, state: State[Any]) -> None:
        await _say_what_is_left(settings_of(flow_run.parameters), flow_run)

    return say


async def _say_what_has_ended_it(error: CallsheetError, message: str) -> None:
    """An error is the run's name; where it buys or collects, it is an artifact and an event, too."""
    stop = ends_as(error)
    word = "failed"
    if isinstance(error, ApprovalNeeded):
        word = "refused" if isinstance(error, ApprovalRefused) else "not approved"
    elif stop:
        word = f"stopped ({stop.reason})"
    if not isinstance(watcher := WATCHER.get(), Events):  # before its config is read, no batch is known
        await artifacts.name_run(run_name(), word, tagged=False)
        return
    await artifacts.name_run(watcher.batch, word)
    if _BUYS.get():
        await artifacts.show_error(error, watcher.batch)
        events.broken_off(watcher.batch, stop.reason if stop else None, message)


async def _say_what_is_left(settings: BatchSettings, flow_run: FlowRun) -> None:
    """The report, the artifact, the name and the state of a run whose process was killed.

    It buys nothing. What was on the wire is settled by the next run, which takes over.
    """
    summary = await report_anew(settings, logging.getLogger("callsheet").warning)
    hint = "Run the batch again: it goes on from here, and buys nothing twice."
    details = replace(summary.details, stop_message="the process of the run was killed", stop_hint=hint)
    summary = replace(summary, outcome="stopped", stop_reason="interrupted", details=details)
    crashed: State[Any] = Crashed(message=f"{results.line(summary)}. {hint}")
    logging.getLogger("callsheet").error("%s: %s", settings.batch, crashed.message)  # for `callsheet up`
    async with get_client() as client:
        await artifacts.show_killed(client, flow_run, summary, settings)
        await client.set_flow_run_state(flow_run.id, crashed, force=True)


def settings_of(parameters: Mapping[str, Any]) -> BatchSettings:
    """The batch of a run, by its parameters: those of its form, and the overrides."""
    groups = {
        name: group for name, group in parameters.items() if isinstance(group, Mapping) and name != "service"
    }
    values = {f"{name}.{key}": value for name, group in groups.items() for key, value in group.items()}
    return load_without_service(Path(parameters["config"]), parameters.get("overrides") or (), values=values)


async def begin(settings: BatchSettings, *, buys: bool = False) -> None:
    """What happens goes to the run's log and to the server's events, and the run has its batch's tag.

    `buys`: it buys or collects the batch: what ends it is an artifact and an event, and on the morning page.
    """
    suspend_breaks_no_step_off()
    _BUYS.set(settings if buys else None)
    WATCHER.set(Events(settings.batch))
    await artifacts.name_run(settings.batch)


def run_name() -> str:
    """`product-shots` for a run of `configs/product-shots.yaml`, of several `stills, films`; of a file, its
    name.
    """
    parameters = flow_run.get_parameters()
    if "configs" in parameters:
        return ", ".join(Path(str(config)).stem for config in parameters["configs"])
    if "file" in parameters:
        return Path(str(parameters["file"])).name
    return Path(str(parameters["config"])).stem


def final_state(summary: Summary) -> State[Any]:
    """The state that a flow run ends in, with the summary as its message.

    A run in trouble is Failed, so that it is red, and Prefect's automations for failures fire. What an
    earlier run left in doubt or lost is no trouble of this one: red means something new to do. No flow has
    retries, so nothing is bought again by that. A state of type Completed has the summary as its result,
    another one an error with its exit code.
    """
    name = _name(summary)
    message = results.line(summary, missing_first=name == "StoppedAtBudget")
    message += events.settling() if name == "InDoubt" else ""
    if name in ("Complete", "Partial", "StoppedAtBudget"):
        return Completed(name=name, message=message, data=summary)
    error = CallsheetError(message)
    error.exit_code = summary.exit_code
    return _trouble(name, message, error)


def state_of(error: CallsheetError) -> State[Any]:
    """The state of a flow run that an error has ended: its own words, and no stack trace.

    It is the state of a summary with the same reason. None is green: there is no report.
    """
    message = f"{error.message.rstrip('.')}. {error.hint}" if error.hint else error.message
    stop = ends_as(error)
    return _trouble(_STOPPED.get(stop.reason, "Stopped") if stop else "Failed", message, error)


def _trouble(name: str, message: str, error: CallsheetError) -> State[Any]:
    if name == "Cancelled":
        return Cancelled(message=message, data=error)
    return Failed(name=name, message=message, data=error)


async def _unless_pressed(state: State[Any]) -> State[Any]:
    """`state`; of a run that a person has suspended or cancelled that instead, with the message of `state`.

    Raises:
        Pause: (Prefect's) the run stays Suspended, or another process goes on with it.
    """
    button = await pressed()
    if button is Pressed.CANCEL:
        return Cancelled(message=state.message, data=state.data)
    if button is Pressed.SUSPEND:
        await suspend.stay(state.message or "")
    if button is Pressed.RESUME:
        raise Pause
    return state


def main(work: Any) -> None:
    """`python -m flows.generate CONFIG`: a flow run on Prefect's configured server.

    Prints how it ended, and ends with the exit code of `callsheet run`.
    """
    parser = argparse.ArgumentParser(description=work.description)
    parser.add_argument("config", help="the config file")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="a.b=value")
    arguments = parser.parse_args()
    try:
        tls_context()  # Prefect fails on authorities that are not there, and does not name them
        asyncio.run(_look_for_the_server())
    except CallsheetError as error:
        show_error(error)
        sys.exit(error.exit_code)
    with tags("callsheet"):  # as the deployments' runs have it: automations match it
        state = asyncio.run(work(arguments.config, overrides=arguments.overrides, return_state=True))
    print(state.name, state.message or "", sep=": ", file=sys.stderr)  # noqa: T201 - a program
    outcome = asyncio.run(state.aresult(raise_on_failure=False))
    sys.exit(outcome.exit_code if isinstance(outcome, Summary | CallsheetError) else 1)


async def _look_for_the_server() -> None:
    """Where none is configured, Prefect starts one of its own."""
    if PREFECT_API_URL.value():
        async with get_client() as client:
            with server_errors.in_words():
                await client.api_version()


_STOPPED = {"approval": "Cancelled", "interrupted": "BrokenOff", "doubt": "InDoubt"}


def _name(summary: Summary) -> str:
    reason = summary.stop_reason if summary.outcome == "stopped" else None
    if reason not in (None, "budget"):
        return _STOPPED.get(reason, "Stopped")
    if summary.in_doubt and leaves(JobState.IN_DOUBT):
        return "InDoubt"
    if summary.lost and leaves(JobState.LOST):
        return "Lost"
    if summary.stop_message and not reason:  # nothing is left to buy, and not all could be collected
        return "Stopped"
    return "StoppedAtBudget" if reason else summary.outcome.capitalize()
