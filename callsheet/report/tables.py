"""The Parquet tables of the report, `manifest.parquet` and `costs.parquet`.

Each takes the ledger's rows some thousands at a time, and writes its file
when it has them all: before that, neither its columns nor its order is known.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from callsheet.files import temporary_file_errors
from callsheet.ledger.columns import MONEY, TIME
from callsheet.pricing.plan import Positions

_MANIFEST: dict[str, Any] = {
    "job_key": pl.String,
    "row_id": pl.String,
    "sample": pl.Int64,
    "generation_id": pl.String,
    "index": pl.Int64,
    "model": pl.String,
    "prompt": pl.String,
    "url": pl.String,
    "sha256": pl.String,
    "bytes": pl.Int64,
    "mime_type": pl.String,
    "width": pl.Int64,
    "height": pl.Int64,
    "duration": pl.Float64,
    "fps": pl.Float64,
    "has_sound": pl.Boolean,
    "cost": MONEY,
    "deletes_at": TIME,
    "stored_at": TIME,
}
_CURRENT = "current"
_POSITION, _SLICE_OF = "\0position", "\0slice"  # no column of a batch file has such names
_COSTS: dict[str, Any] = {
    "job_key": pl.String,
    "row_id": pl.String,
    "sample": pl.Int64,
    "generation_id": pl.String,
    "model": pl.String,
    "type": pl.String,
    "state": pl.String,
    "error_code": pl.String,
    "error_message": pl.String,
    "quoted": MONEY,
    "cost": MONEY,
    "cost_source": pl.String,
    "currency": pl.String,
    "billable_unit": pl.String,
    "unit_price": MONEY,
    "quantity": MONEY,
    "submitted_at": TIME,
    "finished_at": TIME,
}
MANIFEST = [*_MANIFEST, "carried"]
"""What `Manifest.add` needs of the ledger's files and their attempts."""

COSTS = [*_COSTS]
"""What `Costs.add` needs of the ledger's attempts."""

_SLICE = 32_768  # jobs whose files are put in order at once


class Manifest:
    """`manifest.parquet`: a row for each stored file, with the batch file's carried columns after its own.

    Args:
        positions: the order of the batch file; None where nothing is known of it: then every row is current,
            and the rows stay as they come.
    """

    def __init__(self, positions: Positions | None) -> None:
        self._positions = positions
        self._schemas: dict[str, pl.DataFrame] = {}
        self._tables: list[pl.DataFrame] = []
        self._tables_of: defaultdict[int | None, list[int]] = defaultdict(list)  # by slice of the batch file

    def add(self, files: pl.DataFrame) -> None:
        """Takes in some stored files, with the columns `MANIFEST`."""
        position = self._positions.of(files["job_key"]) if self._positions else pl.lit(None, pl.UInt32)
        rows = files.select([*_MANIFEST]).with_columns(_carried(files["carried"]))
        self._schemas.setdefault(str(rows.schema), rows.clear())
        rows = rows.with_columns(position.alias(_POSITION))
        slices = rows.with_columns((pl.col(_POSITION) // _SLICE).alias(_SLICE_OF))
        for (number,), part in slices.partition_by(_SLICE_OF, include_key=False, as_dict=True).items():
            self._tables_of[number].append(len(self._tables))
            self._tables.append(part)

    def write(self, path: Path) -> None:
        """Writes the file, in the batch file's order.

        `current` is false for rows that the batch file no longer has or has changed; they come last.

        Raises:
            StorageError: it cannot be written.
        """
        schema = pl.concat([pl.DataFrame(schema=_MANIFEST), *self._schemas.values()], how="diagonal_relaxed")
        carried = [name for name in schema.columns if name not in _MANIFEST]
        order = [*_MANIFEST, _CURRENT, *carried]
        empty = schema.with_columns(pl.lit(True).alias(_CURRENT)).select(order)
        removed = self._tables_of.pop(None, [])

        def slices() -> Iterator[pl.DataFrame]:
            for _, numbers in sorted(self._tables_of.items()):
                rows = pl.concat([self._tables[number] for number in numbers], how="diagonal_relaxed")
                rows = rows.sort(_POSITION, "index", "stored_at", maintain_order=True)
                yield rows.with_columns(pl.lit(True).alias(_CURRENT))
            for number in removed:
                yield self._tables[number].with_columns(pl.lit(self._positions is None).alias(_CURRENT))

        tables = (pl.concat([empty, rows], how="diagonal_relaxed").select(order) for rows in slices())
        _write(path, tables, empty)


class Costs:
    """`costs.parquet`: a row for each attempt that was submitted."""

    def __init__(self) -> None:
        self._tables: list[pl.DataFrame] = []

    def add(self, attempts: pl.DataFrame) -> None:
        """Takes in some attempts in order of submission."""
        self._tables.append(attempts.select([*_COSTS]))

    def write(self, path: Path) -> None:
        """Writes the file, in order of submission.

        Raises:
            StorageError: it cannot be written.
        """
        _write(path, iter(self._tables), pl.DataFrame(schema=_COSTS))


def _carried(texts: pl.Series) -> list[pl.Series]:
    """The carried columns of some rows, from the JSON object of each row."""
    if (texts == "{}").all():
        return []
    rows = json.loads(f"[{','.join(texts)}]")
    names = dict.fromkeys(name for row in rows for name in row)
    return [pl.Series(_column(name, names), [row.get(name) for row in rows], strict=False) for name in names]


def _column(name: str, carried: Collection[str]) -> str:
    """The manifest's name for a carried column: the batch file's, unless it is taken."""
    column = name
    while column in _MANIFEST or column == _CURRENT or (column != name and column in carried):
        column = f"input_{column}"
    return column


def _write(path: Path, tables: Iterator[pl.DataFrame], empty: pl.DataFrame) -> None:
    """Writes tables of one schema into one file, one after the other."""

    def source(*_: object) -> Iterator[pl.DataFrame]:
        yield empty
        yield from tables

    with temporary_file_errors():
        try:
            register_io_source(source, schema=empty.schema).sink_parquet(path, row_group_size=_SLICE)
        except pl.exceptions.ComputeError as error:  # polars wraps the errors of the disk
            raise OSError(None, str(error)) from error
