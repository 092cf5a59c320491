"""Cells of text -> checked values, a column at a time, and a reject for each cell that is wrong.

Pure. Does not know files or the catalogue: whether a model offers a value is checked by `pricing`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeVar

import polars as pl
from polars.datatypes import DataTypeClass

from callsheet.plain_text import counted

LONGEST_PROMPT = 4096
"""Characters (INTERFACE 8)."""

MOST_SAMPLES = 10_000
"""Callsheet's own limit: a typing error in `samples` must not become a million jobs."""

IMAGE_COLUMNS = ("images", "first_frame", "last_frame", "reference_image")

BY_MODEL = "by_model"
"""The role, in the column `images`, of an image that goes where the row's model takes one: it is the first
frame of a video, and otherwise a reference image."""

FAILED_FORMULAS = (
    *("#DIV/0!", "#N/A", "#NAME?", "#NULL!", "#NUM!", "#REF!", "#VALUE!", "#SPILL!", "#CALC!", "#ERROR!"),
)
"""What a spreadsheet shows, and saves as CSV, in the place of a result."""

NOTHING = ("nan", "nat", "none", "null", "undefined", "n/a", "<na>")
"""What programs write for a cell that is empty, in any case: pandas, Python, SQL, JavaScript."""

FAILED = "is the error of a formula: correct it in the spreadsheet"

WRONG = {"line": pl.Int64} | dict.fromkeys(["file", "column", "value", "reason"], pl.String)
"""Schema of wrong cells: the row's line, its file (null where the batch has one file), the column by our
name, the cell's text, and why it is wrong."""

REJECTS = {"line": pl.Int64} | dict.fromkeys(["column", "value", "reason"], pl.String)
"""Schema of rejects (see `rejects`)."""

_LONGEST_VALUE = 80
_PARTICULARS = r"\d+|did you mean .*"  # differ from line to line, and do not make another reason

_FORMULA = r"(?:(?:\s|[\x00-\x1f\ufeff])*[=+\-@\u{ff1d}\u{ff0b}\u{ff0d}\u{ff20}]|[\t\r])"  # also full-width
_NUMBER = r"^\s*[+-]?[0-9]+([.,][0-9]+)?\s*$"
_INTEGER = r"^([+-]?[0-9]+)(?:\.0*|,00?)?$"  # 1,000 may be a thousand
_WITH_UNIT = r"(?i)^([0-9]+)(?:[.,]0*)?\s*(?:s|secs?|seconds?)$"
_CLOCK = r"^(?:([0-9]{1,2}):)?([0-9]{1,2}):([0-5][0-9])$"
_BOOLEANS = dict.fromkeys(["true", "yes", "y", "on", "1", "1.0"], True) | dict.fromkeys(
    ["false", "no", "n", "off", "0", "0.0"], False
)


def json_value(column: pl.Expr, dtype: pl.DataType | DataTypeClass) -> pl.Expr:
    """A column of any type as values that JSON, and so the ledger, can store; also inside lists and structs.

    Dates and times become ISO 8601 text, decimals their digits, bytes base64, infinite floats and NaN null.
    """
    if isinstance(dtype, pl.Struct):
        fields = [
            json_value(column.struct.field(field.name), field.dtype).alias(field.name)
            for field in dtype.fields
        ]
        return pl.when(column.is_not_null()).then(pl.struct(fields))
    if isinstance(dtype, pl.Array):
        column, dtype = column.arr.to_list(), pl.List(dtype.inner)
    if isinstance(dtype, pl.List):
        return column.list.eval(json_value(pl.element(), dtype.inner))
    if dtype.is_temporal():
        return column.dt.to_string("iso:strict")
    if dtype.is_float():
        return pl.when(column.is_finite()).then(column)
    if dtype == pl.Binary:
        return column.bin.encode("base64")
    return column.cast(pl.String) if dtype.is_decimal() else column


def carried_as_json(dtype: pl.DataType | DataTypeClass) -> pl.Expr:
    """The column `carried` as JSON: it is a struct in a batch, and text in the ledger."""
    carried = pl.col("carried")
    return carried.struct.json_encode() if isinstance(dtype, pl.Struct) else carried.cast(pl.String)


_CLOCK_PARTS = [pl.col("duration").str.extract(_CLOCK, part).cast(pl.Int64) for part in (1, 2, 3)]
_SECONDS = _CLOCK_PARTS[0].fill_null(0) * 3600 + _CLOCK_PARTS[1] * 60 + _CLOCK_PARTS[2]
"""Of a duration as a clock shows it, minutes and seconds, or hours too: `1:30`, `00:01:30`."""

