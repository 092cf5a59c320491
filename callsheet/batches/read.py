"""Batch files -> prompt rows, and the rejects with their line numbers.

Applies the config's columns, values, defaults and templates. Knows what a request may contain, but not the
catalogue. `input.matrix` is multiplied out in the plan, not here.
"""

from __future__ import annotations

import json
import string
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from callsheet.batches import columns
from callsheet.batches.columns import Columns
from callsheet.batches.formats import names_images, read_tables
from callsheet.batches.headers import Table, template_columns
from callsheet.batches.identities import nfc, repeated_ids, row_ids
from callsheet.batches.judgements import Judgement, is_secret
from callsheet.batches.left_out import NOTHING, StoredFiles
from callsheet.cells import (
    BY_MODEL,
    FAILED,
    FAILED_FORMULAS,
    IMAGE_COLUMNS,
    WRONG,
    as_text,
    check,
    fixed_values,
    has_one_of,
    is_guarded,
    json_value,
    rejects,
    separate,
    unguarded,
    wrong_cells,
)
from callsheet.config.settings import Input, Settings
from callsheet.errors import InputError
from callsheet.plain_text import and_more, counted

_CARRIED = "carried."
_SHOWN = 5  # lines of hidden rows
_BYTES_ALONE = "the file has the image's bytes only: write the images into files"
_NO_TEXT = (pl.Binary, pl.Duration)

UNTIL_PRICED = ("output_format", "duration", "sound")
"""Columns that only one type of model takes. Their defaults are applied later, by `pricing`."""


@dataclass(frozen=True)
class Batch:
    """The prompt rows of `settings.input`.

    Attributes:
        rows: the correct rows, in the files' order; matrix and samples are not multiplied out yet. Columns:
            `line` (Int64); `file` (where the batch has several, otherwise null); `row_id`; our columns, as
            text, null where empty, but `duration` and `samples` (Int64) and `sound` (Boolean); and, if there
            are any, all other columns as a struct `carried` (see `cells.json_value`). Defaults are applied,
            except those of UNTIL_PRICED; a matrix's column has its first value.
        others: the rows with a wrong cell or a repeated id, without their wrong cells, so that what is wrong
            with the other cells can be said at the same time.
        rejects: the wrong cells (see `cells.rejects`), sorted by line. A row with two wrong cells has two.
        total: the number of rows, rejected ones included.
        names: the file's name of each of our columns, for messages.
        columns: how the files' columns are used.
        left_out: how many rows `input.where` leaves out; they are none of `total`.
        notes: what a person should know of how the files were read, in sentences.
        unclear: what may not be meant so, and a person is asked about, each in words.
        stored_files: where the rows are files of another batch, by the place of each the sha256 with which it
            was stored.
    """

    rows: pl.DataFrame
    others: pl.DataFrame
    rejects: pl.DataFrame
    total: int
    names: dict[str, str]
    columns: Columns
    left_out: int = 0
    notes: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()
    stored_files: Mapping[str, str] = field(default_factory=dict)


# Columns of an exported `manifest.csv`, which no other table has together.
_OF_MANIFEST = {"job_key", "row_id", "generation_id", "sha256", "bytes"}


def read_batch(settings: Settings, stored: StoredFiles = NOTHING) -> Batch:
    """Reads and checks all files of a batch but those that are `stored`. It blocks: call it in a thread.

    Raises:
        InputError: a file is missing, empty, of an unknown type, in another encoding or broken, or has not
            all columns; or there is no type that fits a column in all files.
        StorageError: the temporary copy of a file on S3 cannot be written.
    """
    return batch_of(read_tables(settings, stored), settings.input)


def batch_of(tables_of_files: Iterable[Table], config: Input) -> Batch:
    """Checks the tables of a batch's files; otherwise as `read_batch`.

    Raises:
        InputError: a file has not all columns; or there is no type that fits a column in all files.
    """
    files = [_file_of(table, config) for table in tables_of_files]
    shown_names = {column: name or column for file in files for column, name in file.names.items()}
    cells = _together([file.cells for file in files], config.source)
    cells = cells.with_columns(nfc(pl.col("id")))  # as a job's identity has it
    rows, other_rows, bad_cells = check(_with_defaults(cells, config))
    repeated = repeated_ids(cells)
    rows, again = separate(rows, has_one_of(repeated))
    rejected = [*(rejects(file.bad_cells, {}) for file in files)]
    rejected.append(rejects(pl.concat([bad_cells, repeated]), shown_names))
    return Batch(
        rows=_with_ids(rows, config.matrix),
        others=_with_ids(pl.concat([other_rows, again]), config.matrix),
        rejects=pl.concat(rejected).sort("line", maintain_order=True),
        total=sum(file.total for file in files),
        names=shown_names,
        columns=columns.used_and_carried(
            [(file.table, file.names, file.other_columns) for file in files], config
        ),
        left_out=sum(file.left_out for file in files),
        notes=tuple(note for file in files for note in file.notes if note),
        unclear=tuple(doubt for file in files for doubt in file.unclear if doubt),
    )


