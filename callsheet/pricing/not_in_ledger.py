"""What is where a batch writes, and the ledger does not know: a second look before anything is bought.

A lost ledger, another working folder or an older backup would buy everything again that it does not know; the
report at `report.url` shows it. And files of others may have the names in storage that the next files would
get: nothing is written over, and the new files get other names.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import polars as pl

from callsheet.config.settings import BatchSettings, Settings
from callsheet.errors import OtherLedger, StorageError
from callsheet.ledger import media, running_totals
from callsheet.ledger.ledger import Ledger
from callsheet.plain_text import counted
from callsheet.records import ModelType
from callsheet.storage.names import folded
from callsheet.storage.names import name as name_in_store
from callsheet.storage.store import Store

_REPORT = "report.json"
_FIRST = 20  # names that are looked up


async def check_report(settings: BatchSettings) -> None:
    """Makes sure that the ledger knows all that the batch's report has, unless `ledger.new` says otherwise.

    Raises:
        OtherLedger: it does not.
        LedgerError: the ledger cannot be opened.
    """
    if settings.ledger.new:
        return
    async with await Ledger.open(settings.ledger.url, settings.batch, looks=True) as ledger:
        try:
            unknown = await _unknown_to(ledger, settings)
        except StorageError:  # who may only write there buys all the same; the quote says it
            unknown = ""
    if unknown:
        raise OtherLedger(
            unknown,
            hint="What this ledger does not know would be bought again. Use the ledger that wrote the report "
            "(ledger.url, the folder to start in), or restore its newest copy. If this one is to take its "
            "place: callsheet run CONFIG --new-ledger (--set ledger.new=true). Another batch needs another "
            "name.",
        )


async def warning_of_report(ledger: Ledger, settings: BatchSettings) -> str:
    """What a quote says of the batch's report: what the ledger does not know; empty where it knows all."""
    try:
        return await _unknown_to(ledger, settings)
    except StorageError as error:
        return f"the last report cannot be read, so it may be of another ledger: {error}"


async def _unknown_to(ledger: Ledger, settings: BatchSettings) -> str:
    """What the batch's report says that the ledger does not know, in words; empty where it knows all.

    Raises:
        StorageError: the report cannot be read.
    """
    store = Store(settings.report.url, endpoint_url=settings.storage.endpoint_url)
    content = await store.read(_REPORT)  # before the ledger, which only gets ahead of it
    report: dict[str, Any] = {}
    with suppress(ValueError, TypeError):  # another file has its name
        report = dict(json.loads(content or b"{}"))
    paid = report.get("paid_jobs") if report.get("batch") == ledger.batch else None
    if not isinstance(paid, int) or not paid:
        return ""
    known = (await ledger.read(running_totals.of_batch)).paid_jobs
    says = f"it was written at {report.get('written_at')} and has {counted(paid, 'job')} paid for"
    says += f", {report.get('stored')} of the batch file stored"
    if report.get("ledger_id") != ledger.id:
        return f"{store.url_of(_REPORT)} is of another ledger: {says}"
    if paid > known:
        return f"{store.url_of(_REPORT)} is newer than this ledger: {says}; this ledger knows of {known}"
    return ""


# ---- names in storage


async def taken_names(jobs: pl.DataFrame, settings: Settings, ledger: Ledger) -> str:
    """How many of the first names to buy are those of files that the ledger does not know; empty if none, if
    names have the generation's id, and if the storage does not say what it has.
    """
    if "{generation_id" in settings.storage.key:
        return ""
    url = settings.storage.url
    wanted = [
        name_in_store(
            settings.storage.key,
            job["carried"],
            batch=settings.batch,
            row_id=job["row_id"],
            sample=job["sample"],
            index=0,
            ext=_extension(job["type"], json.loads(job["request"])),
            job_key=job["key"],
            model=job["model"],
        )
        for job in jobs.filter("to_buy").head(_FIRST).iter_rows(named=True)
    ]
    own = await ledger.read(lambda connection, _: media.taken_names(connection, url, wanted))
    store = Store(url, endpoint_url=settings.storage.endpoint_url)
    others = [name for name in wanted if folded(name) not in own]
    try:
        there = await asyncio.gather(*map(store.exists, others))
    except StorageError:  # a key that may not list, for instance: the probe before the buying says more
        return ""
    taken = [name for name, is_there in zip(others, there, strict=True) if is_there]
    if not taken:
        return ""
    return (
        f"{len(taken)} of the first {len(wanted)} names in {url} are taken: {taken[0]}, for instance; "
        "what is there stays, and the new files get other names"
    )


def _extension(model_type: str, request: dict[str, object]) -> str:
    """INTERFACE 2.3: an image's format is `jpeg` unless `output_format` says otherwise."""
    return "mp4" if model_type == ModelType.VIDEO else str(request.get("output_format", "jpeg"))
