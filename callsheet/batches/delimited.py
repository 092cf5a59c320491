"""Text files -> their text, decoded and with one kind of line end; CSV and TSV files -> tables of text.

Where an encoding is wrong, it says which ones are likely, and how a line would read in each of them: an
encoding in which any file can be read is no help. How a file is written (delimiter, quote, where its header
is) is detected where the config does not say it. A file without quotes is parsed by polars, which
is fast, and any other one by Python's `csv`; the cells are the same, and each row has the line of the file on
which it begins. A line break inside a quoted cell is read as one `\\n`. Does not know what the columns mean.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import sys
import zlib
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Literal

import polars as pl

from callsheet.batches.names import is_a_number
from callsheet.config.settings import COLUMNS
from callsheet.errors import InputError
from callsheet.plain_text import counted, printable

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_BYTE_ORDER_MARKS = {  # UTF-32's begin with UTF-16's, so they come first
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_LIKELY = [  # what spreadsheets and editors write where they do not write UTF-8
    *("cp949", "gb18030", "big5", "cp932", "euc_jp", "cp1252", "cp1250", "cp1251", "cp1253", "cp1254"),
    *("cp1255", "cp1256", "cp1257", "koi8_r", "mac_roman"),
]
_WESTERN = set("äöüßéèêëàâçîïôûùœæøåñíóúáãõìò¿¡“”‘’„–—…•€°´«»·×½¼©®™º§")  # noqa: RUF001 - the letters themselves
_KINDS = {  # of files that are no text, by their first bytes
    b"PK\x03\x04": "a workbook (.xlsx) or another archive",
    b"\xd0\xcf\x11\xe0": "an old workbook (.xls), or one with a password",
    b"PAR1": "Parquet (.parquet)",
    b"\x1f\x8b": "compressed (.gz)",
    b"\x28\xb5\x2f\xfd": "compressed (.zst)",
}
_SHOWN = 3  # of the likely encodings
_NO_QUOTE = r'"\u0001"'
_SAMPLE = 1 << 16  # bytes that are looked at
_LONGEST_LINE = 60  # characters of a line that is shown


def read_text(path: Path, name: str, declared: str | None) -> tuple[bytes, str]:
    """The whole of a text file. Its `name`, which messages have, says whether it is compressed.

    `declared` is its encoding where it has no byte order mark; None: UTF-8.

    Returns:
        The text as UTF-8, each line with its `\\n`; and what a person should know of it, mostly nothing.

    Raises:
        InputError: it cannot be read, decompressed or decoded.
    """
    unpack = {".gz": gzip.decompress, ".zst": zstd.decompress}.get(Path(name.lower()).suffix, bytes)
    try:
        content = unpack(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"{name}: there is no such file") from None
    except (EOFError, gzip.BadGzipFile, zlib.error, zstd.ZstdError) as error:
        raise InputError(f"{name}: cannot be decompressed: {error}") from None
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror or error}") from None
    marked = next(
        (encoding for mark, encoding in _BYTE_ORDER_MARKS.items() if content.startswith(mark)), None
    )
    encoding = marked or declared or "utf-8"
    is_wide = codecs.lookup(encoding).name.startswith(("utf-16", "utf-32"))
    try:
        if not is_wide and _utf16(content) and content[:_SAMPLE].count(0) * 4 > len(content[:_SAMPLE]):
            raise UnicodeError("every other byte is 0")  # noqa: TRY301 - as of any other wrong encoding
        text = codecs.getincrementaldecoder(encoding)().decode(content, final=True)
    except UnicodeError as error:
        raise _wrong_encoding(name, encoding, content, error) from None
    note = "" if marked or not declared else _doubt(name, declared, content)
    if encoding != "utf-8" or b"\r" in content:  # the rest of a large file is not copied
        content = text.replace("\r\n", "\n").replace("\r", "\n").encode()
    return content if not content or content.endswith(b"\n") else content + b"\n", note


def _utf16(content: bytes) -> str:
    """Which UTF-16 a file looks like that has no byte order mark, by where its zeros are: each line end,
    blank and comma has one, in any language. Empty if it is none.
    """
    sample = content[: _SAMPLE & ~1]
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    if not (even or odd) or (even and odd) or len(content) % 2:
        return ""
    return "utf-16-be" if even else "utf-16-le"


def kind_of(content: bytes) -> str:
    """What a file is that is no text, by its first bytes; empty where they do not say it."""
    return next((kind for first, kind in _KINDS.items() if content.startswith(first)), "")


def _wrong_encoding(name: str, encoding: str, content: bytes, error: UnicodeError) -> InputError:
    """Says what is wrong, on which line where the file should be UTF-8, and what the encoding may be."""
    if kind := kind_of(content):
        return InputError(f"{name}: is not text, but {kind}", hint="A file's name must end as its type does.")
    where, problem = name, f"is not {encoding} text: {error}"
    if wide := _utf16(content):
        reads = content.decode(wide, "replace").partition("\n")[0]
        raise InputError(
            f"{name}: is not {encoding} text; it looks like UTF-16 without a byte order mark",
            hint=f"Save it as UTF-8, or set input.encoding: {wide}. Line 1 would read: {_cut(reads)}",
        )
    if isinstance(error, UnicodeDecodeError) and encoding.startswith("utf-8"):
        line = _lines_before(error.object, error.start) + 1
        where, problem = f"{name}, line {line}", f"is not UTF-8 (byte 0x{error.object[error.start]:02X})"
    readings = likely_readings(content)
    hint = "Save it as UTF-8, or set input.encoding to its encoding."
    if readings:
        number = _lines_before(content, content.find(_first_line(content))) + 1
        hint += f" Line {number} would read, most likely first:\n" + "\n".join(_lines(readings))
    return InputError(f"{where}: {problem}", hint=hint)


def _doubt(name: str, declared: str, content: bytes) -> str:
    """Why a file may not be in the declared encoding, although it can be read so; empty where it may be."""
    if content.isascii() or codecs.lookup(declared).name.startswith("utf"):
        return ""
    readings = likely_readings(content)
    names = {codecs.lookup(encoding).name for encoding in readings}
    if not readings or codecs.lookup(declared).name in names:
        return ""
    line = _first_line(content).decode(declared, "replace")
    others = "; ".join(_lines(readings))
    return f"{name} is read as {declared}: {_cut(line)}. It may be another encoding: {others}"


def _lines(readings: dict[str, str]) -> list[str]:
    return [f"{encoding}: {_cut(line)}" for encoding, line in [*readings.items()][:_SHOWN]]


def likely_readings(content: bytes) -> dict[str, str]:
    """The encodings that a text may have, the most likely first, and how its first other line would read."""
    from charset_normalizer import from_bytes  # slow to import, and seldom needed

    others = b"\n".join(line for line in content[:_SAMPLE].splitlines() if not line.isascii())
    found: dict[str, str] = {}
    western = ["cp1252"] if others and _is_western(others) else []
    matches = from_bytes(others, cp_isolation=_LIKELY) if others else ()
    for encoding in (*western, *(match.encoding for match in matches)):
        text = _first_line(content).decode(encoding, "replace")
        if text not in found.values():
            found[encoding] = text
    return found


def _is_western(content: bytes) -> bool:
    """Whether a text in cp1252 has only letters and marks of the languages that it is written in."""
    text = content.decode("cp1252", "replace").lower()
    return all(character in _WESTERN for character in text if not character.isascii())


def _lines_before(content: bytes, position: int) -> int:
    """How many lines end before a byte."""
    return content[:position].replace(b"\r\n", b"\n").replace(b"\r", b"\n").count(b"\n")


def _first_line(content: bytes) -> bytes:
    """The first line that is not ASCII."""
    return next((line for line in content.splitlines() if not line.isascii()), b"")


def _cut(line: str) -> str:
    line = printable(line.strip())
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"


_DELIMITERS = [",", ";", "\t", "|"]
_QUOTES = ['"', "'"]
_NO_SPREADSHEETS = ("\t", "|")  # delimiters of files that other programs write too, without any quoting
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
        advice: what to write into the config if a column is missing; mostly empty.
        images: the columns that hold images, which are read as their paths; and of each the lines of the rows
            that have an image's bytes and no path.
        placed: where the rows are images, the column that names them: each goes where its model takes one.
    """

    cells: pl.DataFrame
    lines: pl.Series
    header: str
    ragged: tuple[tuple[int, str, str], ...] = ()
    file: str = ""
    shown: str | None = None
    note: str = ""
    advice: str = ""
    images: Mapping[str, frozenset[int]] = field(default_factory=dict)
    placed: str = ""

    def noted(self, said: str) -> Table:
        """The same table with one more note; an empty one is none."""
        return replace(self, note="; ".join(filter(None, (self.note, said))))

    def without(self, rows: pl.Series, said: str) -> Table:
        """The table without the rows for which this is true; and a note of it."""
        kept = replace(self, cells=self.cells.filter(~rows), lines=self.lines.filter(~rows))
        return kept.noted(said)


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
        has_header: False: the columns are named by their numbers, from 1.

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
    if not has_header:
        least = max((int(each) for each in expected if each.isdecimal()), default=1)
        choice = _consistent([line for _, line in first], name, delimiter, quote, least)
        return _read_as_it_is(text, _Dialect(name, *choice, first[0][0], has_header=False), quote)
    choices = [_delimiter_and_quote(line, name, expected, delimiter, quote) for _, line in first]
    cells = [_cells(line, *choice) for (_, line), choice in zip(first, choices, strict=True)]
    header = header_of(cells, needed)
    above = [(at + 1, row) for (at, _), row in zip(first[:header], cells, strict=False)]
    table = _read_as_it_is(text, _Dialect(name, *choices[header], first[header][0]), quote)
    return table.noted(groups_above(above, name))


