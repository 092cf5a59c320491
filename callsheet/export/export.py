"""Exports a batch: what is stored and still in the batch file, read from the ledger. Begin reading here.

An export goes to a folder or a bucket that has nothing else, so that what is there is the export. A file is
complete or absent there, so what an interrupted export has written is not written again.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import re
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import polars as pl
import sqlalchemy as sa

from callsheet.cells import harmless
from callsheet.config.settings import BatchSettings
from callsheet.errors import InputError, StorageError
from callsheet.export import image_folder, webdataset
from callsheet.export.stored import Exported, named
from callsheet.files import disk_errors, with_home
from callsheet.ledger import queries
from callsheet.ledger.databases import check_exists
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.marks import MediaDecision
from callsheet.pricing.plan import last_plan
from callsheet.report.contact_sheet.links import local_path
from callsheet.report.parquet_tables import COSTS, costs, jobs_of, manifest, stored_files
from callsheet.storage.store import Store

MARKER = "callsheet-export.json"
"""The file that says which export this is."""

_FORMAT = 1
_UNFINISHED = re.compile(r"(^|/)\.[^/]+\.part$")  # what a killed export leaves in a folder
_PRESENT = {"name": pl.String, "size": pl.Int64}


class Kind(StrEnum):
    """What a batch can be exported as."""

    CSV = "csv"
    IMAGEFOLDER = "imagefolder"
    WEBDATASET = "webdataset"


async def export(
    settings: BatchSettings,
    to: str,
    kind: Kind,
    progress: Callable[[int], None] = lambda _: None,
    *,
    kept: bool = False,
    bom: bool = False,
) -> Exported:
    """Exports a batch. What an earlier export has written there already is not written again.

    Args:
        to: a folder, where `~` is the home folder, or `s3://bucket/prefix`: new, empty, or with an earlier
            export of the batch.
        kind: what it is exported as.
        progress: called with the number of files that were copied in the meantime.
        kept: only the files that somebody has marked as kept.
        bom: CSV files begin with a byte order mark, by which Excel reads them as UTF-8.

    Raises:
        InputError: something else is at the destination, or its home folder is not known; or there is nothing
            to export, or a stored file was removed or changed.
        StorageError: the destination cannot be written.
        LedgerError: the ledger cannot be read, or there is none.
    """
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
    jobs = jobs_of(plan) if plan else None
    async with await Ledger.open(settings.ledger.url, settings.batch, looks=True) as ledger:
        try:
            store = Store(to, endpoint_url=endpoint_url, put=settings.storage.put)
            present = await _mark(store, to, batch=settings.batch, kind=kind, ledger_id=ledger.id)
            files = await ledger.read(
                lambda connection, batch: _stored(connection, batch, jobs, kind, kept=kept)
            )
            if kind is Kind.CSV:
                return await _write_tables(files, ledger, store, bom=bom)
            if files.is_empty():
                raise _nothing(kept=kept)
            files = named(files)
            if kind is Kind.IMAGEFOLDER:
                return await image_folder.write(files, store, present, endpoint_url, progress)
            return await webdataset.write(files, store, present, endpoint_url, progress, batch=settings.batch)
        except StorageError as error:  # its hint names the settings of a store's URL
            error.hint = error.hint.replace("storage.url or report.url", "--to")
            raise


def _nothing(*, kept: bool) -> InputError:
    """Why there is nothing to export, and where a person sees it."""
    if kept:
        return InputError("no stored file is marked as kept", hint="callsheet review CONFIG marks files.")
    return InputError(
        "the batch has no stored file to export", hint="callsheet status CONFIG counts its jobs."
    )


async def _mark(store: Store, url: str, *, batch: str, kind: Kind, ledger_id: str) -> pl.DataFrame:
    """Marks an empty place as that of an export, and refuses one that has something else.

    An export of another ledger than that of `ledger_id` is not brought up to date.

    Returns `name` and `size` in bytes of each file that an earlier export has written.
    """
    marker = {"callsheet_export": _FORMAT, "batch": batch, "as": kind.value, "ledger_id": ledger_id}
    content = await store.read(MARKER)
    if content is None:
        for name, _ in await store.listing():
            raise InputError(
                f"{url}: has other files already, {name} for instance",
                hint="Name a new or empty folder, or the one of an earlier export of this batch.",
            )
        await store.write(MARKER, json.dumps(marker).encode(), "application/json")
    elif (found := _known(content)) != marker:
        what = f"the batch {found.get('batch')} as {found.get('as')}"
        if found | {"ledger_id": ledger_id} == marker:
            what += " from another ledger"
        raise InputError(f"{url}: has an export of {what}", hint="Name another folder for this one.")
    files = await store.listing()
    for name, _ in files:
        if _UNFINISHED.search(name):
            await store.remove(name)
    return pl.DataFrame(files, schema=_PRESENT, orient="row")


def _known(content: bytes) -> dict[str, object]:
    """The marker. Another file of that name is an export of something unknown."""
    with suppress(ValueError):
        if isinstance(found := json.loads(content), dict):
            return found
    return {}


def _stored(
    connection: sa.Connection, batch: str, jobs: pl.DataFrame | None, kind: Kind, *, kept: bool
) -> pl.DataFrame:
    """The manifest of what is exported. Shards are in order of storage, so that those that are full stay.

    What is kept is exported also where the batch file no longer has its row: a person wants it.
    """
    files = stored_files(connection, batch)
    if kept:
        files = files.filter(pl.col("decision") == MediaDecision.KEPT)
    elif jobs is not None and kind is not Kind.CSV:
        files = files.join(jobs, on="job_key", how="semi", maintain_order="left")
    return manifest(files, None if kind is Kind.WEBDATASET else jobs)


async def _write_tables(files: pl.DataFrame, ledger: Ledger, store: Store, *, bom: bool) -> Exported:
    """Writes `manifest.csv` and `costs.csv`, with the columns of the report's Parquet files."""
    attempts = await ledger.read(lambda connection, batch: queries.every_attempt(connection, batch, COSTS))
    size = 0
    for name, table in (("manifest.csv", files), ("costs.csv", costs(attempts))):
        content = (codecs.BOM_UTF8 if bom else b"") + await asyncio.to_thread(_as_csv, table)
        await store.write(name, content, "text/csv")
        size += len(content)
    return Exported(files=2, copied=2, bytes=size)


def _as_csv(table: pl.DataFrame) -> bytes:
    """A table as CSV in which no cell is run as a formula; lists and structs become JSON."""
    nested = [column for column in table if column.dtype.is_nested()]
    cells = table.with_columns(map(_as_json, nested)).with_columns(harmless(pl.col(pl.String)))
    cells.columns = pl.select(harmless(pl.lit(pl.Series(table.columns)))).to_series().to_list()
    return cells.write_csv().encode()


def _as_json(column: pl.Series) -> pl.Series:
    cells = (
        cell if cell is None else json.dumps(cell, ensure_ascii=False, default=str)
        for cell in column.to_list()
    )
    return pl.Series(column.name, [*cells], pl.String)
