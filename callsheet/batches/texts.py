"""Text files -> their text, with one kind of line end; CSV, TSV and lists of prompts -> tables of text.

Where an encoding is wrong, it says which ones are likely, and how a line would read in each of them: an
encoding in which any file can be read is no help. How a table is written (delimiter, quote, where its header
is) is detected where the config does not say it. A file without quotes is parsed by polars, which is fast,
and any other one by Python's `csv`; the cells are the same, and each row has the line of the file on which it
begins. A line break inside a quoted cell is read as one `\\n`. In a text without a header a prompt is a line,
a paragraph, what stands between rules or below labels, or what follows a name on a line (`input.split`).
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
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, pairwise
from pathlib import Path, PurePath
from typing import Any, Literal

import polars as pl

from callsheet.batches.headers import (
    Table,
    column_names,
    groups_above,
    header_of,
    id_name,
    prompt_name,
)
from callsheet.config.settings import Input
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
    place, problem = name, f"is not {encoding} text: {error}"
    if wide := _utf16(content):
        reads = content.decode(wide, "replace").partition("\n")[0]
        raise InputError(
            f"{name}: is not {encoding} text; it looks like UTF-16 without a byte order mark",
            hint=f"Save it as UTF-8, or set input.encoding: {wide}. Line 1 would read: {_cut(reads)}",
        )
    if isinstance(error, UnicodeDecodeError) and encoding.startswith("utf-8"):
        line = _lines_before(error.object, error.start) + 1
        place, problem = f"{name}, line {line}", f"is not UTF-8 (byte 0x{error.object[error.start]:02X})"
    readings = likely_readings(content)
    hint = "Save it as UTF-8, or set input.encoding to its encoding."
    if readings:
        number = _lines_before(content, content.find(_first_line(content))) + 1
        hint += f" Line {number} would read, most likely first:\n" + "\n".join(_lines(readings))
    return InputError(f"{place}: {problem}", hint=hint)


def _doubt(name: str, declared: str, content: bytes) -> str:
    """Why a file may not be in the declared encoding, although it can be read so; empty where it may be."""
    if content.isascii() or codecs.lookup(declared).name.startswith("utf"):
        return ""
    readings = likely_readings(content)
    names = {codecs.lookup(encoding).name for encoding in readings}
    if not readings or codecs.lookup(declared).name in names:
        return ""
    line = _first_line(content).decode(declared, "replace")
    alternatives = "; ".join(_lines(readings))
    return f"{name} is read as {declared}: {_cut(line)}. It may be another encoding: {alternatives}"


def _lines(readings: dict[str, str]) -> list[str]:
    return [f"{encoding}: {_cut(line)}" for encoding, line in [*readings.items()][:_SHOWN]]


def likely_readings(content: bytes) -> dict[str, str]:
    """The encodings that a text may have, the most likely first, and how its first other line would read."""
    from charset_normalizer import from_bytes  # slow to import, and seldom needed

    foreign = b"\n".join(line for line in content[:_SAMPLE].splitlines() if not line.isascii())
    readings: dict[str, str] = {}
    letters = {letter for letter in foreign.decode("cp1252", "replace").lower() if not letter.isascii()}
    western = ["cp1252"] if letters and letters <= _WESTERN else []
    matches = from_bytes(foreign, cp_isolation=_LIKELY) if foreign else ()
    for encoding in (*western, *(match.encoding for match in matches)):
        text = _first_line(content).decode(encoding, "replace")
        if text not in readings.values():
            readings[encoding] = text
    return readings


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

_AT_ONCE = 10_000  # records
_FEWEST_MERGED = 3  # lines inside a cell that look like rows
_LARGEST_CELL = 64 << 20
"""Characters in a cell; an image as a data URL has millions."""


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
        delimiter: None: the one that finds most of `expected` in the header, then most columns; without a
            header the one by which the first lines have the same number of cells, and most of them.
        quote: None: found with the delimiter.
        comments: how lines begin that are not read.
        has_header: False: the columns are named by their numbers, from 1.

    Raises:
        InputError: empty, wrongly quoted, or two columns have one name.
    """
    csv.field_size_limit(_LARGEST_CELL)
    lines = ((at, line) for at, line in enumerate(map(bytes.decode, io.BytesIO(text))) if line.strip())
    uncommented = ((at, line) for at, line in lines if comments is None or not line.startswith(comments))
    first = list(islice(uncommented, _MOST_ABOVE + 1)) or [(0, "")]
    sep_line = _SEP_LINE.fullmatch(first[0][1].rstrip("\n"))
    if sep_line:
        first = first[1:] or [(first[0][0] + 1, "")]
        delimiter = delimiter or sep_line[1]
    # Where no delimiter finds any column, commas are part of the text, except in a .csv.
    delimiters = [delimiter] if delimiter else ["," if ".csv" in name.lower() else "\t", *_DELIMITERS]
    if delimiter is None and ".tsv" in name.lower() and any("\t" in line for _, line in first):
        delimiters = ["\t"]
    choices = [(separator, mark) for mark in ([quote] if quote else _QUOTES) for separator in delimiters]
    if not has_header:
        fewest = max((int(name) for name in expected if name.isdecimal()), default=1)

        def alike(choice: tuple[str, str]) -> tuple[int, int]:
            counts = [len(_cells(line, *choice)) for _, line in first]
            return counts[0] if len(set(counts)) == 1 and counts[0] >= fewest else 0, counts[0]

        dialect = _Dialect(name, *max(choices, key=alike), first[0][0], has_header=False)
        return _read_with_or_without_quotes(text, dialect, quote)

    def score(choice: tuple[str, str], line: str) -> tuple[int, int]:
        cells = _cells(line, *choice)
        return len({*expected} & {cell.strip() for cell in cells}), len(cells)

    best = [max(choices, key=partial(score, line=line)) for _, line in first]
    rows = [(at + 1, _cells(line, *choice)) for (at, line), choice in zip(first, best, strict=True)]
    header = header_of([row for _, row in rows], needed)
    table = _read_with_or_without_quotes(text, _Dialect(name, *best[header], first[header][0]), quote)
    return table.noted(groups_above(rows[:header], name))


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
            continue
        expected = "header" if dialect.has_header else "first line"
        reason = f"the line has {counted(len(cells), 'cell')}, and the {expected} has {len(columns)}"
        if len(cells) > len(columns):
            reason += "; a cell with a delimiter in it stands in quotes"
        if len(columns) == 1:
            reason += ", or the file's name ends in .txt: then each line is a prompt"
        ragged.append((line, " ... ".join(cells), reason))
    by_column = list(zip(*rows, strict=True)) or [()] * len(columns)
    series = [
        pl.Series(name, cells, pl.String) for name, cells in zip(columns, by_column, strict=True) if name
    ]
    numbers = pl.Series(lines, dtype=pl.Int64)
    return Table(pl.DataFrame(series), numbers, header, tuple(ragged), unclear=tuple(unclear))


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