def original_rows(settings: Settings, row_ids: Collection[str]) -> pl.DataFrame:
    """The rows of the batch file with these ids, as they stand there: to be corrected and bought again.

    Lists and structs, which a CSV file cannot have, are JSON text. It blocks: call it in a thread.

    Returns:
        The file's own columns and order, as the texts that a CSV file needs for the same jobs.

    Raises:
        InputError: the batch file cannot be read; or it has none of these rows any more.
        StorageError: a temporary file cannot be written.
    """
    if settings.input.other or names_images(settings):
        raise InputError(
            f"{settings.input.source}: has files, and no rows that can be written into a batch file",
            hint="Correct the prompts, or convert the images; then run the same config again.",
        )
    tables = [*read_tables(settings)]
    rows = batch_of(tables, settings.input).rows.filter(pl.col("row_id").is_in(list(row_ids)))
    if rows.is_empty():
        raise InputError(
            f"{settings.input.source}: has none of these rows any more",
            hint="Their rows were changed or removed since they were bought.",
        )
    originals = []
    for source in tables:
        lines = rows.filter(pl.col("file").eq_missing(source.shown))["line"]
        cells = source.cells.filter(source.lines.is_in(lines.implode()))
        originals.append(cells.select(_original(column, source.file) for column in cells))
    return pl.concat(originals, how="diagonal_relaxed")


def _original(column: pl.Series, file: str) -> pl.Series | pl.Expr:
    if column.dtype.is_nested():
        texts = [None if value is None else json.dumps(value, default=str) for value in column.to_list()]
        return pl.Series(column.name, texts, pl.String)
    if column.dtype in _NO_TEXT:
        return json_value(pl.col(column.name), column.dtype)
    return _cast_to_text({column.name: column.dtype}, "", column.name, file)


# ---- one file: its columns and the templates


@dataclass(frozen=True, slots=True)
class _File:
    """One file of a batch.

    Attributes:
        table: as the file has it, with the columns that `input.columns` makes of several.
        names: its name of each of our columns.
        other_columns: what they hold that are not ours.
        cells, bad_cells: its rows that are read, and what is wrong with them (`_our_columns`).
        total: the number of its rows, rejected ones included.
        left_out: how many others `input.where` leaves out.
        notes, unclear: as in `Batch`; empty ones are none.
    """

    table: Table
    names: dict[str, str | None]
    other_columns: list[Judgement]
    cells: pl.DataFrame
    bad_cells: pl.DataFrame
    total: int
    left_out: int
    notes: list[str]
    unclear: list[str]


def _file_of(table: Table, config: Input) -> _File:
    """Makes our columns of a file's.

    Raises:
        InputError: it has not all columns.
    """
    table = columns.with_joined(_as_exported(table), config)
    names = columns.names_of(config, table)
    columns.check(table, names, config)
    other_columns = columns.judge_others(table, names)
    notes = [table.note, columns.note(table.cells, names["prompt"], other_columns)]
    notes.append(_apostrophes(table, {*names.values(), *template_columns(config.template)}))
    selected = _selected(table, config)
    shown, hidden = _of_hidden_rows(selected, config)
    cells, bad_cells = _our_columns(shown, names, config)
    return _File(
        table=table,
        names=names,
        other_columns=other_columns,
        cells=cells,
        bad_cells=bad_cells,
        total=shown.cells.height + len(shown.ragged),
        left_out=table.cells.height - selected.cells.height,
        notes=[*notes, hidden] if config.hidden else notes,
        unclear=[*table.unclear] if config.hidden else [hidden, *table.unclear],
    )


def _as_exported(table: Table) -> Table:
    """The table of an exported `manifest.csv` without the apostrophes that are for spreadsheets.

    Its columns tell it, which are all text: a manifest in Parquet has others, and no such apostrophe.
    """
    if not set(table.cells.columns) >= _OF_MANIFEST or table.cells.schema["bytes"] != pl.String:
        return table
    return replace(table, cells=table.cells.with_columns(unguarded(pl.col(pl.String))))


