"""Exports a batch: what is stored and still in the batch file, read from the ledger. Begin reading here."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from callsheet.config.settings import BatchSettings
from callsheet.errors import InputError
from callsheet.export import csv_tables, image_folder, webdataset
from callsheet.export.destination import open_destination
from callsheet.export.files import Exported, stored_files
from callsheet.files import disk_errors, with_home
from callsheet.ledger.databases import check_exists
from callsheet.ledger.ledger import Ledger
from callsheet.pricing.plan import last_plan, work_folder
from callsheet.report.contact_sheet.links import local_path


class Kind(StrEnum):
    """What a batch can be exported as."""

    CSV = "csv"
    IMAGEFOLDER = "imagefolder"
    WEBDATASET = "webdataset"


async def export(
    settings: BatchSettings, to: str, kind: Kind, progress: Callable[[int], None] = lambda _: None
) -> Exported:
    """Exports a batch. What an earlier export has written there already is not written again.

    Args:
        settings: the config.
        to: a folder, where `~` is the home folder, or `s3://bucket/prefix`: new, empty, or with an earlier
            export of the batch.
        kind: what it is exported as.
        progress: called with the number of files that were copied in the meantime.

    Raises:
        InputError: something else is at the destination, or its home folder is not known; or a stored file
            was removed or changed.
        StorageError: the destination cannot be written.
        LedgerError: the ledger cannot be read, or there is none.
    """
    try:
        to = with_home(to)
    except ValueError as error:
        raise InputError(f"{to}: {error}", hint="Write the whole path.") from None
    path = local_path(to)
    if path and path.exists() and not path.is_dir():
        raise InputError(f"{to}: is a file", hint="Name a folder, or s3://bucket/prefix.")
    check_exists(settings.ledger.url)
    endpoint_url = settings.storage.endpoint_url
    plan = await asyncio.to_thread(last_plan, settings)
    ledger = await Ledger.open(settings.ledger.url, settings.batch)
    try:
        destination = await open_destination(
            to, endpoint_url, batch=settings.batch, kind=kind.value, ledger_id=ledger.id
        )
        with _work_folder(settings, to) as work:
            if kind is Kind.CSV:
                return await csv_tables.write(ledger, plan, destination, work)
            files = work / "files.parquet"
            in_order_of_storage = kind is Kind.WEBDATASET  # so that shards that are full never change
            await stored_files(ledger, plan, files, in_order_of_storage=in_order_of_storage)
            if kind is Kind.IMAGEFOLDER:
                return await image_folder.write(files, destination, endpoint_url, work, progress)
            return await webdataset.write(
                files, destination, endpoint_url, work, progress, batch=settings.batch
            )
    finally:
        await ledger.close()


@contextmanager
def _work_folder(settings: BatchSettings, to: str) -> Iterator[Path]:
    """A folder for temporary files. What a killed export to the same place has left there is removed."""
    folder = work_folder(settings) / f".export-{hashlib.sha256(to.encode()).hexdigest()[:12]}"
    shutil.rmtree(folder, ignore_errors=True)
    with disk_errors(folder, "report.url"):
        folder.mkdir(exist_ok=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
