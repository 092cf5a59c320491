"""Cells that name a kept file of another batch: `cast.yaml#nova`, or `cast.yaml#nova/2` of several.

A column of images may name it in the place of a path. The cell becomes the file's place, which is read as
that of any image (`references.py`), so a job is told by the file's bytes: where another file is kept, it is
another job. And the row carries from which file it is made.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from callsheet.batches.formats import FILE
from callsheet.batches.read import Batch
from callsheet.cells import IMAGE_COLUMNS, has_one_of, rejects, separate, wrong_cells
from callsheet.config.load import load_without_service
from callsheet.config.settings import BatchSettings, Settings
from callsheet.errors import ConfigError, InputError
from callsheet.ledger.marks import MediaDecision
from callsheet.plain_text import and_more, counted
from callsheet.pricing import originals
from callsheet.pricing.originals import Originals
from callsheet.pricing.parameters import Reject
from callsheet.pricing.references import (
    LAST_FRAME,
    FileName,
    Reference,
    batch_file,
    beside,
    parse_name,
    parse_references,
)
from callsheet.records import MADE_FROM, MADE_FROM_FIELDS

_HAS_NAME = r"\.ya?ml#"
_NAMED = 5  # files
_FILE = pl.Struct({name: pl.Int64 if name == "sample" else pl.String for name in MADE_FROM_FIELDS})
_FILES = pl.List(_FILE)
_CELL: dict[str, Any] = {
    **dict.fromkeys(["file", "cell", "filled", "source", "reason"], pl.String),
    "files": _FILES,
}


@dataclass(frozen=True, slots=True)
class _OtherBatch:
    """A batch of which cells name files; None in the place of what nothing is bought of yet."""

    settings: BatchSettings
    stored: Originals | None


async def with_cast(batch: Batch, settings: Settings) -> Batch:
    """The batch, in which cells that name a kept file of another batch have its place.

    A row of which a name means no file, or several, is rejected.

    Raises:
        LedgerError: the ledger of a batch that is named cannot be read.
    """
    cells = pl.concat(
        table.select("file", pl.lit(column).alias("column"), pl.col(column).alias("cell"))
        for table in (batch.rows, batch.others)
        for column in IMAGE_COLUMNS
    )
    cells = cells.filter(pl.col("cell").str.contains(_HAS_NAME)).unique(maintain_order=True)
    if cells.is_empty():
        return batch
    cast = KeptFiles(batch_file(settings))
    filled: dict[str, list[dict[str, Any]]] = {column: [] for column in IMAGE_COLUMNS}
    for file, column, cell in cells.iter_rows():
        filled[column].append(await cast.fill(file, column, cell))
    return await asyncio.to_thread(_with_places, batch, filled, cast.stored_files)


class KeptFiles:
    """The kept files that cells name. `own_file`: the batch file, where there is one alone.

    `stored_files` are those that were named, as in `Batch`.
    """

    def __init__(self, own_file: str) -> None:
        self._own_file = own_file
        self._batches: dict[str, _OtherBatch] = {}
        self.stored_files: dict[str, str] = {}

    async def fill(self, file: str | None, column: str, cell: str) -> dict[str, Any]:
        """A cell with the places of the files that it names, or why they cannot be used (`_CELL`)."""
        listed = parse_references({**dict.fromkeys(IMAGE_COLUMNS), column: cell})
        filled: dict[str, Any] = {"file": file, "cell": cell, "filled": cell, "files": []}
        if isinstance(listed, Reject):  # it is rejected where images are read
            return filled
        references = []
        for reference in listed:
            source = reference.source
            if name := parse_name(source):
                try:
                    place, origin = await self.find(name, file or self._own_file)
                except InputError as error:
                    return filled | {"source": source, "reason": f"{source} {error.message}"}
                filled["files"].append(origin)
                source = place + (LAST_FRAME if source.endswith(LAST_FRAME) else "")
            references.append(replace(reference, source=source))
        return filled | {"filled": _cell(column, references)}

    async def find(self, name: FileName, file: str) -> tuple[str, dict[str, Any]]:
        """The place of the one file that is kept of a row, or has this number; and what is carried of it.

        `file`: the batch file in which the name stands.

        Raises:
            InputError: there is none, or there are several; without the name.
        """
        origin = await self._batch(name.config, file)
        batch, files = origin.settings.batch, origin.stored.files if origin.stored else None
        if files is None:
            raise InputError(f"is of a batch of which nothing is bought yet: callsheet run {name.config}")
        of_row = files.filter(row_id=name.row)
        if of_row.is_empty():
            id_ = pl.format("{}/{}", "row_id", "file_number")
            of_row = files.filter((id_ == name.row) | (pl.col("id") == name.row))
        kept = of_row.filter(pl.col("decision") == MediaDecision.KEPT)
        if kept["current"].any():  # what the batch does not ask for any more is replaced by these
            kept = kept.filter("current")
        if of_row.is_empty():
            raise InputError(f"is no row of which the batch {batch} has a file")
        if kept.is_empty():
            raise InputError(
                f"has {counted(of_row.height, 'file')}, and none is kept: callsheet review {name.config}"
            )
        if kept.height > 1:
            ids = kept["id"].sort()
            names = and_more(ids.head(_NAMED).to_list(), ids.len())
            raise InputError(
                f"has {kept.height} files that are kept ({names}): name one, as {name.config}#{ids[0]}"
            )
        [row] = originals.with_places(kept, origin.settings).iter_rows(named=True)
        self.stored_files[row[FILE]] = row["sha256"]
        return row[FILE], {
            "batch": batch,
            "row": row["row_id"],
            "sample": row["sample"],
            "sha256": row["sha256"],
        }

    async def _batch(self, config: str, file: str) -> _OtherBatch:
        """The batch of a config, which is looked for beside the batch file, and then in the folder here.

        Raises:
            InputError: its config is wrong, or not there.
        """
        path = await asyncio.to_thread(_place, config, file)
        if path not in self._batches:
            try:
                settings = await asyncio.to_thread(load_without_service, Path(path))
            except ConfigError as error:
                raise InputError(f"is of a batch with a wrong config: {error.message}") from None
            self._batches[path] = _OtherBatch(settings, await originals.read(settings))
        return self._batches[path]


def _place(config: str, file: str) -> str:
    return next((path for path in (beside(config, file), config) if Path(path).is_file()), config)


def _cell(column: str, references: Sequence[Reference]) -> str:
    """References as a cell of their column has them."""
    if column != "images":
        return "|".join(reference.source for reference in references)
    listed = [{"url": reference.source, "role": reference.role} for reference in references]
    return json.dumps(listed)


def _with_places(
    batch: Batch, filled: Mapping[str, Sequence[Mapping[str, Any]]], stored_files: Mapping[str, str]
) -> Batch:
    """The batch with these cells (`_CELL`) by column; a row with a wrong one is rejected."""
    rows, bad_rows = _with_cells(batch.rows, filled)
    other_rows, wrong_others = _with_cells(batch.others, filled)
    rows, wrong_rows = separate(rows, has_one_of(bad_rows))
    of_cells = rejects(pl.concat([bad_rows, wrong_others]), batch.names)
    return replace(
        batch,
        rows=rows,
        others=pl.concat([other_rows, wrong_rows], how="diagonal_relaxed"),
        rejects=pl.concat([batch.rejects, of_cells]).sort("line", maintain_order=True),
        stored_files={**batch.stored_files, **stored_files},
    )


def _with_cells(
    table: pl.DataFrame, filled: Mapping[str, Sequence[Mapping[str, Any]]]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows with these cells, which carry from which files they are made; and what is wrong (`WRONG`)."""
    bad_rows, files = [], []
    for column, cells in filled.items():
        by_cell = pl.DataFrame(cells, _CELL).rename({"cell": column})
        on = ["file", column]
        joined = table.join(by_cell, on=on, how="left", nulls_equal=True, maintain_order="left")
        bad_cells = joined.filter(pl.col("reason").is_not_null()).with_columns(pl.col("source").alias(column))
        bad_rows.append(wrong_cells(bad_cells, column, pl.col("reason")))
        files.append(joined["files"].alias(f"files of {column}"))
        cell = pl.when(pl.col("reason").is_null()).then(pl.coalesce("filled", column))
        table = joined.with_columns(cell.alias(column)).select(table.columns)
    return table.with_columns(_carried(table, files)), pl.concat(bad_rows)


def _carried(table: pl.DataFrame, files: Sequence[pl.Series]) -> pl.Expr:
    """The carried columns of rows with all files from which they are made, in order."""
    none = pl.lit([], dtype=_FILES)
    parts = [pl.lit(column).fill_null(none) for column in files]
    if "carried" not in table.columns:
        return pl.struct(pl.concat_list(parts).alias(MADE_FROM)).alias("carried")
    carried = pl.col("carried")
    fields: Any = table.schema["carried"]
    own_type = next((field.dtype for field in fields.fields if field.name == MADE_FROM), None)
    if isinstance(own_type, pl.Struct):  # the row is a file of another batch
        parts.insert(0, carried.struct.field(MADE_FROM).cast(_FILE))
    return carried.struct.with_fields(pl.concat_list(parts).alias(MADE_FROM))
