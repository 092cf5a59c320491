"""The report at `report.url` next to the ledger: what it has that the ledger does not know.

A lost ledger, another working folder or an older backup would buy everything again that it does not know.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from callsheet.config.settings import BatchSettings
from callsheet.errors import OtherLedger, StorageError
from callsheet.ledger import running_totals
from callsheet.ledger.ledger import Ledger
from callsheet.plain_text import counted
from callsheet.storage.store import Store

REPORT = "report.json"


async def check_report(settings: BatchSettings) -> None:
    """Makes sure that the ledger knows all that the batch's report has, unless `ledger.new` says otherwise.

    Raises:
        OtherLedger: it does not.
        LedgerError: the ledger cannot be opened.
    """
    if settings.ledger.new:
        return
    ledger = await Ledger.open(settings.ledger.url, settings.batch)
    try:
        unknown = await _unknown_to(ledger, settings)
    except StorageError:  # who may only write there buys all the same; the quote says it
        unknown = ""
    finally:
        await ledger.close()
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
    report = _parsed(await store.read(REPORT))  # before the ledger, which only gets ahead of it
    paid = report.get("paid_jobs") if report.get("batch") == ledger.batch else None
    if not isinstance(paid, int) or not paid:
        return ""
    known = (await ledger.read(running_totals.of_batch)).paid_jobs
    says = f"it was written at {report.get('written_at')} and has {counted(paid, 'job')} paid for"
    says += f", {report.get('stored')} of the batch file stored"
    if report.get("ledger_id") != ledger.id:
        return f"{store.url_of(REPORT)} is of another ledger: {says}"
    if paid > known:
        return f"{store.url_of(REPORT)} is newer than this ledger: {says}; this ledger knows of {known}"
    return ""


def _parsed(content: bytes | None) -> dict[str, Any]:
    """The report; empty where there is none, or another file has its name."""
    with suppress(ValueError):
        if isinstance(found := json.loads(content or b""), dict):
            return found
    return {}
