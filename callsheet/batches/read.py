"""Batch files -> prompt rows, and the rejects with their line numbers.

CSV, TSV, Parquet and Excel; one file, a glob or S3. Applies the config's columns, defaults and template, a
slice at a time, so that a batch of any size takes little memory. Knows the requests' shape, but neither the
catalogue nor the matrix: those are the plan's.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

import polars as pl

from callsheet.batches import delimited, excel, sources
from callsheet.batches.delimited import Table
from callsheet.batches.disk_tables import Spill
from callsheet.batches.identities import Contents, Ids
from callsheet.batches.prefetch import ahead, mapped
from callsheet.config.settings import COLUMNS, Input, Settings
from callsheet.errors import InputError
from callsheet.rows import WRONG, as_text, check, fixed_values, plain, rejects, wrong

_TEXT = (".csv", ".tsv", ".txt")
_PARQUET = (".parquet", ".pq")
_EXCEL = (".xlsx",)
_CARRIED = "carried."
_SLICE = 32_768
UNTIL_PRICED = ("output_format", "duration", "sound")
"""Columns that only one kind of model takes: their defaults wait until the kind is known (see `pricing`)."""


@dataclass(frozen=True)
class Batch:
    """What a batch file holds, once read: checked, and set aside on disk.

    Attributes:
        rejects: what is wrong with the rows that are not sound (`rows.rejects`), sorted by line. A row with
            two wrong cells has two.
        total: the rows read, rejected ones too.
        columns: each known column as the file names it.
        slices: gives the sound rows in the file's order, some ten thousand at a time and the first time none,
            before matrix and samples are multiplied out. Columns: `line` (Int64), `file` (its name where the
            batch has several), `row_id`; as text and null where nothing is said `model`, `prompt`,
            `aspect_ratio`, `resolution`, `output_format`, `images`, `first_frame`, `last_frame`,
            `reference_image`; `duration` and `samples` (Int64), `sound` (Boolean); and `carried`, a struct of
            all other columns, each made `plain` (absent where there are none). Defaults are filled in, except
            for those of UNTIL_PRICED; a matrix's column holds its first value.
    """

    rejects: pl.DataFrame
    total: int
    columns: Mapping[str, str]
    slices: Callable[[], Iterator[pl.DataFrame]]

    @property
    def rows(self) -> pl.DataFrame:
        """All slices in one table: for a batch that fits into memory."""
        return pl.concat(self.slices())


def read(settings: Settings) -> Batch:
    """Reads the batch of `settings.input`. It blocks: call it in a thread.

    Raises:
        InputError: a file is missing, empty, of no known type, not decodable or broken, or lacks a column.
    """
    given = settings.input
    names: dict[str, str] = {column: given.columns.get(column, column) for column in COLUMNS}
    spill, ids, contents = Spill(), Ids(), Contents({*given.matrix})
    schemas: dict[str, pl.DataFrame] = {}
    total = 0
    told: list[pl.DataFrame] = []
    checked = partial(_checked, given=given, names=names, fixed=_fixed(given), contents=contents)
    for part in mapped(checked, ahead(_tables(given, settings.storage.endpoint_url)), threads=1):
        ids.add(part.ids)
        contents.add(part.rows["hash"])
        spill.add(part.rows.select(each.name for each in part.rows if each.null_count() < part.rows.height))
        schemas.setdefault(str(part.rows.schema), part.rows.clear())
        total += part.total
        told += part.rejects
    repeated = ids.repeated()
    told.append(rejects(repeated, names))
    schema = _one_schema(schemas.values(), given.path)
    slices = partial(_slices, spill, schema, contents.occurrence(), repeated)
    return Batch(pl.concat(told).sort("line", maintain_order=True), total, names, slices)


@dataclass(frozen=True, slots=True)
class _Part:
    """What a table of a file comes to: sound rows and rejects; the ids and the number of both together."""

    rows: pl.DataFrame
    rejects: list[pl.DataFrame]
    ids: pl.DataFrame
    total: int


def _checked(
    found: tuple[Table, str, str | None],
    *,
    given: Input,
    names: Mapping[str, str],
    fixed: Mapping[str, pl.Expr],
    contents: Contents,
) -> _Part:
    table, name, file = found
    cells, unfilled = _known(table, name, file, given)
    rows, bad = check(cells.with_columns(**fixed))
    return _Part(
        rows=contents.hashed(rows),
        rejects=[rejects(_ragged(table, file), {}), rejects(unfilled, {}), rejects(bad, names)],
        ids=cells.select("file", "line", "id"),
        total=table.cells.height + len(table.ragged),
    )


def _fixed(given: Input) -> dict[str, pl.Expr]:
    """The columns that the config fills: where a row says nothing, or (a matrix's) whatever it says."""
    fixed: dict[str, pl.Expr] = {}
    for column, value in fixed_values(given.defaults).items():
        if column not in UNTIL_PRICED:
            fixed[column] = pl.col(column).fill_null(pl.lit(value).cast(pl.String))
    for column, values in given.matrix.items():
        fixed[column] = pl.lit(as_text(values[0]), pl.String)
    return fixed


def _ragged(table: Table, file: str | None) -> pl.DataFrame:
    """A file's lines that are no rows, as wrong cells of no column."""
    lines = [(line, file, "", text, reason) for line, text, reason in table.ragged]
    return pl.DataFrame(lines, WRONG, orient="row")


def _one_schema(schemas: Collection[pl.DataFrame], path: str) -> pl.DataFrame:
    """A table without rows into whose columns those of all these fit."""
    try:
        schema = pl.concat(schemas, how="diagonal_relaxed")
        for each in schemas:
            for column, kind in each.schema.items():
                if kind.is_nested() != schema.schema[column].is_nested():
                    raise pl.exceptions.SchemaError(f"{column.removeprefix(_CARRIED)} is {kind} in one")
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{path}: a column has another type in another file: {error}") from None
    return schema


def _slices(
    spill: Spill, schema: pl.DataFrame, occurrence: pl.Series, repeated: pl.DataFrame
) -> Iterator[pl.DataFrame]:
    """The rows set aside, all in one schema, without those whose id is an earlier row's."""
    at = 0
    for rows in chain([schema], spill):
        unsaid = {
            each: pl.lit(None, kind) for each, kind in schema.schema.items() if each not in rows.columns
        }
        whole = rows.with_columns(**unsaid).select(schema.columns)
        if whole.schema != schema.schema:
            whole = pl.concat([schema, whole], how="diagonal_relaxed")
        finished = _finished(whole, occurrence.slice(at, rows.height))
        at += rows.height
        if repeated.height:
            by = ["file", "line"]
            finished = finished.join(repeated, on=by, how="anti", nulls_equal=True, maintain_order="left")
        yield finished


def _tables(given: Input, endpoint_url: str | None) -> Iterator[tuple[Table, str, str | None]]:
    """All files a table at a time, with the file's name; and again where the batch has several."""
    found = sources.find(given.path, endpoint_url)
    for name in found:
        empty = True
        with sources.local(name, endpoint_url) as path:
            for table in _of_file(path, name, given):
                empty = empty and not table.cells.height and not table.ragged
                yield table, name, name if len(found) > 1 else None
        if empty:
            raise InputError(f"{name}: has no rows")


def _of_file(path: Path, name: str, given: Input) -> Iterator[Table]:
    packed = name.lower()
    plain = packed.removesuffix(".gz").removesuffix(".zst")
    if plain.endswith(_TEXT):
        wanted = {*given.columns.values(), *_template_columns(given), *COLUMNS}
        return delimited.read(
            path, name, delimiter=given.delimiter, quote=given.quote, encoding=given.encoding, wanted=wanted
        )
    if packed.endswith(_PARQUET):
        return _of_parquet(path, name)
    if packed.endswith(_EXCEL):
        return iter([excel.read(path, name)])
    known = ", ".join([*_TEXT, *_PARQUET, *_EXCEL])
    raise InputError(f"{name}: is of no type that is read; there are {known}, and text also as .gz and .zst")


def _of_parquet(path: Path, name: str) -> Iterator[Table]:
    at = 1
    try:
        for cells in pl.scan_parquet(path).collect_batches(chunk_size=_SLICE, maintain_order=True):
            lines = pl.int_range(at, at + cells.height, eager=True)
            at += cells.height
            yield Table(cells, lines, name)
    except FileNotFoundError:
        raise InputError(f"{name}: there is no such file") from None
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"{name}: cannot be read as Parquet: {error}") from None


