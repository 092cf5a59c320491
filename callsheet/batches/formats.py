"""Batch files -> tables as they are: text, JSON, Parquet and Excel; one file, a glob or S3.

A new kind of file is one more function here that makes a `Table`. Does not know what the columns mean.
"""

from __future__ import annotations

import string
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePath

import polars as pl
from polars.datatypes import DataTypeClass

from callsheet.batches import delimited, json_files, sources, workbooks
from callsheet.batches.delimited import Table, kind_of, read_text
from callsheet.config.settings import COLUMNS, FileColumn, Input
from callsheet.errors import InputError
from callsheet.plain_text import counted

_TEXT = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json")
_TABLES = (".csv", ".tsv", ".txt")
_PARQUET = (".parquet", ".pq")
_EXCEL = (".xlsx",)
_Types = Mapping[str, pl.DataType | DataTypeClass]
_WORDS = 4  # of a line that is a prompt and not a column's name


def read_tables(config: Input, endpoint_url: str | None) -> Iterator[Table]:
    """The tables of the batch's files, in order.

    Raises:
        InputError: a file is missing, empty, of an unknown type, in another encoding or broken.
        StorageError: the temporary copy of a file on S3 cannot be written.
    """
    files = sources.find_files(config.path, endpoint_url)
    several = len(files) > 1 or sources.is_glob(config.path)
    for file in files:
        with sources.local_copy(file, endpoint_url) as path:
            table = _read_file(path, file, config, several=several)
        if table.cells.is_empty() and not table.ragged:
            raise InputError(f"{file}: has no rows")
        yield replace(table, file=file, shown=file if len(files) > 1 else None)


def is_batch_file(name: str) -> bool:
    """Whether a file is of a known type, by its name."""
    return _ending(name) in (*_TEXT, *_PARQUET, *_EXCEL)


def template_columns(template: str | None) -> list[str]:
    """The columns that a template names, in its order."""
    if template is None:
        return []
    return [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]


def prompt_name(columns: Mapping[FileColumn, str | None]) -> str:
    """The name of the column with the prompts, by the config's columns; never a prompt itself."""
    name = columns.get("prompt")
    return "prompt" if name is None or is_a_prompt(name) else name


def is_a_prompt(name: str) -> bool:
    """Whether a text is a prompt rather than a column's name."""
    return len(name.split()) >= _WORDS and "prompt" not in name.lower()


def _ending(name: str) -> str:
    """A file's type, by its name: `.csv`; of text also where it is compressed."""
    lower = name.lower()
    text = lower.removesuffix(".gz").removesuffix(".zst")
    return PurePath(text if text.endswith(_TEXT) else lower).suffix


def _read_file(path: Path, name: str, config: Input, *, several: bool) -> Table:
    ending = _ending(name)
    needed = template_columns(config.template) or [prompt_name(config.columns)]
    if ending in _PARQUET:
        read = [*config.columns.values(), *template_columns(config.template), *template_columns(config.id)]
        return _read_parquet(path, name, [*filter(None, read), *config.where])
    if ending in _EXCEL:
        return _without_headers(workbooks.read_sheet(path, name, config.sheet, needed), name)
    if ending not in _TEXT:
        raise InputError(
            f"{name}: is not of a known type; expected {', '.join([*_TEXT, *_PARQUET, *_EXCEL])}, or text as "
            ".gz or .zst",
            hint="Save a list of prompts as .txt, and a workbook of another type (.xls, .ods) as .xlsx. "
            "From Python, any DataFrame "
            "takes the file's place: callsheet.quote(CONFIG, rows=DATAFRAME).",
        )
    text, note = read_text(path, name, config.encoding)
    table = _read_text(text, name, ending, config, needed, several=several)
    table = _without_comments(replace(table, note=note), config)
    return _without_headers(table, name) if ending in _TABLES else table


def _read_text(
    text: bytes, name: str, ending: str, config: Input, needed: list[str], *, several: bool
) -> Table:
    prompt, ids = prompt_name(config.columns), config.columns.get("id") or "id"
    if ending in (".jsonl", ".ndjson"):
        return json_files.read_lines(text, name, prompt)
    if ending == ".json":
        return json_files.read_document(text, name, prompt, ids)
    named = [name for name in config.columns.values() if name] + template_columns(config.template)
    if ending == ".txt" and config.delimiter is None:
        lines = {at: line for at, line in enumerate(text.decode().split("\n"), 1) if line.strip()}
        if config.comments:
            lines = {at: line for at, line in lines.items() if not line.startswith(config.comments)}
        if not _has_header(next(iter(lines.values()), ""), named):
            return _prompts(lines, name, prompt, ids if several else None)
    return delimited.read_table(
        text,
        name,
        needed=needed,
        expected={*named, *COLUMNS},
        delimiter=config.delimiter,
        quote=config.quote,
        comments=config.comments,
    )


def _has_header(first: str, names: Collection[str]) -> bool:
    """Whether the first line of a text names a column, `prompt` or one of these, and is no prompt itself."""
    cells = {cell.strip().strip("\"'") for mark in ("\0", ",", ";", "\t", "|") for cell in first.split(mark)}
    return "prompt" in {cell.lower() for cell in cells} or any(
        name in cells for name in names if not is_a_prompt(name)
    )


