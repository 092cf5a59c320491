"""What tells a row from all others: its own id, or its content's hash and a count of equal rows."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

import polars as pl

from callsheet.cells import wrong_cells
from callsheet.config.settings import COLUMNS

THIS_ID = " this id already; input.id makes one of several columns, and input.columns {id: null} does without"
"""What is wrong with a repeated id, after the line that has it first."""


def sha256(text: pl.Expr) -> pl.Expr:
    """The SHA-256 of each text as UTF-8, in hex; null where there is none."""
    return text.cast(pl.Binary).map_batches(_digests, return_dtype=pl.String)


def _digests(contents: pl.Series) -> pl.Series:
    digests = [None if content is None else hashlib.sha256(content).hexdigest() for content in contents]
    return pl.Series(digests, dtype=pl.String)


def nfc(text: pl.Expr) -> pl.Expr:
    """Texts in the form NFC, in which texts that look the same are the same."""
    return text.map_batches(_normalized, return_dtype=pl.String)


def _normalized(texts: pl.Series) -> pl.Series:
    others = (texts.str.len_bytes() != texts.str.len_chars()).arg_true()  # ASCII is NFC; the rest is slow
    return texts.scatter(others, texts.gather(others).str.normalize("NFC")) if len(others) else texts


def repeated_ids(rows: pl.DataFrame) -> pl.DataFrame:
    """The ids of rows (`file`, `line` and `id`) for which an earlier row has the same: wrong cells, with the
    schema `cells.WRONG`.
    """
    rows = rows.select("file", "line", "id")
    repeated = rows.filter(pl.col("id").is_not_null() & ~pl.col("id").is_first_distinct())
    first = rows.join(repeated, on="id", how="semi", maintain_order="left").unique("id", keep="first")
    both = repeated.join(first, on="id", suffix="_first", maintain_order="left")
    same_file = pl.col("file").eq_missing(pl.col("file_first"))
    in_this_file = pl.format("line {} has", "line_first")
    in_another = pl.format("line {} of {} has", "line_first", "file_first")
    reason = pl.when(same_file).then(in_this_file).otherwise(in_another) + THIS_ID
    return wrong_cells(both, "id", reason)


def row_ids(rows: pl.DataFrame, matrix: Collection[str]) -> pl.Series:
    """Each row's id: its own, or its content's hash, `-`, and the number of rows with this content up to it.

    The number of samples is not part of the content, and a matrix's column counts as empty. So one more
    sample, a longer matrix, or a first matrix over an empty column changes no row's identity, and nothing is
    bought twice.

    Args:
        rows: all correct rows of a batch, with our columns.
        matrix: the columns of `input.matrix`.
    """
    without_id = rows["id"].is_null()
    if not without_id.any():
        return rows["id"]
    cells = [
        pl.lit("\0") if column in matrix else pl.col(column).cast(pl.String).fill_null("\0")
        for column in COLUMNS
        if column not in {"id", "samples"}
    ]
    content = nfc(pl.concat_str(cells, separator="\x1f"))
    made = rows.filter(without_id).select(hash=sha256(content).str.head(16))
    number = pl.int_range(1, pl.len() + 1).over("hash")
    ids = made.select(pl.format("{}-{}", "hash", number)).to_series()
    return rows["id"].scatter(without_id.arg_true(), ids)
