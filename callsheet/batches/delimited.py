"""CSV and TSV files -> tables of text, with the line of the file on which each row begins.

A file is read a block of lines at a time. A block that is plainly regular is parsed by polars, which is
fast. Any other block (lines with too many or too few cells, quotes in unexpected places) is parsed by
Python's `csv`; where polars is used, the result is the same. Does not know what the columns mean. A
line break inside a quoted cell is read as one `\\n`.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, Literal

import polars as pl

from callsheet.batches import dialects
from callsheet.batches.dialects import Dialect
from callsheet.errors import InputError

_BLOCK = 5 << 20
"""Bytes in a block. With the tables made from it, a block takes some ten megabytes of memory."""

_LINES_BEYOND = 1_000
"""Lines that are read beyond a block to find the end of its last quoted cell."""

_LARGEST_CELL = 64 << 20
"""Characters in a cell; an image as a data URL has millions."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a file.

    Attributes:
        cells: the cells, in the file's columns.
        lines: the line on which each row begins.
        header: where the header is, for messages: the file and the line.
        ragged: lines with more or fewer cells than the header: the line's number, its text and the reason.
    """

    cells: pl.DataFrame
    lines: pl.Series
    header: str
    ragged: tuple[tuple[int, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Layout:
    """What all blocks of a file have in common: the dialect, the columns, and where the header is."""

    dialect: Dialect
    columns: Sequence[str]
    header: str


@dataclass(frozen=True, slots=True)
class _Block:
    """Whole lines of a file.

    Attributes:
        text: the lines; empty at the file's end.
        structural: the delimiters, quotes and line ends among their bytes.
    """

    text: bytes
    structural: bytes


def read_tables(
    path: Path,
    name: str,
    *,
    delimiter: str | None,
    encoding: str | None,
    expected: Collection[str],
    quote: str | None = None,
) -> Iterator[Table]:
    """Reads one file, a block of lines at a time. Blank lines, and lines of delimiters only, are left out.

    Args:
        path: the local file.
        name: the file's name in messages; its extension says whether the file is compressed.
        delimiter: None: the one that finds most of `expected` in the header, then most columns.
        encoding: used where the file has no byte order mark; None: UTF-8.
        expected: columns that the header should have.
        quote: None: found with the delimiter.

    Yields:
        All columns as text.

    Raises:
        InputError: unreadable, empty, in another encoding, wrongly quoted, or two columns have one name.
    """
    csv.field_size_limit(_LARGEST_CELL)
    with dialects.reading_errors(path, name, encoding):
        dialect = dialects.detect(
            path, name, delimiter=delimiter, quote=quote, encoding=encoding, expected=expected
        )
        if dialect.delimiter == "\t" and quote is None and _quotes_are_text(path, dialect):
            dialect = replace(dialect, quote=None)
        with dialects.open_lines(path, name, dialect.encoding) as file:
            yield from _tables(file, dialect)


def _tables(file: BinaryIO, dialect: Dialect) -> Iterator[Table]:
    lines_above = len(list(islice(file, dialect.lines_above)))
    first_record = next(_records(file, lines_above, dialect), None)
    if first_record is None:
        raise InputError(f"{dialect.name}: is empty")
    line, last_line, cells = first_record
    header = f"{dialect.name}, line {line}"
    layout = _Layout(dialect, column_names(cells, header), header)
    block = _next_block(b"", file, dialect, _BLOCK // 10)  # small: until it is read nothing else can be done
    with ThreadPoolExecutor(1, "parse") as parser:
        while block.text:
            following, table = _Block(b"", b""), None
            if structure := _structure(block, layout):
                parsing = parser.submit(_parse_regular, block.text, structure, last_line, layout)
                following = _next_block(b"", file, dialect, _BLOCK)  # is read while polars parses
                table = parsing.result()
            if structure and table:
                last_line += structure.lines
            else:
                table, last_line, rest = _parse_any(block.text, following.text, file, last_line, layout)
                following = _next_block(rest, file, dialect, _BLOCK)
            yield table
            block = following


def _next_block(beginning: bytes, file: BinaryIO, dialect: Dialect, size: int) -> _Block:
    """The next lines, about `size` bytes, to the end of the last quoted cell if it is not far away."""
    text = beginning + file.read(max(0, size - len(beginning))) + file.readline()
    structural = _structural(text, dialect)
    quote = (dialect.quote or "").encode()
    if quote and structural.count(quote) % 2:  # a quoted cell goes on
        lines = []
        for line in islice(file, _LINES_BEYOND):
            lines.append(line)
            if line.count(quote) % 2:
                break
        beyond = b"".join(lines)
        text, structural = text + beyond, structural + _structural(beyond, dialect)
    if text and not text.endswith(b"\n"):
        text, structural = text + b"\n", structural + b"\n"
    return _Block(text, structural)


def _structural(text: bytes, dialect: Dialect) -> bytes:
    kept = f"{dialect.delimiter}{dialect.quote or ''}\n".encode()
    return text.translate(None, bytes({*range(256)} - {*kept}))


# ---- a regular block: polars


@dataclass(frozen=True, slots=True)
class _Structure:
    """The bytes of a regular block that are not in its cells, counted without parsing it.

    Attributes:
        records: line ends outside of quotes.
        lines: all line ends.
        separators: line ends and delimiters outside of quotes.
        quotes: quotes that enclose a cell, and the first of each two that stand for one in it.
    """

    records: int
    lines: int
    separators: int
    quotes: int


def _structure(block: _Block, layout: _Layout) -> _Structure | None:
    """Counts the structural bytes of a block.

    Returns:
        None where the block is not regular: a quoted cell has no end, or goes on behind it; there are more or
        fewer delimiters outside of quotes than the records need; or polars would not see the bytes that `csv`
        sees.
    """
    delimiter, quote = layout.dialect.delimiter.encode(), (layout.dialect.quote or "").encode()
    if len(delimiter) > 1 or len(quote) > 1 or block.text.startswith(codecs.BOM_UTF8):
        return None  # polars takes single bytes only, and leaves out a byte order mark
    pieces = block.structural.split(quote) if quote else [block.structural]
    if len(pieces) % 2 == 0:
        return None
    outside = b"".join(pieces[::2])  # every other piece is inside quotes
    records = outside.count(b"\n")
    if len(outside) != records * len(layout.columns):  # the others are delimiters, one fewer than columns
        return None
    doubled = pieces[2:-1:2].count(b"")  # nothing is between the two quotes
    if doubled and block.text.split(quote)[2:-1:2].count(b"") != doubled:
        return None  # there is text between two of them, behind the end of a cell: polars drops such quotes
    return _Structure(records, block.structural.count(b"\n"), len(outside), len(pieces) - 1 - doubled)


def _parse_regular(block: bytes, structure: _Structure, lines_above: int, layout: _Layout) -> Table | None:
    """Parses a block with polars, and makes sure that the result is what `csv` would give.

    That is certain when polars finds as many records as there are line ends outside of quotes, and all bytes
    of the block are accounted for: those of the cells, the separators and the quotes. If one record were too
    short, another would be too long, and polars refuses that.

    Args:
        block: whole lines.
        structure: the block's.
        lines_above: how many lines of the file come before the block.
        layout: the file's.

    Returns:
        None where `csv` has to parse the block.
    """
    cells = _parse_with_polars(block, layout)
    if cells is None or cells.height != structure.records:
        return None
    text = cells.select(pl.sum_horizontal(pl.all().str.len_bytes().sum())).item()
    if text + structure.separators + structure.quotes != len(block):
        return None
    lines = _line_numbers(cells, lines_above, structure)
    content = pl.all() if len(layout.columns) > 1 else pl.all().str.strip_chars()
    if (cells.select(content).to_series() == "").any():  # the first cell of a row
        blank = cells.select(pl.all_horizontal(content == "")).to_series()
        cells, lines = cells.filter(~blank), lines.filter(~blank)
    named = [pl.col(str(at)).alias(name) for at, name in enumerate(layout.columns) if name]
    return Table(cells.select(named), lines, layout.header)


def _parse_with_polars(block: bytes, layout: _Layout) -> pl.DataFrame | None:
    """All cells as text, in columns named `0`, `1`, ...; None where polars refuses the block."""
    try:
        return pl.read_csv(
            block,
            has_header=False,
            schema={str(at): pl.String for at in range(len(layout.columns))},
            separator=layout.dialect.delimiter,
            quote_char=layout.dialect.quote,
            empty_string_is_null=False,
        ).rechunk()
    except pl.exceptions.PolarsError:
        return None


def _line_numbers(cells: pl.DataFrame, lines_above: int, structure: _Structure) -> pl.Series:
    """The line on which each record begins."""
    lines = pl.int_range(lines_above + 1, lines_above + 1 + cells.height, eager=True)
    if structure.lines == structure.records:
        return lines
    breaks = cells.select(pl.sum_horizontal(pl.all().str.count_matches("\n", literal=True))).to_series()
    return lines + breaks.cast(pl.Int64).cum_sum().shift(1, fill_value=0)


# ---- any block: csv


def _parse_any(
    block: bytes, following: bytes, file: BinaryIO, lines_above: int, layout: _Layout
) -> tuple[Table, int, bytes]:
    """Parses a block with `csv`, and reads on where its last record goes beyond the block.

    Args:
        block: whole lines.
        following: lines after it that have been read.
        file: the lines after these.
        lines_above: how many lines of the file come before the block.
        layout: the file's.

    Returns:
        The table, the number of its last line, and what is left of `following`.
    """
    lines_read = io.BytesIO(block + following)
    rows: list[tuple[int, list[str]]] = []
    ragged: list[tuple[int, str, str]] = []
    last_line, width = lines_above, len(layout.columns)
    records = _records(chain(lines_read, file), lines_above, layout.dialect)
    for line, last_line, cells in records:  # noqa: B007  # returned below
        if len(cells) != width:
            reason = f"the line has {len(cells)} cells, and the header has {width}"
            ragged.append((line, " ... ".join(cells), reason))
        elif any(cells):
            rows.append((line, cells))
        if lines_read.tell() >= len(block):
            break
    table = Table(*_columns(rows, layout.columns), layout.header, tuple(ragged))
    return table, last_line, lines_read.read()


def _columns(rows: Sequence[tuple[int, list[str]]], names: Sequence[str]) -> tuple[pl.DataFrame, pl.Series]:
    """Rows as columns of text, without those that have no name; and the rows' lines."""
    by_column = list(zip(*(cells for _, cells in rows), strict=True)) or [()] * len(names)
    cells = [
        pl.Series(name, column, pl.String) for name, column in zip(names, by_column, strict=True) if name
    ]
    return pl.DataFrame(cells), pl.Series([line for line, _ in rows], dtype=pl.Int64)


