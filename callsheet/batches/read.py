"""Batch files -> prompt rows, and the rejects with their line numbers.

Applies the config's columns, defaults and template, one table at a time, so that a batch of any size takes
little memory: no row is kept. Knows what a request may contain, but not the catalogue. `input.matrix` is
multiplied out in the plan, not here.
"""

from __future__ import annotations

import string
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TypeVar

import polars as pl

from callsheet.batches.identities import Contents, Ids, Occurrences
from callsheet.batches.rejects import Rejects
from callsheet.batches.tables import FileTable, read_tables, template_columns
from callsheet.config.settings import COLUMNS, Input, Settings
from callsheet.errors import InputError
from callsheet.rows import (
    WRONG,
    as_text,
    check,
    fixed_values,
    json_value,
    rejects,
    wrong_cells,
)

_CARRIED = "carried."
_MOST_PASSES = 5
_Result = TypeVar("_Result")

UNTIL_PRICED = ("output_format", "duration", "sound")
"""Columns that only one type of model takes. Their defaults are applied later, by `pricing`."""


@dataclass(frozen=True, slots=True)
class _Checked:
    """A table's correct rows, its rejects, and the ids and the number of all its rows."""

    rows: pl.DataFrame
    rejects: list[pl.DataFrame]
    ids: pl.DataFrame
    total: int


@dataclass(frozen=True)
class _Known:
    """What each row needs, and only the whole batch tells.

    Attributes:
        schema: a table without rows, with the columns of all tables; None: those of the first one.
        repeated: hashes of the ids that several rows have (see `Ids`).
        occurrences: of the correct rows (see `Occurrences`).
    """

    schema: pl.DataFrame | None
    repeated: pl.Series
    occurrences: pl.Series


class _ReadAgain(Exception):
    """The end of the batch shows that what was known of it was not right."""


class Batch:
    """The prompt rows of `settings.input`. Files are read while the rows are used, and no row is kept.

    Making one finds the files and checks the first rows. It blocks: do it in a thread.

    Attributes:
        columns: the file's name of each of our columns.

    Raises:
        InputError: a file is missing, empty, of an unknown type, in another encoding or broken, or has not
            all columns.
        StorageError: the temporary copy of a file on S3 cannot be written.
    """

    def __init__(self, settings: Settings) -> None:
        config = settings.input
        self.columns: dict[str, str] = {column: config.columns.get(column, column) for column in COLUMNS}
        self._settings = settings
        self._rejects, self._total = Rejects(), 0
        self._is_complete = False
        self._known = _Known(None, pl.Series(dtype=pl.UInt64), pl.Series(dtype=pl.UInt32))
        tables = self._tables()
        self._begun: Iterator[_Checked] | None = chain([next(tables)], tables)

    @property
    def rejects(self) -> Rejects:
        """The wrong cells. A row with two wrong cells has two.

        Where no rows were used yet, asking for them reads the files. Raises as `use`.
        """
        self._complete()
        return self._rejects

    @property
    def total(self) -> int:
        """The number of rows, rejected ones included. Reads and raises as `rejects`."""
        self._complete()
        return self._total

    def _complete(self) -> None:
        if not self._is_complete:
            self.use(lambda slices: deque(slices, maxlen=0))

    def use(self, function: Callable[[Iterator[pl.DataFrame]], _Result]) -> _Result:
        """Reads the files, and gives the correct rows to a function. It blocks: call it in a thread.

        Where the end of the batch shows that several rows have the same id or content, or that its files have
        different columns, the files are read again, and the function gets the rows again.

        Args:
            function: takes all rows, in the files' order, some ten thousand at a time, and lets errors that
                they raise pass. The first slice is empty. Matrix and samples are not multiplied out yet.
                Columns: `line` (Int64); `file` (where the batch has several, otherwise null); `row_id`; as
                text, null where empty, `model`, `prompt`, `aspect_ratio`, `resolution`, `output_format`,
                `images`, `first_frame`, `last_frame`, `reference_image`; `duration` and `samples` (Int64),
                `sound` (Boolean); and, if there are any, all other columns as a struct `carried` (see
                `rows.json_value`). Defaults are applied, except those of UNTIL_PRICED; a matrix's column has
                its first value.

        Returns:
            What the function returns.

        Raises:
            InputError: as above, for all files; or they change while they are read.
            StorageError: as above.
        """
        for _ in range(_MOST_PASSES):
            try:
                return function(self._slices())
            except _ReadAgain:
                continue
        raise InputError(f"{self._settings.input.path}: changes while it is read")

    def _tables(self) -> Iterator[_Checked]:
        config = self._settings.input
        check_table = partial(
            _check_table,
            config=config,
            file_columns=self.columns,
            fills=_fills(config),
            contents=Contents({*config.matrix}),
        )
        return map(check_table, read_tables(config, self._settings.storage.endpoint_url))

    def _slices(self) -> Iterator[pl.DataFrame]:
        """The correct rows, by what is known of the batch; at its end all is known.

        Raises:
            _ReadAgain: at the end, where that is something else.
        """
        known, ids, occurrences = self._known, Ids(self._known.repeated), Occurrences(self._known.occurrences)
        tables, self._begun = self._begun or self._tables(), None
        first = next(tables)
        schema = first.rows.clear() if known.schema is None else known.schema
        yield _with_ids(schema, pl.Series(dtype=pl.UInt32))
        schemas: dict[str, pl.DataFrame] = {}
        found = Rejects()
        total = 0
        for checked in chain([first], tables):
            total += checked.total
            repeated = ids.next(checked.ids)
            for some in (*checked.rejects, rejects(repeated, self.columns)):
                found.add(some)
            rows, numbers = checked.rows, occurrences.next(checked.rows["hash"])
            schemas.setdefault(str(rows.schema), rows.clear())
            if known.schema is not None or rows.schema == schema.schema:
                yield _without(_with_ids(_in_schema(rows, schema), numbers), repeated)
        common = _common_schema(schemas.values(), self._settings.input.path)
        learned = _Known(common, ids.repeated(), occurrences.all())
        self._known = learned
        if not (
            schema.schema == common.schema
            and (known.schema is not None or len(schemas) == 1)
            and known.repeated.equals(learned.repeated)
            and known.occurrences.equals(learned.occurrences)
        ):
            raise _ReadAgain
        self._rejects, self._total = found, total
        self._is_complete = True


