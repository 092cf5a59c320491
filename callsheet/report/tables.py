"""The Parquet tables of the report: `manifest.parquet` and `costs.parquet`."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any

import polars as pl

from callsheet.ledger.queries import Rows
from callsheet.pricing.plan import Plan

_MONEY = pl.Decimal(18, 6)
_TIME = pl.Datetime("us", "UTC")
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
    "cost": _MONEY,
    "deletes_at": _TIME,
    "stored_at": _TIME,
}
_CURRENT = "current"
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
    "quoted": _MONEY,
    "cost": _MONEY,
    "currency": pl.String,
    "billable_unit": pl.String,
    "unit_price": _MONEY,
    "quantity": _MONEY,
    "submitted_at": _TIME,
    "finished_at": _TIME,
}


class Manifest:
    """`manifest.parquet`: a row for each stored file, with the batch file's carried columns after its own."""

    def __init__(self) -> None:
        self._parts = [pl.DataFrame(schema=_MANIFEST)]

    def add(self, rows: Rows) -> None:
        """Takes in some stored files, with the columns of their attempts."""
        carried = dict.fromkeys(name for row in rows for name in row["carried"])
        columns = [
            pl.Series(_column(name, carried), [row["carried"].get(name) for row in rows], strict=False)
            for name in carried
        ]
        self._parts.append(_frame(rows, _MANIFEST).with_columns(columns))

    def parquet(self, plan: Plan | None) -> bytes:
        """The file, in the batch file's order.

        `current` is false for rows that the batch file no longer has or has changed; they come last. Without
        a plan nothing is known of the batch file, and every row is current.
        """
        table = pl.concat(self._parts, how="diagonal_relaxed")
        carried = [name for name in table.columns if name not in _MANIFEST]
        if plan is None:
            table = table.with_columns(pl.lit(True).alias(_CURRENT))
        else:
            positions = _positions(table["job_key"], plan)
            table = table.with_columns(positions.is_not_null().alias(_CURRENT))
            table = table[_order(positions, table["index"])]
        return _parquet(table.select(*_MANIFEST, _CURRENT, *carried))


class Costs:
    """`costs.parquet`: a row for each attempt that was submitted."""

    def __init__(self) -> None:
        self._parts = [pl.DataFrame(schema=_COSTS)]

    def add(self, attempts: Sequence[Mapping[str, Any]]) -> None:
        """Takes in some attempts, with `quoted` null where there was no price."""
        self._parts.append(_frame(attempts, _COSTS))

    def parquet(self) -> bytes:
        """The file, in order of submission."""
        return _parquet(pl.concat(self._parts))


def _positions(keys: pl.Series, plan: Plan) -> pl.Series:
    """The position in the plan of each of these jobs; null where the plan does not have it."""
    plan_order = plan.scan().select("key").with_row_index("position").collect()
    return keys.to_frame("key").join(plan_order, on="key", how="left", maintain_order="left")["position"]


def _order(positions: pl.Series, indexes: pl.Series) -> pl.Series:
    """The order of the manifest's rows: by position and index, then those without a position as they are."""
    frame = pl.DataFrame({"position": positions, "index": indexes})
    return frame.select(pl.arg_sort_by("position", "index", nulls_last=True, maintain_order=True)).to_series()


def with_quotes(rows: Rows) -> list[dict[str, Any]]:
    """The attempts with `quoted` null where the catalogue had no price; the ledger has 0 there.

    A quote of 0 is a price only where the price of a unit is 0.
    """
    zero = Decimal(0)
    return [
        {**row, "quoted": None if row["quoted"] == zero and row["unit_price"] != zero else row["quoted"]}
        for row in rows
    ]


def _column(name: str, carried: Collection[str]) -> str:
    """The manifest's name for a carried column: the batch file's, unless it is taken."""
    column = name
    while column in _MANIFEST or column == _CURRENT or (column != name and column in carried):
        column = f"input_{column}"
    return column


def _frame(rows: Sequence[Mapping[str, Any]] | Rows, schema: Mapping[str, Any]) -> pl.DataFrame:
    return pl.DataFrame({name: [row[name] for row in rows] for name in schema}, schema=dict(schema))


def _parquet(table: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    return buffer.getvalue()
