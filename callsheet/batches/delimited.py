"""CSV and TSV -> tables of text, each row with the line of the file on which it begins.

How a table is written (delimiter, quote, where its header is) is detected where the config does not say it. A
file without quotes is parsed by polars, which is fast, and any other one by Python's `csv`; the cells are the
same. A line break inside a quoted cell is read as one `\\n`.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

import polars as pl

from callsheet.batches.headers import Table, column_names, groups_above, header_of
from callsheet.errors import InputError
from callsheet.plain_text import counted

_DELIMITERS = [",", ";", "\t", "|"]
_NO_QUOTE = r'"\u0001"'
_QUOTES = ['"', "'"]
_NO_SPREADSHEETS = ("\t", "|")  # delimiters of files that other programs write too, without any quoting
_SEP_LINE = re.compile(r"sep=(.)", re.IGNORECASE)  # Excel names the delimiter in a first line like this

_MOST_ABOVE = 20  # lines of a title above the header

_AT_ONCE = 10_000  # records
_FEWEST_MERGED = 3  # lines inside a cell that look like rows
_LARGEST_CELL = 64 << 20
"""Characters in a cell; an image as a data URL has millions."""


_Choice = tuple[str, str]
"""A delimiter and a quote."""


@dataclass(frozen=True, slots=True)
class _Dialect:
    """How a file is written: what separates cells, what encloses one (None: nothing does), how many lines
    stand above the header, or above the first row; and whether it has a header.
    """

    name: str
    delimiter: str
    quote: str | None
    lines_above: int
    has_header: bool = True


def written(cells: pl.DataFrame, *, delimiter: str | None, quote: str | None, encoding: str | None) -> bytes:
    """A table of text as a file that is read again with these settings: as `read_table`'s, and
    `input.encoding`. What that encoding does not have is written as UTF-8 with a byte order mark.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter or ",", quotechar=quote or '"', lineterminator="\n")
    writer.writerow(cells.columns)
    # As they are read again; `csv` would not quote a cell for the sake of a CR.
    one_kind = pl.all().fill_null("").str.replace_all("\r\n?", "\n")
    writer.writerows(cells.select(one_kind).iter_rows())
    try:
        return text.getvalue().encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return text.getvalue().encode("utf-8-sig")


def read_table(
    text: bytes,
    name: str,
    *,
    needed: Collection[str],
    expected: Collection[str],
    delimiter: str | None = None,
    quote: str | None = None,
    comments: str | None = None,
    has_header: bool = True,
) -> Table:
    """Reads one file, all columns as text. Blank lines, and lines of delimiters only, are left out.

    Args:
        text: the file, as UTF-8 with `\\n` at the end of every line.
        name: the file's name in messages.
        needed: the columns without which the file has no prompts: lines of text above a header that has one
            of them are a title.
        expected: columns that the header should have.
        delimiter, quote: None: as the first lines look written (`_of_header`, `_of_rows`).
        comments: how lines begin that are not read.
        has_header: False: the columns are named by their numbers, from 1.

    Raises:
        InputError: empty, wrongly quoted, or two columns have one name.
    """
    csv.field_size_limit(_LARGEST_CELL)
    first = _first_lines(text, comments)
    if sep_line := _SEP_LINE.fullmatch(first[0][1].rstrip("\n")):
        first = first[1:] or [(first[0][0] + 1, "")]
        delimiter = delimiter or sep_line[1]
    delimiters = [delimiter] if delimiter else _delimiters(name, first)
    choices = [(separator, mark) for mark in ([quote] if quote else _QUOTES) for separator in delimiters]
    if not has_header:
        dialect = _Dialect(name, *_of_rows(first, choices, expected), first[0][0], has_header=False)
        return _read_with_or_without_quotes(text, dialect, quote)
    best = [_of_header(line, choices, expected) for _, line in first]
    rows = [(at + 1, _cells(line, *choice)) for (at, line), choice in zip(first, best, strict=True)]
    header = header_of([row for _, row in rows], needed)
    table = _read_with_or_without_quotes(text, _Dialect(name, *best[header], first[header][0]), quote)
    return table.noted(groups_above(rows[:header], name))


def _first_lines(text: bytes, comments: str | None) -> list[tuple[int, str]]:
    """The lines in which the header is looked for, each with the number of lines above it."""
    lines = ((at, line) for at, line in enumerate(map(bytes.decode, io.BytesIO(text))) if line.strip())
    uncommented = ((at, line) for at, line in lines if comments is None or not line.startswith(comments))
    return list(islice(uncommented, _MOST_ABOVE + 1)) or [(0, "")]


def _delimiters(name: str, first: Sequence[tuple[int, str]]) -> list[str]:
    """Those that a file of this name, with these first lines, may have; of equals the first is taken."""
    if ".tsv" in name.lower() and any("\t" in line for _, line in first):
        return ["\t"]
    # Where no delimiter finds any column, commas are part of the text, except in a .csv.
    return ["," if ".csv" in name.lower() else "\t", *_DELIMITERS]


