"""CSV and TSV as people really have them -> tables of text, with each row's line in the file.

Reads a block of lines at a time. A block that is plainly regular goes through polars' own reader; any other
(ragged or blank lines, a quote where none belongs) through Python's `csv`, whose reading is the reference.
Knows nothing of what the columns mean. A line break inside a quoted cell reads as one `\\n`.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Literal, TextIO

import polars as pl

from callsheet.batches import dialects
from callsheet.batches.dialects import Dialect
from callsheet.errors import InputError

_BLOCK = 1 << 22
"""Characters of a block; with the frames made from them, some ten megabytes."""

_LONGEST_CELL = 1_000
"""Lines that a quoted cell may go on beyond its block before polars is out of the question."""

_LARGEST_CELL = 64 << 20
_LINE = "\0line"  # no header has such a column


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a file.

    Attributes:
        cells: as the file has them.
        lines: the line on which each row begins.
        header: the header's place, for messages.
        ragged: lines that are no rows: the line's number, its text, and why.
    """

    cells: pl.DataFrame
    lines: pl.Series
    header: str
    ragged: tuple[tuple[int, str, str], ...] = ()


def read(
    path: Path,
    name: str,
    *,
    delimiter: str | None,
    encoding: str | None,
    wanted: Collection[str],
    quote: str | None = None,
) -> Iterator[Table]:
    """Reads one file, a block of lines at a time. Blank lines, and lines with delimiters only, are no rows.

    Args:
        path: the local file.
        name: what people call it; its ending says whether it is compressed.
        delimiter: None: the one that finds most of `wanted` in the header, then most columns.
        encoding: where no byte order mark says it; None: UTF-8.
        wanted: columns that the header should have.
        quote: None: found with the delimiter.

    Yields:
        All columns as text; a line with more or fewer cells than the header is ragged.

    Raises:
        InputError: unreadable, empty, not of that encoding, broken quoting, a column named twice.
    """
    csv.field_size_limit(_LARGEST_CELL)  # a data URL is a large cell
    with dialects.explained(path, name, encoding):
        dialect = dialects.sniff(
            path, name, delimiter=delimiter, quote=quote, encoding=encoding, wanted=wanted
        )
        if dialect.delimiter == "\t" and quote is None and _quotes_are_letters(path, dialect):
            dialect = replace(dialect, quote=None)
        with dialects.text(path, name, dialect.encoding) as text:
            yield from _tables(text, dialect)


def _quotes_are_letters(path: Path, dialect: Dialect) -> bool:
    """Whether a quote in a file of tabs is a letter like any other, and not a spreadsheet's.

    It is where every line has its cells without any quoting, and with quoting the file would be broken or
    lines would melt into one.
    """
    with dialects.text(path, dialect.name, dialect.encoding) as text:
        quote, last, begins = str(dialect.quote), "\n", False
        while not begins and (block := text.read(_BLOCK)):
            seen = last + block
            begins, last = f"\n{quote}" in seen or f"\t{quote}" in seen, block[-1]
    if not begins:
        return True
    width, rows, ragged = _count(path, replace(dialect, quote=None))
    if ragged:
        return False
    try:
        _, quoted, ragged = _count(path, dialect)
    except InputError:
        return True
    return width > 1 and (quoted != rows or ragged > 0)


def _count(path: Path, dialect: Dialect) -> tuple[int, int, int]:
    """Cells in the header, whole rows below it, and ragged ones."""
    rows = ragged = 0
    with dialects.text(path, dialect.name, dialect.encoding) as text:
        records = (cells for _, _, cells in _records(islice(text, dialect.above, None), 0, dialect))
        width = len(next(records, []))
        for cells in records:
            rows += len(cells) == width and any(cells)
            ragged += len(cells) != width
    return width, rows, ragged


def _tables(text: TextIO, dialect: Dialect) -> Iterator[Table]:
    above = list(islice(text, dialect.above))
    at, end, header = next(_records(iter(text.readline, ""), len(above), dialect), (1, 0, []))
    if not header:
        raise InputError(f"{dialect.name}: is empty")
    where = f"{dialect.name}, line {at}"
    columns = columns_of(header, where)
    while block := _block(text, dialect):
        table, end = _regular(block, end, columns, dialect) or _irregular(block, text, end, columns, dialect)
        yield replace(table, header=where)


def _block(text: TextIO, dialect: Dialect) -> bytes:
    """Whole lines as UTF-8; and where quotes are regular, whole records."""
    block = (text.read(_BLOCK) + text.readline()).encode()
    if dialect.quote and block.count(dialect.quote.encode()) % 2:
        lines = []
        for line in islice(iter(text.readline, ""), _LONGEST_CELL):
            lines.append(line)
            if line.count(dialect.quote) % 2:
                break
        block += "".join(lines).encode()
    return block


