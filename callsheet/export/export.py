"""Exports a batch: what is stored and still in the batch file, or kept, as one of several kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

import polars as pl

from callsheet.config.settings import BatchSettings
from callsheet.errors import InputError, StorageError
from callsheet.export import timeline
from callsheet.export.files import AT_ONCE, Copying, Exported, with_names
from callsheet.export.folder import ALL, BY_ROW, with_readable_names, write_folder
from callsheet.export.image_folder import write_image_folder
from callsheet.export.page import SEEN, write_page
from callsheet.export.place import mark
from callsheet.export.provenance import CARRIED, Provenance
from callsheet.export.shards import write_shards
from callsheet.export.tables import write_tables
from callsheet.files import disk_errors, with_home
from callsheet.ledger import services
from callsheet.ledger.databases import check_exists
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.marks import MediaDecision
from callsheet.pricing.plan import last_plan
from callsheet.report.contact_sheet.cards import local_path
from callsheet.report.report import COSTS, OF_MANIFEST, costs, manifest
from callsheet.standing import read_standing
from callsheet.storage.store import Store


class Kind(StrEnum):
    """What a batch can be exported as."""

    FOLDER = "folder"
    CSV = "csv"
    IMAGEFOLDER = "imagefolder"
    WEBDATASET = "webdataset"
    OTIO = "otio"
    PAGE = "page"


async def export(
    settings: BatchSettings,
    to: str,
    kind: Kind,
    progress: Callable[[int], None] = lambda _: None,
    *,
    kept: bool = False,
    bom: bool = False,
    name: str = BY_ROW,
    still_seconds: float = 3.0,
) -> Exported:
    """Exports a batch. What an earlier export has written there already is not written again.

    Args:
        to: a folder, where `~` is the home folder, or `s3://bucket/prefix`: new, empty, or with an earlier
            export of the batch.
        kind: what it is exported as.
        progress: called with the number of files that were copied in the meantime.
        kept: only the files that somebody has marked as kept.
        bom: CSV files begin with a byte order mark, by which Excel reads them as UTF-8.
        name: how the files of a folder, a cut or a page are named: columns of the manifest in braces.
        still_seconds: how long a cut shows an image.

    Raises:
        ConfigError: OpenTimelineIO is not installed, and a cut needs it.
        InputError: something else is at the destination, or its home folder is not known; or there is nothing
            to export, or a stored file that is not rejected was removed or changed.
        StorageError: the destination cannot be written.
        LedgerError: the ledger cannot be read, or there is none.
    """
    if kind is Kind.OTIO:
        timeline.check_installed()
    if not to:
        raise InputError("--to is empty", hint="Name a folder, or s3://bucket/prefix.")
    try:
        to = with_home(to)
    except ValueError as error:
        raise InputError(f"{to}: {error}", hint="Write the whole path.") from None
    path = local_path(to)
    with disk_errors(path or Path(), "--to"):
        is_other = path is not None and path.exists() and not path.is_dir()
    if is_other:
        raise InputError(f"{to}: is a file", hint="Name a folder, or s3://bucket/prefix.")
    check_exists(settings.ledger.url)
    endpoint_url = settings.storage.endpoint_url
    plan = await asyncio.to_thread(last_plan, settings)
    jobs = plan.table if plan else None
    async with await Ledger.open(settings.ledger.url, settings.batch, looks=True) as ledger:
        try:
            store = Store(to, endpoint_url=endpoint_url, put=settings.storage.put)
            present = await mark(store, to, batch=settings.batch, kind=kind.value, ledger_id=ledger.id)
            of_files = (*OF_MANIFEST, "storage", "name")
            standing = await ledger.read(read_standing, jobs, of_attempts=COSTS, of_files=of_files)
            files = _exported(manifest(standing, in_order=kind is not Kind.WEBDATASET), kind, kept=kept)
            if kind is Kind.CSV:
                return await write_tables(files, costs(standing), store, bom=bom)
            copying = await _copying(ledger, settings)
            is_gone = pl.col("url").is_in((await _gone(standing.files, endpoint_url)).implode())
            files, gone = files.filter(~is_gone), files.filter(is_gone)["url"]
            _check_not_empty(files, kept=kept)
            if kind in (Kind.FOLDER, Kind.OTIO, Kind.PAGE):
                files = with_readable_names(files, name)
                listed = SEEN if kind is Kind.PAGE else ALL
                exported = await write_folder(files, store, present, copying, progress, listed=listed)
                if kind is Kind.OTIO:
                    await timeline.write_timeline(files, store, settings.batch, still_seconds)
                elif kind is Kind.PAGE:
                    await write_page(files, store, settings.batch, ledger.id)
                if kind is not Kind.FOLDER:
                    exported = replace(exported, files=exported.files + 1)
            elif kind is Kind.IMAGEFOLDER:
                exported = await write_image_folder(with_names(files), store, present, copying, progress)
            else:
                exported = await write_shards(
                    with_names(files), store, present, copying, progress, batch=settings.batch
                )
            unmarked = files.filter(~pl.col("mime_type").is_in(CARRIED)).height if copying.provenance else 0
            return replace(exported, not_there=tuple(gone), unmarked=unmarked)
        except StorageError as error:  # its hint names the settings of a store's URL
            error.hint = error.hint.replace("storage.url or report.url", "--to")
            raise


def _exported(files: pl.DataFrame, kind: Kind, *, kept: bool) -> pl.DataFrame:
    """What is exported of the manifest.

    What is kept is exported also where the batch file no longer has its row: a person wants it. What is
    rejected belongs to no cut, and is not shown to a client.
    """
    if kept:
        return files.filter(pl.col("decision") == MediaDecision.KEPT)
    if kind is Kind.CSV:
        return files
    if kind in (Kind.OTIO, Kind.PAGE):
        files = files.filter(pl.col("decision").ne_missing(MediaDecision.REJECTED))
    return files.filter("current")


async def _copying(ledger: Ledger, settings: BatchSettings) -> Copying:
    if not settings.storage.provenance:
        return Copying(settings.storage.endpoint_url)
    service = await ledger.read(services.of_batch)
    host = urlsplit(service or "").hostname or ""
    provenance = Provenance(host, with_prompt=settings.storage.provenance == "prompt")
    return Copying(settings.storage.endpoint_url, provenance)


async def _gone(files: pl.DataFrame, endpoint_url: str | None) -> pl.Series:
    """The URLs of stored files that are gone, and nobody wants: `tidy` has removed them, or they are rejected
    and not in storage any more.
    """
    is_removed = pl.col("removed_at").is_not_null()
    removed = files.filter(is_removed, pl.col("decision").ne_missing(MediaDecision.KEPT))
    rejected = files.filter(~is_removed, decision=MediaDecision.REJECTED)
    stores = {url: Store(url, endpoint_url=endpoint_url) for url in rejected["storage"].unique()}
    are_there: list[bool] = []
    for chunk in rejected.select("storage", "name").iter_slices(AT_ONCE):
        are_there += await asyncio.gather(*(stores[url].exists(file) for url, file in chunk.iter_rows()))
    missing = rejected.filter(~pl.Series(are_there, dtype=pl.Boolean))
    return pl.concat([removed["url"], missing["url"]])


def _check_not_empty(files: pl.DataFrame, *, kept: bool) -> None:
    if files.is_empty() and kept:
        hint = "callsheet review CONFIG marks files."
        raise InputError("no stored file is marked as kept", hint=hint)
    if files.is_empty():
        hint = "callsheet status CONFIG counts its jobs."
        raise InputError("the batch has no stored file to export", hint=hint)
