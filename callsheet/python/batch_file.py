"""A table in memory as a batch file, so that everything after it is the same as for a file.

It is written one record batch after the other: a stream of any length takes little memory.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import pyarrow as pa
from pyarrow import parquet

from callsheet.errors import CallsheetError, InputError
from callsheet.files import temporary_file_errors

_INDEX = re.compile(r"__index_level_\d+__")  # pandas' row labels, where they have no name
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
    with temporary_file_errors():
        folder = TemporaryDirectory(prefix="callsheet-")
    with folder:
        path = Path(folder.name, f"{_NAME}.parquet")
        await asyncio.to_thread(_write, rows, path)
        try:
            yield {"input.path": str(path)}
        except CallsheetError as error:
            error.message = error.message.replace(str(path), _NAME)
            error.args = (error.message,)
            raise


def _write(rows: Any, path: Path) -> None:
    if not hasattr(rows, "__arrow_c_stream__"):
        hint = "Give a pandas or polars DataFrame, a pyarrow Table, or anything with __arrow_c_stream__"
        example = "; pandas.DataFrame(rows) makes one." if isinstance(rows, list | dict) else "."
        raise InputError(f"{_NAME}: {type(rows).__name__} is not a table", hint=hint + example)
    try:
        with pa.RecordBatchReader.from_stream(rows) as batches:
            names = batches.schema.names
            columns = [number for number, name in enumerate(names) if not _INDEX.fullmatch(name)]
            schema = pa.schema([_readable(batches.schema.field(number)) for number in columns])
            if twice := sorted({name for name in schema.names if schema.names.count(name) > 1}):
                raise InputError(
                    f"{_NAME}: there are two columns named {twice[0]!r}", hint="Rename one of them."
                )
            with temporary_file_errors(), parquet.ParquetWriter(path, schema) as file:
                for batch in batches:
                    read = [_decoded(batch.column(number)) for number in columns]
                    file.write_batch(pa.RecordBatch.from_arrays(read, schema.names).cast(schema))
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = ": ".join(str(part).strip() for part in error.args) or type(error).__name__
        hint = "Give each column one type: text, numbers, booleans, dates, or lists and structs of these."
        raise InputError(f"{_NAME}: cannot be read: {reason}", hint=hint) from None


def _readable(field: pa.Field) -> pa.Field:
    """A column as Parquet has it: views of text become text, and categories what they stand for."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    return field.with_type(pa.large_string() if pa.types.is_string_view(kind) else kind)


def _decoded(column: pa.Array) -> pa.Array:
    """Polars' categories as text, which Arrow cannot make of views of text by itself."""
    if pa.types.is_dictionary(column.type) and pa.types.is_string_view(column.type.value_type):
        return column.dictionary.cast(pa.large_string()).take(column.indices)
    return column