def _regular(block: bytes, above: int, columns: Sequence[str], dialect: Dialect) -> tuple[Table, int] | None:
    """A block of records that are beyond doubt, read by polars, and its last line; None where there is doubt.

    Beyond doubt means: outside of quotes there are exactly as many delimiters as the lines must have (were
    lines ragged, one would have too many, and that polars refuses), and polars took each quote for what it
    is, the begin or end of a cell or one of two within it: what it took for letters, delimiters, line ends
    and such quotes adds up to the block's length.

    Args:
        block: whole lines.
        above: how many lines of the file come before it.
        columns: the header.
        dialect: the file's.
    """
    delimiter, quote = dialect.delimiter.encode(), (dialect.quote or "").encode()
    if len(delimiter) > 1 or len(quote) > 1 or block.startswith(codecs.BOM_UTF8):
        return None  # polars takes single bytes, and would pass over the mark
    if not block.endswith(b"\n"):
        block += b"\n"  # a last line without its end counts as every other, with the delimiters on it
    marks = block.translate(None, bytes({*range(256)} - {*delimiter, *quote, *b"\n"}))
    parts = marks.split(quote) if quote else [marks]
    outside = b"".join(parts[::2])
    rows = outside.count(b"\n")
    if len(parts) % 2 == 0 or outside.count(delimiter) != rows * (len(columns) - 1):
        return None
    names = [column or f"\0{at}" for at, column in enumerate(columns)]
    try:
        cells = pl.read_csv(
            block,
            has_header=False,
            schema=dict.fromkeys(names, pl.String),
            separator=dialect.delimiter,
            quote_char=dialect.quote,
            empty_string_is_null=False,
        )
    except pl.exceptions.PolarsError:
        return None
    doubled = parts[2:-1:2].count(b"")
    quotes = 2 * (len(parts) // 2 - doubled) + doubled
    letters = cells.select(pl.sum_horizontal(pl.all().str.len_bytes().sum())).item()
    if cells.height != rows or letters + len(outside) + quotes != len(block):
        return None
    lines = pl.int_range(above + 1, above + 1 + rows, eager=True)
    ends = marks.count(b"\n")
    if ends != outside.count(b"\n"):
        breaks = cells.select(pl.sum_horizontal(pl.all().str.count_matches("\n", literal=True))).to_series()
        lines += breaks.cast(pl.Int64).cum_sum().shift(1, fill_value=0)
    # A column without a name cannot be meant by anything, and is left out.
    named = [column for column in columns if column]
    said = pl.any_horizontal((pl.all() if len(columns) > 1 else pl.all().str.strip_chars()) != "")
    frame = cells.with_columns(lines.alias(_LINE)).filter(cells.select(said).to_series())
    return Table(frame.select(named), frame[_LINE], ""), above + ends


def _irregular(
    block: bytes, text: TextIO, above: int, columns: Sequence[str], dialect: Dialect
) -> tuple[Table, int]:
    """A block read by `csv`, with the lines that its last record takes beyond it; and its last line."""
    characters = block.decode()
    lines = io.StringIO(characters, newline="\n")
    whole: list[tuple[int, list[str]]] = []
    ragged: list[tuple[int, str, str]] = []
    last = above
    for begins, ends, cells in _records(chain(lines, iter(text.readline, "")), above, dialect):
        last = ends
        if len(cells) != len(columns):
            reason = f"the line has {len(cells)} cells, and the header has {len(columns)}"
            ragged.append((begins, " ... ".join(cells), reason))
        elif any(cells):
            whole.append((begins, cells))
        if lines.tell() == len(characters):
            break
    return Table(*_frame(whole, columns), "", tuple(ragged)), last


def _frame(
    records: Sequence[tuple[int, list[str]]], columns: Sequence[str]
) -> tuple[pl.DataFrame, pl.Series]:
    """Records as columns of text, and their lines."""
    by_column = list(zip(*(cells for _, cells in records), strict=True)) or [()] * len(columns)
    series = [
        pl.Series(name, values, pl.String) for name, values in zip(columns, by_column, strict=True) if name
    ]
    return pl.DataFrame(series), pl.Series([line for line, _ in records], dtype=pl.Int64)


def _records(lines: Iterable[str], above: int, dialect: Dialect) -> Iterator[tuple[int, int, list[str]]]:
    """Each record with the lines on which it begins and ends; blank lines are passed over.

    Args:
        lines: takes no more of them than a record needs.
        above: how many lines of the file come before.
        dialect: the file's.
    """
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if dialect.quote else csv.QUOTE_NONE
    reader = csv.reader(
        lines, delimiter=dialect.delimiter, quotechar=dialect.quote, quoting=quoting, strict=True
    )
    begins = above + 1
    try:
        for cells in reader:
            end = above + reader.line_num
            if len(cells) > 1 or (cells and cells[0].strip()):
                yield begins, end, cells
            begins = end + 1
    except csv.Error as error:
        mark = dialect.quote
        raise InputError(
            f"{dialect.name}, line {begins}: broken quoting: {error}",
            hint=f"A cell that begins with {mark} ends with {mark}; a {mark} inside it is written twice.",
        ) from None


def columns_of(header: Sequence[str], where: str) -> list[str]:
    """The header's cells as names.

    Raises:
        InputError: two are the same.
    """
    columns = [cell.strip() for cell in header]
    twice = next((each for at, each in enumerate(columns) if each and each in columns[:at]), None)
    if twice:
        raise InputError(f"{where}: the column {twice!r} is named twice")
    return columns