def _apostrophes(table: Table, names: Collection[str | None]) -> str:
    """In which rows these columns have apostrophes that another program may have written for spreadsheets."""
    texts = [name for name, dtype in table.cells.schema.items() if name in names and dtype == pl.String]
    has_some = table.cells.select(pl.any_horizontal(is_guarded(pl.col(texts)))) if texts else None
    if has_some is None or (lines := table.lines.filter(has_some.to_series())).is_empty():
        return ""
    cells = f"{counted(lines.len(), 'row')} {'has' if lines.len() == 1 else 'have'} an apostrophe before"
    return (
        f"{table.file}, line {lines[0]}: {cells} =, +, - or @, as programs write it for spreadsheets; it is "
        "sent as a part of the cell"
    )


def _selected(source: Table, config: Input) -> Table:
    """The rows that `input.where` keeps."""
    cells = source.cells
    keep = pl.repeat(True, cells.height, eager=True)
    for name, values in config.where.items():
        texts = [as_text(value) or "" for value in (values if isinstance(values, list) else [values])]
        text = _cast_to_text(cells.schema, "input.where", name, source.file).fill_null("").str.strip_chars()
        keep &= cells.select(text.is_in(texts)).to_series()
    return source if keep.all() else source.without(~keep)


def _of_hidden_rows(table: Table, config: Input) -> tuple[Table, str]:
    """The table, without its hidden rows where these are left; and what is done with them, in words."""
    is_hidden = table.lines.is_in([*table.hidden])
    if not is_hidden.any():
        return table, ""
    lines = table.lines.filter(is_hidden)
    rows = f"{counted(lines.len(), 'row')} {'is' if lines.len() == 1 else 'are'} hidden"
    said = f"{table.file}, line {and_more([*map(str, lines.head(_SHOWN))], lines.len())}: {rows}, and "
    if config.hidden == "leave":
        return table.without(is_hidden), f"{said}left out"
    return table, f"{said}read{'' if config.hidden else ' (input.hidden may be leave, or read)'}"


