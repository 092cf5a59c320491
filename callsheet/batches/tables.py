"""Batch files -> tables as they are: text, Parquet and Excel; one file, a glob or S3.

A new kind of file is one more function here that makes a `Table`. Does not know what the columns mean.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from callsheet.batches import delimited, sources
from callsheet.batches.delimited import Table, column_names
from callsheet.config.settings import COLUMNS, Input
from callsheet.errors import InputError

_TEXT = (".csv", ".tsv", ".txt")
_PARQUET = (".parquet", ".pq")
_EXCEL = (".xlsx",)
_ROW = "\0row"  # cannot be the name of a column in a workbook


@dataclass(frozen=True, slots=True)
class FileTable:
    """A table and the file that it is from; `shown` is the file's name where the batch has several."""

    table: Table
    file: str
    shown: str | None


def read_tables(config: Input, endpoint_url: str | None) -> Iterator[FileTable]:
    """The tables of the batch's files, in order.

    Raises:
        InputError: a file is missing, empty, of an unknown type, in another encoding or broken.
        StorageError: the temporary copy of a file on S3 cannot be written.
    """
    files = sources.find_files(config.path, endpoint_url)
    for file in files:
        with sources.local_copy(file, endpoint_url) as path:
            table = _read_file(path, file, config)
        if table.cells.is_empty() and not table.ragged:
            raise InputError(f"{file}: has no rows")
        yield FileTable(table, file, file if len(files) > 1 else None)


def is_batch_file(name: str) -> bool:
    """Whether a file is of a known type, by its name."""
    return _is_text(name.lower()) or name.lower().endswith((*_PARQUET, *_EXCEL))


def template_columns(config: Input) -> list[str]:
    """The columns that `input.template` names, in its order."""
    if config.template is None:
        return []
    return [name for _, name, _, _ in string.Formatter().parse(config.template) if name is not None]


def _is_text(name: str) -> bool:
    return name.removesuffix(".gz").removesuffix(".zst").endswith(_TEXT)


def _read_file(path: Path, name: str, config: Input) -> Table:
    lower = name.lower()
    if _is_text(lower):
        return delimited.read_table(
            path,
            name,
            delimiter=config.delimiter,
            quote=config.quote,
            encoding=config.encoding,
            expected={*config.columns.values(), *template_columns(config), *COLUMNS},
        )
    if lower.endswith(_PARQUET):
        return _read_parquet(path, name)
    if lower.endswith(_EXCEL):
        return _read_sheet(path, name)
    types = ", ".join([*_TEXT, *_PARQUET, *_EXCEL])
    raise InputError(f"{name}: is not of a known type; expected {types}, or text as .gz or .zst")


def _read_parquet(path: Path, name: str) -> Table:
    """A Parquet file; a row's line is its number, from 1."""
    try:
        cells = pl.read_parquet(path, glob=False)
    except FileNotFoundError:
        raise InputError(f"{name}: there is no such file") from None
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"{name}: cannot be read as Parquet: {error}") from None
    return Table(cells, pl.int_range(1, cells.height + 1, eager=True), name)


def _read_sheet(path: Path, name: str) -> Table:
    """The first sheet of an Excel workbook as text; a row's line is its number in the sheet.

    Blank rows are left out; the first other row is the header. Needs the `xlsx` extra.
    """
    try:
        import fastexcel
    except ImportError:
        raise InputError(
            f"{name}: cannot be read: .xlsx needs one more package",
            hint="Install it with `pip install 'callsheet[xlsx]'`, or save the sheet as CSV.",
        ) from None
    try:
        workbook = fastexcel.read_excel(path.read_bytes())
        # `skip_rows=0` keeps blank rows above the header, so that row numbers are the sheet's.
        cells = workbook.load_sheet(0, header_row=None, skip_rows=0, dtypes="string").to_polars()
    except (fastexcel.FastExcelError, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise InputError(f"{name}: cannot be read as a workbook: {reason}") from None
    rows = cells.fill_null("").with_row_index(_ROW, offset=1).cast({_ROW: pl.Int64})
    rows = rows.filter(pl.any_horizontal(pl.exclude(_ROW).str.strip_chars() != ""))
    if rows.is_empty():
        raise InputError(f"{name}: is empty")
    number, *header_cells = rows.row(0)
    header = f"{name}, line {number}"
    names = column_names(header_cells, header)
    named = [pl.col(old).alias(new) for old, new in zip(cells.columns, names, strict=True) if new]
    return Table(rows[1:].select(named), rows[_ROW][1:], header)
