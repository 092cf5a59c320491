"""Parquet files -> tables, whose cells keep their types."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import polars as pl

from callsheet.batches.headers import Table, struct_fields, with_fields
from callsheet.batches.texts import kind_of
from callsheet.errors import InputError


def read_parquet(path: Path, name: str, fields: Iterable[str]) -> Table:
    """A Parquet file, also with these fields of its structs; a row's line is its number, from 1. Bytes that
    are text are text, and so are UUIDs.
    """
    try:
        cells = pl.read_parquet(path, glob=False)
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror or error}") from None
    except pl.exceptions.PolarsError as error:
        with path.open("rb") as file:
            first = file.read(8)
        kind = "" if first.startswith(b"PAR1") else kind_of(first)
        problem = f"is not Parquet, but {kind}" if kind else f"cannot be read as Parquet: {error}"
        raise InputError(f"{name}: {problem if first else 'is empty'}") from None
    cells, images = _paths_of_images(with_fields(cells, fields))
    binary = [column.name for column in cells if column.dtype == pl.Binary]
    uuids = _uuids(path) if binary else set()
    for column in binary:
        if column in uuids:
            digits, lengths = pl.col(column).bin.encode("hex").str, (8, 4, 4, 4, 12)
            parts = [digits.slice(sum(lengths[:at]), length) for at, length in enumerate(lengths)]
            cells = cells.with_columns(pl.concat_str(parts, separator="-").alias(column))
        with suppress(pl.exceptions.PolarsError):  # bytes that are no text stay as they are
            cells = cells.with_columns(cells[column].cast(pl.String))
    return Table(cells, pl.int_range(1, cells.height + 1, eager=True), name, images=images)


def _paths_of_images(cells: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, frozenset[int]]]:
    """The cells, in which columns of images (structs of bytes and path, or lists of these) are their paths;
    and those columns, with the lines of the rows that have the bytes alone.
    """
    images: dict[str, frozenset[int]] = {}
    for name, dtype in cells.schema.items():
        is_list = isinstance(dtype, pl.List)
        fields = struct_fields(dtype.inner if isinstance(dtype, pl.List) else dtype)
        if fields.get("bytes") != pl.Binary or "path" not in fields:
            continue
        struct = pl.element() if is_list else pl.col(name)
        path = struct.struct.field("path").cast(pl.String)
        is_bare = path.fill_null("").str.strip_chars().eq("") & struct.struct.field("bytes").is_not_null()
        if is_list:
            path, is_bare = pl.col(name).list.eval(path), pl.col(name).list.eval(is_bare).list.any()
        bare = cells.select(is_bare.fill_null(value=False)).to_series().arg_true()
        images[name] = frozenset((bare + 1).to_list())
        cells = cells.with_columns(path.alias(name))
    return cells, images


def _uuids(path: Path) -> set[str]:
    """The columns of a Parquet file that are UUIDs, of which polars sees the bytes alone."""
    from pyarrow.parquet import ParquetFile  # which few files need

    schema = ParquetFile(path).schema
    columns = [schema.column(at) for at in range(len(schema.names))]
    return {column.path for column in columns if column.logical_type.type == "UUID"}