# ---- one table: columns and template, defaults, checks


def _check_table(
    source: FileTable,
    *,
    config: Input,
    file_columns: Mapping[str, str],
    fills: Mapping[str, pl.Expr],
    contents: Contents,
) -> _Checked:
    table = source.table
    cells = _our_columns(source, file_columns, config)
    filled, empty_in_template = cells, pl.DataFrame(schema=WRONG)
    if config.template is not None:
        filled, empty_in_template = _apply_template(cells, source, config)
    filled = filled.with_columns(pl.col("id").str.normalize("NFC"))  # as a job's identity has it
    rows, wrong = check(filled.with_columns(**fills))
    return _Checked(
        rows=contents.hashed(rows),
        rejects=[
            rejects(_ragged(source), {}),
            rejects(empty_in_template, {}),
            rejects(wrong, file_columns),
        ],
        ids=filled.select("file", "line", "id"),
        total=table.cells.height + len(table.ragged),
    )


def _fills(config: Input) -> dict[str, pl.Expr]:
    """The columns that the config fills: defaults where a cell is empty, a matrix's in every row."""
    fills: dict[str, pl.Expr] = {}
    for column, value in fixed_values(config.defaults).items():
        if column not in UNTIL_PRICED:
            fills[column] = pl.col(column).fill_null(pl.lit(value).cast(pl.String))
    for column, values in config.matrix.items():
        fills[column] = pl.lit(as_text(values[0]), pl.String)
    return fills


def _ragged(source: FileTable) -> pl.DataFrame:
    """Lines with a wrong number of cells, as wrong cells of no column."""
    rows = [(line, source.shown, "", text, reason) for line, text, reason in source.table.ragged]
    return pl.DataFrame(rows, schema=WRONG, orient="row")


def _our_columns(source: FileTable, file_columns: Mapping[str, str], config: Input) -> pl.DataFrame:
    """A table with `line`, `file`, our columns as text, and the file's other columns as `carried.*`.

    Raises:
        InputError: a column is missing, or has a type that cannot be text.
    """
    cells, types = source.table.cells, source.table.cells.schema
    _check_columns(source.table.header, [*types], file_columns, config)
    ours = {*file_columns.values()}
    return cells.select(
        source.table.lines.alias("line"),
        pl.lit(source.shown, pl.String).alias("file"),
        *[_as_text(types, column, name, source.file) for column, name in file_columns.items()],
        *[
            json_value(pl.col(name), dtype).alias(_CARRIED + name)
            for name, dtype in types.items()
            if name not in ours
        ],
    )


def _check_columns(header: str, names: Sequence[str], file_columns: Mapping[str, str], config: Input) -> None:
    """Makes sure that the file has the columns that the config names, and a prompt and a model."""
    needed = [*config.columns.values(), *template_columns(config)]
    filled = {*config.defaults, *config.matrix} | ({"prompt"} if config.template else set())
    needed += [file_columns[column] for column in ("prompt", "model") if column not in filled]
    present = set(names)
    missing = next((name for name in needed if name not in present), None)
    if missing is not None:
        raise InputError(
            f"{header}: there is no column {missing!r}; the columns are {', '.join(names)}",
            hint=_hint(missing, file_columns, names),
        )


def _hint(missing: str, file_columns: Mapping[str, str], names: Sequence[str]) -> str:
    """What to write into the config where the file lacks a column."""
    column = next((column for column in COLUMNS if file_columns[column] == missing), None)
    if column is None:
        return "input.template names columns of the file; a literal brace is written twice."
    similar = next((name for name in names if name.lower() == missing.lower()), None)
    if column == "model" and similar is None:
        return "Name a model for all rows in input.defaults, for example {model: still-1}."
    others = (name for name in names if name not in file_columns.values())
    example = similar or next(others, names[0])
    return f"Name the file's column in input.columns, for example {{{column}: {example}}}."


