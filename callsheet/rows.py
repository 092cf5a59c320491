"""Cells of text -> checked values, a column at a time, and a reject for each cell that is wrong.

Pure, and knows neither files nor the catalogue: what a model offers is the business of `pricing`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeVar

import polars as pl
from polars.datatypes import DataTypeClass

LONGEST_PROMPT = 4096
"""INTERFACE 8."""

MOST_SAMPLES = 10_000
"""A slip of the keyboard in `samples` is not to become a million jobs."""

IMAGE_COLUMNS = ("images", "first_frame", "last_frame", "reference_image")

WRONG = {"line": pl.Int64} | dict.fromkeys(["file", "column", "value", "reason"], pl.String)
"""A wrong cell: its row's line and file, the column by our name, what stands there, and what is wrong."""

_REJECT = {"line": pl.Int64} | dict.fromkeys(["column", "value", "reason"], pl.String)

_INTEGER = r"^[+-]?[0-9]+(\.0*)?$"
_BOOLEANS = dict.fromkeys(["true", "yes", "y", "on", "1", "1.0"], True) | dict.fromkeys(
    ["false", "no", "n", "off", "0", "0.0"], False
)


def integer(column: str) -> pl.Expr:
    """Text as a whole number, also as spreadsheets write it (`5.0`); null where it is none."""
    text = pl.col(column)
    digits = pl.when(text.str.contains(_INTEGER)).then(text.str.replace(r"\.0*$", ""))
    return digits.cast(pl.Int64, strict=False)


def boolean(column: str) -> pl.Expr:
    """Text as a truth value, also as spreadsheets write it (`TRUE`, `yes`, `1`); null where it is none."""
    return pl.col(column).str.to_lowercase().replace_strict(_BOOLEANS, default=None, return_dtype=pl.Boolean)


def plain(column: pl.Expr, dtype: pl.DataType | DataTypeClass) -> pl.Expr:
    """A carried column as JSON, and so the ledger, can hold it, within lists and structs too.

    Times are ISO 8601 text, a decimal is its digits, bytes are base64; a float that is no number is null.
    """
    if isinstance(dtype, pl.Struct):
        fields = [plain(column.struct.field(each.name), each.dtype).alias(each.name) for each in dtype.fields]
        return pl.when(column.is_not_null()).then(pl.struct(fields))
    if isinstance(dtype, pl.Array):
        column, dtype = column.arr.to_list(), pl.List(dtype.inner)
    if isinstance(dtype, pl.List):
        return column.list.eval(plain(pl.element(), dtype.inner))
    if dtype.is_temporal():
        return column.dt.to_string("iso:strict")
    if dtype.is_float():
        return pl.when(column.is_finite()).then(column)
    if dtype == pl.Binary:
        return column.bin.encode("base64")
    return column.cast(pl.String) if dtype.is_decimal() else column


def check(cells: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Parts the rows that are sound from those with a wrong cell.

    Args:
        cells: text in `id`, `prompt`, `model`, `duration`, `samples` and `sound`, and each row's `line` and
            `file`.

    Returns:
        The sound rows, with `duration` and `samples` as Int64 and `sound` as Boolean; and every wrong cell of
        the others (see `wrong`).
    """
    values = cells.with_columns(integer("duration"), integer("samples"), boolean("sound"))
    prompt, samples = cells["prompt"].fill_null(""), values["samples"]
    checks = [
        ("prompt", prompt.str.strip_chars() == "", "the prompt is empty"),
        ("prompt", prompt.str.len_chars() > LONGEST_PROMPT, f"is longer than {LONGEST_PROMPT:,} characters"),
        ("prompt", _with_nul(prompt), "holds a NUL character"),
        ("id", _with_nul(cells["id"]), "holds a NUL character"),
        ("model", cells["model"].is_null(), "no model is named, and input.defaults has none"),
        ("duration", _lost("duration", cells, values), "is not a whole number of seconds"),
        ("sound", _lost("sound", cells, values), "is neither true nor false (yes, no, 1 and 0 are read too)"),
        (
            "samples",
            _lost("samples", cells, values) | ~samples.is_between(1, MOST_SAMPLES).fill_null(True),
            f"is not a whole number from 1 to {MOST_SAMPLES:,}",
        ),
    ]
    unsound = pl.repeat(False, cells.height, eager=True)
    found = [pl.DataFrame(schema=WRONG)]
    for column, mask, reason in checks:
        if mask.any():
            found.append(wrong(cells.filter(mask), column, reason))
            unsound |= mask
    return values.filter(~unsound), pl.concat(found)


Value = str | int | bool | None
_Column = TypeVar("_Column", bound=str)


def fixed_values(cells: Mapping[_Column, object]) -> dict[_Column, Value]:
    """The config's own values for columns, checked and typed as those of a file are.

    Raises:
        ValueError: one is no value for its column; it says why.
    """
    text = {column: as_text(value) for column, value in cells.items()}
    blank = dict.fromkeys(["id", "duration", "samples", "sound", "file"]) | {"prompt": "-", "model": "-"}
    row = blank | text
    sound, bad = check(pl.DataFrame([row], schema=dict.fromkeys(row, pl.String)).with_row_index("line"))
    if bad.height:
        raise ValueError(bad["reason"][0])
    return {column: sound[column][0] for column in cells}


def as_text(value: object) -> str | None:
    """A value of the config as a cell would hold it."""
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else str(value).strip() or None


def wrong(rows: pl.DataFrame, column: str, reason: str) -> pl.DataFrame:
    """The cells that these rows have in a column, all wrong for the same reason.

    Args:
        rows: `line`, `file` (null where the batch is one file) and the column itself.
        column: the offending column.
        reason: what is wrong.

    Returns:
        `WRONG`'s columns.
    """
    said = [pl.lit(column).alias("column"), pl.col(column).cast(pl.String).alias("value")]
    return rows.select(pl.col("line").cast(pl.Int64), "file", *said, pl.lit(reason).alias("reason"))


def rejects(cells: pl.DataFrame, names: Mapping[str, str]) -> pl.DataFrame:
    """Wrong cells as people are told of them.

    Args:
        cells: wrong ones, with `WRONG`'s columns.
        names: each column as the file names it.

    Returns:
        A reject for each: `line` (the file's line on which the row begins, from 1; in Parquet the row's
        number), `column`, `value` (on one line, at most 80 characters) and `reason`, which names the file
        where the batch has several.
    """
    if not cells.height:  # as nearly always
        return pl.DataFrame(schema=_REJECT)
    flat = pl.col("value").fill_null("").str.replace_all(r"\s+", " ").str.strip_chars()
    value = pl.when(flat.str.len_chars() > 80).then(pl.format("{}…", flat.str.head(79))).otherwise(flat)
    in_file = pl.format("{} (in {})", "reason", "file")
    return cells.select(
        "line",
        pl.col("column").replace(names),
        value,
        pl.when(pl.col("file").is_null()).then("reason").otherwise(in_file).alias("reason"),
    )


def _with_nul(cells: pl.Series) -> pl.Series:
    """Where text has a letter that PostgreSQL, and so the ledger, has no place for."""
    return cells.str.contains("\0", literal=True).fill_null(False)


def _lost(column: str, cells: pl.DataFrame, values: pl.DataFrame) -> pl.Series:
    """Where a cell says something that is no value of its column's type."""
    return cells[column].is_not_null() & values[column].is_null()
