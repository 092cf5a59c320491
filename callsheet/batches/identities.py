"""What tells a row from all others: its own id, or its content's hash and which occurrence of it the row is.

Sees a batch a slice at a time and remembers eight bytes a row; the ids themselves are set aside on disk.
"""

from __future__ import annotations

from collections.abc import Collection

import polars as pl
from polars_hash import CryptographicHashingNameSpace

from callsheet.batches.disk_tables import Spill
from callsheet.config.settings import COLUMNS
from callsheet.rows import WRONG


def sha256(text: pl.Expr) -> pl.Expr:
    """The SHA-256 of each text as UTF-8, in hex."""
    return CryptographicHashingNameSpace(text).sha2_256()


class Ids:
    """The ids that rows have, and those that come again."""

    def __init__(self) -> None:
        self._hashes: list[pl.Series] = []
        self._spill = Spill()

    def add(self, cells: pl.DataFrame) -> None:
        """Takes in a slice: `file`, `line` and `id`, null where a row has none."""
        given = cells.filter(pl.col("id").is_not_null())
        self._hashes.append(given["id"].hash())
        self._spill.add(given)

    def repeated(self) -> pl.DataFrame:
        """The rows whose id an earlier row has, with the columns of `rows.WRONG`."""
        twice, at, suspects = _twice(pl.concat(self._hashes)), 0, []
        if not twice.any():
            return pl.DataFrame(schema=WRONG)
        for given in self._spill:
            suspects.append(given.filter(twice.slice(at, given.height)))
            at += given.height
        given = pl.concat(suspects)
        first = given.unique("id", keep="first", maintain_order=True)
        again = given.filter(~pl.col("id").is_first_distinct()).join(
            first, on="id", suffix="_first", maintain_order="left"
        )
        here = pl.format("line {} has this id already", "line_first")
        there = pl.format("line {} of {} has this id already", "line_first", "file_first")
        same = pl.col("file").eq_missing(pl.col("file_first"))
        return again.select(
            "line",
            "file",
            pl.lit("id").alias("column"),
            pl.col("id").alias("value"),
            pl.when(same).then(here).otherwise(there).alias("reason"),
        )


class Contents:
    """The contents of rows without an id, and which occurrence of them each row is.

    How many samples there are is left out, and a matrix's column counts as one in which the rows say nothing,
    so that one more sample, a longer matrix, or a first one over an empty column buys nothing twice.
    """

    def __init__(self, matrix: Collection[str]) -> None:
        self._said = [
            pl.lit("\0") if each in matrix else pl.col(each).cast(pl.String).fill_null("\0")
            for each in COLUMNS
            if each not in {"id", "samples"}
        ]
        self._hashes: list[pl.Series] = []

    def hashed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Adds `hash` to sound rows: 16 hex digits, null beside an `id`."""
        without = rows.select(pl.col("id").is_null().arg_true()).to_series()
        text = pl.concat_str(self._said, separator="\x1f")
        digests = rows[without].select(sha256(text).str.head(16)).to_series()
        hashes = pl.repeat(None, rows.height, dtype=pl.String, eager=True).scatter(without, digests)
        return rows.with_columns(hash=hashes)

    def add(self, hashes: pl.Series) -> None:
        """Takes in the hashes of the next rows."""
        self._hashes.append(hashes.str.to_integer(base=16, dtype=pl.UInt64))

    def occurrence(self) -> pl.Series:
        """For each row taken in: which row of its content it is, from 1; of no meaning beside an id."""
        hashes = pl.concat(self._hashes)
        again = hashes.to_frame("hash").with_row_index("at").filter(_twice(hashes))
        again = again.with_columns(number=pl.int_range(1, pl.len() + 1, dtype=pl.UInt32).over("hash"))
        once = pl.repeat(1, len(hashes), dtype=pl.UInt32, eager=True)
        return once.scatter(again["at"], again["number"])


def _twice(hashes: pl.Series) -> pl.Series:
    """Which hashes are there more than once; sorted instead of grouped, for the memory's sake."""
    ordered = hashes.sort()
    return hashes.is_in(ordered.filter(ordered == ordered.shift(1)).unique().implode())
