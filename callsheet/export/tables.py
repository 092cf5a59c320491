"""`manifest.csv` and `costs.csv`, in which no cell is run as a formula."""

from __future__ import annotations

import asyncio
import codecs
import json

import polars as pl

from callsheet.cells import guarded
from callsheet.export.files import Exported
from callsheet.storage.store import Store


async def write_tables(files: pl.DataFrame, costs: pl.DataFrame, store: Store, *, bom: bool) -> Exported:
    """Writes `manifest.csv` and `costs.csv`, with the columns of the report's Parquet files."""
    size = 0
    for name, table in (("manifest.csv", files), ("costs.csv", costs)):
        content = (codecs.BOM_UTF8 if bom else b"") + await asyncio.to_thread(as_csv, table)
        await store.write(name, content, "text/csv")
        size += len(content)
    return Exported(files=2, copied=2, bytes=size)


def as_csv(table: pl.DataFrame) -> bytes:
    """A table as CSV in which no cell is run as a formula; lists and structs become JSON."""
    nested = [column for column in table if column.dtype.is_nested()]
    cells = table.with_columns(map(_as_json, nested)).with_columns(guarded(pl.col(pl.String)))
    cells.columns = pl.select(guarded(pl.lit(pl.Series(table.columns)))).to_series().to_list()
    return cells.write_csv().encode()


def _as_json(column: pl.Series) -> pl.Series:
    cells = (
        cell if cell is None else json.dumps(cell, ensure_ascii=False, default=str)
        for cell in column.to_list()
    )
    return pl.Series(column.name, [*cells], pl.String)