def _read_as_it_is(text: bytes, dialect: _Dialect, quote: str | None) -> Table:
    """Reads a file whose quotes may be ordinary characters, where the config does not say it (`quote`)."""
    if dialect.delimiter in _NO_SPREADSHEETS and quote is None:
        return _read_with_or_without_quotes(text, dialect)
    return _read(text, dialect)


def _read_with_or_without_quotes(text: bytes, dialect: _Dialect) -> Table:
    """A file in which quotes may be ordinary characters, because no spreadsheet wrote them.

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
    begin = file.tell()
    first_record = next(_records(file, dialect.lines_above, dialect), None)
    if first_record is None:
        raise InputError(f"{dialect.name}: is empty")
    header = f"{dialect.name}, line {first_record[0]}"
    if dialect.has_header:
        columns, begin = column_names(first_record[1], header), file.tell()
    else:
        columns = numbered(len(first_record[1]))
    rows, lines_above = text[begin:], text.count(b"\n", 0, begin)
    plain = _parse_plain(rows, lines_above, columns, dialect)
    if plain is not None:
        return Table(*plain, header)
    records = _records(io.BytesIO(rows), lines_above, dialect)
    return table_of(records, columns, header, has_header=dialect.has_header)


def numbered(columns: int) -> list[str]:
    """The names of so many columns without a header."""
    return [str(number) for number in range(1, columns + 1)]


def table_of(
    records: Iterable[tuple[int, Sequence[str]]],
    columns: Sequence[str],
    header: str,
    *,
    has_header: bool = True,
) -> Table:
    """A table of records that were read one at a time: the line on which each begins, and its cells.

    Records without any content are left out, and so is a column without a name.
    """
    lines: list[int] = []
    rows: list[Sequence[str]] = []
    ragged: list[tuple[int, str, str]] = []
    for line, cells in records:
        if len(cells) != len(columns):
            reason = _ragged(len(cells), len(columns), "header" if has_header else "first line")
            ragged.append((line, " ... ".join(cells), reason))
        elif any(cells):
            lines.append(line)
            rows.append(cells)
    by_column = list(zip(*rows, strict=True)) or [()] * len(columns)
    named = [
        pl.Series(name, cells, pl.String) for name, cells in zip(columns, by_column, strict=True) if name
    ]
    return Table(pl.DataFrame(named), pl.Series(lines, dtype=pl.Int64), header, tuple(ragged))


def _ragged(cells: int, columns: int, other: str) -> str:
    reason = f"the line has {counted(cells, 'cell')}, and the {other} has {columns}"
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
            hint = "Where that line is a row, and the file has no header, set input.header: none."
            raise InputError(f"{header}: two columns are named {name!r}", hint=hint)
        seen.add(name)
    return names


# ---- rows and their lines


def _parse_plain(
    rows: bytes, lines_above: int, columns: Sequence[str], dialect: _Dialect
) -> tuple[pl.DataFrame, pl.Series] | None:
    """Parses the lines below the header with polars: cells, and the line on which each row begins; None where
    `csv` has to parse them: where a quote is in the file, a line is blank, or has too few or too many cells.
    """
    delimiter, quote = dialect.delimiter, dialect.quote
    if not delimiter.isascii() or (quote and quote.encode() in rows):  # polars takes a single byte
        return None
    if rows.startswith(codecs.BOM_UTF8):  # which it would drop
        return None
    schema = {str(at): pl.String for at in range(len(columns))}
    try:
        cells = pl.read_csv(rows, has_header=False, schema=schema, separator=delimiter, quote_char=None)
    except pl.exceptions.PolarsError:
        return None
    last = 0 if rows.endswith(b"\n") else 1
    is_whole = rows.count(delimiter.encode()) == cells.height * (len(columns) - 1)
    if not is_whole or rows.count(b"\n") + last != cells.height:
        return None
    lines = pl.int_range(lines_above + 1, lines_above + 1 + cells.height, eager=True)
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
            hint=f"A cell that begins with {quote} ends with {quote}; a {quote} inside it is written twice. "
            f"Where quotes are ordinary characters, set input.quote: {_NO_QUOTE}, which no text has.",
        ) from None


# ---- how the file is written


def header_of(rows: Sequence[Sequence[str]], needed: Collection[str]) -> int:
    """Which of a file's first rows is the header: the first one, or one below a title or below names of
    groups of columns.

    A title has one cell in each row, and the header below it several, with one of the needed columns.
    """
    wanted = {name.strip().lower() for name in needed}
    for at, row in enumerate(rows):
        if len(row) > 1 and wanted & _lower(row):
            return at
        if sum(bool(cell.strip()) for cell in row) > 1:
            below = next((place for place in range(at + 1, len(rows)) if any(_lower(rows[place]))), at)
            return below if wanted & _lower(rows[below]) and _are_groups(row, rows[below]) else 0
    return 0


def _lower(row: Sequence[str]) -> set[str]:
    return {cell.strip().lower() for cell in row}


def _are_groups(row: Sequence[str], below: Sequence[str]) -> bool:
    """Whether a row has the names of groups of the columns that the row below it names: fewer names, none of
    them ours; and that is a row of names.
    """
    names, columns = _lower(row) - {""}, [cell.strip() for cell in below if cell.strip()]
    are_names = len(set(columns)) == len(columns) and not any(map(is_a_number, columns))
    return are_names and len(names) < len(columns) and not names & set(COLUMNS)


def groups_above(rows: Iterable[tuple[int, Sequence[str]]], name: str) -> str:
    """Says which line above a header has names of groups of columns; empty where none has."""
    for line, row in rows:
        names = [cell.strip() for cell in row if cell.strip()]
        if len(names) > 1:
            groups = ", ".join(dict.fromkeys(names))
            return f"{name}: line {line} has names of groups of columns ({groups}), and is left out"
    return ""


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


def _consistent(
    lines: Sequence[str], name: str, delimiter: str | None, quote: str | None, least: int
) -> tuple[str, str]:
    """Delimiter and quote of a file without a header: those by which its first lines have the same number of
    cells, at least so many, and most of them.
    """
    choices = [_delimiter_and_quote(line, name, (), delimiter, quote) for line in lines[:1]]
    for each in (delimiter,) if delimiter else _DELIMITERS:
        choices += [(each, mark) for mark in ((quote,) if quote else _QUOTES)]

    def columns(choice: tuple[str, str]) -> int:
        counts = {len(_cells(line, *choice)) for line in lines}
        return max(counts) if len(counts) == 1 and max(counts) >= least else 0

    return max(choices, key=columns)
