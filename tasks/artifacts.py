"""What people see of a run in the Prefect UI: the quote, the progress, the costs and the reconciliation.

No run depends on it: when the server does not answer, a note says so and the run goes on.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode
from uuid import UUID

import anyio
from prefect import get_client, runtime
from prefect.artifacts import (
    acreate_markdown_artifact,
    acreate_progress_artifact,
    acreate_table_artifact,
    aupdate_progress_artifact,
)
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import ArtifactCreate
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectNotFound
from prefect.utilities.urls import url_for

from callsheet.config.settings import BatchSettings, Settings
from callsheet.errors import CallsheetError, ends_as
from callsheet.plain_text import counted
from callsheet.present import accounts, amounts, priced, results, under_way
from callsheet.present.asked import pilot_document
from callsheet.present.markdown import markdown
from callsheet.present.page import Document, Page
from callsheet.pricing.plan import ToBuyAgain
from callsheet.pricing.quote import Quote
from callsheet.records import FOR_A_PERSON, Progress
from callsheet.report.against_account import Reconciliation
from callsheet.report.summary import Summary
from callsheet.reviewing.sheets import link_to
from callsheet.session import Run
from callsheet.watch import WATCHER, Asked
from tasks.events import leaves
from tasks.pressed import SERVER_FAILS, flow_run

T = TypeVar("T")
PATIENCE = 5.0  # seconds for the server to answer
EVERY = 3.0  # seconds between two updates of the progress bar, which cost the server 7 ms each
_ROWS = 1_000  # of a table, the last ones; more help nobody


async def name_run(batch: str, topic: str = "", *, tagged: bool = True) -> None:
    """Tags the run with its batch, and names it after that and what it is about.

    Where no config could be read, `batch` is only the name of its file: then the run is not `tagged`.
    """
    if run := flow_run():
        name = f"{batch}: {topic}" if topic else None
        tags = {*run.tags, f"batch:{batch}"} if tagged else None
        async with get_client() as client:
            await _answered(client.update_flow_run(run.id, name=name, tags=tags))


async def show_quote(quote: Quote) -> None:
    """The quote as a table, with the facts beside it as its description; and as the run's name."""
    batch = quote.plan.batch
    await name_run(batch, amounts.topic(quote.to_buy, quote.quoted))
    table, description = priced.table(quote), markdown(priced.document(quote))
    await _answered(acreate_table_artifact(table, key=_key("quote", batch), description=description))


async def show_pilot(asked: Asked, quote: Quote) -> None:
    """The pilot, where the question is about the rest: all its pictures, as a page of its own."""
    batch = quote.plan.batch
    bought = int(quote.pilot_jobs.sum()) if quote.pilot_jobs is not None else len(asked.pilot)
    page = pilot_document(batch, asked.pilot, asked.contact_sheet)
    await _show_page("pilot", batch, page, counted(bought, "job"))


@asynccontextmanager
async def progress_of(run: Run) -> AsyncIterator[None]:
    """Within it, a progress bar follows the run; at the end it stands where the run does."""
    key = _key("progress", run.settings.batch)
    begun = acreate_progress_artifact(progress=0.0, key=key, description=under_way.line(run.progress))
    artifact = await _answered(begun)

    async def follow() -> None:
        answers = True
        while artifact:  # it goes on when a server that was away is back
            answers = await _update(artifact, run.progress, notes=answers)
            await asyncio.sleep(EVERY)

    following = asyncio.create_task(follow())
    try:
        yield
    finally:
        following.cancel()
    if artifact:
        await _update(artifact, run.progress)


async def _update(artifact: UUID, progress: Progress, *, notes: bool = True) -> bool:
    """Moves the progress bar; False where the server does not answer."""
    percent = 100.0 * min(1.0, progress.done / progress.jobs) if progress.jobs else 100.0
    update = aupdate_progress_artifact(artifact, progress=percent, description=under_way.line(progress))
    return await _answered(update, notes=notes) is not None


async def show_costs(summary: Summary, settings: Settings, again: ToBuyAgain) -> None:
    """The cost summary as a page of its own; `again`: what is to be bought again."""
    deployments = _deployments(await _deployment_name(), runtime.flow_run.flow_name)
    config, run, settling = _config(settings), flow_run(), None
    if summary.in_doubt and run and run.deployment_id:
        async with get_client() as client:
            settling = await _answered(_settling(client, config, summary.batch, run.parameters))
    page = _costs(summary, config, served_sheet(settings), again, deployments, settling=settling)
    await _show_page("costs", summary.batch, page, results.spent(summary))


