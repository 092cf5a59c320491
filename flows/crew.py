"""A crew: more runs of the same deployment that buy one batch side by side. The first one starts the others.

Each is an ordinary run of the batch, on the same ledger, which says whose each job is. It is given the hash
of the plan that a person has approved, and buys nothing of another.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import anyio
import httpx
from prefect import get_client
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.deployments import arun_deployment
from prefect.exceptions import ObjectNotFound, PrefectException
from prefect.states import Cancelled, Cancelling

from callsheet.config.settings import Settings
from callsheet.config.yaml_lines import split_override
from callsheet.errors import ConfigError
from callsheet.plain_text import counted
from callsheet.pricing.choice import Choice
from callsheet.pricing.quote import Quote
from callsheet.report.summary import Summary
from callsheet.session import Run
from callsheet.steps import batch
from callsheet.watch import WATCHER
from flows.steps import STEPS
from tasks.pressed import flow_run, until_pressed

DEPLOYMENT = "generate-batch/by-hand"
"""Whose runs join one that no deployment has started."""

_OWN = ("crew", "plan", "first", "only", "approved")  # parameters that the others do not have
_LIMIT = ("budget", "limit")
_LOOK = 2.0  # seconds between two looks whether the others have ended
_PATIENCE = 20.0  # seconds that the server has to end the others


def check_crew(crew: int | None, choice: Choice) -> None:
    """Checks that a crew buys a whole batch: each of its runs would choose the first jobs anew.

    Raises:
        ConfigError: some jobs are chosen.
    """
    if crew and crew > 1 and choice:
        raise ConfigError(
            "a crew cannot be combined with chosen rows or the first jobs",
            hint="A crew buys all that is left of a batch.",
        )


@dataclass
class Crew:
    """The other runs of this flow run's crew.

    Attributes:
        others: how many they are at most; never more than have a job to buy.
        runs: those that were started.
        plan: the hash of the plan that they may buy; None while none was started.
    """

    others: int
    runs: list[UUID] = field(default_factory=list)
    plan: str | None = None

    async def generate(self, settings: Settings, *, approved: bool) -> Summary:
        """Buys beside the others, waits for them, and buys what one that died has left.

        Raises:
            ConfigError: the server has no deployment that others could be runs of.
            CallsheetError: as `steps.batch.generate`.
        """
        deployment = await _deployment()

        @asynccontextmanager
        async def beside(run: Run) -> AsyncIterator[None]:
            async with STEPS.beside(run):
                if run.quote and run.quote.to_buy and not run.stop and not run.quote.is_pilot:
                    await self._start(deployment, run.quote)
                ending = asyncio.create_task(self._end_when_pressed())
                try:
                    yield
                finally:
                    ending.cancel()

        try:
            steps = replace(STEPS, beside=beside)
            summary = await batch.generate(settings, approved=approved, steps=steps)
            if summary.stop_reason or not self.runs:
                return summary
            await self._ended()
            last = await batch.generate(settings, approved=True, plan=self.plan, steps=STEPS)
            return replace(
                last,
                submissions=summary.submissions + last.submissions,
                rate_limited=summary.rate_limited + last.rate_limited,
            )
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_PATIENCE):
                for run in self.runs:
                    await _end(run)

    async def _start(self, deployment: UUID, quote: Quote) -> None:
        this = flow_run()
        assert this is not None  # noqa: S101 - only a flow run has a crew
        self.plan = await asyncio.to_thread(quote.plan.sha256)
        parameters = _parameters(this.parameters, quote) | {"plan": self.plan}
        with suppress(httpx.HTTPError, PrefectException):  # then fewer buy
            for number in range(1, min(self.others + 1, quote.to_buy)):
                key = f"{this.state_id}-{self.plan}-{number}"  # resumed, it starts others anew
                run = await arun_deployment(deployment, parameters=parameters, timeout=0, idempotency_key=key)
                self.runs.append(run.id)
        WATCHER.get().note(f"{counted(len(self.runs), 'more run')} started on the work pool")

    async def _end_when_pressed(self) -> None:
        """Ends the others as soon as this run is suspended or cancelled, while it is still ending."""
        await until_pressed()
        for run in self.runs:
            await _end(run)

    async def _ended(self) -> None:
        """Waits until the others have ended; those that no worker has begun are not needed any more."""
        for run in self.runs:
            while (now := await _as_it_is_now(run)) and not (now.state and now.state.is_final()):
                if now.state and now.state.type in (StateType.SCHEDULED, StateType.PENDING):
                    await _end(run)
                await asyncio.sleep(_LOOK)


def _parameters(given: Mapping[str, Any], quote: Quote) -> dict[str, Any]:
    """Those of the others: as this run's, with the limit that a person may have set instead."""
    same = {name: value for name, value in given.items() if name not in _OWN}
    overrides = [one for one in same.get("overrides") or () if split_override(one)[0] != _LIMIT]
    limit = "null" if quote.budget.limit is None else str(quote.budget.limit)
    return same | {
        "budget": {name: value for name, value in (same.get("budget") or {}).items() if name != "limit"},
        "overrides": [*overrides, f"{'.'.join(_LIMIT)}={limit}"],
    }


async def _deployment() -> UUID:
    run = flow_run()
    if run and run.deployment_id:
        return run.deployment_id
    async with get_client() as client:
        try:
            return (await client.read_deployment_by_name(DEPLOYMENT)).id
        except ObjectNotFound:
            raise ConfigError(
                f"the Prefect server has no deployment {DEPLOYMENT}, whose runs could join this one",
                hint="Make the deployments of prefect.yaml: callsheet up, or python -m flows.deployments.",
            ) from None


async def _as_it_is_now(run: UUID) -> FlowRun | None:
    """A run; None where the server does not answer."""
    with suppress(httpx.HTTPError, PrefectException):
        async with get_client() as client:
            return await client.read_flow_run(run)
    return None


async def _end(run: UUID) -> None:
    """Cancels a run that has not begun; one that is at work stops politely."""
    now = await _as_it_is_now(run)
    if now is None or now.state is None or now.state.is_final():
        return
    begun = now.state.type not in (StateType.SCHEDULED, StateType.PENDING)
    state: State = (Cancelling if begun else Cancelled)(message="The crew's first run has ended.")
    with suppress(httpx.HTTPError, PrefectException):
        async with get_client() as client:
            await client.set_flow_run_state(run, state)