def _as_text(types: Mapping[str, pl.DataType], column: str, name: str, file: str) -> pl.Expr:
    """One of our columns as text without surrounding space (a prompt with it); null where it is empty.

    Args:
        types: the file's columns.
        column: our column.
        name: the file's name of it.
        file: for messages.
    """
    if name not in types:
        return pl.lit(None, pl.String).alias(column)
    if column == "images" and isinstance(types[name], pl.List):
        json = pl.struct(pl.col(name).alias("i")).struct.json_encode()  # {"i":[...]}
        return pl.when(pl.col(name).is_not_null()).then(json.str.slice(5).str.head(-1)).alias(column)
    text = _cast_to_text(types, column, name, file)
    if column == "prompt":
        return text.alias(column)
    return text.str.strip_chars().replace("", None).alias(column)


def _cast_to_text(types: Mapping[str, pl.DataType], purpose: str, name: str, file: str) -> pl.Expr:
    dtype = types[name]
    if dtype.is_nested() or dtype in (pl.Binary, pl.Duration):
        raise InputError(
            f"{file}: the column {name!r} has the type {dtype}; expected text or numbers for {purpose}"
        )
    column = pl.col(name)
    if dtype.is_float():
        # A whole number comes as 7.0 where another cell of its column is missing.
        whole = column.is_finite() & (column == column.round()) & (column.abs() < 2**53)
        integer = pl.when(whole).then(column).cast(pl.Int64).cast(pl.String)
        return pl.coalesce(integer, pl.when(column.is_finite()).then(column).cast(pl.String))
    text = column.cast(pl.String)
    return text.str.replace(r"\.0*$", "") if dtype.is_decimal() else text


def _apply_template(
    rows: pl.DataFrame, source: FileTable, config: Input
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Fills `prompt` by the template.

    Returns:
        The rows; and the empty cells of the others, in which the template lacks a column.
    """
    cells = source.table.cells
    parts: list[pl.Expr] = []
    for literal, name, _, _ in string.Formatter().parse(config.template or ""):
        parts.append(pl.lit(literal))
        if name is not None:
            parts.append(_cast_to_text(cells.schema, "input.template", name, source.file))
    rows = rows.with_columns(cells.with_columns(prompt=pl.concat_str(parts))["prompt"])
    wrong, complete = [pl.DataFrame(schema=WRONG)], pl.repeat(True, rows.height, eager=True)
    for name in dict.fromkeys(template_columns(config)):
        empty = cells[name].cast(pl.String).fill_null("").str.strip_chars() == ""
        empty_cells = rows.filter(empty).with_columns(pl.lit("").alias(name))
        wrong.append(wrong_cells(empty_cells, name, "is empty, and input.template needs it"))
        complete &= ~empty
    return rows.filter(complete), pl.concat(wrong)


# ---- all tables


def _common_schema(schemas: Collection[pl.DataFrame], path: str) -> pl.DataFrame:
    """A table without rows, with the columns of all these, of types that fit them all.

    Raises:
        InputError: there is no type that fits a column in all files.
    """
    try:
        common = pl.concat(schemas, how="diagonal_relaxed")
        types = common.schema
        for table in schemas:
            for column, dtype in table.schema.items():
                if dtype.is_nested() != types[column].is_nested():
                    raise pl.exceptions.SchemaError(f"{column.removeprefix(_CARRIED)} is {dtype} in one")
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{path}: a column has different types in different files: {error}") from None
    return common


def _in_schema(rows: pl.DataFrame, schema: pl.DataFrame) -> pl.DataFrame:
    """Rows of one table with the columns and types of all tables."""
    if rows.schema == schema.schema:
        return rows
    blank = {name: pl.lit(None, dtype).alias(name) for name, dtype in schema.schema.items()}
    whole = rows.select((blank | {name: pl.col(name) for name in rows.columns}).values())
    return whole if whole.schema == schema.schema else pl.concat([schema, whole], how="diagonal_relaxed")


def _without(rows: pl.DataFrame, repeated: pl.DataFrame) -> pl.DataFrame:
    """Rows without those whose id an earlier row has."""
    if not repeated.height:
        return rows
    return rows.join(repeated, on=["file", "line"], how="anti", nulls_equal=True, maintain_order="left")


def _with_ids(rows: pl.DataFrame, occurrences: pl.Series) -> pl.DataFrame:
    """Gives every row its id and its number of samples, and puts the carried columns into one."""
    row_id = pl.col("id")
    if rows["id"].null_count():
        row_id = pl.coalesce(row_id, pl.concat_str(pl.col("hash"), pl.lit("-"), occurrences))
    carried = [name for name in rows.columns if name.startswith(_CARRIED)]
    fields = [pl.col(name).alias(name.removeprefix(_CARRIED)) for name in carried]
    return rows.select(
        pl.exclude("id", "hash", "samples", *carried),
        pl.col("samples").fill_null(1),
        row_id.alias("row_id"),
        *([pl.struct(fields).alias("carried")] if fields else []),
    )
