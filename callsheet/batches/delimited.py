"""CSV and TSV files -> tables of text, with the line of the file on which each row begins.

How a file is written (delimiter, quote, where its header is) is detected where the config does not say it.
A plain file is parsed by polars, which is fast, and any other one by Python's `csv`; the cells are the same.
Does not know what the columns mean. A line break inside a quoted cell is read as one `\\n`.
"""

from __future__ import annotations

import csv
import io
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

import polars as pl

from callsheet.errors import InputError
from callsheet.plain_text import counted

_DELIMITERS = [",", ";", "\t", "|"]
_QUOTES = ['"', "'"]
_SEP_LINE = re.compile(r"sep=(.)", re.IGNORECASE)  # Excel names the delimiter in a first line like this

_MOST_ABOVE = 20  # lines of a title above the header

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
class _Dialect:
    """How a file is written.

    Attributes:
        name: the file's name in messages.
        delimiter: what separates cells.
        quote: what encloses a cell; None where nothing does.
        lines_above: lines above the header.
    """

    name: str
    delimiter: str
    quote: str | None
    lines_above: int = 0


def read_table(
    text: bytes,
    name: str,
    *,
    needed: Collection[str],
    expected: Collection[str],
    delimiter: str | None = None,
    quote: str | None = None,
    comments: str | None = None,
) -> Table:
    """Reads one file. Blank lines, and lines of delimiters only, are left out.

    Args:
        text: the file, as UTF-8 with `\\n` at the end of every line.
        name: the file's name in messages.
        needed: the columns without which the file has no prompts: lines of text above a header that has one
            of them are a title.
        expected: columns that the header should have.
        delimiter: None: the one that finds most of `expected` in the header, then most columns.
        quote: None: found with the delimiter.
        comments: how lines begin that are not read.

    Returns:
        All columns as text.

    Raises:
        InputError: empty, wrongly quoted, or two columns have one name.
    """
    csv.field_size_limit(_LARGEST_CELL)
    dialect = _detect(text, name, delimiter, quote, needed=needed, expected=expected, comments=comments)
    if dialect.delimiter == "\t" and quote is None and _quotes_are_text(text, dialect):
        dialect = replace(dialect, quote=None)
    file = io.BytesIO(text)
    deque(islice(file, dialect.lines_above), maxlen=0)
    first_record = next(_records(file, dialect.lines_above, dialect), None)
    if first_record is None:
        raise InputError(f"{name}: is empty")
    line, last_line, cells = first_record
    header = f"{name}, line {line}"
    columns, rows = column_names(cells, header), text[file.tell() :]
    plain = _parse_plain(rows, last_line, columns, dialect)
    if plain is not None:
        return Table(*plain, header)
    records = _records(io.BytesIO(rows), last_line, dialect)
    return table_of(((line, cells) for line, _, cells in records), columns, header)


def table_of(records: Iterable[tuple[int, Sequence[str]]], columns: Sequence[str], header: str) -> Table:
    """A table of records that were read one at a time. Those without any content are left out.

    Args:
        records: the line on which each begins, and its cells.
        columns: the columns' names; one without a name is left out.
        header: where the header is, for messages.
    """
    lines: list[int] = []
    rows: list[Sequence[str]] = []
    ragged: list[tuple[int, str, str]] = []
    for line, cells in records:
        if len(cells) != len(columns):
            ragged.append((line, " ... ".join(cells), _ragged(len(cells), len(columns))))
        elif any(cells):
            lines.append(line)
            rows.append(cells)
    by_column = list(zip(*rows, strict=True)) or [()] * len(columns)
    named = [
        pl.Series(name, cells, pl.String) for name, cells in zip(columns, by_column, strict=True) if name
    ]
    return Table(pl.DataFrame(named), pl.Series(lines, dtype=pl.Int64), header, tuple(ragged))


def _ragged(cells: int, columns: int) -> str:
    reason = f"the line has {counted(cells, 'cell')}, and the header has {columns}"
    if cells > columns:
        reason += "; a cell with a delimiter in it stands in quotes"
    if columns == 1:
        reason += ", or the file's name ends in .txt: then each line is a prompt"
    return reason


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


# ---- rows and their lines


def _parse_plain(
    rows: bytes, lines_above: int, columns: Sequence[str], dialect: _Dialect
) -> tuple[pl.DataFrame, pl.Series] | None:
    """Parses rows with polars, and makes sure that the cells are those that `csv` would find.

    They are where polars, when it writes them, gives the same bytes: each of the two reads what the other
    writes. Polars reads an empty cell as null and `""` as text, so both are written as they were, and a line
    that is too short would be written longer.

    Args:
        rows: the lines below the header.
        lines_above: how many lines of the file come before.
        columns: the header.
        dialect: the file's.

    Returns:
        The cells, and the line on which each row begins; None where `csv` has to parse the rows.
    """
    delimiter, quote = dialect.delimiter, dialect.quote
    if not f"{delimiter}{quote or ''}".isascii():  # polars takes a single byte for each
        return None
    schema = {str(at): pl.String for at in range(len(columns))}
    try:
        cells = pl.read_csv(rows, has_header=False, schema=schema, separator=delimiter, quote_char=quote)
    except pl.exceptions.PolarsError:
        return None
    written = io.BytesIO()
    style: Literal["necessary", "never"] = "necessary" if quote else "never"
    cells.write_csv(
        written, include_header=False, separator=delimiter, quote_char=quote or '"', quote_style=style
    )
    if written.getbuffer() != rows:
        return None
    lines = pl.int_range(lines_above + 1, lines_above + 1 + cells.height, eager=True)
    if rows.count(b"\n") > cells.height:
        breaks = cells.select(pl.sum_horizontal(pl.all().str.count_matches("\n", literal=True)))
        lines += breaks.to_series().cast(pl.Int64).cum_sum().shift(1, fill_value=0)
    cells = cells.fill_null("")
    content = pl.all() if len(columns) > 1 else pl.all().str.strip_chars()
    is_row = cells.select(pl.any_horizontal(content != "")).to_series()
    named = [pl.col(str(at)).alias(name) for at, name in enumerate(columns) if name]
    return cells.filter(is_row).select(named), lines.filter(is_row)


