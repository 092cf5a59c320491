"""The files of a batch (a path, a glob, or the same on S3) as tables; or their images, a row for each.

A new kind of file is one more module that makes a `Table`. Of a folder or a glob of images a row's id
is the image's name, and its prompt may stand in a text file of that name beside it; the images themselves are
looked at while pricing (`pricing/references.py`). Reads only, and does not know what the columns mean. Every
error names the file.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from io import BufferedReader
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import polars as pl

from callsheet import s3
from callsheet.batches import delimited, json_files, lists_of_prompts, workbooks
from callsheet.batches.headers import (
    Table,
    is_a_prompt,
    mapped,
    needed,
    prompt_name,
    read_by,
    template_columns,
    without_what_is_no_row,
)
from callsheet.batches.left_out import NOTHING, StoredFiles, sort_out
from callsheet.batches.parquet import read_parquet
from callsheet.batches.texts import read_text
from callsheet.batches.workbooks import ALL_SHEETS
from callsheet.config.settings import COLUMNS, Input, Settings
from callsheet.errors import InputError, TooLarge
from callsheet.files import open_regular, temporary_file_errors, with_home
from callsheet.plain_text import and_more, counted

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
    addresses = objects(prefix + pattern[: wildcard.start()], endpoint_url)
    keys = [address.removeprefix(prefix) for address in addresses]
    if pattern in keys:  # as on a disk, what has this very name is meant
        return [url]
    # As in a local glob, a '*' stays within its folder.
    depth = pattern.count("/")
    return sorted(prefix + key for key in keys if key.count("/") == depth and fnmatchcase(key, pattern))


def objects(prefix: str, endpoint_url: str | None = None) -> dict[str, int]:
    """The URLs of all objects on S3 that begin so (`s3://bucket/folder/`), sorted, and their sizes in bytes.

    Raises:
        InputError: S3 cannot be read.
    """
    bucket, _, start = prefix.removeprefix("s3://").partition("/")
    with s3.errors_as(InputError, prefix):
        listing = s3.client(endpoint_url).get_paginator("list_objects_v2")
        pages = listing.paginate(Bucket=bucket, Prefix=start)
        contents = [content for page in pages for content in page.get("Contents", ())]
    return dict(sorted((f"s3://{bucket}/{content['Key']}", content["Size"]) for content in contents))


@contextmanager
def local_copy(name: str, endpoint_url: str | None) -> Iterator[Path]:
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


_TABLES = (".csv", ".tsv", ".txt")
_JSON = (".jsonl", ".ndjson", ".json")
_TEXT = (*_TABLES, *_JSON)
_PARQUET = (".parquet", ".pq")
_EXCEL = (".xlsx",)
ENDINGS = (
    *(".png", ".jpg", ".jpeg", ".webp"),  # which the service takes
    *(".avif", ".bmp", ".gif", ".heic", ".heif", ".tif", ".tiff"),
)
"""How the names of images end, in any case."""

FILE = "file"
"""The column with the path or URL of each image."""

_NAMED = 3  # files that are no images
_AT_ONCE = 8  # texts that are read at the same time


def read_tables(settings: Settings, stored: StoredFiles = NOTHING) -> Iterator[Table]:
    """The table of a batch's images, or the tables of its batch files, in order.

    `stored`: what is none of them, wherever it lies.

    Raises:
        InputError: a file is missing, empty, of an unknown type, in another encoding or broken; or no image
            has a prompt.
        StorageError: the temporary copy of a file on S3 cannot be written.
    """
    config, endpoint_url = settings.input, settings.storage.endpoint_url
    listing = _images_or_files(settings, stored)
    if isinstance(listing, _Images):
        yield _table_of_images(listing, config, endpoint_url)
        return
    files, note = listing
    of_several = len(files) > 1 or is_glob(config.source)
    for file in files:
        with local_copy(file, endpoint_url) as path:
            if config.sheet == ALL_SHEETS and _ending(file) in _EXCEL:
                tables = _sheets(path, file, config)
            else:
                tables = {file: _read_file(path, file, config, of_several=of_several)}
        for shown, table in tables.items():
            if table.cells.is_empty() and not table.ragged:
                raise InputError(f"{shown}: has no rows")
            noted = table.noted(note if file == files[0] else "")
            yield replace(noted, file=file, shown=shown if len(files) > 1 or len(tables) > 1 else None)


def _sheets(path: Path, name: str, config: Input) -> dict[str, Table]:
    """The sheets of a workbook that have the columns of the prompts, by how each is named in messages."""
    tables, other_sheets = dict[str, Table](), list[str]()
    for sheet in workbooks.sheet_names(path, name):
        try:
            update = {"sheet": sheet}
            table = _read_file(path, name, config.model_copy(update=update), of_several=False)
        except InputError:  # it is empty, or has no header
            other_sheets.append(sheet)
            continue
        if {column.lower() for column in needed(config)} <= {
            column.lower() for column in table.cells.columns
        }:
            tables[f"{name}, sheet {sheet}"] = table
        else:
            other_sheets.append(sheet)
    if not tables:
        raise InputError(f"{name}: no sheet has the column {needed(config)[0]!r}")
    if other_sheets:
        shown = and_more(other_sheets[:_NAMED], len(other_sheets))
        note = f"{name}: sheets without prompts are left out: {shown}"
        first, table = next(iter(tables.items()))
        tables[first] = table.noted(note)
    return tables


def is_batch_file(name: str) -> bool:
    """Whether a file is of a known type, by its name."""
    return _ending(name) in (*_TEXT, *_PARQUET, *_EXCEL)


def _ending(name: str) -> str:
    """A file's type, by its name: `.csv`; of text also where it is compressed."""
    lower = name.lower()
    text = lower.removesuffix(".gz").removesuffix(".zst")
    return PurePath(text if text.endswith(_TEXT) else lower).suffix


