"""The manifest and the costs as CSV files, for spreadsheets: nothing in them is run as a formula."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import polars as pl

from callsheet.export.destination import Destination
from callsheet.export.files import Exported, stored_files
from callsheet.files import temporary_file_errors
from callsheet.ledger import queries
from callsheet.ledger.ledger import Ledger
from callsheet.pricing.plan import Plan
from callsheet.report.tables import COSTS, costs
from callsheet.report.tables import write as write_table
from callsheet.rows import harmless

_PART = 16_384  # rows that are in memory at once


async def write(ledger: Ledger, plan: Plan | None, destination: Destination, work: Path) -> Exported:
    """Writes `manifest.csv` and `costs.csv`, with the columns of the report's Parquet files.

    Args:
        ledger: the ledger, opened for the batch.
        plan: the batch's last plan; None where it is not on this machine.
        destination: where to.
        work: a folder for temporary files.

    Raises:
        StorageError: the destination cannot be written.
        LedgerError: the ledger cannot be read.
    """
    tables = work / "manifest.parquet", work / "costs.parquet"
    await stored_files(ledger, plan, tables[0], also_removed=True)
    attempts = await ledger.read(lambda connection, batch: queries.every_attempt(connection, batch, COSTS))
    await asyncio.to_thread(write_table, costs(attempts), tables[1])
    size = 0
    for table in tables:
        csv = table.with_suffix(".csv")
        await asyncio.to_thread(_convert, table, csv)
        await destination.write(csv.name, csv, "text/csv")
        size += csv.stat().st_size
    return Exported(files=len(tables), copied=len(tables), bytes=size)


def _convert(parquet: Path, csv: Path) -> None:
    """A table as CSV, some rows at a time; lists and structs become JSON."""
    table = pl.scan_parquet(parquet)
    names = pl.DataFrame({"name": table.collect_schema().names()})
    header = names.select(harmless(pl.col("name")))["name"].to_list()
    with temporary_file_errors(), csv.open("wb") as file:
        pl.DataFrame(schema=header).write_csv(file)
        for start in range(0, int(table.select(pl.len()).collect().item()), _PART):
            rows = table.slice(start, _PART).collect()
            flat = rows.with_columns(_as_json(column) for column in rows if column.dtype.is_nested())
            flat.with_columns(harmless(pl.col(pl.String))).write_csv(file, include_header=False)


def _as_json(column: pl.Series) -> pl.Series:
    texts = [None if value is None else _json(value) for value in column.to_list()]
    return pl.Series(column.name, texts, pl.String)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
