"""A crew: more runs of the same deployment that buy one batch side by side. The first one starts the others.

Each is an ordinary run of the batch, on the same ledger, which says whose each job is. It is given the hash
of the plan that a person has approved, and buys nothing of another. What is bought again because it was
rejected (`review.buy_again`) depends on what is stored meanwhile, so the first run buys that alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from uuid import UUID

import anyio
from prefect import get_client
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.deployments import arun_deployment
from prefect.states import Cancelled, Cancelling

from callsheet.config.load import with_value
from callsheet.config.settings import Settings
from callsheet.errors import ConfigError
from callsheet.plain_text import counted
from callsheet.pricing.choice import Choice
from callsheet.pricing.quote import Quote
from callsheet.report.summary import Summary
from callsheet.session import Run
from callsheet.steps import batch
from callsheet.watch import WATCHER
from tasks.pressed import SERVER_FAILS, as_it_is_now, flow_run, heed, until_pressed
from tasks.steps import STEPS

_OWN = ("crew", "plan", "again", "first", "only", "approved")  # parameters that the others do not have
_NOT_BEGUN = (StateType.SCHEDULED, StateType.PENDING)
_LOOK = 2.0  # seconds between two looks whether the others have ended
_MISSES = 5  # looks one after another at which the server did not answer
_PATIENCE = 20.0  # seconds that the server has to end the others


async def generate(
    settings: Settings, size: int, choice: Choice, *, approved: bool, plan: str | None
) -> Summary:
    """Buys beside the other runs of a crew, waits for them, and buys what one that died has left.

    A crew has `size` runs at most, and never more than have a job to buy.

    Raises:
        ConfigError: some jobs are chosen, which each run would choose anew; or a plan is given, as to one
            of the others; or no deployment has started this run.
        CallsheetError: as `steps.batch.generate`.
    """
    first_run = flow_run()
    if choice or plan:
        raise ConfigError(
            "a crew cannot be combined with chosen rows, the first jobs or a plan",
            hint="A crew buys all that is left of a batch.",
        )
    if first_run is None or first_run.deployment_id is None:
        raise ConfigError("only a run of a deployment has a crew", hint="Start it in the Prefect UI.")
    other_runs: list[UUID] = []
    buys_again = settings.review.buy_again
    has_waited = False

    async def start(run: Run) -> None:
        """The others begin with the first portion that is no pilot."""
        await heed(run)
        if run.stop or other_runs or has_waited:
            return
        if run.quote and run.quote.to_buy and not run.quote.is_pilot:
            await _start(other_runs, first_run, run.quote, size)

    async def waited(run: Run) -> bool:
        """Waits for the others once. What they have left, and what is rejected, this run buys alone."""
        nonlocal has_waited
        if has_waited or not (other_runs or buys_again):
            return False
        await _ended(other_runs)
        has_waited = True
        run.settings = with_value(run.settings, "review.buy_again", buys_again)
        return True

    @asynccontextmanager
    async def beside(run: Run) -> AsyncIterator[None]:
        async with STEPS.beside(run):
            ending = asyncio.create_task(_end_when_pressed(other_runs))
            try:
                yield
            finally:
                ending.cancel()

    plain = with_value(settings, "review.buy_again", False)
    steps = replace(STEPS, beside=beside, before_portion=start, after_portions=waited)
    try:
        return await batch.generate(plain, approved=approved, steps=steps)
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(_PATIENCE):
            for run in other_runs:
                await _end(run)


async def _start(other_runs: list[UUID], first_run: FlowRun, quote: Quote, size: int) -> None:
    """With the parameters of this run, and the limit that a person may have set instead."""
    plan = await asyncio.to_thread(quote.plan.sha256)
    shared = {name: value for name, value in first_run.parameters.items() if name not in _OWN}
    budget = {name: value for name, value in (shared.get("budget") or {}).items() if name != "limit"}
    limit = "null" if quote.budget.limit is None else str(quote.budget.limit)
    changed = [f"budget.limit={limit}", "review.buy_again=false"]
    overrides = [*(shared.get("overrides") or ()), *changed]
    parameters = shared | {"budget": budget, "overrides": overrides, "plan": plan}
    with suppress(*SERVER_FAILS):  # then fewer buy
        for number in range(1, min(size, quote.to_buy)):
            key = f"{first_run.state_id}-{plan}-{number}"  # resumed, it starts others anew
            run = await arun_deployment(
                str(first_run.deployment_id), parameters=parameters, timeout=0, idempotency_key=key
            )
            other_runs.append(run.id)
    WATCHER.get().note(f"{counted(len(other_runs), 'more run')} started on the work pool")


async def _end_when_pressed(other_runs: list[UUID]) -> None:
    """Ends the others as soon as this run is suspended or cancelled, while it is still ending."""
    await until_pressed()
    for run in other_runs:
        await _end(run)


async def _ended(other_runs: list[UUID]) -> None:
    """Waits until the others have ended; those that no worker has begun are not needed any more.

    A server that is busy may miss an answer; one that is away is not waited for.
    """
    for run in other_runs:
        missed = 0
        while missed < _MISSES:
            now = await as_it_is_now(run)
            missed = 0 if now else missed + 1
            if now and now.state and now.state.is_final():
                break
            if now and now.state and now.state.type in _NOT_BEGUN:
                await _end(run)
            await asyncio.sleep(_LOOK)


async def _end(run: UUID) -> None:
    """Cancels a run that has not begun; one that is at work stops politely."""
    now = await as_it_is_now(run)
    if now is None or now.state is None or now.state.is_final():
        return
    state: State = (Cancelled if now.state.type in _NOT_BEGUN else Cancelling)(
        message="The crew's first run has ended."
    )
    with suppress(*SERVER_FAILS):
        async with get_client() as client:
            await client.set_flow_run_state(run, state)