def _read_file(path: Path, name: str, config: Input, *, of_several: bool) -> Table:
    ending = _ending(name)
    if ending not in (*_TEXT, *_PARQUET, *_EXCEL):
        raise InputError(
            f"{name}: is not of a known type; expected {', '.join([*_TEXT, *_PARQUET, *_EXCEL])}, or text as "
            ".gz or .zst",
            hint="Save a list of prompts as .txt, and a workbook of another type (.xls, .ods) as .xlsx. "
            "From Python, any DataFrame takes the file's place: callsheet.quote(CONFIG, rows=DATAFRAME).",
        )
    problem = override = ""
    if config.header is not None and ending not in (*_TABLES, *_EXCEL):
        problem, override = "input.header is for tables of text and for workbooks", "input.header=null"
    elif config.split != "lines" and (ending != ".txt" or config.delimiter):
        problem, override = "input.split is for a .txt file without a header", "input.split=lines"
    if problem:
        hint = f"To read this file with the same config: --set {override}."
        raise InputError(f"{name}: {problem}", hint=hint)
    if ending in _PARQUET:
        return read_parquet(path, name, [*mapped(config), *read_by(config)])
    has_header = config.header is None
    if ending in _EXCEL:
        table = workbooks.read_sheet(path, name, config.sheet, needed(config), has_header=has_header)
    else:
        text, note = read_text(path, name, config.encoding)
        table = _read_text(text, name, ending, config, of_several=of_several)
        table = _without_comments(replace(table, note=note).noted(table.note), config)
    if ending in _JSON:
        return table
    return without_what_is_no_row(table, name, prompt_name(config.names), has_header=has_header)