# ---- texts without a header


_PLACES = "scene|shot|clip|prompt|image|video|frame|szene|bild|scène|plan|escena|toma|カット|镜头"
NAMED = re.compile(r"([^|]+?)\s*\|\s*(.+)", re.DOTALL)
"""A name and a prompt."""

LABEL = re.compile(
    r"\[(?P<bracket>[^\[\]]+)\]|\#+\s*(?P<heading>.+)"
    r"|(?P<place>[^\W\d]+\s*\#?\d+)\s*[:.)-]?|(?P<words>[^.!?,:]{1,40}):"
)
"""A line that names the prompt below it: in brackets, a heading, `Scene 1`, or words with a colon."""

RULE = re.compile(r"[\s=_*#~.+-]{3,}")

_NOT_MEANT = (
    ("a name before |", NAMED),
    ("a number first", re.compile(r"\d+\s*[.):]\s+.+", re.DOTALL)),
    ("a label first", re.compile(rf"(?i:{_PLACES})\s*\d+\s*[:.)-]\s*.+", re.DOTALL)),
    ("quotes around it", re.compile('["“«„].+["”»“]', re.DOTALL)),
)
"""What most prompts of a text may have that is not meant to be sent."""


def lines_of(text: str, config: Input) -> dict[int, str]:
    """The lines of a text by their numbers, blank ones too, without those that are comments."""
    comments = config.comments
    return {
        at: line
        for at, line in enumerate(text.split("\n"), 1)
        if not (comments and line.startswith(comments))
    }


def read_prompts(lines: Mapping[int, str], name: str, config: Input, *, of_several: bool) -> Table:
    """A text without a header, by its lines. A file that is one `of_several` has one prompt,
    whose id is the file's name, unless each line has its own name.

    Raises:
        InputError: one of several files has several lines or paragraphs, so it may be several prompts.
    """
    prompts = {at: line for at, line in lines.items() if line.strip()}
    if config.split == "named_lines":
        return _read_named(prompts, name, config)
    if config.split == "sections":
        return _read_sections(lines, name, config)
    if config.split == "paragraphs":
        prompts = _paragraphs(lines)
    names = {}
    if of_several:
        if len(prompts) > 1:
            hint = "Put a prompt of several lines on one line; or join lists of prompts into one file."
            if config.split == "lines" and len(_paragraphs(lines)) == 1:
                hint = "A prompt may have several lines with input.split: paragraphs. Join lists of prompts."
            size = counted(len(prompts), "line" if config.split == "lines" else "paragraph")
            problem = f"{name}: has {size}; of several .txt files without a header, each is one prompt"
            raise InputError(problem, hint=hint)
        prompts = prompts or {1: ""}  # which is rejected
        names = {id_name(config): [PurePath(name.removesuffix(".gz").removesuffix(".zst")).stem]}
    cells = pl.DataFrame(names | {prompt_name(config.names): [*prompts.values()]}).cast(pl.String)
    table = Table(cells, pl.Series([*prompts], dtype=pl.Int64), name)
    for oddity, form in _NOT_MEANT:
        count = sum(form.fullmatch(prompt.strip()) is not None for prompt in prompts.values())
        if 2 * count > len(prompts):
            note = f"{count:,} of {counted(len(prompts), 'prompt')} have {oddity}, which is sent"
            is_name = form is NAMED and config.split == "lines"
            table = table.noted(note + ("; with input.split: named_lines it is the id" if is_name else ""))
    return table