def _records(
    lines: Iterable[bytes], lines_above: int, dialect: Dialect
) -> Iterator[tuple[int, int, list[str]]]:
    """Each record's first line, last line and cells. Blank lines are left out.

    Args:
        lines: no more of them are taken than a record needs.
        lines_above: how many lines of the file come before.
        dialect: the file's.

    Raises:
        InputError: a quoted cell has no end, or goes on behind it.
        UnicodeError: a line is not UTF-8.
    """
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if dialect.quote else csv.QUOTE_NONE
    text = map(bytes.decode, lines)
    reader = csv.reader(
        text, delimiter=dialect.delimiter, quotechar=dialect.quote, quoting=quoting, strict=True
    )
    first_line = lines_above + 1
    try:
        for cells in reader:
            last_line = lines_above + reader.line_num
            if len(cells) > 1 or (cells and cells[0].strip()):
                yield first_line, last_line, cells
            first_line = last_line + 1
    except csv.Error as error:
        quote = dialect.quote
        raise InputError(
            f"{dialect.name}, line {first_line}: broken quoting: {error}",
            hint=f"A cell that begins with {quote} ends with {quote}; a {quote} inside it is written twice.",
        ) from None


# ---- quotes in a file of tabs


def _quotes_are_text(path: Path, dialect: Dialect) -> bool:
    """Whether quotes in a tab-separated file are ordinary characters, because no spreadsheet wrote them.

    They are when every line has the right number of cells without quoting, but with quoting the file would
    be broken or several lines would become one row.
    """
    if not _a_cell_begins_with_a_quote(path, dialect):
        return True
    columns, rows, ragged = _count_records(path, replace(dialect, quote=None))
    if ragged:
        return False
    try:
        _, rows_with_quoting, ragged = _count_records(path, dialect)
    except InputError:
        return True
    return columns > 1 and (rows_with_quoting != rows or ragged > 0)


