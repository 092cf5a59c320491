"""The page for the morning: one artifact of the project, `morning`, renewed at the end of each run that buys.

It is of all batches in the run's ledger and in those of the project's configs, and of the runs on the server
that have its tag, or a batch's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import chain
from typing import NamedTuple

import anyio
from prefect import get_client
from prefect.artifacts import acreate_markdown_artifact
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import ArtifactUpdate
from prefect.client.schemas.filters import (
    ArtifactCollectionFilter,
    ArtifactCollectionFilterKey,
    DeploymentFilter,
    DeploymentFilterTags,
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterStartTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.utilities.urls import url_for
from sqlalchemy import Connection

from callsheet.config.form import FOLDER
from callsheet.config.load import load_without_service
from callsheet.config.settings import BatchSettings, Settings
from callsheet.errors import CallsheetError
from callsheet.ledger import spending, sums, walls
from callsheet.ledger.changes import LIMIT
from callsheet.ledger.ledger import Ledger
from callsheet.present.allowances import of_wall
from callsheet.present.markdown import markdown
from callsheet.present.morning import Morning, Scheduled, document, line
from callsheet.present.page import Link
from callsheet.records import Totals, six_decimals
from callsheet.watch import WATCHER
from tasks.events import low_balance
from tasks.pressed import SERVER_FAILS, flow_run
from tasks.private_parts import planned_runs
from tasks.service_block import connect

KEY = "morning"
_NIGHT = timedelta(days=1)
_LAST = 5  # runs of a deployment, by which the next ones are judged
_PATIENCE = 15.0  # seconds for server, ledger and service together: the end of the run waits for the page
_OTHER = 3.0  # of these, for each other ledger
_PROJECT = "callsheet"  # the tag of the deployments in prefect.yaml
_TAG = "batch:"
_RED = (StateType.FAILED, StateType.CRASHED)


async def renew(settings: Settings, state: State | None) -> None:
    """Writes the page anew; nothing where the ledger or the server does not answer, or not in time.

    `state` is the one in which this run is about to end; None where the server has it already.
    """
    with suppress(CallsheetError, *SERVER_FAILS), anyio.move_on_after(_PATIENCE):
        async with get_client() as client:
            morning = await _morning(settings, client, state)
            page, description = markdown(document(morning)), line(morning)
            key = ArtifactCollectionFilterKey(any_=[KEY])
            there = await client.read_latest_artifacts(artifact_filter=ArtifactCollectionFilter(key=key))
            if there:
                update = ArtifactUpdate(data=page, description=description)
                await client.update_artifact(there[0].latest_id, update)
            else:
                await acreate_markdown_artifact(page, key=KEY, description=description)
            await _tell_of_balance(settings, morning)


async def _morning(settings: Settings, client: PrefectClient, state: State | None) -> Morning:
    now = datetime.now(UTC)
    of_night = FlowRunFilterStartTime(after_=now - _NIGHT)
    paused = FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.PAUSED]))
    last_first = FlowRunSort.START_TIME_DESC
    recent = await client.read_flow_runs(flow_run_filter=FlowRunFilter(start_time=of_night), sort=last_first)
    waiting = await client.read_flow_runs(flow_run_filter=FlowRunFilter(state=paused), sort=last_first)
    own_run = flow_run()
    for run in recent:
        if state and own_run and run.id == own_run.id:
            run.state, run.state_name = state, state.name
    service, balance = await _balance(settings)
    next_day = await _next_day(client, now)
    look = _Look(now, service, [*chain.from_iterable(last_runs for _, last_runs in next_day)])
    own_ledger = await _of_ledger(settings, look)
    other_ledgers = await _of_others(settings, own_ledger.id, look)
    batches, bought = own_ledger.batches, own_ledger.bought
    costs = own_ledger.costs
    for ledger in other_ledgers:
        batches, bought = ledger.batches | batches, ledger.bought | bought
        costs = ledger.costs | costs
    return Morning(
        batches,
        bought,
        pages={batch: _page(run) for run in reversed(recent) for batch in _batches(run)},
        waiting=_links(waiting),
        failed=_links(run for run in recent if run.state and run.state.type in _RED),
        spent_today=own_ledger.spent_today,
        spent_elsewhere=sum((ledger.spent_today for ledger in other_ledgers), Decimal(0)),
        per_day=settings.budget.per_day,
        balance=balance,
        near=own_ledger.near,
        scheduled=Scheduled(
            sum(runs for runs, _ in next_day),
            sum((_likely_cost(runs, last_runs, costs) for runs, last_runs in next_day), Decimal(0)),
        ),
    )


async def _next_day(client: PrefectClient, now: datetime) -> list[tuple[int, list[str]]]:
    """Of each deployment of the project with a schedule: how many runs of the next day it asks for, and the
    ids of its last runs.
    """
    of_project = DeploymentFilter(tags=DeploymentFilterTags(all_=[_PROJECT]))
    next_day = []
    for deployment in await client.read_deployments(deployment_filter=of_project):
        if runs := await planned_runs(deployment, now, now + _NIGHT):
            last_runs = await client.read_flow_runs(
                flow_run_filter=FlowRunFilter(
                    deployment_id=FlowRunFilterDeploymentId(any_=[deployment.id]),
                    start_time=FlowRunFilterStartTime(before_=now),
                ),
                sort=FlowRunSort.START_TIME_DESC,
                limit=_LAST,
            )
            next_day.append((runs, [str(run.id) for run in last_runs]))
    return next_day


def _likely_cost(runs: int, last_runs: Sequence[str], costs: Mapping[str, Decimal]) -> Decimal:
    """What so many runs may cost: as much as the last ones did on average; nothing where there are none."""
    spent = sum((costs.get(run, Decimal(0)) for run in last_runs), Decimal(0))
    return six_decimals(runs * spent / max(len(last_runs), 1))


async def _tell_of_balance(settings: Settings, morning: Morning) -> None:
    """Says once a day that the balance is low, in the log and as an event."""
    if morning.balance is None or not morning.low_balance or settings.budget.warn is None:
        return
    async with await Ledger.open(settings.ledger.url, settings.batch) as ledger:
        if await ledger.write(walls.tell_of_balance):
            WATCHER.get().note(morning.low_balance)
            low_balance(settings.batch, morning.balance, morning.scheduled.cost, morning.low_balance)


class _Look(NamedTuple):
    """When the ledgers are looked at; the service, empty where it is not known; and the ids of flow runs."""

    now: datetime
    service: str
    flow_runs: Sequence[str]


class _OfLedger(NamedTuple):
    id: str
    batches: dict[str, Totals]
    bought: dict[str, spending.Bought]
    spent_today: Decimal
    near: Sequence[str]
    costs: dict[str, Decimal]


async def _of_ledger(settings: BatchSettings, look: _Look) -> _OfLedger:
    async with await Ledger.open(settings.ledger.url, settings.batch, looks=True) as ledger:
        buyer = ledger.buyer(settings.budget)

        def read(connection: Connection, _: str) -> _OfLedger:
            bought = spending.bought_since(connection, look.now - _NIGHT)
            near = (
                of_wall(wall) if wall.setting != LIMIT else f"{batch}: {of_wall(wall)}"
                for batch in bought
                for wall in walls.near(connection, batch, replace(buyer, batch=batch))
            )
            return _OfLedger(
                ledger.id,
                sums.of_ledger(connection),
                bought,
                sums.sent_since(connection, look.now),
                [*dict.fromkeys(near)],
                spending.cost_of_flow_runs(connection, look.service, look.flow_runs),
            )

        return await ledger.read(read)


async def _of_others(settings: Settings, own_id: str, look: _Look) -> list[_OfLedger]:
    """Of the other ledgers that configs of the project name; one that does not answer is missing."""
    ledgers: dict[str, _OfLedger] = {}
    for file in await asyncio.to_thread(lambda: sorted(FOLDER.glob("*.yaml"))):
        with suppress(CallsheetError), anyio.move_on_after(_OTHER):
            other = load_without_service(file)
            if other.ledger.url == settings.ledger.url:
                continue
            of_ledger = await _of_ledger(other, look)
            if of_ledger.id != own_id:
                ledgers[of_ledger.id] = of_ledger
    return list(ledgers.values())


async def _balance(settings: Settings) -> tuple[str, Decimal | None]:
    """The service's address and the balance, as far as they are known."""
    service = ""
    with suppress(CallsheetError):
        async with await connect(settings) as client:
            service = client.base_url
            return service, await client.balance()
    return service, None


def _links(runs: Iterable[FlowRun]) -> list[Link]:
    """To the pages of the project's runs, the newest first: those too that ended before they had a batch."""
    own_runs = (run for run in runs if _PROJECT in run.tags or _batches(run))
    return [Link(f"{run.name}, {run.state_name}", _page(run)) for run in own_runs]


def _batches(run: FlowRun) -> list[str]:
    return [tag.removeprefix(_TAG) for tag in run.tags if tag.startswith(_TAG)]


def _page(run: FlowRun) -> str:
    return url_for("flow-run", obj_id=run.id) or ""