def _read_named(lines: Mapping[int, str], name: str, config: Input) -> Table:
    """A text of which each line is `name | prompt`; the name is the id."""
    named_prompts: dict[int, tuple[str, str]] = {}
    broken: list[tuple[int, str, str]] = []
    for at, line in lines.items():
        if match := NAMED.fullmatch(line.strip()):
            named_prompts[at] = match[1], match[2]
        else:
            broken.append((at, line, "is not `name | prompt`, which input.split: named_lines reads"))
    ids, prompts = ([parts[place] for parts in named_prompts.values()] for place in (0, 1))
    cells = pl.DataFrame({id_name(config): ids, prompt_name(config.names): prompts}).cast(pl.String)
    return Table(cells, pl.Series([*named_prompts], dtype=pl.Int64), name, tuple(broken))


def _read_sections(lines: Mapping[int, str], name: str, config: Input) -> Table:
    """A text whose prompts stand between rules, or below labels, which are their ids where no two are alike.

    Where most have labels, what stands below none is rejected.
    """
    sections: dict[int, tuple[str, list[str]]] = {}
    label, first = "", None
    for at, line in lines.items():
        match = LABEL.fullmatch(line.strip())
        if match or RULE.fullmatch(line.strip()):
            first = None
            label = next(filter(None, match.groups())).strip() if match else label
        elif first is not None:
            sections[first][1].append(line)
        elif line.strip():
            first = at
            sections[at], label = (label, [line]), ""
    texts = {at: (label, "\n".join(text).strip()) for at, (label, text) in sections.items()}
    are_labelled = 2 * sum(bool(label) for label, _ in texts.values()) >= max(len(texts), 1)
    broken = tuple(
        (at, text, "stands below no label, and input.split is sections")
        for at, (label, text) in texts.items()
        if are_labelled and not label
    )
    kept = {at: section for at, section in texts.items() if section[0] or not are_labelled}
    labels, prompts = ([section[place] for section in kept.values()] for place in (0, 1))
    ids = {id_name(config): labels} if are_labelled and len({*labels}) == len(labels) else {}
    cells = pl.DataFrame(ids | {prompt_name(config.names): prompts}).cast(pl.String)
    return Table(cells, pl.Series([*kept], dtype=pl.Int64), name, broken)


def likely_split(lines: Sequence[str], numbers: Sequence[int]) -> tuple[str, bool]:
    """What is a prompt in a text of these lines that are not blank, with their numbers, as `input.split` has
    it, or `#`, where `input.comments` leaves out headings; and whether that is a doubt.
    """
    stripped = [line.strip() for line in lines]
    if all(map(NAMED.fullmatch, stripped)):
        return "named_lines", True
    labels = [match for line in stripped if (match := LABEL.fullmatch(line))]
    names = [
        line for line, below in pairwise(stripped) if LABEL.fullmatch(line) and not LABEL.fullmatch(below)
    ]
    groups: list[list[tuple[str, int]]] = [[]]
    for line, number in zip(stripped, numbers, strict=True):
        if LABEL.fullmatch(line) or RULE.fullmatch(line):
            groups.append([])
        else:
            groups[-1].append((line, number))
    groups = [group for group in groups if group]
    if groups and len(groups) < len(lines) and sum(map(len, groups)) < len(lines):
        is_place = any(match["bracket"] or match["place"] for match in labels)
        whole = sum(
            len(group) == 1 or _go_on(group) or (is_place and group[-1][1] - group[0][1] < len(group))
            for group in groups
        )
        if 2 * whole > len(groups) and (len(groups) > 1 or is_place):
            return "sections", whole < len(groups) or len({*names}) < len(names)
        if sum(RULE.fullmatch(line) is not None for line in stripped) > 1:
            return "sections", True
        if labels and all(match["heading"] for match in labels):
            return "#", False
    are_apart = any(number > before + 1 for before, number in pairwise(numbers))
    both = list(zip(stripped, numbers, strict=True))
    return ("paragraphs", True) if are_apart and _go_on(both) else ("lines", False)


def _go_on(lines: Sequence[tuple[str, int]]) -> bool:
    """Whether most lines that have one right below them, by their numbers, go on in it."""
    follows = [
        line[-1:] in ",;:-" or below[:1].islower()
        for (line, number), (below, next_number) in pairwise(lines)
        if next_number == number + 1
    ]
    return 2 * sum(follows) > len(follows)


def _paragraphs(lines: Mapping[int, str]) -> dict[int, str]:
    """What stands between blank lines, by the number of its first line."""
    paragraphs: dict[int, list[str]] = {}
    first = None
    for at, line in lines.items():
        if not line.strip():
            first = None
        else:
            first = at if first is None else first
            paragraphs.setdefault(first, []).append(line)
    return {at: "\n".join(paragraph) for at, paragraph in paragraphs.items()}