def _prompts(lines: Mapping[int, str], name: str, column: str, ids: str | None) -> Table:
    """A text without a header: each of its lines, by number, is a prompt, whole.

    With `ids`, the column of the ids, it is one of several files: its prompt is one row, whose id is the
    file's name.

    Raises:
        InputError: one of several files has several lines, so it may be several prompts.
    """
    cells = {column: list(lines.values())}
    if ids is not None:
        if len(lines) > 1:
            raise InputError(
                f"{name}: has {len(lines)} lines; of several .txt files without a header, each is one prompt",
                hint="Put a prompt of several lines on one line; or join lists of prompts into one file.",
            )
        lines = lines or {1: ""}  # which is rejected
        stem = PurePath(name.removesuffix(".gz").removesuffix(".zst")).stem
        cells = {column: list(lines.values()), ids: [stem]}
    numbers = pl.Series(list(lines), dtype=pl.Int64)
    return Table(pl.DataFrame(cells, schema=dict.fromkeys(cells, pl.String)), numbers, name)


def _without_comments(table: Table, config: Input) -> Table:
    """A table of text without the rows whose first cell begins as `input.comments` says."""
    if config.comments is None or not table.cells.width:
        return table
    rows = ~table.cells.to_series(0).fill_null("").str.starts_with(config.comments)
    ragged = tuple(line for line in table.ragged if not line[1].startswith(config.comments))
    return replace(table, cells=table.cells.filter(rows), lines=table.lines.filter(rows), ragged=ragged)


def _without_headers(table: Table, name: str) -> Table:
    """A table without the rows that are its header again, as in joined files, of which each may have begun
    with a byte order mark; a note says where.
    """
    columns = table.cells.columns
    again = table.cells.select(
        pl.all_horizontal(
            pl.lit(True),
            *(pl.col(each).str.strip_prefix("\ufeff").str.strip_chars() == each for each in columns),
        )
    ).to_series()
    if not columns or not again.any():
        return table
    lines = table.lines.filter(again)
    more = f" and on {counted(lines.len() - 1, 'more line')}" if lines.len() > 1 else ""
    said = f"{name}: the header comes again on line {lines[0]}{more}; that is no row, and left out"
    note = "; ".join(filter(None, (table.note, said)))
    return replace(table, cells=table.cells.filter(~again), lines=table.lines.filter(~again), note=note)


def with_fields(cells: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """A table with these fields of its structs, by dotted names such as `body.prompt`, as further columns. A
    name that it does not have is left out.
    """
    fields = {name: _field(cells.schema, name) for name in names if name not in cells.columns}
    return cells.with_columns(field.alias(name) for name, field in fields.items() if field is not None)


def _field(schema: _Types, name: str) -> pl.Expr | None:
    """A field of a struct by its dotted name."""
    column, *fields = name.split(".")
    if column not in schema or not fields:
        return None
    found, dtype = pl.col(column), schema[column]
    for field in fields:
        types = {each.name: each.dtype for each in dtype.fields} if isinstance(dtype, pl.Struct) else {}
        if field not in types:
            return None
        found, dtype = found.struct.field(field), types[field]
    return found


def field_names(schema: _Types, prefix: str = "") -> Iterator[str]:
    """The names of a table's columns; those of a struct's fields, dotted, in the place of its own."""
    for name, dtype in schema.items():
        if isinstance(dtype, pl.Struct):
            fields = {field.name: field.dtype for field in dtype.fields}
            yield from field_names(fields, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _read_parquet(path: Path, name: str, wanted: Iterable[str]) -> Table:
    """A Parquet file, also with these fields of its structs; a row's line is its number, from 1. Bytes that
    are text are text, and so are UUIDs.
    """
    try:
        cells = pl.read_parquet(path, glob=False)
    except FileNotFoundError:
        raise InputError(f"{name}: there is no such file") from None
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror or error}") from None
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{name}: {_no_parquet(path, error)}") from None
    cells = with_fields(cells, wanted)
    if binary := [column.name for column in cells if column.dtype == pl.Binary]:
        uuids = _uuids(path)
        cells = cells.with_columns(_uuid(each) if each in uuids else _text(cells[each]) for each in binary)
    return Table(cells, pl.int_range(1, cells.height + 1, eager=True), name)


def _uuids(path: Path) -> set[str]:
    """The columns of a Parquet file that are UUIDs, of which polars sees the bytes alone."""
    from pyarrow.parquet import ParquetFile  # which few files need

    schema = ParquetFile(path).schema
    columns = [schema.column(at) for at in range(len(schema.names))]
    return {column.path for column in columns if column.logical_type.type == "UUID"}


def _uuid(name: str) -> pl.Expr:
    digits = pl.col(name).bin.encode("hex")
    parts = [
        digits.str.slice(start, length) for start, length in ((0, 8), (8, 4), (12, 4), (16, 4), (20, 12))
    ]
    return pl.format("{}-{}-{}-{}-{}", *parts).alias(name)


def _text(column: pl.Series) -> pl.Series:
    """A column of bytes as text, as programs write it that do not say so; unchanged if it is none."""
    try:
        return column.cast(pl.String)
    except pl.exceptions.PolarsError:
        return column


def _no_parquet(path: Path, error: Exception) -> str:
    with path.open("rb") as file:
        first = file.read(8)
    if not first:
        return "is empty"
    kind = "" if first.startswith(b"PAR1") else kind_of(first)
    return f"is not Parquet, but {kind}" if kind else f"cannot be read as Parquet: {error}"
