"""CSV and TSV as people really have them -> a table of text, with each row's line in the file.

Knows the dialects (delimiter, encoding, byte order mark, line ends, quoted newlines, blank and ragged lines,
`.gz` and `.zst`) and nothing of what the columns mean. A line break inside a quoted cell reads as one `\\n`,
whichever line ends the file has.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

import polars as pl

from callsheet.errors import InputError
from callsheet.records import Reject
from callsheet.rows import shortened

_DELIMITERS = [",", ";", "\t", "|"]
_CHUNK = 50_000
_LARGEST_CELL = 64 << 20
_LINE = "\0line"  # no header has such a column


@dataclass(frozen=True, slots=True)
class Table:
    """A file's rows: `cells` as the file has them, the line on which each begins, and the header's place."""

    cells: pl.DataFrame
    lines: pl.Series
    header: str
    rejects: tuple[Reject, ...] = ()


def read(
    path: Path, name: str, *, delimiter: str | None, encoding: str | None, wanted: Collection[str]
) -> Table:
    """Reads one file. Blank lines, and lines with delimiters only, are no rows.

    Args:
        path: the local file.
        name: what people call it; its ending says whether it is compressed.
        delimiter: None: the one that finds most of `wanted` in the header, then most columns.
        encoding: None: by the byte order mark, otherwise UTF-8.
        wanted: columns that the header should have.

    Returns:
        All columns as text; a line with more or fewer cells than the header is a reject.

    Raises:
        InputError: unreadable, empty, not of that encoding, broken quoting, a column named twice.
    """
    csv.field_size_limit(_LARGEST_CELL)  # a data URL is a large cell
    found = "utf-8-sig"
    try:
        found = _encoding(path, name, encoding)
        with _text(path, name, found) as lines:
            first = next((line for line in lines if line.strip()), "")
        delimiter = delimiter or _delimiter(first, name, wanted)

        def table(quoting: int) -> Table:
            with _text(path, name, found) as lines:
                return _table(lines, name, delimiter, quoting)

        return _tabbed(table) if delimiter == "\t" else table(csv.QUOTE_MINIMAL)
    except UnicodeError as error:
        raise _not_of_encoding(path, name, found, error) from None
    except (EOFError, gzip.BadGzipFile, zlib.error, pl.exceptions.PolarsError) as error:
        raise InputError(f"{name}: cannot be unpacked as UTF-8 text: {error}") from None
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror or error}") from None


def _tabbed(table: Callable[[int], Table]) -> Table:
    """Reads a file of tabs, in which a quote may be a spreadsheet's or a letter like any other.

    It is a letter where every line has its cells without any quoting, and with quoting the file would be
    broken or lines would melt into one.
    """
    plain = table(csv.QUOTE_NONE)
    if plain.rejects:
        return table(csv.QUOTE_MINIMAL)
    starts = plain.cells.select(pl.any_horizontal(pl.all().str.starts_with('"')).any()).item()
    if not starts and not any(column.startswith('"') for column in plain.cells.columns):
        return plain
    try:
        quoted = table(csv.QUOTE_MINIMAL)
    except InputError:
        return plain
    melted = quoted.cells.height != plain.cells.height and plain.cells.width > 1
    return plain if melted else quoted


def _table(lines: Iterator[str], name: str, delimiter: str, quoting: int) -> Table:
    records = _records(lines, name, delimiter, quoting)
    at, header = next(records, (1, []))
    if not header:
        raise InputError(f"{name}: is empty")
    where = f"{name}, line {at}"
    columns = _columns(header, where)
    frames = [_frame([], columns)]
    rejects: list[Reject] = []
    while chunk := list(islice(records, _CHUNK)):
        rejects += [_ragged(line, cells, len(columns)) for line, cells in chunk if len(cells) != len(columns)]
        whole = [(line, cells) for line, cells in chunk if len(cells) == len(columns) and any(cells)]
        frames.append(_frame(whole, columns))
    table = pl.concat(frames)
    return Table(table.drop(_LINE), table[_LINE], where, tuple(rejects))


def _frame(records: Sequence[tuple[int, list[str]]], columns: Sequence[str]) -> pl.DataFrame:
    """Records as columns of text. A column without a name cannot be meant by anything, and is left out."""
    by_column = list(zip(*(cells for _, cells in records), strict=True)) or [()] * len(columns)
    series = [
        pl.Series(name, values, pl.String) for name, values in zip(columns, by_column, strict=True) if name
    ]
    return pl.DataFrame([pl.Series(_LINE, [line for line, _ in records], pl.Int64), *series])


def _records(
    lines: Iterator[str], name: str, delimiter: str, quoting: int
) -> Iterator[tuple[int, list[str]]]:
    """Each record with the line on which it begins; blank lines are passed over."""
    reader = csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)  # type: ignore[arg-type]  # a name of csv
    begins = 1
    try:
        for cells in reader:
            if len(cells) > 1 or (cells and cells[0].strip()):
                yield begins, cells
            begins = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{name}, line {begins}: broken quoting: {error}",
            hint='A cell that begins with " ends with "; a " inside it is written twice.',
        ) from None


def _columns(header: Sequence[str], where: str) -> list[str]:
    columns = [cell.strip() for cell in header]
    twice = next((each for at, each in enumerate(columns) if each and each in columns[:at]), None)
    if twice:
        raise InputError(f"{where}: the column {twice!r} is named twice")
    return columns


def _ragged(line: int, cells: Sequence[str], width: int) -> Reject:
    reason = f"the line has {len(cells)} cells, and the header has {width}"
    return Reject(line, "", shortened(" ... ".join(cells)), reason)


def _delimiter(header: str, name: str, wanted: Collection[str]) -> str:
    """The delimiter that finds most of the wanted columns in the header, and then most columns at all.

    Where none is found the file has one column, and unless it is a .csv its commas are part of the text.
    """
    likeliest = [","] if ".csv" in name.lower() else ["\t"]

    def found(delimiter: str) -> tuple[int, int]:
        cells = [cell.strip() for cell in next(csv.reader([header], delimiter=delimiter))]
        return len(set(wanted) & set(cells)), len(cells)

    return max(likeliest + _DELIMITERS, key=found)


def _encoding(path: Path, name: str, declared: str | None) -> str:
    """The declared encoding, otherwise what the byte order mark says, otherwise UTF-8."""
    with _open(path, name) as file:
        start = file.read(4)
    if declared is None and start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return "utf-8-sig" if declared in {None, "utf-8"} else str(declared)


def _open(path: Path, name: str) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if name.lower().endswith(".gz") else path.open("rb")


@contextmanager
def _text(path: Path, name: str, encoding: str) -> Iterator[Iterator[str]]:
    """The file's lines, unpacked and decoded."""
    if name.lower().endswith(".zst"):
        if encoding != "utf-8-sig":
            raise InputError(f"{name}: a .zst file is read as UTF-8 only; unpack it, or pack it as .gz")
        # Python 3.11 has no zstd of its own; polars has, and gives the lines.
        yield (f"{line}\n" for batch in pl.scan_lines(path).collect_batches() for line in batch["line"])
        return
    with _open(path, name) as file, io.TextIOWrapper(file, encoding=encoding) as text:
        yield text


def _not_of_encoding(path: Path, name: str, encoding: str, error: UnicodeError) -> InputError:
    hint = "Save it as UTF-8, or say in input.encoding what it is, for example cp1252."
    if encoding != "utf-8-sig":
        return InputError(f"{name}: is not {encoding} text: {error}", hint=hint)
    with _open(path, name) as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError as bad:
                return InputError(
                    f"{name}, line {number}: is not UTF-8 (byte 0x{line[bad.start]:02X})", hint=hint
                )
    return InputError(f"{name}: is not UTF-8: {error}", hint=hint)