_TYPED = {
    "duration": pl.coalesce(
        *(
            pl.col("duration").str.extract(form).cast(pl.Int64, strict=False)
            for form in (_INTEGER, _WITH_UNIT)
        ),
        _SECONDS,
    ),
    "samples": pl.col("samples").str.extract(_INTEGER).cast(pl.Int64, strict=False),
    "sound": pl.col("sound")
    .str.to_lowercase()
    .replace_strict(_BOOLEANS, default=None, return_dtype=pl.Boolean),
}
"""The columns that are not text, also as spreadsheets and people write them (`5.0`, `5,0`, `5 s`, `TRUE`,
`yes`); null where a cell is none of that."""


def same_prompt(prompt: pl.Expr) -> pl.Expr:
    """A prompt as a job's identity has it: each line ends with one `\\n`, and no blanks are at its ends. A
    file's kind and its editor decide on these, not what it asks for.
    """
    return prompt.str.replace_all("\r\n?", "\n").str.strip_chars()


_TYPED_RATIO = pl.col("aspect_ratio").str.replace(
    r"^0*([0-9]+):0*([0-9]+)(?::00)?(?:\s*\(.*\)|\s+[\p{L} ]+)?$", "${1}:${2}"
)
"""16:9 that was typed into a spreadsheet is a time, and shown as one: 16:09, 16:09:00. A word may follow it:
`9:16 (portrait)`."""


_PROMPT = pl.col("prompt").str.strip_chars()
_LENGTH = pl.col("prompt").str.len_chars()

_UNREADABLE = {column: pl.col(column).is_not_null() & typed.is_null() for column, typed in _TYPED.items()}
"""Where a cell has text that could not be converted to its column's type."""

_CHECKS: tuple[tuple[str, pl.Expr, str | pl.Expr], ...] = (
    ("prompt", _PROMPT.fill_null("") == "", "the prompt is empty"),
    (
        "prompt",
        _LENGTH > LONGEST_PROMPT,
        pl.format(f"has {{}} characters; at most {LONGEST_PROMPT} are allowed", _LENGTH),
    ),
    ("prompt", _PROMPT.is_in(FAILED_FORMULAS), FAILED),
    ("prompt", _PROMPT.str.to_lowercase().is_in(NOTHING), "is what a program has written for an empty cell"),
    # which PostgreSQL, and so the ledger, cannot store
    ("prompt", pl.col("prompt").str.contains("\0", literal=True), "contains a NUL character"),
    ("id", pl.col("id").str.contains("\0", literal=True), "contains a NUL character"),
    ("model", pl.col("model").is_null(), "no model is named, and input.defaults has none"),
    ("duration", _UNREADABLE["duration"], "is not a whole number of seconds"),
    ("sound", _UNREADABLE["sound"], "is not a boolean; expected true, false, yes, no, 1 or 0"),
    (
        "samples",
        _UNREADABLE["samples"] | ~_TYPED["samples"].is_between(1, MOST_SAMPLES),
        f"is not a whole number from 1 to {MOST_SAMPLES:,}",
    ),
)
"""For each check: the column, where its cell is wrong (null: it is not), and the reason."""