def _read_text(text: bytes, name: str, ending: str, config: Input, *, of_several: bool) -> Table:
    if ending in _JSON:
        read = json_files.read_document if ending == ".json" else json_files.read_lines
        return read(text, name, config)
    names = [*mapped(config), *template_columns(config.template)]
    if ending == ".txt" and config.delimiter is None:
        lines = lists_of_prompts.lines_of(text.decode(), config)
        first = next((line for line in lines.values() if line.strip()), "")
        is_table = _has_header(first, names) if config.header is None else any(map(str.isdecimal, names))
        if not is_table:
            return lists_of_prompts.read_prompts(lines, name, config, of_several=of_several)
        if config.split != "lines":
            problem = "is a table, by its first line, and input.split is for a text without a header"
            hint = "With input.header: none, its first line is a prompt."
            raise InputError(f"{name}: {problem}", hint=hint)
    return delimited.read_table(
        text,
        name,
        needed=needed(config),
        expected={*names, *COLUMNS},
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
    are_comments = table.cells.to_series(0).fill_null("").str.starts_with(config.comments)
    ragged = tuple(line for line in table.ragged if not line[1].startswith(config.comments))
    return replace(table.without(are_comments), ragged=ragged)


# ---- images


@dataclass(frozen=True, slots=True)
class _Images:
    """Images, the text file of each that has one, other files, the folder that they are below, and a note."""

    images: Sequence[str]
    prompts: Mapping[str, str]
    other_files: Sequence[str]
    folder: str
    note: str


def names_images(settings: Settings) -> bool:
    """Whether `input.path` is a folder or a glob of images, or one image.

    Raises:
        InputError: the disk or S3 cannot be read, or there is no such file.
    """
    return isinstance(_images_or_files(settings, NOTHING), _Images)


def versions(settings: Settings, stored: StoredFiles = NOTHING) -> list[list[str]]:
    """What `read_tables` reads, as texts of which one is another where it may read something else: each file
    with its sha256, or its ETag on S3; an image by its name alone, for its bytes are read later; and the note
    of what is left out.

    Raises:
        InputError: as there.
        OSError: a file cannot be read.
    """
    endpoint_url = settings.storage.endpoint_url
    listing = _images_or_files(settings, stored)
    if not isinstance(listing, _Images):
        files, note = listing
        return [[note], *([file, _version(file, endpoint_url)] for file in files)]
    texts = [[text, _version(text, endpoint_url)] for text in listing.prompts.values()]
    return [[listing.note], [*listing.other_files], *([image, ""] for image in listing.images), *texts]


def _version(name: str, endpoint_url: str | None) -> str:
    if not name.startswith("s3://"):
        with Path(name).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    with s3.errors_as(InputError, name):
        return s3.state_of(name, endpoint_url).etag


def is_image(name: str) -> bool:
    """Whether a file is an image, by its name."""
    return name.lower().endswith(ENDINGS)


def _images_or_files(settings: Settings, stored: StoredFiles) -> _Images | tuple[list[str], str]:
    """The images that `input.path` names; or its batch files, and a note.

    Of a folder and of a glob, what is no input is left out (`left_out.py`); a file that is named is read.

    Raises:
        InputError: there are none, or the disk or S3 cannot be read.
    """
    path, endpoint_url = settings.input.source, settings.storage.endpoint_url
    is_folder = _is_folder(path)
    has_several = is_folder or is_glob(path)
    if not has_several and not is_image(path):
        return find_files(path, endpoint_url), ""
    names, around, folder = _listed(path, endpoint_url, is_folder=is_folder)
    note = ""
    if has_several:
        names, note = _inputs(names, around, folder, settings, stored, is_folder=is_folder)
    images, existing = sorted(filter(is_image, names)), {*around}
    prompts = {image: text for image in images if (text := _text_of(image)) in existing}
    other_files = sorted({*names} - {*images, *prompts.values()})
    are_batch_files = not is_folder and not is_image(path) and any(map(is_batch_file, other_files))
    if images and not are_batch_files:
        return _Images(images, prompts, other_files, folder, note)
    return find_files(path, endpoint_url) if is_folder else sorted(names), note


def _listed(
    path: str, endpoint_url: str | None, *, is_folder: bool
) -> tuple[Collection[str], Collection[str], str]:
    """The files of a folder, a glob or an image's name; all files around them, on S3 with their sizes; and
    the folder that they are below.
    """
    if is_folder:
        if path.startswith("s3://"):
            files: Collection[str] = objects(path, endpoint_url)
            return files, files, path.rstrip("/")
        files = [*_walk(path)]
        return files, files, str(Path(path))
    names, folder = find_files(path, endpoint_url), _WILDCARD.split(path)[0].rpartition("/")[0]
    has_bucket = folder.startswith("s3://")  # and no wildcard in its name
    return names, objects(f"{folder}/", endpoint_url) if has_bucket else _around(names, folder), folder


def _inputs(
    names: Collection[str],
    around: Collection[str],
    folder: str,
    settings: Settings,
    stored: StoredFiles,
    *,
    is_folder: bool,
) -> tuple[Collection[str], str]:
    """Those of the files of a folder or a glob that are input, and a note of what is left out.

    Raises:
        InputError: there are none.
    """
    path, endpoint_url = settings.input.source, settings.storage.endpoint_url

    def is_stored(name: str) -> bool:
        with suppress(OSError):  # reading the batch says why
            size = around[name] if isinstance(around, dict) else Path(name).stat().st_size
            if size in stored:
                with local_copy(name, endpoint_url) as copy, copy.open("rb") as file:
                    return hashlib.file_digest(file, "sha256").hexdigest() in stored[size]
        return False

    is_wanted = is_image if is_folder else lambda name: is_image(name) or is_batch_file(name)
    sorted_out = sort_out(names, folder, settings, around=around, is_wanted=is_wanted, is_stored=is_stored)
    inputs, note = sorted_out.inputs, sorted_out.note
    if sorted_out.has_left_out and not any(map(is_wanted, inputs)):
        hint = "A file that is named is read, and with input.kept or input.stored what another batch has."
        raise InputError(f"{path}: {note}; there is no other", hint=hint)
    if not is_folder and not inputs:
        raise InputError(f"{path}: no file matches", hint="Hidden files do not.")
    return inputs, note


def _around(names: Iterable[str], folder: str) -> list[str]:
    """The files of the folders of these files, and of those above them up to `folder`."""
    folders = {name.rpartition("/")[0] for name in names}
    new = folders
    while new := {parent.rpartition("/")[0] for parent in new - {"", folder}} - folders:
        folders |= new
    files = list[str]()
    for parent in folders:
        with suppress(OSError):  # what may not be listed
            files += (f"{parent}/{path.name}" if parent else path.name for path in Path(parent).iterdir())
    return files


def _is_folder(path: str) -> bool:
    if path.startswith("s3://"):
        return path.endswith("/")
    with suppress(OSError, ValueError):  # reading it says why
        return Path(path).is_dir()
    return False


def _walk(folder: str) -> Iterator[str]:
    """The files of a folder and of those below it, without hidden folders."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (str(Path(parent, name)) for name in names)


def _text_of(image: str) -> str:
    """The text file with an image's prompt, which stands beside it."""
    return f"{image.rpartition('.')[0]}.txt"


def _table_of_images(listing: _Images, config: Input, endpoint_url: str | None) -> Table:
    """The rows of images, with the columns `id`, `prompt` (where an image has a text file) and `FILE`. An id
    is the image's name without its ending, with its folder below the given one.
    """

    def read(text: str) -> str | None:
        with local_copy(text, endpoint_url) as path:
            return read_text(path, text, config.encoding)[0].decode().strip() or None

    with ThreadPoolExecutor(_AT_ONCE, "texts") as readers:
        prompts = dict(zip(listing.prompts, readers.map(read, listing.prompts.values()), strict=True))
    has_prompt = bool(config.template) or "prompt" in config.configured
    if not has_prompt and not any(prompts.values()):
        raise InputError(
            f"{config.source}: {counted(len(listing.images), 'image')}, and no prompt",
            hint='Give one for all in input.defaults ({prompt: "..."}) or input.template, or write that of '
            "each image into a text file beside it: cup.jpg, cup.txt.",
        )
    below = "" if listing.folder in ("", ".") else f"{listing.folder}/"
    ids = [str(PurePath(image.removeprefix(below)).with_suffix("")) for image in listing.images]
    columns = {"id": ids, "prompt": [prompts.get(image) for image in listing.images], FILE: listing.images}
    cells = pl.DataFrame(columns, dict.fromkeys(columns, pl.String))
    lines = pl.int_range(1, cells.height + 1, eager=True)
    lacking = pl.repeat(False, cells.height, eager=True) if has_prompt else cells["prompt"].is_null()
    ragged = tuple(
        (line, image, f"{image} has no prompt: there is no text in {text}, and none in the config")
        for line, image in zip(lines.filter(lacking), cells[FILE].filter(lacking), strict=True)
        if (text := PurePath(_text_of(image)).name)
    )
    note, count = "", len(listing.other_files)
    if count:
        names = [name.removeprefix(f"{listing.folder}/") for name in listing.other_files[:_NAMED]]
        are = "is no image, and left out" if count == 1 else "are no images, and left out"
        note = f"{counted(count, 'file')} of {listing.folder or '.'} {are}: {and_more(names, count)}"
    return Table(
        cells=cells.filter(~lacking) if prompts else cells.drop("prompt"),
        lines=lines.filter(~lacking),
        header=config.source,
        ragged=ragged,
        file=config.source,
        note=note,
        placed=FILE,
    ).noted(listing.note)
