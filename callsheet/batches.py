"""Batch files -> prompt rows, and the rejects with their line numbers.

CSV, TSV and Parquet; one file, a glob or S3. Applies the config's columns, defaults and template. Knows the
requests' shape, but neither the catalogue nor the matrix: those are the plan's.
"""

from __future__ import annotations

import hashlib
import json
import string
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from callsheet import delimited, sources
from callsheet.delimited import Table
from callsheet.errors import ConfigError, InputError
from callsheet.records import Reject
from callsheet.rows import check, in_file, rejected, shortened
from callsheet.settings import COLUMNS, Cell, FileColumn, Input, Settings

_TEXT = (".csv", ".tsv", ".txt")
_PARQUET = (".parquet", ".pq")
_CARRIED = "carried."
UNTIL_PRICED = ("output_format", "duration", "sound")
"""Columns that only one kind of model takes: their defaults wait until the kind is known (see `pricing`)."""


Value = str | int | bool | None


@dataclass(frozen=True)
class Batch:
    """What a batch file holds, once read.

    Attributes:
        rows: one per sound row, in the file's order, before matrix and samples are multiplied out. Columns:
            `line` (Int64), `file` (its name where the batch has several), `row_id`; as text and null where
            nothing is said `model`, `prompt`, `aspect_ratio`, `resolution`, `output_format`, `images`,
            `first_frame`, `last_frame`, `reference_image`; `duration` and `samples` (Int64), `sound`
            (Boolean); and `carried`, a struct of all other columns (absent where there are none).
            Defaults are filled in, but for those of UNTIL_PRICED; a matrix's column holds its first value.
        rejects: what is wrong with the other rows, sorted by line. A row with two wrong cells has two.
        total: the rows read, rejected ones too.
        columns: each known column as the file names it.
    """

    rows: pl.DataFrame
    rejects: tuple[Reject, ...]
    total: int
    columns: Mapping[str, str]


def read(settings: Settings) -> Batch:
    """Reads the batch of `settings.input`. It blocks: call it in a thread.

    Raises:
        InputError: a file is missing, empty, of no known type, not decodable or broken, or lacks a column.
        ConfigError: a default is no value for its column.
    """
    given = settings.input
    names: dict[str, str] = {column: given.columns.get(column, column) for column in COLUMNS}
    defaults = fixed_values(given.defaults, "input.defaults")
    cells, total, rejects = _cells(given, settings.storage.endpoint_url)
    filled = {
        column: pl.col(column).fill_null(pl.lit(value).cast(pl.String))
        for column, value in defaults.items()
        if column not in UNTIL_PRICED
    }
    held = {column: pl.lit(_text(values[0]), pl.String) for column, values in given.matrix.items()}
    rows, wrong = check(cells.with_columns(**(filled | held)), names)
    repeated, again = _repeated_ids(cells, names["id"])
    rows = rows.join(repeated, on=["file", "line"], how="anti", nulls_equal=True, maintain_order="left")
    rejects = sorted([*rejects, *wrong, *again], key=lambda reject: reject.line)
    return Batch(_finished(rows, set(given.matrix)), tuple(rejects), total, names)


def _cells(given: Input, endpoint_url: str | None) -> tuple[pl.DataFrame, int, list[Reject]]:
    """All files as one table of text, how many rows they have, and those that are no rows of ours."""
    found = sources.find(given.path, endpoint_url)
    total, frames, rejects = 0, [], []
    for name in found:
        with sources.local(name, endpoint_url) as path:
            table = _table(path, name, given)
        file = name if len(found) > 1 else None
        if not table.cells.height and not table.rejects:
            raise InputError(f"{name}: has no rows")
        frame, unfilled = _known(table, name, file, given)
        ragged = [replace(each, reason=in_file(each.reason, file)) for each in table.rejects]
        frames.append(frame)
        rejects += ragged + unfilled
        total += table.cells.height + len(ragged)
    try:
        return pl.concat(frames, how="diagonal_relaxed"), total, rejects
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{given.path}: a column has another type in another file: {error}") from None


def fixed_values(cells: Mapping[FileColumn, Cell], where: str) -> dict[FileColumn, Value]:
    """The config's own values for columns, checked and typed as those of a file are.

    Raises:
        ConfigError: one is no value for its column.
    """
    text = {column: _text(value) for column, value in cells.items()}
    blank = dict.fromkeys([*COLUMNS, "file"]) | {"line": 0, "prompt": "-", "model": "-"}
    types = dict.fromkeys([*COLUMNS, "file"], pl.String)
    sound, wrong = check(pl.DataFrame([blank | text], schema_overrides=types), {})
    if wrong:
        raise ConfigError(f"{where}.{wrong[0].column}: {wrong[0].value!r} {wrong[0].reason}")
    return {column: sound[column][0] for column in cells}


def _text(cell: Cell) -> str | None:
    if isinstance(cell, list):
        return json.dumps(cell, ensure_ascii=False)
    return str(cell).lower() if isinstance(cell, bool) else str(cell).strip() or None


def _table(path: Path, name: str, given: Input) -> Table:
    plain = name.lower().removesuffix(".gz").removesuffix(".zst")
    if plain.endswith(_TEXT):
        wanted = {*given.columns.values(), *_template_columns(given), *COLUMNS}
        return delimited.read(path, name, delimiter=given.delimiter, encoding=given.encoding, wanted=wanted)
    if not name.lower().endswith(_PARQUET):
        known = ", ".join([*_TEXT, *_PARQUET])
        raise InputError(
            f"{name}: is of no type that is read; there are {known}, and text also as .gz and .zst"
        )
    try:
        cells = pl.read_parquet(path)
    except FileNotFoundError:
        raise InputError(f"{name}: there is no such file") from None
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"{name}: cannot be read as Parquet: {error}") from None
    return Table(cells, pl.int_range(1, cells.height + 1, eager=True), name)


