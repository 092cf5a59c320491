"""What tells a row from all others: its own id, or its content's hash and that content's occurrence number.

Gets a batch one table at a time and keeps eight bytes a row in memory. Only the end of a batch shows what is
repeated in it; so a batch in which something is has to be read twice.
"""

from __future__ import annotations

from collections.abc import Collection

import polars as pl
from polars_hash import CryptographicHashingNameSpace

from callsheet.config.settings import COLUMNS
from callsheet.rows import WRONG


def sha256(text: pl.Expr) -> pl.Expr:
    """The SHA-256 of each text as UTF-8, in hex."""
    return CryptographicHashingNameSpace(text).sha2_256()


class Ids:
    """The ids of all rows, to find those that an earlier row has.

    Args:
        repeated: hashes of ids that several rows have, as `repeated()` gave them.
    """

    def __init__(self, repeated: pl.Series) -> None:
        self._repeated = repeated.implode()
        self._hashes: list[pl.Series] = []
        self._first: pl.DataFrame | None = None

    def next(self, cells: pl.DataFrame) -> pl.DataFrame:
        """Adds rows: `file`, `line` and `id`, null where a row has no id.

        Returns:
            The ids of those for which an earlier row has the same, as far as `repeated` has it: wrong cells
            with the schema `rows.WRONG`.
        """
        with_id = cells.filter(pl.col("id").is_not_null())
        hashes = with_id["id"].hash()
        self._hashes.append(hashes)
        suspects = with_id.filter(hashes.is_in(self._repeated))
        if not suspects.height:
            return pl.DataFrame(schema=WRONG)
        first = suspects.unique("id", keep="first", maintain_order=True)
        if self._first is not None:
            first = pl.concat([self._first, first.join(self._first, on="id", how="anti")])
        self._first = first
        both = suspects.join(self._first, on="id", suffix="_first", maintain_order="left")
        same_file = pl.col("file").eq_missing(pl.col("file_first"))
        in_this_file = pl.format("line {} has this id already", "line_first")
        in_another = pl.format("line {} of {} has this id already", "line_first", "file_first")
        return both.filter(~same_file | (pl.col("line") != pl.col("line_first"))).select(
            "line",
            "file",
            pl.lit("id").alias("column"),
            pl.col("id").alias("value"),
            pl.when(same_file).then(in_this_file).otherwise(in_another).alias("reason"),
        )

    def repeated(self) -> pl.Series:
        """Hashes of the ids that several of the added rows have."""
        return _repeated(pl.concat(self._hashes))


class Contents:
    """The contents of rows without an id.

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

    def hashed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Adds the column `hash`: 16 hex digits, null in a row with an id."""
        without_id = rows["id"].is_null().arg_true()
        if without_id.is_empty():
            return rows.with_columns(hash=pl.lit(None, pl.String))
        text = pl.concat_str(self._cells, separator="\x1f").str.normalize("NFC")
        digests = rows[without_id].select(sha256(text).str.head(16)).to_series()
        hashes = pl.repeat(None, rows.height, dtype=pl.String, eager=True).scatter(without_id, digests)
        return rows.with_columns(hash=hashes)


class Occurrences:
    """For each row, how many rows with its content there are up to it, from 1.

    Args:
        known: of all rows, as `all()` gave them.
    """

    def __init__(self, known: pl.Series) -> None:
        self._known = known
        self._hashes: list[pl.Series] = []
        self._rows = 0

    def next(self, hashes: pl.Series) -> pl.Series:
        """Adds rows: the hashes of their contents, null where a row has an id.

        Returns:
            Their numbers, as far as they are known, otherwise 1. Not meaningful for a row with an id.
        """
        none_has_one = hashes.null_count() == len(hashes)
        numbers = hashes.cast(pl.UInt64) if none_has_one else hashes.str.to_integer(base=16, dtype=pl.UInt64)
        self._hashes.append(numbers)
        start, self._rows = self._rows, self._rows + len(hashes)
        if len(self._known) < self._rows:
            return pl.repeat(1, len(hashes), dtype=pl.UInt32, eager=True)
        return self._known.slice(start, len(hashes))

    def all(self) -> pl.Series:
        """The numbers of all rows that were added; none where each content is there once."""
        hashes = pl.concat(self._hashes)
        repeated = _repeated(hashes)
        if repeated.is_empty():
            return pl.Series(dtype=pl.UInt32)
        twice = hashes.to_frame("hash").with_row_index("row").filter(hashes.is_in(repeated.implode()))
        twice = twice.with_columns(number=pl.int_range(1, pl.len() + 1, dtype=pl.UInt32).over("hash"))
        return pl.repeat(1, len(hashes), dtype=pl.UInt32, eager=True).scatter(twice["row"], twice["number"])


def _repeated(hashes: pl.Series) -> pl.Series:
    """The hashes that occur more than once, sorted. Sorting takes less memory than grouping."""
    ordered = hashes.sort()
    return ordered.filter(ordered == ordered.shift(1)).unique(maintain_order=True)