def _of_header(line: str, choices: Sequence[_Choice], expected: Collection[str]) -> _Choice:
    """The choice that finds most of the expected columns in a header, then most columns."""

    def score(choice: _Choice) -> tuple[int, int]:
        cells = _cells(line, *choice)
        return len({*expected} & {cell.strip() for cell in cells}), len(cells)

    return max(choices, key=score)


def _of_rows(
    first: Sequence[tuple[int, str]], choices: Sequence[_Choice], columns: Collection[str]
) -> _Choice:
    """The choice by which the first lines have the same number of cells, and most of them; as many as the
    highest of these numbers of columns.
    """
    fewest = max((int(name) for name in columns if name.isdecimal()), default=1)

    def alike(choice: _Choice) -> tuple[int, int]:
        counts = [len(_cells(line, *choice)) for _, line in first]
        return counts[0] if len(set(counts)) == 1 and counts[0] >= fewest else 0, counts[0]

    return max(choices, key=alike)


def _cells(line: str, delimiter: str, quote: str) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter, quotechar=quote), [])


def _read_with_or_without_quotes(text: bytes, dialect: _Dialect, quote: str | None) -> Table:
    """A file in which quotes may be ordinary characters, because no spreadsheet wrote them, and the config
    does not say it (`quote`).

    They are when every line has the right number of cells without quoting, but with quoting the file would
    be broken or several lines would become one row.
    """
    if dialect.delimiter not in _NO_SPREADSHEETS or quote is not None:
        return _read(text, dialect)
    unquoted = _read(text, replace(dialect, quote=None))
    try:
        table = _read(text, dialect)
    except InputError:
        if unquoted.ragged:
            raise
        return unquoted
    merges = table.ragged or table.cells.height != unquoted.cells.height
    return unquoted if merges and not unquoted.ragged and table.cells.width > 1 else table


def _read(text: bytes, dialect: _Dialect) -> Table:
    file = io.BytesIO(text)
    deque(islice(file, dialect.lines_above), maxlen=0)
    begin = file.tell()
    first_record = next(_records(file, dialect.lines_above, dialect), None)
    if first_record is None:
        raise InputError(f"{dialect.name}: is empty")
    header = f"{dialect.name}, line {first_record[0]}"
    columns = column_names(first_record[1], header, has_header=dialect.has_header)
    begin = file.tell() if dialect.has_header else begin
    text, lines_above = text[begin:], text.count(b"\n", 0, begin)
    regular = _parse_lines(text, lines_above, columns, dialect)
    if regular is not None:
        return Table(*regular, header)
    return replace(_by_record(text, lines_above, columns, dialect), header=header)


def _by_record(text: bytes, lines_above: int, columns: Sequence[str], dialect: _Dialect) -> Table:
    """The rows below the header one after the other, some of which have several lines, or not all cells."""
    lines: list[int] = []
    rows: list[list[str]] = []
    ragged: list[tuple[int, str, str]] = []
    unclear: list[str] = []
    for line, cells in _whole_records(text, lines_above, dialect, ragged):
        if not any(cells):
            continue
        if number := sum(_lines_like_rows(cell, len(columns), dialect.delimiter) for cell in cells):
            last = line + sum(cell.count("\n") for cell in cells)
            unclear.append(
                f"{dialect.name}, lines {line} to {last}: are one row, and {number} of them look like rows: "
                f"a {dialect.quote} that opens a cell may have no end"
            )
        if len(cells) == len(columns):
            lines.append(line)
            rows.append(cells)
        else:
            ragged.append((line, " ... ".join(cells), _other_number(cells, columns, dialect)))
    by_column = list(zip(*rows, strict=True)) or [()] * len(columns)
    series = [
        pl.Series(name, cells, pl.String) for name, cells in zip(columns, by_column, strict=True) if name
    ]
    numbers = pl.Series(lines, dtype=pl.Int64)
    return Table(pl.DataFrame(series), numbers, "", tuple(ragged), unclear=tuple(unclear))


def _other_number(cells: Sequence[str], columns: Sequence[str], dialect: _Dialect) -> str:
    """Why a line with another number of cells is no row."""
    expected = "header" if dialect.has_header else "first line"
    reason = f"the line has {counted(len(cells), 'cell')}, and the {expected} has {len(columns)}"
    if len(cells) > len(columns):
        reason += "; a cell with a delimiter in it stands in quotes"
    if len(columns) == 1:
        reason += ", or the file's name ends in .txt: then each line is a prompt"
    return reason


def _lines_like_rows(cell: str, columns: int, delimiter: str) -> int:
    """How many lines inside a cell have the delimiters of a row, where all of several have; else 0."""
    inside = [line for line in cell.split("\n")[1:-1] if line.strip()]
    are_rows = columns > 1 and all(line.count(delimiter) == columns - 1 for line in inside)
    return len(inside) if are_rows and len(inside) >= _FEWEST_MERGED else 0


