"""The Parquet tables of the report: `manifest.parquet` and `costs.parquet`."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from io import BytesIO

import polars as pl
import sqlalchemy as sa

from callsheet.ledger import marks, queries
from callsheet.pricing.plan import Plan
from callsheet.records import State

_OF_MEDIA = (
    *("job_key", "row_id", "sample", "generation_id", "index", "model", "prompt", "url", "sha256", "bytes"),
    *("mime_type", "width", "height", "duration", "fps", "has_sound", "cost", "deletes_at", "stored_at"),
)
_CURRENT = "current"
_REVIEW = ("decision", "decided_by", "decided_at", "note", "flags")
_POSITION = "\0position"  # no column of a batch file has such a name

MANIFEST = (*_OF_MEDIA, *_REVIEW, "carried")
"""What `manifest` needs of stored files, with the types of `stored_files`."""

COSTS = (
    *("job_key", "row_id", "sample", "generation_id", "model", "type", "state", "error_code"),
    *("error_message", "quoted", "cost", "cost_source", "currency", "billable_unit", "unit_price"),
    *("quantity", "submitted_at", "finished_at"),
)
"""The columns of `costs.parquet`, which are those of the ledger's attempts."""

PARQUET_TYPE = "application/vnd.apache.parquet"

SUBMITTED = pl.col("submitted_at").is_not_null() & (pl.col("state") != State.PLANNED)
"""Attempts that were submitted."""


def jobs_of(plan: Plan) -> pl.DataFrame:
    """`job_key`, `line` and `position` of each job of the plan, in the batch file's order."""
    return plan.table.select(pl.col("key").alias("job_key"), "line").with_row_index("position")


def costs(attempts: pl.DataFrame) -> pl.DataFrame:
    """`costs.parquet`: a row for each attempt that was submitted, of some with the columns `COSTS`."""
    return attempts.filter(SUBMITTED).select(COSTS)


def stored_files(
    connection: sa.Connection, batch: str, columns: Sequence[str] = (*_OF_MEDIA, "attempt", "carried")
) -> pl.DataFrame:
    """Every stored file of the batch, in order of storage, with what was said of it and found in it."""
    files = queries.stored_files(connection, batch, columns)
    said = marks.decisions(connection, batch).drop("number")
    flags = pl.col("flags").str.json_decode(pl.List(pl.String))
    found = marks.findings(connection, batch).select(*marks.FILE, flags, "score")
    for each in (said, found):
        files = files.join(each, on=marks.FILE, how="left", maintain_order="left")
    return files


def manifest(files: pl.DataFrame, jobs: pl.DataFrame | None) -> pl.DataFrame:
    """`manifest.parquet`: a row for each stored file, with the batch file's carried columns after its own.

    It is in the batch file's order. `current` is false for rows that the batch file no longer has or has
    changed; they come last, in the order of `files`.

    Args:
        files: the stored files, with the columns `MANIFEST`.
        jobs: from `jobs_of`; None where nothing is known of the batch file: then every row is current, and
            the rows stay as they come.
    """
    carried = _carried(files["carried"])
    table = files.select(_OF_MEDIA + _REVIEW).with_columns(carried)
    columns = (*_OF_MEDIA, _CURRENT, *_REVIEW, *(column.name for column in carried))
    if jobs is None:
        return table.with_columns(pl.lit(True).alias(_CURRENT)).select(columns)
    places = table.select("job_key").join(jobs, on="job_key", how="left", maintain_order="left")["position"]
    table = table.with_columns(places.alias(_POSITION), places.is_not_null().alias(_CURRENT))
    current = table.filter(_CURRENT).sort(_POSITION, "index", "stored_at", maintain_order=True)
    return pl.concat([current, table.filter(~pl.col(_CURRENT))]).select(columns)


def parquet(table: pl.DataFrame) -> bytes:
    """The table as a Parquet file."""
    file = BytesIO()
    table.write_parquet(file)
    return file.getvalue()


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
    while column in (*_OF_MEDIA, _CURRENT, *_REVIEW) or (column != name and column in carried):
        column = f"input_{column}"
    return column