def check(cells: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Separates the correct rows from those with a wrong cell.

    Args:
        cells: text in `id`, `prompt`, `model`, `duration`, `samples` and `sound`, and each row's `line` and
            `file`.

    Returns:
        The correct rows, with `duration` and `samples` as Int64 and `sound` as Boolean; the others, without
        their wrong cells; and these, with the schema `WRONG`.
    """
    cells = cells.with_columns(_TYPED_RATIO)
    marks = [f"\0{at}" for at in range(len(_CHECKS))]  # which no column has as its name
    cells = cells.with_columns(
        is_wrong.fill_null(value=False).alias(mark)
        for mark, (_, is_wrong, _) in zip(marks, _CHECKS, strict=True)
    )
    all_wrong = [pl.DataFrame(schema=WRONG)]
    all_wrong += [
        wrong_cells(cells.filter(mark), column, reason)
        for mark, (column, _, reason) in zip(marks, _CHECKS, strict=True)
        if cells[mark].any()
    ]
    correct, other_rows = separate(cells.with_columns(**_TYPED), pl.any_horizontal(marks))
    for mark, (column, _, _) in zip(marks, _CHECKS, strict=True):
        other_rows = other_rows.with_columns(pl.when(~pl.col(mark)).then(column).alias(column))
    return correct.drop(marks), other_rows.drop(marks), pl.concat(all_wrong)


def separate(rows: pl.DataFrame, is_wrong: pl.Expr) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows for which `is_wrong`, which is never null, is not true, and the others. Where it is true for
    none, nothing is copied.
    """
    mask = rows.select(is_wrong).to_series()
    return (rows.filter(~mask), rows.filter(mask)) if mask.any() else (rows, rows.clear())


def has_one_of(bad_cells: pl.DataFrame) -> pl.Expr:
    """Whether a row, by its `file` and `line`, has one of these wrong cells (`WRONG`)."""
    place = pl.struct("file", "line")
    return place.is_in(bad_cells.select(place).to_series().implode())


Value = str | int | bool | None
_Column = TypeVar("_Column", bound=str)


def fixed_values(cells: Mapping[_Column, object]) -> dict[_Column, Value]:
    """Values that the config gives for columns, checked and typed like the cells of a file.

    Raises:
        ValueError: a value is wrong; the message says why.
    """
    text = {column: as_text(value) for column, value in cells.items()}
    blank = dict.fromkeys(["id", "aspect_ratio", "duration", "samples", "sound", "file"])
    row = blank | {"prompt": "-", "model": "-"} | text
    rows, _, bad_cells = check(
        pl.DataFrame([row], schema=dict.fromkeys(row, pl.String)).with_row_index("line")
    )
    if bad_cells.height:
        raise ValueError(bad_cells["reason"][0])
    return {column: rows[column][0] for column in cells}


def as_text(value: object) -> str | None:
    """A value of the config as the text that a cell of a file would have; null for an empty one."""
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else str(value).strip() or None


def wrong_cells(rows: pl.DataFrame, column: str, reason: str | pl.Expr) -> pl.DataFrame:
    """The cells of a column (by our name) of rows with `line` and `file`, all of them wrong: a row for each,
    with the schema `WRONG`. The reason may be an expression that says it of each.
    """
    return rows.select(
        pl.col("line").cast(pl.Int64),
        "file",
        pl.lit(column).alias("column"),
        pl.col(column).cast(pl.String).alias("value"),
        (pl.lit(reason) if isinstance(reason, str) else reason).alias("reason"),
    )


def rejects(bad_cells: pl.DataFrame, file_columns: Mapping[str, str]) -> pl.DataFrame:
    """Wrong cells, with the schema `WRONG`, as people see them.

    Returns:
        A reject per cell: `line` (the line of the file on which the row begins, from 1; in Parquet the row's
        number), `column` (as the file names it: `file_columns`), `value` (on one line, at most 80 characters)
        and `reason`, which names the file where the batch has several.
    """
    if not bad_cells.height:
        return pl.DataFrame(schema=REJECTS)
    flat = pl.col("value").fill_null("").str.replace_all(r"\s+", " ").str.strip_chars()
    cut = pl.format("{}…", flat.str.head(_LONGEST_VALUE - 1))
    reason_and_file = pl.format("{} (in {})", "reason", "file")
    return bad_cells.select(
        "line",
        pl.col("column").replace(file_columns),
        pl.when(flat.str.len_chars() > _LONGEST_VALUE).then(cut).otherwise(flat).alias("value"),
        pl.when(pl.col("file").is_null()).then("reason").otherwise(reason_and_file).alias("reason"),
    )


def rejects_csv(rejects: pl.DataFrame) -> bytes:
    """The content of `rejects.csv`.

    A cell that a spreadsheet would run as a formula begins with an apostrophe; numbers are left as they are.
    """
    return rejects.with_columns(harmless(pl.col(pl.String))).write_csv().encode()


def rejects_in_words(rejects: pl.DataFrame) -> list[str]:
    """Rejects by column and reason, the first line of each, and how many more there are."""
    alike = pl.col("reason").str.replace_all(_PARTICULARS, "#")
    groups = rejects.group_by("column", alike.alias("alike"), maintain_order=True).agg(
        pl.col("line").first(), pl.col("reason").first(), pl.len().alias("rows")
    )
    return [
        ", ".join(filter(None, (f"line {line}", column)))
        + f": {reason}"
        + (f" (and {counted(rows - 1, 'line')} more)" if rows > 1 else "")
        for column, _, line, reason, rows in groups.iter_rows()
    ]


def harmless(text: pl.Expr) -> pl.Expr:
    """Text as a spreadsheet may read it: a cell that it would run as a formula begins with an apostrophe."""
    safe = ~text.str.contains(f"^{_FORMULA}") | text.str.contains(_NUMBER)
    return pl.when(safe).then(text).otherwise(text.str.replace("^", "'"))


def guarded(text: pl.Expr) -> pl.Expr:
    """As `harmless`, but `unguarded` makes of it what it was: an apostrophe that is there gets another."""
    return harmless(text.str.replace(f"^('+{_FORMULA})", "'${1}"))


def unguarded(text: pl.Expr) -> pl.Expr:
    """Text that `guarded` has made, as it was."""
    return text.str.replace(f"^'('*{_FORMULA})", "${1}")


def is_guarded(text: pl.Expr) -> pl.Expr:
    """Whether text begins as `guarded` makes it."""
    return text.str.contains(f"^'+{_FORMULA}")