def _parse_lines(
    rows: bytes, lines_above: int, columns: Sequence[str], dialect: _Dialect
) -> tuple[pl.DataFrame, pl.Series] | None:
    """The cells of the lines below the header, and the line of each row, read at once; None where a row has
    several lines, or a line is blank, or has too few or too many cells.
    """
    cells = _by_polars(rows, len(columns), dialect)
    if cells is None:
        cells = _by_csv(rows, len(columns), dialect)
    last = 0 if rows.endswith(b"\n") else 1
    if cells is None or rows.count(b"\n") + last != cells.height:
        return None
    lines = pl.int_range(lines_above + 1, lines_above + 1 + cells.height, eager=True)
    content = pl.all() if len(columns) > 1 else pl.all().str.strip_chars()
    is_row = cells.select(pl.any_horizontal(content != "")).to_series()
    selected = [pl.col(str(at)).alias(name) for at, name in enumerate(columns) if name]
    return cells.filter(is_row).select(selected), lines.filter(is_row)


def _by_polars(rows: bytes, columns: int, dialect: _Dialect) -> pl.DataFrame | None:
    """The cells, by the numbers of their columns; None where `csv` has to say what a quote is."""
    delimiter, quote = dialect.delimiter, dialect.quote
    if not delimiter.isascii() or (quote and quote.encode() in rows):  # polars takes a single byte
        return None
    if rows.startswith(codecs.BOM_UTF8):  # which it would drop
        return None
    schema = {str(at): pl.String for at in range(columns)}
    try:
        cells = pl.read_csv(rows, has_header=False, schema=schema, separator=delimiter, quote_char=None)
    except pl.exceptions.PolarsError:
        return None
    is_whole = rows.count(delimiter.encode()) == cells.height * (columns - 1)
    return cells.fill_null("") if is_whole else None


def _by_csv(rows: bytes, columns: int, dialect: _Dialect) -> pl.DataFrame | None:
    """The same; None where a record has too few or too many cells, or is broken."""
    reader = _reader(io.BytesIO(rows), dialect)
    parts = [pl.DataFrame(schema={str(at): pl.String for at in range(columns)})]
    try:
        while records := list(islice(reader, _AT_ONCE)):
            if any(len(cells) != columns for cells in records):
                return None
            parts.append(pl.DataFrame(list(zip(*records, strict=True)), parts[0].schema))
    except csv.Error:
        return None
    return pl.concat(parts)


class _BrokenRecord(InputError):
    """A record whose quotes are wrong: the lines on which it begins and on which that is seen, and why."""

    def __init__(self, dialect: _Dialect, line: int, last: int, error: str) -> None:
        quote = dialect.quote
        self.line, self.last = line, last
        self.reason = f"broken quoting: {error}; a {quote} inside a cell is written twice"
        super().__init__(
            f"{dialect.name}, line {line}: broken quoting: {error}",
            hint=f"A cell that begins with {quote} ends with {quote}; a {quote} inside it is written twice. "
            f"Where quotes are ordinary characters, set input.quote: {_NO_QUOTE}, which no text has.",
        )


def _reader(lines: Iterable[bytes], dialect: _Dialect) -> Any:
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if dialect.quote else csv.QUOTE_NONE
    text = map(bytes.decode, lines)
    return csv.reader(
        text, delimiter=dialect.delimiter, quotechar=dialect.quote, quoting=quoting, strict=True
    )


def _records(lines: Iterable[bytes], lines_above: int, dialect: _Dialect) -> Iterator[tuple[int, list[str]]]:
    """Each record's first line in the file, and its cells. No more lines are taken than a record needs.

    Raises:
        InputError: a quoted cell has no end, or goes on behind it.
    """
    reader = _reader(lines, dialect)
    first_line = lines_above + 1
    try:
        for cells in reader:
            if len(cells) > 1 or (cells and cells[0].strip()):
                yield first_line, cells
            first_line = lines_above + reader.line_num + 1
    except csv.Error as error:
        raise _BrokenRecord(dialect, first_line, lines_above + reader.line_num, str(error)) from None


def _whole_records(
    text: bytes, lines_above: int, dialect: _Dialect, broken: list[tuple[int, str, str]]
) -> Iterator[tuple[int, list[str]]]:
    """As `_records`; a record of one line whose quotes are wrong goes to `broken`, and others are read.

    Raises:
        InputError: it is not certain where such a record ends, or there is no other one.
    """
    first_error, has_rows = None, False
    while True:
        try:
            for record in _records(io.BytesIO(text), lines_above, dialect):
                has_rows = True
                yield record
            break
        except _BrokenRecord as error:
            first_error = first_error or error
            *_, line, rest = text.split(b"\n", error.line - lines_above)
            is_closed = dialect.quote and line.count(dialect.quote.encode()) % 2 == 0
            if error.last != error.line or not is_closed:
                raise
            broken.append((error.line, line.decode(), error.reason))
            text, lines_above = rest, error.line
    if first_error and not has_rows:
        raise first_error
