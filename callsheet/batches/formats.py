"""Where input files are (a path, a glob, or the same on S3), and batch files as tables.

A new kind of file is one more function here that makes a `Table`. Reads only, and does not know what the
columns mean. S3 is read by `callsheet.s3`. Every error names the file.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from io import BufferedReader
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import polars as pl
from polars.datatypes import DataTypeClass

from callsheet import s3
from callsheet.batches import json_files, texts, workbooks
from callsheet.batches.tables import (
    Table,
    is_a_prompt,
    mapped,
    needed,
    prompt_name,
    read_by,
    template_columns,
    without_what_is_no_row,
)
from callsheet.batches.texts import kind_of, read_text
from callsheet.config.settings import COLUMNS, Input
from callsheet.errors import InputError, TooLarge
from callsheet.files import open_regular, temporary_file_errors, with_home

if TYPE_CHECKING:
    from botocore.response import StreamingBody

_WILDCARD = re.compile(r"[*?\[]")


def find_files(path: str, endpoint_url: str | None = None) -> list[str]:
    """The files that `input.path` names (a path, a glob or an `s3://` URL), sorted by name.

    Raises:
        InputError: there are none, the path is a folder, or the disk or S3 cannot be read.
    """
    files = _find_on_s3(path, endpoint_url) if path.startswith("s3://") else _find_on_disk(path)
    if not files:
        scheme, slashes, _ = path.partition("://")
        if slashes and scheme != "s3":
            hint = "Name a file, a glob or s3://bucket/key."
            raise InputError(f"{path}: {scheme}:// is not supported", hint=hint)
        problem = "no file matches" if _WILDCARD.search(path) else "there is no such file"
        raise InputError(f"{path}: {problem}", hint="" if slashes else _relative_paths())
    return files


def is_glob(path: str) -> bool:
    """Whether a path or URL has wildcards, and does not name one file."""
    return bool(_WILDCARD.search(path)) and not Path(path).is_file()


def _relative_paths() -> str:
    return f"Relative paths start at {Path.cwd()}."


def _find_on_disk(path: str) -> list[str]:
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            mode = Path(path).stat().st_mode
            if stat.S_ISDIR(mode):
                hint = f"It has no images. Name its files: {Path(path, '*.csv')}."
                raise InputError(f"{path}: is a folder", hint=hint)
            if not stat.S_ISREG(mode):
                raise InputError(f"{path}: is not a regular file")
            return [path]
        matches = glob.glob(path, recursive=True)  # noqa: PTH207  # Path.glob takes no absolute pattern
        return sorted(match for match in matches if Path(match).is_file())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path}: is not a file name: {error}") from None


def _find_on_s3(url: str, endpoint_url: str | None) -> list[str]:
    bucket, pattern = _bucket_and_key(url)
    wildcard = _WILDCARD.search(pattern)
    if pattern.endswith("/"):
        raise InputError(f"{url}: is a folder", hint=f"It has no images. Name its files: {url}*.csv.")
    if wildcard is None:
        return [url]
    prefix = f"s3://{bucket}/"
    found = objects(prefix + pattern[: wildcard.start()], endpoint_url)
    keys = [each.removeprefix(prefix) for each in found]
    if pattern in keys:  # as on a disk, what has this very name is meant
        return [url]
    # As in a local glob, a '*' stays within its folder.
    depth = pattern.count("/")
    return sorted(prefix + key for key in keys if key.count("/") == depth and fnmatchcase(key, pattern))


def objects(prefix: str, endpoint_url: str | None = None) -> list[str]:
    """The URLs of all objects on S3 that begin so (`s3://bucket/folder/`), sorted.

    Raises:
        InputError: S3 cannot be read.
    """
    bucket, _, start = prefix.removeprefix("s3://").partition("/")
    with s3.errors_as(InputError, prefix):
        listing = s3.client(endpoint_url).get_paginator("list_objects_v2")
        pages = listing.paginate(Bucket=bucket, Prefix=start)
        keys = [content["Key"] for page in pages for content in page.get("Contents", ())]
    return sorted(f"s3://{bucket}/{key}" for key in keys)


@contextmanager
def local_copy(name: str, endpoint_url: str | None = None) -> Iterator[Path]:
    """A file's path on this machine; for an S3 object that of a temporary copy, which the context removes.

    Raises:
        InputError: the object cannot be read.
        StorageError: the copy cannot be written.
    """
    if not name.startswith("s3://"):
        yield Path(name)
        return
    with ExitStack() as stack:
        with temporary_file_errors(), s3.errors_as(InputError, name):
            copy = Path(stack.enter_context(TemporaryDirectory(prefix="callsheet-")), "copy")
            with copy.open("wb") as file:
                shutil.copyfileobj(_open_on_s3(name, endpoint_url)[0], file, 1 << 20)
        yield copy


def read_file(name: str, limit: int, endpoint_url: str | None = None) -> bytes:
    """A file's bytes: that of a local path, where `~` is the home folder, or of an `s3://` URL.

    Raises:
        TooLarge: it has more than `limit` bytes.
        InputError: it cannot be read. For a local file the message does not repeat the name.
    """
    if name.startswith("s3://"):
        with s3.errors_as(InputError, name):
            body, size = _open_on_s3(name, endpoint_url)
            with closing(body):
                return _read_to_limit(body, size, limit)
    try:
        with open_regular(Path(with_home(name))) as file:
            return _read_to_limit(file, os.fstat(file.fileno()).st_size, limit)
    except FileNotFoundError:
        raise InputError("there is no such file", hint=_relative_paths()) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"is not a file name: {error}") from None


def _read_to_limit(file: BufferedReader | StreamingBody, declared: int, limit: int) -> bytes:
    """A file's bytes; InputError where there are more than the limit, whatever size was declared.

    `declared` is the size that the disk or the server gives, and 0 if it gives none.
    """
    content = file.read(limit + 1) if declared <= limit else b""
    if declared > limit or len(content) > limit:
        size = f"{declared:,}" if declared > limit else f"more than {limit:,}"
        raise TooLarge(f"has {size} bytes; at most {limit:,} are allowed")
    return content


def _open_on_s3(url: str, endpoint_url: str | None) -> tuple[StreamingBody, int]:
    """An object's body, and its size in bytes, 0 where the server does not declare it."""
    bucket, key = _bucket_and_key(url)
    answer = s3.client(endpoint_url).get_object(Bucket=bucket, Key=key)
    return answer["Body"], answer.get("ContentLength", 0)