def _a_cell_begins_with_a_quote(path: Path, dialect: Dialect) -> bool:
    quote = str(dialect.quote).encode()
    with dialects.open_lines(path, dialect.name, dialect.encoding) as file:
        before = b"\n"
        while block := file.read(_BLOCK):
            if b"\n" + quote in before + block or b"\t" + quote in before + block:
                return True
            before = block[-1:]
    return False


def _count_records(path: Path, dialect: Dialect) -> tuple[int, int, int]:
    """The header's cells, the rows with as many cells that are not blank, and the ragged lines."""
    rows = ragged = 0
    with dialects.open_lines(path, dialect.name, dialect.encoding) as file:
        records = (cells for _, _, cells in _records(islice(file, dialect.lines_above, None), 0, dialect))
        columns = len(next(records, []))
        for cells in records:
            rows += len(cells) == columns and any(cells)
            ragged += len(cells) != columns
    return columns, rows, ragged


def column_names(cells: Sequence[str], header: str) -> list[str]:
    """The header's cells as names.

    Args:
        cells: the header.
        header: where it is, for messages.

    Raises:
        InputError: two columns have the same name.
    """
    names = [cell.strip() for cell in cells]
    seen: set[str] = set()
    for name in names:
        if name and name in seen:
            raise InputError(f"{header}: two columns are named {name!r}")
        seen.add(name)
    return names