async def _settling(
    client: PrefectClient, config: str, batch: str, parameters: Mapping[str, Any]
) -> str | None:
    """The form of the deployment `resolve`, filled in for the batch of a run; None where there is none."""
    try:
        deployment = await client.read_deployment_by_name("resolve-doubts/resolve")
    except ObjectNotFound:
        return None
    overrides = [*(parameters.get("overrides") or ())]
    if "file" in parameters:  # of an inbox, each file is a batch of its own
        overrides.append(f"batch={batch}")
    form = {"config": config, "overrides": overrides, "service": parameters.get("service")}
    filled = json.dumps({name: value for name, value in form.items() if value})
    page = url_for("deployment", obj_id=deployment.id)
    return f"{page}/run?{urlencode({'parameters': filled}, quote_via=quote)}" if page else None


async def show_error(error: CallsheetError, batch: str) -> None:
    """What has ended the run before it had costs to show, in the place of these."""
    deployments = _deployments(await _deployment_name(), runtime.flow_run.flow_name)
    config = str(runtime.flow_run.get_parameters().get("config") or "CONFIG")
    page = results.broken_off(error, batch, config, deployments)
    await _show_page("costs", batch, page, "stopped" if ends_as(error) else "failed")


async def _deployment_name() -> str | None:
    """That of the run; None without one. Prefect's `runtime` would end the run where no server answers."""
    run = flow_run()
    if run is None or run.deployment_id is None:
        return None
    async with get_client() as client:
        deployment = await _answered(client.read_deployment(run.deployment_id))
    return deployment.name if deployment else None


async def show_killed(client: PrefectClient, run: FlowRun, summary: Summary, settings: BatchSettings) -> None:
    """The cost summary and the name of a run whose process is gone; another one, the worker's, says so."""
    config, batch = str(run.parameters.get("config") or settings.file or "CONFIG"), summary.batch
    name = (await client.read_deployment(run.deployment_id)).name if run.deployment_id else None
    flow_name = (await client.read_flow(run.flow_id)).name
    deployments = _deployments(name, flow_name)
    settling = await _settling(client, config, batch, run.parameters) if run.deployment_id else None
    sheet = link_to(settings, config)
    content = markdown(_costs(summary, config, sheet, ToBuyAgain(), deployments, settling=settling))
    artifact = ArtifactCreate(type="markdown", key=_key("costs", batch), data=content, flow_run_id=run.id)
    artifact.description = f"{results.spent(summary)}: costs of {batch}"
    await client.create_artifact(artifact)
    await client.update_flow_run(run.id, name=f"{batch}: {results.topic(summary, 'killed, ')}")


def _costs(
    summary: Summary,
    config: str,
    sheet: str | None,
    again: ToBuyAgain,
    deployments: Mapping[str, str],
    *,
    settling: str | None,
) -> Page:
    of_this_run = [state for state in FOR_A_PERSON if leaves(state)]
    return results.document(
        summary, config, sheet, again, deployments, of_this_run=of_this_run, settling=settling
    )


def served_sheet(settings: Settings) -> str | None:
    """The link to the batch's contact sheet in `callsheet up`; None where that does not serve it."""
    return link_to(settings, _config(settings))


def _deployments(name: str | None, flow_name: str | None) -> dict[str, str]:
    """Whose runs do what commands do, by the command; none for a run without a deployment.

    That has a name, and buys unless the run's flow is the collector's.
    """
    if not name:
        return {}
    deployments = {"resolve": "resolve", "collect": "collector"}
    return deployments if flow_name == "collect-media" else deployments | {"run": name}


def _config(settings: Settings) -> str:
    """The batch's config, as a person may type it: the run's parameter, or of a production the file."""
    parameter, file = runtime.flow_run.get_parameters().get("config"), settings.file
    if parameter or file is None:
        return str(parameter or "CONFIG")
    return str(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)


async def show_books(result: Reconciliation, config: str) -> None:
    """A reconciliation as a table, with the facts and the doubts beside it as its description."""
    table, description = accounts.days(result)[-_ROWS:], markdown(accounts.document(result, config))
    key = _key("reconcile", result.batch)
    await _answered(acreate_table_artifact(table, key=key, description=description))


async def _show_page(kind: str, batch: str, page: Document, first: str) -> None:
    description = f"{first}: {kind} of {batch}"  # a card begins with the sum or the count
    artifact = acreate_markdown_artifact(markdown(page), key=_key(kind, batch), description=description)
    await _answered(artifact)


def _key(kind: str, batch: str) -> str:
    """An artifact's key: one for each batch, so that the page of artifacts keeps the history of each.

    Prefect takes ASCII alone, so a name with other letters has a hash in their place.
    """
    letters = "" if batch.isascii() else f"-{hashlib.sha256(batch.encode()).hexdigest()[:8]}"
    return re.sub("[^a-z0-9]+", "-", f"{kind}-{batch.lower()}{letters}").strip("-")


async def _answered(request: Awaitable[T], *, notes: bool = True) -> T | None:
    """Waits for the server; None, and (where it `notes`) a note, when it cannot be reached."""
    try:
        with anyio.fail_after(PATIENCE):
            return await request
    except (*SERVER_FAILS, TimeoutError):
        if notes:
            WATCHER.get().note("the Prefect server does not answer; the run goes on without it")
        return None