def _bucket_and_key(url: str) -> tuple[str, str]:
    bucket, _, key = url.removeprefix("s3://").partition("/")
    if not bucket or not key:
        raise InputError(f"{url}: must look like s3://bucket/key")
    return bucket, key


_TEXT = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json")
_TABLES = (".csv", ".tsv", ".txt")
_PARQUET = (".parquet", ".pq")
_EXCEL = (".xlsx",)
_Types = Mapping[str, pl.DataType | DataTypeClass]
_JSON = (".jsonl", ".ndjson", ".json")


def read_tables(config: Input, endpoint_url: str | None) -> Iterator[Table]:
    """The tables of the batch's files, in order.

    Raises:
        InputError: a file is missing, empty, of an unknown type, in another encoding or broken.
        StorageError: the temporary copy of a file on S3 cannot be written.
    """
    files = find_files(config.source, endpoint_url)
    several = len(files) > 1 or is_glob(config.source)
    for file in files:
        with local_copy(file, endpoint_url) as path:
            table = _read_file(path, file, config, several=several)
        if table.cells.is_empty() and not table.ragged:
            raise InputError(f"{file}: has no rows")
        yield replace(table, file=file, shown=file if len(files) > 1 else None)


def is_batch_file(name: str) -> bool:
    """Whether a file is of a known type, by its name."""
    return _ending(name) in (*_TEXT, *_PARQUET, *_EXCEL)


def _ending(name: str) -> str:
    """A file's type, by its name: `.csv`; of text also where it is compressed."""
    lower = name.lower()
    text = lower.removesuffix(".gz").removesuffix(".zst")
    return PurePath(text if text.endswith(_TEXT) else lower).suffix


def _read_file(path: Path, name: str, config: Input, *, several: bool) -> Table:
    ending = _ending(name)
    if ending not in (*_TEXT, *_PARQUET, *_EXCEL):
        raise InputError(
            f"{name}: is not of a known type; expected {', '.join([*_TEXT, *_PARQUET, *_EXCEL])}, or text as "
            ".gz or .zst",
            hint="Save a list of prompts as .txt, and a workbook of another type (.xls, .ods) as .xlsx. "
            "From Python, any DataFrame "
            "takes the file's place: callsheet.quote(CONFIG, rows=DATAFRAME).",
        )
    _check_settings(name, ending, config)
    if ending in _PARQUET:
        return _read_parquet(path, name, [*mapped(config), *read_by(config)])
    has_header = config.header is None
    if ending in _EXCEL:
        table = workbooks.read_sheet(path, name, config.sheet, needed(config), has_header=has_header)
    else:
        text, note = read_text(path, name, config.encoding)
        table = _read_text(text, name, ending, config, several=several)
        table = _without_comments(replace(table, note=note).noted(table.note), config)
    if ending in _JSON:
        return table
    return without_what_is_no_row(table, name, prompt_name(config.names), has_header=has_header)


