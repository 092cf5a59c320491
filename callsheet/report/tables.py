"""The Parquet tables of the report: `manifest.parquet` and `costs.parquet`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import polars as pl

from callsheet.files import temporary_file_errors
from callsheet.ledger.columns import MONEY, TIME
from callsheet.pricing.plan import Plan
from callsheet.records import State

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
_POSITION = "\0position"  # no column of a batch file has such a name
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
"""What `manifest` needs of the ledger's files and their attempts."""

COSTS = [*_COSTS]
"""The columns of `costs.parquet`, which are those of the ledger's attempts."""

SUBMITTED = pl.col("submitted_at").is_not_null() & (pl.col("state") != State.PLANNED)
"""Attempts that were submitted."""


def jobs_of(plan: Plan) -> pl.DataFrame:
    """`job_key`, `line` and `position` of each job of the plan, in the batch file's order."""
    return plan.table.select(pl.col("key").alias("job_key"), "line").with_row_index("position")


def costs(attempts: pl.DataFrame) -> pl.DataFrame:
    """`costs.parquet`: a row for each attempt that was submitted, of some with the columns `COSTS`."""
    return attempts.filter(SUBMITTED).select(COSTS)


def manifest(files: Iterable[pl.DataFrame], jobs: pl.DataFrame | None) -> pl.DataFrame:
    """`manifest.parquet`: a row for each stored file, with the batch file's carried columns after its own.

    It is in the batch file's order. `current` is false for rows that the batch file no longer has or has
    changed; they come last, in the order of `files`.

    Args:
        files: the stored files, in parts with the columns `MANIFEST`.
        jobs: from `jobs_of`; None where nothing is known of the batch file: then every row is current, and
            the rows stay as they come.
    """
    rows = pl.concat([pl.DataFrame(schema=_MANIFEST | {"carried": pl.String}), *files], how="vertical_relaxed")
    table = rows.select(*_MANIFEST, *_carried(rows["carried"]))
    carried = table.columns[len(_MANIFEST) :]
    if jobs is None:
        return table.select(*_MANIFEST, pl.lit(True).alias(_CURRENT), *carried)
    places = table.select("job_key").join(jobs, on="job_key", how="left", maintain_order="left")["position"]
    table = table.with_columns(places.alias(_POSITION), places.is_not_null().alias(_CURRENT))
    current = table.filter(_CURRENT).sort(_POSITION, "index", "stored_at", maintain_order=True)
    return pl.concat([current, table.filter(~pl.col(_CURRENT))]).select(*_MANIFEST, _CURRENT, *carried)


def write(table: pl.DataFrame, path: Path) -> None:
    """Writes a table as a Parquet file on this machine.

    Raises:
        StorageError: it cannot be written.
    """
    with temporary_file_errors():
        table.write_parquet(path)


def _carried(texts: pl.Series) -> list[pl.Series]:
    """The carried columns, from the JSON object of each row."""
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
