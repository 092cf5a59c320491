"""Rows of a batch file as they stand there, found by their ids: to be corrected and bought again."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator

import polars as pl

from callsheet.batches.read import Batch
from callsheet.batches.tables import read_tables
from callsheet.config.settings import Settings
from callsheet.errors import InputError


def original_rows(settings: Settings, row_ids: Collection[str]) -> pl.DataFrame:
    """The rows of the batch file with these ids: the file's own columns and order.

    Lists and structs, which a CSV file cannot have, are JSON text. It blocks: call it in a thread.

    Raises:
        InputError: the batch file cannot be read; or it has none of these rows any more.
        StorageError: a temporary file cannot be written.
    """
    wanted = pl.col("row_id").is_in(list(row_ids))
    places = Batch(settings).use(
        lambda slices: pl.concat(rows.filter(wanted).select("file", "line") for rows in slices)
    )
    if places.is_empty():
        raise InputError(
            f"{settings.input.path}: has none of these rows any more",
            hint="Their rows were changed or removed since they were bought.",
        )
    return pl.concat(_found(settings, places), how="diagonal_relaxed")


def _found(settings: Settings, places: pl.DataFrame) -> Iterator[pl.DataFrame]:
    for source in read_tables(settings.input, settings.storage.endpoint_url):
        lines = places.filter(pl.col("file").eq_missing(source.shown))["line"]
        cells = source.table.cells.filter(source.table.lines.is_in(lines.implode()))
        yield cells.with_columns(_as_json(column) for column in cells if column.dtype.is_nested())


def _as_json(column: pl.Series) -> pl.Series:
    texts = [None if value is None else json.dumps(value, default=str) for value in column.to_list()]
    return pl.Series(column.name, texts, pl.String)
