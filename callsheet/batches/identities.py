"""What tells a row from all others: its own id, or its content's hash and that content's occurrence number.

Gets a batch one table at a time and keeps eight bytes a row in memory; the ids themselves are on disk.
"""

from __future__ import annotations

from collections.abc import Collection

import polars as pl
from polars_hash import CryptographicHashingNameSpace

from callsheet.batches.disk_tables import DiskTables
from callsheet.config.settings import COLUMNS
from callsheet.rows import WRONG


def sha256(text: pl.Expr) -> pl.Expr:
    """The SHA-256 of each text as UTF-8, in hex."""
    return CryptographicHashingNameSpace(text).sha2_256()


class Ids:
    """The ids of all rows, to find those that an earlier row has."""

    def __init__(self) -> None:
        self._hashes: list[pl.Series] = []
        self._tables = DiskTables()

    def add(self, cells: pl.DataFrame) -> None:
        """Adds rows: `file`, `line` and `id`, null where a row has no id."""
        with_id = cells.filter(pl.col("id").is_not_null())
        self._hashes.append(with_id["id"].hash())
        self._tables.add(with_id)

    def repeated(self) -> pl.DataFrame:
        """The ids of rows that an earlier row has, as wrong cells with the schema `rows.WRONG`."""
        twice = _more_than_once(pl.concat(self._hashes))
        if not twice.any():
            return pl.DataFrame(schema=WRONG)
        start, suspects = 0, []
        for table in self._tables:
            suspects.append(table.filter(twice.slice(start, table.height)))
            start += table.height
        rows = pl.concat(suspects)
        first = rows.unique("id", keep="first", maintain_order=True)
        later = rows.filter(~pl.col("id").is_first_distinct())
        later = later.join(first, on="id", suffix="_first", maintain_order="left")
        in_this_file = pl.format("line {} has this id already", "line_first")
        in_another = pl.format("line {} of {} has this id already", "line_first", "file_first")
        same_file = pl.col("file").eq_missing(pl.col("file_first"))
        return later.select(
            "line",
            "file",
            pl.lit("id").alias("column"),
            pl.col("id").alias("value"),
            pl.when(same_file).then(in_this_file).otherwise(in_another).alias("reason"),
        )


class Contents:
    """The contents of rows without an id, to number the rows that have the same content.

    The number of samples is not part of the content, and a matrix's column counts as empty. So one more
    sample, a longer matrix, or a first matrix over an empty column changes no row's identity, and nothing is
    bought twice.

    Args:
        matrix: the columns of `input.matrix`.
    """

    def __init__(self, matrix: Collection[str]) -> None:
        self._cells = [
            pl.lit("\0") if column in matrix else pl.col(column).cast(pl.String).fill_null("\0")
            for column in COLUMNS
            if column not in {"id", "samples"}
        ]
        self._hashes: list[pl.Series] = []

    def hashed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Adds the column `hash`: 16 hex digits, null in a row with an id."""
        without_id = rows["id"].is_null().arg_true()
        if without_id.is_empty():
            return rows.with_columns(hash=pl.lit(None, pl.String))
        text = pl.concat_str(self._cells, separator="\x1f")
        digests = rows[without_id].select(sha256(text).str.head(16)).to_series()
        hashes = pl.repeat(None, rows.height, dtype=pl.String, eager=True).scatter(without_id, digests)
        return rows.with_columns(hash=hashes)

    def add(self, hashes: pl.Series) -> None:
        """Adds the hashes of the next rows."""
        self._hashes.append(hashes.str.to_integer(base=16, dtype=pl.UInt64))

    def occurrences(self) -> pl.Series:
        """For each row that was added, how many rows with its content there are up to it, from 1.

        Not meaningful for a row with an id.
        """
        hashes = pl.concat(self._hashes)
        repeated = hashes.to_frame("hash").with_row_index("row").filter(_more_than_once(hashes))
        repeated = repeated.with_columns(number=pl.int_range(1, pl.len() + 1, dtype=pl.UInt32).over("hash"))
        numbers = pl.repeat(1, len(hashes), dtype=pl.UInt32, eager=True)
        return numbers.scatter(repeated["row"], repeated["number"])


def _more_than_once(hashes: pl.Series) -> pl.Series:
    """Whether each hash occurs more than once. Sorting takes less memory than grouping."""
    ordered = hashes.sort()
    return hashes.is_in(ordered.filter(ordered == ordered.shift(1)).unique().implode())