def _our_columns(
    source: Table, names: Mapping[str, str | None], config: Input
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """A file's rows, with a prompt and an id where templates make them: `line`, `file`, our columns as text,
    and the file's other columns as `carried.*`.

    And what is wrong by the file alone, by the file's name of the column: lines with a wrong number of cells,
    and what a template lacks.

    Raises:
        InputError: a column has a type that cannot be text.
    """
    types = source.cells.schema
    rows = source.cells.select(
        source.lines.cast(pl.Int64).alias("line"),
        pl.lit(source.shown, pl.String).alias("file"),
        *[_as_text(source, column, name, config.role) for column, name in names.items()],
        *[
            json_value(pl.col(name), dtype).alias(_CARRIED + name)
            for name, dtype in types.items()
            if name not in names.values() and not is_secret(name)
        ],
    )
    rows = rows.with_columns(
        pl.col(column).replace(
            {old: None if new is None else as_text(new) for old, new in replacements.items()}
        )
        for column, replacements in config.values.items()
    )
    bad_cells = [*columns.wrong_sizes(source, rows, config), *_without_path(source, names, rows)]
    incomplete = rows["line"].is_in({line for table in bad_cells for line in table["line"]})
    ragged = [(line, source.shown, "", text, reason) for line, text, reason in source.ragged]
    bad_cells.insert(0, pl.DataFrame(ragged, schema=WRONG, orient="row"))
    for column, setting, template in (
        ("prompt", "input.template", config.template),
        ("id", "input.id", config.id),
    ):
        if template is not None:
            rows, empty, lacking = _filled(rows, source, column, setting, template)
            bad_cells += empty
            incomplete |= lacking
    return rows.filter(~incomplete) if incomplete.any() else rows, pl.concat(bad_cells)


def _without_path(
    source: Table, names: Mapping[str, str | None], rows: pl.DataFrame
) -> Iterator[pl.DataFrame]:
    """The cells of images of which the file has the bytes alone, as wrong cells."""
    for column in IMAGE_COLUMNS:
        if (name := names[column]) and name in source.images:
            bare = rows.filter(pl.col("line").is_in([*source.images[name]]))
            yield wrong_cells(bare.with_columns(pl.lit("").alias(name)), name, _BYTES_ALONE)


def _as_text(source: Table, column: str, name: str | None, role: str | None) -> pl.Expr:
    """One of our columns as text without surrounding space (a prompt with it); null where it is empty, or the
    file's column has no name. Where the rows are images, `images` has each with its role, or by the row's
    model.
    """
    types, file = source.cells.schema, source.file
    if name is None or name not in types:
        return pl.lit(None, pl.String).alias(column)
    if column == "images" and name == source.placed:
        image = pl.struct(pl.lit(role or BY_MODEL).alias("role"), pl.col(name).alias("url"))
        listed = pl.format("[{}]", image.struct.json_encode())
        return pl.when(pl.col(name).is_not_null()).then(listed).alias(column)
    if column in IMAGE_COLUMNS and isinstance(types[name], pl.List):
        if "Binary" in str(types[name]):  # of which polars makes no JSON
            raise InputError(
                f"{file}: the column {name!r} has the type {types[name]}; expected addresses or paths",
                hint="Write the images into files, and their paths into the column.",
            )
        json = pl.struct(pl.col(name).alias("i")).struct.json_encode()  # {"i":[...]}
        return pl.when(pl.col(name).is_not_null()).then(json.str.slice(5).str.head(-1)).alias(column)
    text = _cast_to_text(types, column, name, file)
    if column == "prompt":
        return text.alias(column)
    return text.str.strip_chars().replace("", None).alias(column)


def _cast_to_text(types: Mapping[str, pl.DataType], purpose: str, name: str, file: str) -> pl.Expr:
    dtype = types[name]
    if dtype.is_nested() or dtype in _NO_TEXT:
        raise InputError(
            f"{file}: the column {name!r} has the type {dtype}; expected text or numbers for {purpose}"
        )
    column = pl.col(name)
    if dtype.is_float():
        # A whole number comes as 7.0 where another cell of its column is missing.
        is_whole = column.is_finite() & (column == column.round()) & (column.abs() < 2**53)
        integer = pl.when(is_whole).then(column).cast(pl.Int64).cast(pl.String)
        return pl.coalesce(integer, pl.when(column.is_finite()).then(column).cast(pl.String))
    text = column.cast(pl.String)
    return text.str.replace(r"\.0*$", "") if dtype.is_decimal() else text


def _filled(
    rows: pl.DataFrame, source: Table, column: str, setting: str, template: str
) -> tuple[pl.DataFrame, list[pl.DataFrame], pl.Series]:
    """Fills a column of ours by a template: the rows, the empty cells that the template needs, and which rows
    have such cells.
    """
    cells = source.cells
    text = {
        name: _cast_to_text(cells.schema, setting, name, source.file) for name in template_columns(template)
    }
    bad_cells, lacking = list[pl.DataFrame](), pl.repeat(False, rows.height, eager=True)
    for name in text:
        stripped = cells[name].cast(pl.String).fill_null("").str.strip_chars()
        for is_wrong, reason in (
            (stripped == "", f"is empty, and {setting} needs it"),
            (stripped.is_in(FAILED_FORMULAS), FAILED),
        ):
            cells_of_it = rows.with_columns(stripped.alias(name)).filter(is_wrong)
            bad_cells.append(wrong_cells(cells_of_it, name, reason))
            lacking |= is_wrong
    parts = [
        part
        for literal, name, _, _ in string.Formatter().parse(template)
        for part in (pl.lit(literal), pl.lit("") if name is None else text[name])
    ]
    values = cells.with_columns(pl.concat_str(parts).alias(column))[column]
    return rows.with_columns(values), bad_cells, lacking


# ---- all files


def _with_defaults(cells: pl.DataFrame, config: Input) -> pl.DataFrame:
    """The rows with the config's values for empty cells, and of a matrix' columns the first value."""
    fills = {
        column: pl.col(column).fill_null(pl.lit(value).cast(pl.String))
        for column, value in fixed_values(config.defaults).items()
        if column not in UNTIL_PRICED
    }
    fills |= {column: pl.lit(as_text(values[0]), pl.String) for column, values in config.matrix.items()}
    return cells.with_columns(**fills)


def _together(tables: Sequence[pl.DataFrame], path: str) -> pl.DataFrame:
    """The rows of all files, with the columns of all of them, of types that fit them all.

    Raises:
        InputError: there is no type that fits a column in all files.
    """
    try:
        together = pl.concat(tables, how="diagonal_relaxed")
        types = together.schema
        for table in tables:
            for column, dtype in table.schema.items():
                if dtype.is_nested() != types[column].is_nested():
                    raise pl.exceptions.SchemaError(f"{column.removeprefix(_CARRIED)} is {dtype} in one")
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{path}: a column has different types in different files: {error}") from None
    return together


def _with_ids(rows: pl.DataFrame, matrix: Collection[str]) -> pl.DataFrame:
    """Gives every row its id and its number of samples, and puts the carried columns into one."""
    carried = [name for name in rows.columns if name.startswith(_CARRIED)]
    fields = [pl.col(name).alias(name.removeprefix(_CARRIED)) for name in carried]
    return rows.select(
        pl.exclude("id", "samples", *carried),
        pl.col("samples").fill_null(1),
        row_ids(rows, matrix).alias("row_id"),
        *([pl.struct(fields).alias("carried")] if fields else []),
    )