def _check_settings(name: str, ending: str, config: Input) -> None:
    """Makes sure that the config says nothing that is for other kinds of files.

    Raises:
        InputError: it does.
    """
    if config.header is not None and ending not in (*_TABLES, *_EXCEL):
        problem, other = "input.header is for tables of text and for workbooks", "input.header=null"
    elif (config.split != "lines" or config.pattern) and (ending != ".txt" or config.delimiter):
        setting, other = _for_prompts(config)
        problem = f"{setting} is for a .txt file without a header"
    else:
        return
    raise InputError(f"{name}: {problem}", hint=f"To read this file with the same config: --set {other}.")


def _for_prompts(config: Input) -> tuple[str, str]:
    """The setting of texts without a header that the config has; and how a command is without it."""
    if config.split != "lines":
        return "input.split", "input.split=lines"
    return "input.pattern", "input.pattern=null"


def _read_text(text: bytes, name: str, ending: str, config: Input, *, several: bool) -> Table:
    if ending in _JSON:
        read = json_files.read_document if ending == ".json" else json_files.read_lines
        return read(text, name, config)
    named = [*mapped(config), *template_columns(config.template)]
    if ending == ".txt" and config.delimiter is None:
        lines = texts.lines_of(text.decode(), config)
        first = next((line for line in lines.values() if line.strip()), "")
        is_table = _has_header(first, named) if config.header is None else any(map(str.isdecimal, named))
        if not is_table:
            return texts.read_prompts(lines, name, config, several=several)
        if config.split != "lines" or config.pattern:
            setting, _ = _for_prompts(config)
            raise InputError(
                f"{name}: is a table, by its first line, and {setting} is for a text without a header",
                hint="With input.header: none, its first line is a prompt.",
            )
    return texts.read_table(
        text,
        name,
        needed=needed(config),
        expected={*named, *COLUMNS},
        delimiter=config.delimiter,
        quote=config.quote,
        comments=config.comments,
        has_header=config.header is None,
    )


def _has_header(first: str, names: Collection[str]) -> bool:
    """Whether the first line of a text names a column, `prompt` or one of these, and is no prompt itself."""
    cells = {cell.strip().strip("\"'") for mark in ("\0", ",", ";", "\t", "|") for cell in first.split(mark)}
    return "prompt" in {cell.lower() for cell in cells} or any(
        name in cells for name in names if not is_a_prompt(name)
    )


def _without_comments(table: Table, config: Input) -> Table:
    """A table of text without the rows whose first cell begins as `input.comments` says."""
    if config.comments is None or not table.cells.width:
        return table
    rows = ~table.cells.to_series(0).fill_null("").str.starts_with(config.comments)
    ragged = tuple(line for line in table.ragged if not line[1].startswith(config.comments))
    return replace(table, cells=table.cells.filter(rows), lines=table.lines.filter(rows), ragged=ragged)


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
        types = _fields(dtype)
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
    cells, images = _paths_of_images(with_fields(cells, wanted))
    if binary := [column.name for column in cells if column.dtype == pl.Binary]:
        uuids = _uuids(path)
        cells = cells.with_columns(_uuid(each) if each in uuids else _text(cells[each]) for each in binary)
    return Table(cells, pl.int_range(1, cells.height + 1, eager=True), name, images=images)


def _paths_of_images(cells: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, frozenset[int]]]:
    """The cells, in which columns of images (structs of bytes and path, or lists of these) are their paths;
    and those columns, with the lines of the rows that have the bytes alone.
    """
    images: dict[str, frozenset[int]] = {}
    for name, dtype in cells.schema.items():
        is_list = isinstance(dtype, pl.List)
        fields = _fields(dtype.inner if isinstance(dtype, pl.List) else dtype)
        if fields.get("bytes") != pl.Binary or "path" not in fields:
            continue
        struct = pl.element() if is_list else pl.col(name)
        path = struct.struct.field("path").cast(pl.String)
        is_bare = path.fill_null("").str.strip_chars().eq("") & struct.struct.field("bytes").is_not_null()
        if is_list:
            path, is_bare = pl.col(name).list.eval(path), pl.col(name).list.eval(is_bare).list.any()
        bare = cells.select(is_bare.fill_null(value=False)).to_series().arg_true()
        images[name] = frozenset((bare + 1).to_list())
        cells = cells.with_columns(path.alias(name))
    return cells, images


def _fields(dtype: pl.DataType | DataTypeClass) -> dict[str, pl.DataType | DataTypeClass]:
    """The fields of a struct, with their types; of any other type none."""
    return {field.name: field.dtype for field in dtype.fields} if isinstance(dtype, pl.Struct) else {}


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