def _template_columns(given: Input) -> list[str]:
    """The columns that `input.template` names, in its order."""
    if given.template is None:
        return []
    return [name for _, name, _, _ in string.Formatter().parse(given.template) if name is not None]


def _known(table: Table, name: str, file: str | None, given: Input) -> tuple[pl.DataFrame, pl.DataFrame]:
    """A file's table with our columns as text and the others as `carried.*`; wrong cells of the template."""
    cells = table.cells
    used: dict[str, str] = {column: given.columns.get(column, column) for column in COLUMNS}
    needed = [*given.columns.values(), *_template_columns(given)]
    fixed = {*given.defaults, *given.matrix}
    needed += [
        used[each]
        for each in ("prompt", "model")
        if each not in fixed and not (each == "prompt" and given.template)
    ]
    missing = next((each for each in needed if each not in cells.columns), None)
    if missing is not None:
        raise InputError(
            f"{table.header}: there is no column {missing!r}; the columns are {', '.join(cells.columns)}",
            hint=_hint(missing, used, cells.columns),
        )
    frame = cells.select(
        table.lines.alias("line"),
        pl.lit(file, pl.String).alias("file"),
        *[_as_text(cells, column, source, name) for column, source in used.items()],
        *[
            plain(pl.col(each), kind).alias(_CARRIED + each)
            for each, kind in cells.schema.items()
            if each not in used.values()
        ],
    )
    if given.template is None:
        return frame, pl.DataFrame(schema=WRONG)
    return _from_template(frame, cells, name, given)