def _records(
    lines: Iterable[bytes], lines_above: int, dialect: _Dialect
) -> Iterator[tuple[int, int, list[str]]]:
    """Each record's first line, last line and cells. Blank lines are left out.

    Args:
        lines: no more of them are taken than a record needs.
        lines_above: how many lines of the file come before.
        dialect: the file's.

    Raises:
        InputError: a quoted cell has no end, or goes on behind it.
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


# ---- how the file is written


def _detect(
    text: bytes,
    name: str,
    delimiter: str | None,
    quote: str | None,
    *,
    needed: Collection[str],
    expected: Collection[str],
    comments: str | None,
) -> _Dialect:
    """Finds the header, and what is None by it."""
    lines = enumerate(map(bytes.decode, io.BytesIO(text)))
    others = ((at, line) for at, line in lines if line.strip() and not is_comment(line, comments))
    first = list(islice(others, _MOST_ABOVE + 1)) or [(0, "")]
    sep_line = _SEP_LINE.fullmatch(first[0][1].rstrip("\n"))
    if sep_line:
        first = first[1:] or [(first[0][0] + 1, "")]
        delimiter = delimiter or sep_line[1]
    choices = [_delimiter_and_quote(line, name, expected, delimiter, quote) for _, line in first]
    cells = [_cells(line, *choice) for (_, line), choice in zip(first, choices, strict=True)]
    header = header_of(cells, needed)
    return _Dialect(name, *choices[header], first[header][0])


def is_comment(line: str, comments: str | None) -> bool:
    """Whether a line begins as comments do; None: there are none."""
    return comments is not None and line.startswith(comments)


def header_of(rows: Sequence[Sequence[str]], needed: Collection[str]) -> int:
    """Which of a file's first rows is the header: the first one, or one below a title.

    A title has one cell in each row, and the header below it several, with one of the needed columns.
    """
    for at, row in enumerate(rows):
        if len(row) > 1 and set(needed) & {cell.strip() for cell in row}:
            return at
        if sum(bool(cell.strip()) for cell in row) > 1:
            break
    return 0


def _cells(line: str, delimiter: str, quote: str) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter, quotechar=quote), [])


def _delimiter_and_quote(
    header: str, name: str, expected: Collection[str], delimiter: str | None, quote: str | None
) -> tuple[str, str]:
    """Those that find most of the expected columns in the header, and then most columns.

    Where no delimiter finds any, the file has one column; commas are then part of its text, except in a .csv.
    """
    first_choice = [","] if ".csv" in name.lower() else ["\t"]
    delimiters = [delimiter] if delimiter else first_choice + _DELIMITERS
    quotes = [quote] if quote else _QUOTES

    def columns(choice: tuple[str, str]) -> tuple[int, int]:
        cells = _cells(header, *choice)
        return len(set(expected) & {cell.strip() for cell in cells}), len(cells)

    return max([(delimiter, quote) for quote in quotes for delimiter in delimiters], key=columns)


def _quotes_are_text(text: bytes, dialect: _Dialect) -> bool:
    """Whether quotes in a tab-separated file are ordinary characters, because no spreadsheet wrote them.

    They are when every line has the right number of cells without quoting, but with quoting the file would
    be broken or several lines would become one row.
    """
    quote = str(dialect.quote).encode()
    if b"\n" + quote not in b"\n" + text and b"\t" + quote not in text:
        return True  # no cell begins with one
    columns, rows, ragged = _count_records(text, replace(dialect, quote=None))
    if ragged:
        return False
    try:
        _, rows_with_quoting, ragged = _count_records(text, dialect)
    except InputError:
        return True
    return columns > 1 and (rows_with_quoting != rows or ragged > 0)


def _count_records(text: bytes, dialect: _Dialect) -> tuple[int, int, int]:
    """The header's cells, the rows with as many cells that are not blank, and the ragged lines."""
    rows = ragged = 0
    lines = islice(io.BytesIO(text), dialect.lines_above, None)
    records = (cells for _, _, cells in _records(lines, 0, dialect))
    columns = len(next(records, []))
    for cells in records:
        rows += len(cells) == columns and any(cells)
        ragged += len(cells) != columns
    return columns, rows, ragged
