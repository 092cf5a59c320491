"""What a person has pressed on the page of this flow run in the Prefect UI: Suspend or Cancel.

Suspend sets the run's state on the server and tells the process nothing. Cancel reaches a run that a worker
has started by a signal, and no other. So a run looks at its state while it buys, and once more at its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import Enum
from uuid import UUID

import anyio
import httpx
from prefect import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext
from prefect.exceptions import PrefectException
from prefect.states import Running

from callsheet.session import Run

LOOK = 1.0  # seconds between two looks, each of which takes the server 10 ms
_PATIENCE = 5.0  # seconds for the server to answer
SERVER_FAILS = (httpx.HTTPError, PrefectException)
"""What Prefect's client raises where the server fails, or is not there."""
_SAID: set[str] = set()
"""The messages that this process has given its flow run's state: by them it knows that state again."""


class Pressed(Enum):
    """What was pressed since this process began with its flow run: why the run stops, and what goes on."""

    SUSPEND = "suspended in the Prefect UI", "Resume goes on from here."
    CANCEL = "cancelled in the Prefect UI", "Run the batch again: it goes on from here."
    RESUME = "resumed in the Prefect UI before it had ended", ""
    """Another process goes on with the flow run, so this one leaves its state alone."""


def flow_run() -> FlowRun | None:
    """The flow run, as it was when this process began with it."""
    context = FlowRunContext.get()
    return context.flow_run if context else None


async def as_it_is_now(run: UUID) -> FlowRun | None:
    """A flow run; None where the server does not answer."""
    with suppress(*SERVER_FAILS), anyio.move_on_after(_PATIENCE):
        async with get_client() as client:
            return await client.read_flow_run(run)
    return None


async def say(message: str) -> None:
    """Makes a message that of the run's state, while it is Running; no other state is changed."""
    if run := flow_run():
        _SAID.add(message)  # before: also where the answer is lost
        with suppress(*SERVER_FAILS), anyio.move_on_after(_PATIENCE):
            async with get_client() as client:
                await client.set_flow_run_state(run.id, Running(message=message))


async def pressed() -> Pressed | None:
    """What was pressed last; None where nothing was, and where there is no server or it does not answer.

    A run that no deployment has started cannot be resumed, so Suspend is as Cancel to it.
    """
    run = flow_run()
    now = await as_it_is_now(run.id) if run else None
    if run is None or now is None or now.state is None:
        return None
    state = now.state
    if state.is_cancelling() or state.is_cancelled():
        return Pressed.CANCEL
    if state.is_paused():
        return Pressed.SUSPEND if run.deployment_id else Pressed.CANCEL
    is_own = now.state_id == run.state_id or state.message in _SAID
    is_another_start = state.is_running() and not is_own
    is_resumed = state.is_scheduled() or state.is_pending() or is_another_start
    return Pressed.RESUME if is_resumed else None


async def until_pressed(run: Run | None = None) -> Pressed:
    """Looks again and again; returns what was pressed. While `run` asks in the UI, it suspends itself."""
    while not (button := await pressed()) or (run and run.asking):  # noqa: ASYNC110 - nobody is told
        await asyncio.sleep(LOOK)
    return button


async def heed(run: Run) -> None:
    """Looks once, and ends `run` politely by what was pressed, if anything was.

    A server that does not answer holds nothing up.
    """
    with anyio.move_on_after(LOOK):
        if button := await pressed():
            _interrupt(run, button)


@asynccontextmanager
async def heeding(run: Run) -> AsyncIterator[None]:
    """Within it, what is pressed ends `run` politely; what was pressed before, before it sends anything."""

    async def interrupt_when_pressed() -> None:
        _interrupt(run, await until_pressed(run))

    await heed(run)
    looking = asyncio.create_task(interrupt_when_pressed())
    try:
        yield
    finally:
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking


def _interrupt(run: Run, button: Pressed) -> None:
    reason, hint = button.value
    run.interrupt(reason, hint)
