"""A crew: runs of the same deployment that buy one batch side by side. The first one starts the others.

They share the ledger, which says whose each job is, and the plan, which the first has priced and a person has
approved. What each buys, and how fast, is no business of this module.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import anyio
import httpx
from prefect import get_client
from prefect.client.schemas.objects import StateType
from prefect.context import FlowRunContext
from prefect.deployments import arun_deployment
from prefect.exceptions import ObjectNotFound, PrefectException
from prefect.states import Cancelled, Cancelling

from callsheet.config.settings import Settings
from callsheet.config.yaml_lines import split_override
from callsheet.errors import ConfigError, Interrupted
from callsheet.plain_text import counted
from callsheet.pricing.plan import share
from callsheet.pricing.quote import Quote
from callsheet.report.summary import Summary
from callsheet.watch import WATCHER
from tasks.pressed import until_pressed

DEPLOYMENT = "generate-batch/by-hand"
"""Whose runs join one that was started by a command."""

_OWN = ("crew", "joins", "first", "only", "approved")  # parameters that the others do not have
_LIMIT = ("budget", "limit")
_PATIENCE = 20.0  # seconds that the server has, when the first run has ended, to end the others


@dataclass(frozen=True)
class Crew:
    """The other runs, which are not started yet.

    Attributes:
        deployment: whose runs they are.
        attempt: the id of the state in which the first run has begun; resumed, it starts others anew.
        parameters: those of the first run.
        others: how many they are at most; never more than have a job to buy.
    """

    deployment: UUID
    attempt: UUID
    parameters: Mapping[str, Any]
    others: int

    async def buy(self, quote: Quote, settings: Settings, buy: Callable[[], Awaitable[Summary]]) -> Summary:
        """Shares the plan, starts the others as sub-runs of this one, and buys beside them.

        At the end those that no worker has begun are cancelled. Where this run is broken off, all are.

        Args:
            quote: what was approved.
            settings: the config.
            buy: what this run does.

        Raises:
            StorageError: the plan cannot be shared.
            CallsheetError: what broke this run off.
        """
        await share(quote.plan, settings)
        plan = await anyio.to_thread.run_sync(quote.plan.sha256)
        parameters = self._parameters(quote, plan)
        runs: list[UUID] = []
        broken_off = True
        ending = asyncio.create_task(_end_when_pressed(runs))
        try:
            with suppress(httpx.HTTPError, PrefectException):  # then fewer buy
                for number in range(1, min(self.others + 1, quote.to_buy)):
                    runs.append(await self._start(number, parameters))
            WATCHER.get().note(f"{counted(len(runs), 'more run')} started on the work pool")
            summary = await buy()
            broken_off = summary.stop_reason == Interrupted.reason
        finally:
            ending.cancel()
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _PATIENCE):
                for run in runs:
                    await _end(run, at_work=broken_off)
        return summary

    async def _start(self, number: int, parameters: dict[str, Any]) -> UUID:
        key = f"{self.attempt}-{parameters['joins']}-{number}"
        run = await arun_deployment(self.deployment, parameters=parameters, timeout=0, idempotency_key=key)
        return run.id

    def _parameters(self, quote: Quote, plan: str) -> dict[str, Any]:
        """Those of the others: as this run's, with the limit that a person may have set instead."""
        given = {name: value for name, value in self.parameters.items() if name not in _OWN}
        overrides = [one for one in given.get("overrides") or () if split_override(one)[0] != _LIMIT]
        limit = "null" if quote.budget.limit is None else str(quote.budget.limit)
        return given | {
            "budget": {name: value for name, value in (given.get("budget") or {}).items() if name != "limit"},
            "overrides": [*overrides, f"{'.'.join(_LIMIT)}={limit}"],
            "joins": plan,
        }


async def gather(crew: int) -> Crew:
    """The crew of this flow run, of so many runs with itself.

    Raises:
        ConfigError: the server has no deployment that others could be runs of.
    """
    context = FlowRunContext.get()
    run = context.flow_run if context else None
    if run is None or run.state_id is None:
        raise AssertionError("only a flow run has a crew")
    async with get_client() as client:
        try:
            deployment = run.deployment_id or (await client.read_deployment_by_name(DEPLOYMENT)).id
        except ObjectNotFound:
            raise ConfigError(
                f"the Prefect server has no deployment {DEPLOYMENT}, whose runs could join this one",
                hint="Make the deployments of prefect.yaml: callsheet up, or python -m flows.deployments.",
            ) from None
    return Crew(deployment, run.state_id, run.parameters, crew - 1)


async def first_has_ended() -> bool:
    """Whether the run that started this one has ended, not by a crash: nobody reports on what this one buys.

    Prefect begins a cancelled run where a worker had started its process already.
    """
    context = FlowRunContext.get()
    task = context.flow_run.parent_task_run_id if context and context.flow_run else None
    if task is None:
        return False
    with suppress(httpx.HTTPError, PrefectException):
        async with get_client() as client:
            first = (await client.read_task_run(task)).flow_run_id
            state = (await client.read_flow_run(first)).state if first else None
            return state is not None and state.is_final() and not state.is_crashed()
    return False


async def _end_when_pressed(runs: Sequence[UUID]) -> None:
    """Ends the others as soon as the first run is suspended or cancelled, while it is still ending."""
    await until_pressed()
    for run in runs:
        await _end(run, at_work=True)


async def _end(run: UUID, *, at_work: bool) -> None:
    """Cancels a run that has not begun, and with `at_work` one that has: it then stops politely."""
    with suppress(httpx.HTTPError, PrefectException):
        async with get_client() as client:
            state = (await client.read_flow_run(run)).state
            if state is None or state.is_final():
                return
            if state.type in (StateType.SCHEDULED, StateType.PENDING):
                await client.set_flow_run_state(run, Cancelled(message="The others have bought everything."))
            elif at_work:
                await client.set_flow_run_state(
                    run, Cancelling(message="The crew's first run was broken off.")
                )
