"""Columns that follow from other columns, worked out once for each distinct combination and joined back.

Pure, apart from the function that is given to it. Does not know what the columns mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

Cells = dict[str, Any]
"""Values of one row by column."""


@dataclass(frozen=True)
class _Resolved:
    """What was worked out for some combinations.

    Attributes:
        combinations: a row each, in the columns in which one of them has a value.
        alike: the new columns with the same value everywhere; as literals they take no memory for each row.
        differing: a row for each combination: those columns, and the other new ones.
    """

    combinations: pl.DataFrame
    alike: list[pl.Expr]
    differing: pl.DataFrame


class Resolver:
    """Adds columns to the tables of one batch.

    Most tables of a batch have the same combinations as the one before, so those are kept.

    Args:
        columns: the columns on which the new ones depend.
        resolve: from combinations of all `columns` to the new cells of each, in the same order; a cell that
            is left out is null.
        schema: the columns that are added.
    """

    def __init__(
        self,
        columns: Sequence[str],
        resolve: Callable[[list[Cells]], list[Cells]],
        schema: Mapping[str, Any],
    ) -> None:
        self._columns = columns
        self._resolve = resolve
        self._schema = schema
        self._last: _Resolved | None = None

    def add_to(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows, some or none, with the new columns."""
        used = [column for column in self._columns if rows[column].null_count() < rows.height]
        alike = pl.DataFrame(height=min(1, rows.height))  # without any of them, all rows are alike
        combinations = rows.select(used).unique(maintain_order=True) if used else alike
        last = self._last
        if last is None or not last.combinations.equals(combinations):
            self._last = last = self._resolved(combinations)
        rows = rows.with_columns(last.alike)
        if last.differing.width == len(used):
            return rows
        return rows.join(last.differing, on=used, how="left", nulls_equal=True, maintain_order="left")

    def _resolved(self, combinations: pl.DataFrame) -> _Resolved:
        blank: Cells = dict.fromkeys(self._columns)
        resolved = self._resolve([blank | cells for cells in combinations.iter_rows(named=True)])
        # Money comes as text: for a Decimal, polars imports numpy, which takes as long as 50,000 rows.
        read_as = {
            column: pl.String if dtype == pl.Decimal else dtype for column, dtype in self._schema.items()
        }
        table = pl.DataFrame(resolved, schema=read_as).cast(pl.Schema(self._schema))
        differing = [
            column
            for column in self._schema
            if any(each.get(column) != resolved[0].get(column) for each in resolved)
        ]
        alike = [pl.lit(column).first().alias(column.name) for column in table.drop(differing)]
        return _Resolved(combinations, alike, combinations.hstack(table.select(differing)))
