"""Exports a batch: what is stored and still in the batch file, read from the ledger. Begin reading here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum

import polars as pl
import sqlalchemy as sa

from callsheet.cells import harmless
from callsheet.config.settings import BatchSettings
from callsheet.errors import InputError, StorageError
from callsheet.export import image_folder, webdataset
from callsheet.export.destination import mark
from callsheet.export.stored import Exported, named
from callsheet.files import with_home
from callsheet.ledger import queries
from callsheet.ledger.databases import check_exists
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.marks import MediaDecision
from callsheet.pricing.plan import last_plan
from callsheet.report.contact_sheet.links import local_path
from callsheet.report.parquet_tables import COSTS, costs, jobs_of, manifest, stored_files
from callsheet.storage.store import Store


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
) -> Exported:
    """Exports a batch. What an earlier export has written there already is not written again.

    Args:
        settings: the config.
        to: a folder, where `~` is the home folder, or `s3://bucket/prefix`: new, empty, or with an earlier
            export of the batch.
        kind: what it is exported as.
        progress: called with the number of files that were copied in the meantime.
        kept: only the files that somebody has marked as kept.

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
    jobs = jobs_of(plan) if plan else None
    async with await Ledger.open(settings.ledger.url, settings.batch) as ledger:
        with _named_as_option():
            store = Store(to, endpoint_url=endpoint_url)
            present = await mark(store, to, batch=settings.batch, kind=kind.value, ledger_id=ledger.id)
            files = await ledger.read(
                lambda connection, batch: _stored(connection, batch, jobs, kind, kept=kept)
            )
            if kind is Kind.CSV:
                return await _write_tables(files, ledger, store)
            files = named(files)
            if kind is Kind.IMAGEFOLDER:
                return await image_folder.write(files, store, present, endpoint_url, progress)
            return await webdataset.write(files, store, present, endpoint_url, progress, batch=settings.batch)


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


async def _write_tables(files: pl.DataFrame, ledger: Ledger, store: Store) -> Exported:
    """Writes `manifest.csv` and `costs.csv`, with the columns of the report's Parquet files."""
    attempts = await ledger.read(lambda connection, batch: queries.every_attempt(connection, batch, COSTS))
    size = 0
    for name, table in (("manifest.csv", files), ("costs.csv", costs(attempts))):
        content = await asyncio.to_thread(_as_csv, table)
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


@contextmanager
def _named_as_option() -> Iterator[None]:
    """A store's hint names the settings of its URL; here it comes from the command line."""
    try:
        yield
    except StorageError as error:
        error.hint = error.hint.replace("storage.url or report.url", "--to")
        raise
