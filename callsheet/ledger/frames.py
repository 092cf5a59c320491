"""Reads the rows of a query as columns. What the columns mean is not known here, only their types."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import polars as pl
import sqlalchemy as sa

from callsheet.ledger.tables import Moment, Money

MONEY = pl.Decimal(18, 6)
TIME = pl.Datetime("us", "UTC")
_TEXT = "%Y-%m-%dT%H:%M:%S%.fZ"  # of a moment
_PART = 16_384  # rows that are Python objects at once, which take ten times the memory
_TYPES: dict[type[Any], Any] = {
    Money: MONEY,
    Moment: TIME,
    sa.Boolean: pl.Boolean,
    sa.Integer: pl.Int64,
    sa.BigInteger: pl.Int64,
    sa.Float: pl.Float64,
}


def read(connection: sa.Connection, query: sa.Select[Any]) -> pl.DataFrame:
    """The rows of a query. Money is `MONEY`, a moment is `TIME`, and JSON is its text."""
    columns = query.selected_columns
    raw = query.with_only_columns(*map(_as_stored, columns), maintain_column_froms=True)
    types = {column.name: _TYPES.get(type(column.type), pl.String) for column in columns}
    parts = [pl.DataFrame(schema=types)]
    with closing(connection.execute(raw, execution_options={"yield_per": _PART})) as result:
        for rows in result.partitions():
            cells = zip(*rows, strict=True)
            parts.append(pl.DataFrame([_typed(*each) for each in zip(types.items(), cells, strict=True)]))
    return pl.concat(parts)


def _as_stored(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """A column without the conversion of each of its values in Python."""
    if isinstance(column.type, sa.JSON):
        return sa.cast(column, sa.Text).label(column.name)
    stored = {Money: sa.BigInteger, Moment: sa.String, sa.Boolean: sa.Integer}.get(type(column.type))
    return sa.type_coerce(column, stored).label(column.name) if stored else column


def _typed(column: tuple[str, Any], cells: Sequence[Any]) -> pl.Series:
    name, dtype = column
    if dtype == MONEY:  # millionths
        return pl.Series(name, cells, pl.Int64).cast(pl.Int128).reinterpret(dtype=dtype)
    if dtype == TIME:
        return pl.Series(name, cells, pl.String).str.to_datetime(_TEXT, time_unit="us", time_zone="UTC")
    if dtype == pl.Boolean:  # a number in SQLite
        return pl.Series(name, cells, strict=False).cast(dtype)
    return pl.Series(name, cells, dtype)