def _template_columns(given: Input) -> list[str]:
    """The columns that `input.template` names, in its order."""
    if given.template is None:
        return []
    return [name for _, name, _, _ in string.Formatter().parse(given.template) if name is not None]


def _known(table: Table, name: str, file: str | None, given: Input) -> tuple[pl.DataFrame, list[Reject]]:
    """A file's table with our columns as text and the others as `carried.*`; rejects by the template."""
    cells = table.cells
    used = {column: given.columns.get(column, column) for column in COLUMNS}
    needed = [*given.columns.values(), *_template_columns(given)]
    fixed = {*given.defaults, *given.matrix}
    needed += [
        used[each]
        for each in ("prompt", "model")
        if each not in fixed and not (each == "prompt" and given.template)
    ]
    missing = next((each for each in needed if each not in cells.columns), None)
    if missing is not None:
        column = missing if missing in COLUMNS else "prompt"
        near = next((each for each in cells.columns if each.lower() == missing.lower()), "text")
        raise InputError(
            f"{table.header}: there is no column {missing!r}; the columns are {', '.join(cells.columns)}",
            hint=f"Say in input.columns which column is which, for example {{{column}: {near}}}.",
        )
    frame = cells.select(
        table.lines.alias("line"),
        pl.lit(file, pl.String).alias("file"),
        *[_as_text(cells, column, source, name) for column, source in used.items()],
        *[pl.col(each).alias(_CARRIED + each) for each in cells.columns if each not in used.values()],
    )
    if given.template is None:
        return frame, []
    return _from_template(frame, cells, given)


def _as_text(cells: pl.DataFrame, column: str, source: str, name: str) -> pl.Expr:
    """One of our columns as trimmed text; null where the file has no such column, or nothing stands there."""
    if source not in cells.columns:
        return pl.lit(None, pl.String).alias(column)
    kind = cells.schema[source]
    if column == "images" and isinstance(kind, pl.List):
        wrapped = pl.struct(pl.col(source).alias("i")).struct.json_encode()
        return pl.when(pl.col(source).is_not_null()).then(wrapped.str.slice(5).str.head(-1)).alias(column)
    if kind.is_nested() or kind == pl.Binary:
        raise InputError(f"{name}: the column {source!r} holds {kind}, which is no {column}")
    text = pl.col(source).cast(pl.String)
    if column == "prompt":
        return text.alias(column)
    stripped = text.str.strip_chars()
    return pl.when(stripped != "").then(stripped).alias(column)


def _from_template(
    frame: pl.DataFrame, cells: pl.DataFrame, given: Input
) -> tuple[pl.DataFrame, list[Reject]]:
    """Fills the template; a row in which one of its columns is empty is rejected."""
    parts: list[pl.Expr] = []
    for literal, name, _, _ in string.Formatter().parse(given.template or ""):
        parts += [pl.lit(literal)] + ([pl.col(name).cast(pl.String)] if name is not None else [])
    frame = frame.with_columns(cells.select(pl.concat_str(parts).alias("prompt"))["prompt"])
    rejects, whole = [], pl.repeat(True, frame.height, eager=True)
    for name in dict.fromkeys(_template_columns(given)):
        text = cells[name].cast(pl.String).fill_null("")
        empty = text.str.strip_chars() == ""
        rejects += rejected(
            frame.filter(empty).with_columns(pl.lit("").alias(name)),
            name,
            {},
            "is empty, and input.template needs it",
        )
        whole &= ~empty
    return frame.filter(whole), rejects


def _repeated_ids(cells: pl.DataFrame, name: str) -> tuple[pl.DataFrame, list[Reject]]:
    """The rows whose id an earlier row has, and their rejects."""
    given = cells.filter(pl.col("id").is_not_null()).select("file", "line", "id")
    first = given.unique("id", keep="first", maintain_order=True)
    again = given.filter(~pl.col("id").is_first_distinct()).join(
        first, on="id", suffix="_first", maintain_order="left"
    )
    rejects = []
    for file, line, value, first_file, first_line in again.iter_rows():
        where = f"line {first_line}" + (f" of {first_file}" if file != first_file else "")
        rejects.append(Reject(line, name, shortened(value), in_file(f"{where} has this id already", file)))
    return again.select("file", "line"), rejects


def _finished(rows: pl.DataFrame, matrix: set[str]) -> pl.DataFrame:
    """Gives every row its id and its number of samples, and packs the carried columns together.

    An id made from content leaves out what the matrix says and how many samples there are, so that a longer
    matrix or one more sample buys nothing twice.
    """
    said = [each for each in COLUMNS if each not in {"id", "samples", *matrix}]
    content = rows.select(
        pl.concat_str([pl.col(each).cast(pl.String).fill_null("\0") for each in said], separator="\x1f")
    )
    hashes = [hashlib.sha256(each.encode()).hexdigest()[:16] for each in content.to_series()]
    rows = rows.with_columns(pl.Series("hash", hashes, pl.String))
    occurrence = pl.int_range(1, pl.len() + 1).over("hash", pl.col("id").is_null())
    made = pl.concat_str(pl.col("hash"), pl.lit("-"), occurrence)
    carried = [each for each in rows.columns if each.startswith(_CARRIED)]
    if carried:
        others = [pl.col(each).alias(each.removeprefix(_CARRIED)) for each in carried]
        rows = rows.with_columns(carried=pl.struct(others)).drop(carried)
    samples = pl.col("samples").fill_null(1)
    return rows.with_columns(samples, row_id=pl.coalesce("id", made)).drop("id", "hash")
