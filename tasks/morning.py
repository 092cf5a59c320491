"""The page for the morning: one artifact of the project, `morning`, renewed at the end of each run that buys.

It is of all batches in the run's ledger and in those of the project's configs, and of the runs on the server
that have its tag, or a batch's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

import anyio
from prefect import get_client
from prefect.artifacts import acreate_markdown_artifact
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import ArtifactUpdate
from prefect.client.schemas.filters import (
    ArtifactCollectionFilter,
    ArtifactCollectionFilterKey,
    FlowRunFilter,
    FlowRunFilterStartTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.utilities.urls import url_for

from callsheet.config.form import FOLDER
from callsheet.config.load import load_without_service
from callsheet.config.settings import BatchSettings, Settings
from callsheet.errors import CallsheetError
from callsheet.ledger import spending, sums
from callsheet.ledger.ledger import Ledger
from callsheet.present.markdown import markdown
from callsheet.present.morning import Morning, document, line
from callsheet.present.page import Link
from callsheet.records import Totals
from tasks.pressed import SERVER_FAILS, flow_run
from tasks.service_block import connect

KEY = "morning"
_NIGHT = timedelta(days=1)
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
    own_ledger = await _of_ledger(settings, now)
    other_ledgers = await _of_others(settings, own_ledger.id, now)
    batches, bought = own_ledger.batches, own_ledger.bought
    for ledger in other_ledgers:
        batches, bought = ledger.batches | batches, ledger.bought | bought
    return Morning(
        batches,
        bought,
        pages={batch: _page(run) for run in reversed(recent) for batch in _batches(run)},
        waiting=_links(waiting),
        failed=_links(run for run in recent if run.state and run.state.type in _RED),
        spent_today=own_ledger.spent_today,
        spent_elsewhere=sum((ledger.spent_today for ledger in other_ledgers), Decimal(0)),
        per_day=settings.budget.per_day,
        balance=await _balance(settings),
    )


class _OfLedger(NamedTuple):
    id: str
    batches: dict[str, Totals]
    bought: dict[str, spending.Bought]
    spent_today: Decimal


async def _of_ledger(settings: BatchSettings, now: datetime) -> _OfLedger:
    async with await Ledger.open(settings.ledger.url, settings.batch, looks=True) as ledger:
        return await ledger.read(
            lambda connection, _: _OfLedger(
                ledger.id,
                sums.of_ledger(connection),
                spending.bought_since(connection, now - _NIGHT),
                sums.sent_since(connection, now),
            )
        )


async def _of_others(settings: Settings, own_id: str, now: datetime) -> list[_OfLedger]:
    """Of the other ledgers that configs of the project name; one that does not answer is missing."""
    ledgers: dict[str, _OfLedger] = {}
    for file in await asyncio.to_thread(lambda: sorted(FOLDER.glob("*.yaml"))):
        with suppress(CallsheetError), anyio.move_on_after(_OTHER):
            other = load_without_service(file)
            if other.ledger.url == settings.ledger.url:
                continue
            of_ledger = await _of_ledger(other, now)
            if of_ledger.id != own_id:
                ledgers[of_ledger.id] = of_ledger
    return list(ledgers.values())


async def _balance(settings: Settings) -> Decimal | None:
    with suppress(CallsheetError):
        async with await connect(settings) as client:
            return await client.balance()
    return None


def _links(runs: Iterable[FlowRun]) -> list[Link]:
    """To the pages of the project's runs, the newest first: those too that ended before they had a batch."""
    own_runs = (run for run in runs if _PROJECT in run.tags or _batches(run))
    return [Link(f"{run.name}, {run.state_name}", _page(run)) for run in own_runs]


def _batches(run: FlowRun) -> list[str]:
    return [tag.removeprefix(_TAG) for tag in run.tags if tag.startswith(_TAG)]


def _page(run: FlowRun) -> str:
    return url_for("flow-run", obj_id=run.id) or ""
