"""A table in memory as a batch file, so that everything after it is the same as for a file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import polars as pl
import pyarrow as pa

from callsheet.errors import CallsheetError, InputError
from callsheet.files import temporary_file_errors

_INDEX = r"^__index_level_\d+__$"  # pandas' row labels, where they have no name
_NAME = "rows"  # in messages, in place of the temporary file's


class Rows(Protocol):
    """A table that any library can read: a pandas or polars DataFrame, a pyarrow Table, a DuckDB result.

    This is the Arrow PyCapsule interface.
    """

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A capsule with the stream."""


@asynccontextmanager
async def batch_file(rows: Rows | None) -> AsyncIterator[Mapping[str, object]]:
    """The setting that puts rows in the place of the batch file; nothing where there are none.

    Raises:
        InputError: they are not a table, or a column cannot be read.
        StorageError: the temporary file cannot be written.
    """
    if rows is None:
        yield {}
        return
    table = await asyncio.to_thread(in_memory, rows, _NAME)
    with temporary_file_errors():
        folder = TemporaryDirectory(prefix="callsheet-")
    with folder:
        path = Path(folder.name, f"{_NAME}.parquet")
        with temporary_file_errors():
            await asyncio.to_thread(table.write_parquet, path)
        try:
            yield {"input.path": str(path)}
        except CallsheetError as error:
            error.message = error.message.replace(str(path), _NAME)
            error.args = (error.message,)
            raise


def in_memory(rows: Any, name: str) -> pl.DataFrame:
    """The table that a caller has given, with `name` for messages; only an index with a name is a column.

    Raises:
        InputError: it is no table, or a column cannot be read.
    """
    if not hasattr(rows, "__arrow_c_stream__"):
        hint = "Give a pandas or polars DataFrame, a pyarrow Table, or anything with __arrow_c_stream__"
        example = f"; pandas.DataFrame({name}) makes one." if isinstance(rows, list | dict) else "."
        raise InputError(f"{name}: {type(rows).__name__} is not a table", hint=hint + example)
    try:
        arrow = pa.table(rows)  # of pandas with its index, which may be a column of the batch
        names = arrow.column_names
        if twice := sorted({each for each in names if names.count(each) > 1}):
            raise InputError(f"{name}: there are two columns named {twice[0]!r}", hint="Rename one of them.")
        table = pl.DataFrame(arrow).select(pl.exclude(_INDEX))
        return table.cast({pl.Categorical: pl.String, pl.Enum: pl.String})
    except (
        pa.ArrowException,
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
        TypeError,
        ValueError,
    ) as error:
        reason = ": ".join(str(part).strip() for part in error.args) or type(error).__name__
        hint = "Give each column one type: text, numbers, booleans, dates, or lists and structs of these."
        raise InputError(f"{name}: cannot be read: {reason}", hint=hint) from None