def _hint(missing: str, used: Mapping[str, str], columns: Sequence[str]) -> str:
    """What to write into the config where the file lacks a column."""
    ours = next((each for each in COLUMNS if used[each] == missing), None)
    if ours is None:
        return "input.template names columns of the file; a literal brace is written twice."
    near = next((each for each in columns if each.lower() == missing.lower()), None)
    if ours == "model" and near is None:
        return "Say in input.defaults which model makes all, for example {model: still-1}."
    near = near or next((each for each in columns if each not in used.values()), columns[0])
    return f"Say in input.columns which column is which, for example {{{ours}: {near}}}."


def _as_text(cells: pl.DataFrame, column: str, source: str, name: str) -> pl.Expr:
    """One of our columns as trimmed text; null where the file has no such column, or nothing stands there."""
    if source not in cells.columns:
        return pl.lit(None, pl.String).alias(column)
    kind = cells.schema[source]
    if column == "images" and isinstance(kind, pl.List):
        wrapped = pl.struct(pl.col(source).alias("i")).struct.json_encode()
        return pl.when(pl.col(source).is_not_null()).then(wrapped.str.slice(5).str.head(-1)).alias(column)
    text = _any_as_text(cells, column, source, name)
    if column == "prompt":
        return text.alias(column)
    stripped = text.str.strip_chars()
    return pl.when(stripped != "").then(stripped).alias(column)


def _any_as_text(cells: pl.DataFrame, meant: str, source: str, name: str) -> pl.Expr:
    kind = cells.schema[source]
    if kind.is_nested() or kind in (pl.Binary, pl.Duration):
        raise InputError(f"{name}: the column {source!r} holds {kind}, which is no {meant}")
    return pl.col(source).cast(pl.String)


def _from_template(
    frame: pl.DataFrame, cells: pl.DataFrame, name: str, given: Input
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Fills the template; a row in which one of its columns is empty is rejected."""
    parts: list[pl.Expr] = []
    for literal, column, _, _ in string.Formatter().parse(given.template or ""):
        parts.append(pl.lit(literal))
        if column is not None:
            parts.append(_any_as_text(cells, "part of a prompt", column, name))
    frame = frame.with_columns(cells.with_columns(prompt=pl.concat_str(parts))["prompt"])
    bad, whole = [pl.DataFrame(schema=WRONG)], pl.repeat(True, frame.height, eager=True)
    for column in dict.fromkeys(_template_columns(given)):
        text = cells[column].cast(pl.String).fill_null("")
        empty = text.str.strip_chars() == ""
        empties = frame.filter(empty).with_columns(pl.lit("").alias(column))
        bad.append(wrong(empties, column, "is empty, and input.template needs it"))
        whole &= ~empty
    return frame.filter(whole), pl.concat(bad)


def _finished(rows: pl.DataFrame, occurrence: pl.Series) -> pl.DataFrame:
    """Gives every row its id and its number of samples, and packs the carried columns together."""
    made = pl.concat_str(pl.col("hash"), pl.lit("-"), occurrence)
    rows = rows.with_columns(pl.col("samples").fill_null(1), row_id=pl.coalesce("id", made))
    rows = rows.drop("id", "hash")
    carried = [each for each in rows.columns if each.startswith(_CARRIED)]
    if not carried:
        return rows
    others = [pl.col(each).alias(each.removeprefix(_CARRIED)) for each in carried]
    return rows.with_columns(carried=pl.struct(others)).drop(carried)
