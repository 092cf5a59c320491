"""Batch files -> tables as they are: CSV, TSV, Parquet and Excel; one file, a glob or S3.

Reads a table at a time, so that a file of any size takes little memory. Does not know what the columns mean.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from callsheet.batches import delimited, excel, sources
from callsheet.batches.delimited import Table
from callsheet.config.settings import COLUMNS, Input
from callsheet.errors import InputError

_TEXT = (".csv", ".tsv", ".txt")
_PARQUET = (".parquet", ".pq")
_EXCEL = (".xlsx",)
_SLICE = 49_152


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
        empty = True
        with sources.local_copy(file, endpoint_url) as path:
            for table in _read_file(path, file, config):
                empty = empty and not table.cells.height and not table.ragged
                yield FileTable(table, file, file if len(files) > 1 else None)
        if empty:
            raise InputError(f"{file}: has no rows")


def is_batch_file(name: str) -> bool:
    """Whether a file is of a known type, by its name."""
    return _is_text(name.lower()) or name.lower().endswith((*_PARQUET, *_EXCEL))


def _is_text(name: str) -> bool:
    return name.removesuffix(".gz").removesuffix(".zst").endswith(_TEXT)


def _read_file(path: Path, name: str, config: Input) -> Iterator[Table]:
    lower = name.lower()
    if _is_text(lower):
        return delimited.read_tables(
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
        return iter([excel.read_sheet(path, name)])
    types = ", ".join([*_TEXT, *_PARQUET, *_EXCEL])
    raise InputError(f"{name}: is not of a known type; expected {types}, or text as .gz or .zst")


def _read_parquet(path: Path, name: str) -> Iterator[Table]:
    line = 1
    try:
        for cells in pl.scan_parquet(path).collect_batches(chunk_size=_SLICE, maintain_order=True):
            lines = pl.int_range(line, line + cells.height, eager=True)
            line += cells.height
            yield Table(cells, lines, name)
    except FileNotFoundError:
        raise InputError(f"{name}: there is no such file") from None
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"{name}: cannot be read as Parquet: {error}") from None


def template_columns(config: Input) -> list[str]:
    """The columns that `input.template` names, in its order."""
    if config.template is None:
        return []
    return [name for _, name, _, _ in string.Formatter().parse(config.template) if name is not None]
