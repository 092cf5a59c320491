"""The plan of a batch on this machine: made from the live catalogue, found again, and compared with it later.

It reads the catalogue and the ledger, and writes the plan. It buys nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

from callsheet.batches.read import Batch
from callsheet.config.settings import BatchSettings, Settings
from callsheet.errors import InputError, StorageError
from callsheet.files import PartialFile
from callsheet.ledger import queries
from callsheet.ledger.ledger import Ledger
from callsheet.pricing.known import changed_carried
from callsheet.pricing.plan import Plan, adopted, make_plan, open_plan, rejects_path
from callsheet.pricing.rates import changed_rates
from callsheet.service.client import Client
from callsheet.storage.store import Store

_PARQUET_TYPE = "application/vnd.apache.parquet"


async def price_batch(batch: Batch, settings: Settings, client: Client) -> Plan:
    """Reads the live catalogue, prices every row, and writes the plan of a quote to the work folder.

    Raises:
        ServiceError: the catalogue cannot be read.
        LedgerError: the ledger cannot be read.
        StorageError: the plan cannot be written.
    """
    catalogue = await client.models()
    path = quote_path(settings)
    ledger = await Ledger.open(settings.ledger.url, settings.batch)
    try:
        known = await ledger.read(queries.requests)
    finally:
        await ledger.close()
    return await asyncio.to_thread(
        make_plan, batch, catalogue, settings, path, now=datetime.now(UTC), known=known
    )


async def adopt(plan: Plan, settings: Settings) -> Plan:
    """Makes the plan of a quote the batch's own, which reports and exports go by: a run is about to buy it.

    What is bought has the carried columns of this plan from now on.

    Raises:
        LedgerError: the ledger cannot be read or written.
        StorageError: the plan cannot be written.
    """
    ledger = await Ledger.open(settings.ledger.url, settings.batch)
    try:
        known = await ledger.read(queries.requests)
        if changes := await asyncio.to_thread(changed_carried, plan.table, known):
            await ledger.carries(changes)
    finally:
        await ledger.close()
    return await asyncio.to_thread(adopted, plan, plan_path(settings))


async def is_outdated(plan: Plan, settings: Settings, client: Client) -> bool:
    """Whether a plan is older than `budget.quote_valid_for`, and the rates of its models have changed since.

    Raises:
        ServiceError: the catalogue cannot be read.
    """
    age = datetime.now(UTC) - plan.made_at
    if age.total_seconds() < settings.budget.quote_valid_for:
        return False
    return bool(changed_rates(plan.catalogue, await client.models(), plan.table["model"].unique()))


def last_plan(settings: BatchSettings) -> Plan | None:
    """The batch's plan in the work folder; None if there is none that can be read."""
    return _plan_at(plan_path(settings), settings)


def last_quote(settings: BatchSettings) -> Plan | None:
    """The plan that was priced last; None if there is none that can be read."""
    return _plan_at(quote_path(settings), settings)


def _plan_at(path: Path, settings: BatchSettings) -> Plan | None:
    try:
        plan = open_plan(path)
    except InputError:
        return None
    return plan if plan.batch == settings.batch else None


async def share(plan: Plan, settings: Settings) -> None:
    """Puts the plan under `report.url`, where the other runs of a crew find it; in a folder it is already.

    Raises:
        StorageError: it cannot be written.
    """
    if _is_elsewhere(settings):
        store = Store(settings.report.url, endpoint_url=settings.storage.endpoint_url)
        for path in (rejects_path(plan.path), plan.path):
            await store.write(path.name, path, _PARQUET_TYPE)


async def shared(settings: Settings, sha256: str) -> Plan:
    """The plan that the first run of a crew has shared.

    Args:
        settings: the config.
        sha256: `Plan.sha256` of that plan.

    Raises:
        InputError: it is not there, or it is another plan by now.
        StorageError: it cannot be read.
    """
    path = plan_path(settings)
    if _is_elsewhere(settings):
        store = Store(settings.report.url, endpoint_url=settings.storage.endpoint_url)
        for file in (rejects_path(path), path):
            if (content := await store.read(file.name)) is not None:
                await asyncio.to_thread(_write, file, content)
    plan = await asyncio.to_thread(open_plan, path)
    if plan.batch != settings.batch or await asyncio.to_thread(plan.sha256) != sha256:
        raise InputError(
            f"the plan in {settings.report.url} is not the one that this crew buys",
            hint="Another run of the batch has made a new one since. Run the batch again.",
        )
    return plan


def _write(path: Path, content: bytes) -> None:
    try:
        with PartialFile(path) as partial:
            partial.file.write(content)
            partial.commit()
    except OSError as error:
        raise StorageError(f"{path}: the plan cannot be written: {error.strerror or error}") from None


def _is_elsewhere(settings: BatchSettings) -> bool:
    """Whether the report is not in a folder, so that the plan is in a folder of its own (`work_folder`)."""
    return "://" in settings.report.url


def lines_of_last_plan(settings: BatchSettings, keys: Collection[str]) -> dict[str, int]:
    """The line of each of these jobs in the batch file, by key, where the last plan has it."""
    plan = last_plan(settings) if keys else None
    return plan.lines(keys) if plan else {}


def quote_path(settings: BatchSettings) -> Path:
    """Where the plan is that was priced last, by a quote or a run. What only looks changes no other file.

    Raises:
        StorageError: the work folder cannot be made.
    """
    return work_folder(settings) / "quote.parquet"


def plan_path(settings: BatchSettings) -> Path:
    """Where the batch's plan is: that of the last run that was free to buy.

    Raises:
        StorageError: the work folder cannot be made.
    """
    return work_folder(settings) / "plan.parquet"


def work_folder(settings: BatchSettings) -> Path:
    """The folder of the plan and the spool: the report's own if it is local, otherwise `.callsheet/<batch>`.

    Raises:
        StorageError: it cannot be made.
    """
    url = settings.report.url
    folder = Path(".callsheet", settings.batch) if _is_elsewhere(settings) else Path(url)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        hint = "Set report.url to a folder that exists or can be made."
        if "://" in url:
            hint = "The plan is kept on this machine: start in a folder that can be written."
        raise StorageError(f"{folder}: the folder cannot be made: {reason}", hint=hint) from None
    return folder
