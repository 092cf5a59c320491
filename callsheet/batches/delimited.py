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
    """Rows of a file: their cells, and the line on which each row begins.

    Attributes:
        header: where the header is, for messages: the file and the line.
        ragged: lines with more or fewer cells than the header: the line's number, its text and the reason.
        file: where it is from.
        shown: the file's name where the batch has several.
        note: what a person should know of how it was read; empty where there is nothing.
    """

    cells: pl.DataFrame
    lines: pl.Series
    header: str
    ragged: tuple[tuple[int, str, str], ...] = ()
    file: str = ""
    shown: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Dialect:
    """How a file is written: what separates cells, what encloses one (None: nothing does), and how many lines
    stand above the header.
    """

    name: str
    delimiter: str
    quote: str | None
    lines_above: int


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
    lines = ((at, line) for at, line in enumerate(map(bytes.decode, io.BytesIO(text))) if line.strip())
    others = ((at, line) for at, line in lines if comments is None or not line.startswith(comments))
    first = list(islice(others, _MOST_ABOVE + 1)) or [(0, "")]
    sep_line = _SEP_LINE.fullmatch(first[0][1].rstrip("\n"))
    if sep_line:
        first = first[1:] or [(first[0][0] + 1, "")]
        delimiter = delimiter or sep_line[1]
    choices = [_delimiter_and_quote(line, name, expected, delimiter, quote) for _, line in first]
    cells = [_cells(line, *choice) for (_, line), choice in zip(first, choices, strict=True)]
    header = header_of(cells, needed)
    dialect = _Dialect(name, *choices[header], first[header][0])
    if dialect.delimiter == "\t" and quote is None:
        return _read_tabs(text, dialect)
    return _read(text, dialect)


def _read_tabs(text: bytes, dialect: _Dialect) -> Table:
    """A tab-separated file, in which quotes may be ordinary characters, because no spreadsheet wrote them.

    They are when every line has the right number of cells without quoting, but with quoting the file would
    be broken or several lines would become one row.
    """
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
    first_record = next(_records(file, dialect.lines_above, dialect), None)
    if first_record is None:
        raise InputError(f"{dialect.name}: is empty")
    header = f"{dialect.name}, line {first_record[0]}"
    columns, rows = column_names(first_record[1], header), text[file.tell() :]
    lines_above = text.count(b"\n", 0, file.tell())
    plain = _parse_plain(rows, lines_above, columns, dialect)
    if plain is not None:
        return Table(*plain, header)
    return table_of(_records(io.BytesIO(rows), lines_above, dialect), columns, header)


def table_of(records: Iterable[tuple[int, Sequence[str]]], columns: Sequence[str], header: str) -> Table:
    """A table of records that were read one at a time: the line on which each begins, and its cells.

    Records without any content are left out, and so is a column without a name.
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
    """The header's cells as names; InputError where two are the same. `header` says where it is."""
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
    """Parses the lines below the header with polars: cells, and the line on which each row begins; None where
    `csv` has to parse them.

    The cells are those that `csv` would find where polars, when it writes them, gives the same bytes: each of
    the two reads what the other writes. Polars reads an empty cell as null and `""` as text, so both are
    written as they were, and a line that is too short would be written longer.
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
    if written.getvalue() != rows:
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


def _records(lines: Iterable[bytes], lines_above: int, dialect: _Dialect) -> Iterator[tuple[int, list[str]]]:
    """Each record's first line in the file, and its cells. No more lines are taken than a record needs.

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
            if len(cells) > 1 or (cells and cells[0].strip()):
                yield first_line, cells
            first_line = lines_above + reader.line_num + 1
    except csv.Error as error:
        quote = dialect.quote
        raise InputError(
            f"{dialect.name}, line {first_line}: broken quoting: {error}",
            hint=f"A cell that begins with {quote} ends with {quote}; a {quote} inside it is written twice.",
        ) from None


# ---- how the file is written


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
