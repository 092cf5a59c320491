"""Excel workbooks -> a sheet as a table of text; a row's line is its number in the sheet.

A cell is the text that the sheet shows: a number is written by its format (ECMA-376 part 1, 18.8.31), and a
formula is the result that is saved with it. Formats that are not read, such as conditions and fractions,
leave their numbers as they are; so does `General`, which shows as many digits as the column is wide. Dates
that are shown as the reader's system shows them are ISO 8601.
"""

from __future__ import annotations

import io
import logging
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree

import polars as pl

from callsheet.batches.headers import Table, column_names, groups_above, header_of
from callsheet.batches.texts import kind_of
from callsheet.cells import FAILED_FORMULAS
from callsheet.errors import InputError

_BUILT_IN = {
    **{1: "0", 2: "0.00", 3: "#,##0", 4: "#,##0.00", 9: "0%", 10: "0.00%", 11: "0.00e+00"},
    **{14: "yyyy-mm-dd", 15: "d-mmm-yy", 16: "d-mmm", 17: "mmm-yy", 18: "h:mm am/pm", 19: "h:mm:ss am/pm"},
    **{20: "h:mm", 21: "h:mm:ss", 22: "yyyy-mm-dd h:mm", 37: "#,##0;(#,##0)", 38: "#,##0;(#,##0)"},
    **{39: "#,##0.00;(#,##0.00)", 40: "#,##0.00;(#,##0.00)", 45: "mm:ss", 46: "[h]:mm:ss"},
}
_BY_SYSTEM = re.compile(r"\[\$-(f800|f400|x-sysdate|x-systime)\]", re.IGNORECASE)
_TOKEN = re.compile(
    r"""(?P<text>"[^"]*"|\\.|[ $+():!^&'~{}<>=-]|[^\x00-\x7f])|(?P<blank>_.|\*.)|\[\$(?P<money>[^\]-]*)"""
    r"""(?:-(?P<language>[^\]]*))?\]|\[(?P<elapsed>h+|m+|s+)\]|\[(?P<colour>[a-z]+\d*)\]|(?P<half>am/pm|a/p)"""
    r"""|(?P<general>general)|(?P<part>y+|m+|d+|h+|s+(?:\.0+)?)|(?P<exponent>e[+-]0+)|(?P<digit>[0#?])|(?P<mark>[.,%/@])""",
    re.IGNORECASE,
)
_LONGEST = 11  # characters of a number as `General`
_MONTHS = "January February March April May June July August September October November December"
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
_LAST_DAY = 2_958_465  # 9999-12-31
_Tokens = list[tuple[str, str]]
_Texts = defaultdict[int, dict[int, str]]  # by column and row


def code_of(number: int, own_codes: dict[int, str]) -> str | None:
    """A format's code by its number, of the workbook's own or the built-in ones; None for `General`."""
    code = own_codes.get(number, _BUILT_IN.get(number))
    return None if code is None or code.lower() in ("general", "@") else code


def shown(number: str, code: str, *, since_1904: bool = False) -> str | None:
    """A number as its cell shows it; None where the format is none of those that are read here.

    Args:
        number: as the workbook has it, with all digits.
        code: the format, such as `000`, `0.0%` or `d-mmm-yy`.
        since_1904: whether the workbook counts days from 1904.
    """
    try:
        value = Decimal(number)
        if not value.is_finite() or value.adjusted() > 20:
            return None
        # The parts of a format: for positive and negative numbers, zero and text.
        sections = re.findall(r'(?:"[^"]*"|\\.|[^;"\\])+|(?<=;)(?=;|$)', code) or [""]
        at = 1 if value < 0 and len(sections) > 1 else 2 if value == 0 and len(sections) > 2 else 0
        tokens = _tokens(sections[at])
        if tokens is None:
            return None
        if any(kind in ("part", "elapsed") for kind, _ in tokens):
            by_system = _BY_SYSTEM.search(code)
            return None if by_system or value < 0 else _date(value, tokens, since_1904=since_1904)
        text = _number(abs(value), tokens)
        return text and ("-" + text if value < 0 and at == 0 and text.strip("0.,") else text).strip()
    except InvalidOperation:  # it is no number, or has too many digits
        return None


@cache
def _tokens(section: str) -> _Tokens | None:
    """The parts of a section; None where one of them is not read here."""
    tokens: _Tokens = []
    at = 0
    while at < len(section):
        match = _TOKEN.match(section, at)
        if match is None:
            return None
        at = match.end()
        kind = match.lastgroup or ""
        token = match[0]
        if kind in ("money", "language"):
            kind, token = "text", match["money"]
            language = (match["language"] or "en").lower()
            if not language.startswith("en") and not language.endswith("09"):
                tokens.append(("language", language))
        elif kind == "text":
            token = token[1:] if token.startswith("\\") else token.strip('"') if len(token) > 1 else token
        elif kind == "blank":  # `*-` fills the cell with a character, which a CSV does not have
            kind, token = "text", " " if token[0] == "_" else ""
        elif kind == "elapsed":
            token = match["elapsed"]
        elif kind == "colour":
            continue
        tokens.append((kind, token.lower() if kind != "text" else token))
    return tokens


def _number(value: Decimal, tokens: _Tokens) -> str | None:
    kinds = [kind for kind, _ in tokens]
    marks = [token for kind, token in tokens if kind == "mark"]
    if "/" in marks or "@" in marks or marks.count(".") > 1 or kinds.count("exponent") > 1:
        return None
    if "digit" not in kinds:
        plain = f"{value.normalize():f}"
        plain_parts = {"general": plain, "text": None}
        parts = [plain_parts[kind] or token for kind, token in tokens if kind in plain_parts]
        return "".join(parts) if "general" not in kinds or len(plain) <= _LONGEST else None
    point = next((at for at, token in enumerate(tokens) if token == ("mark", ".")), len(tokens))
    last = max((at for at in range(point) if kinds[at] == "digit"), default=-1)
    integer, fraction = tokens[:point], tokens[point:]
    end = max(at for at, kind in enumerate(kinds) if kind == "digit")
    scale = [*integer[last + 1 :], *fraction[max(0, end + 1 - point) :]].count(("mark", ","))
    value = value * 100 ** marks.count("%") / 1000**scale
    places = [token for kind, token in fraction if kind == "digit"]
    if "exponent" in kinds:
        if [token for kind, token in integer if kind == "digit"] != ["0"] or "text" in kinds:
            return None
        with localcontext(rounding=ROUND_HALF_UP):
            mantissa, _, power = f"{value:.{len(places)}e}".partition("e")
        mark = next(token for kind, token in tokens if kind == "exponent")
        sign = "-" if power.startswith("-") else "+" if mark[1] == "+" else ""
        return f"{mantissa}E{sign}{abs(int(power)) if value else 0:0{len(mark) - 2}d}"
    digits = f"{value.quantize(Decimal(1).scaleb(-len(places)), ROUND_HALF_UP):f}"
    left, _, right = digits.partition(".")
    optional = len(places) - len("".join(places).rstrip("#?"))
    shortest = len(right) - optional
    kept = right[:shortest] + right[shortest:].rstrip("0")
    decimals = iter(kept)
    thousands = any(token == ("mark", ",") for token in integer[:last])
    text = _whole("" if left == "0" else left, integer, thousands=thousands)
    for kind, token in fraction:
        if kind == "digit":
            text += next(decimals, "")
        elif (kind, token) != ("mark", ",") and kind != "language":
            text += token
    return text


def _whole(digits: str, tokens: _Tokens, *, thousands: bool) -> str:
    """The digits before the point in their places, the first of which takes all that are left."""
    first = next((at for at, (kind, _) in enumerate(tokens) if kind == "digit"), None)
    text, placed = "", 0
    for at in range(len(tokens) - 1, -1, -1):
        kind, token = tokens[at]
        if kind != "digit":
            text = ("" if (kind, token) == ("mark", ",") or kind == "language" else token) + text
            continue
        count = max(1, len(digits)) if at == first else 1
        for _ in range(count):
            digit = digits[-1:] or {"0": "0", "?": " "}.get(token, "")
            digits = digits[:-1]
            text = digit + ("," if thousands and placed and placed % 3 == 0 and digit.strip() else "") + text
            placed += 1
    return text


def _date(value: Decimal, tokens: _Tokens, *, since_1904: bool) -> str | None:
    kinds = {kind for kind, _ in tokens}
    parts = [token for kind, token in tokens if kind == "part"]
    has_names = any(len(part) > 2 and part[0] in "md" for part in parts)
    if value > _LAST_DAY or kinds & {"digit", "exponent"} or (has_names and "language" in kinds):
        return None
    decimals = max((len(part) - part.index(".") - 1 for part in parts if "." in part), default=0)
    seconds = (value * 86_400).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP)
    # A spreadsheet takes 1900 for a leap year, so its day 60 is none.
    day = (1904, 1, 1) if since_1904 else (1899, 12, 31 if value < 60 else 30)
    first = datetime(*day)  # noqa: DTZ001 - a sheet's times have no zone
    moment = first + timedelta(microseconds=int(seconds * 1_000_000))
    is_half = any(kind == "half" for kind, _ in tokens)
    clock = [(at, token[0]) for at, (kind, token) in enumerate(tokens) if kind in ("part", "elapsed")]
    text = ""
    for at, (kind, token) in enumerate(tokens):
        if kind == "elapsed":
            unit = {"h": 3600, "m": 60, "s": 1}[token[0]]
            text += f"{int(seconds // unit):0{len(token)}d}"
        elif kind == "half":
            half = "PM" if moment.hour >= 12 else "AM"
            text += half[: len(token) // 2]
        elif kind == "part":
            previous = next((letter for place, letter in reversed(clock) if place < at), "")
            following = next((letter for place, letter in clock if place > at), "")
            is_minute = token[0] == "m" and len(token) < 3 and (previous == "h" or following == "s")
            text += _part("n" * len(token) if is_minute else token, moment, seconds, is_half=is_half)
        elif kind != "language":
            text += token
    return text.strip()


def _part(token: str, moment: datetime, seconds: Decimal, *, is_half: bool) -> str:
    """One part of a date or time; `n` is a minute, `m` a month."""
    letter, width = token[0], len(token)
    if letter == "y":
        return f"{moment.year:04d}" if width > 2 else f"{moment.year % 100:02d}"
    if letter == "m" and width > 2:
        name = _MONTHS.split()[moment.month - 1]
        return name[:3] if width == 3 else name[0] if width == 5 else name
    if letter == "d" and width > 2:
        name = _DAYS.split()[moment.weekday()]
        return name[:3] if width == 3 else name
    if letter == "s" and "." in token:
        integer, _, decimals = token.partition(".")
        return f"{moment.second:0{len(integer)}d}." + f"{seconds % 1:.{len(decimals)}f}".partition(".")[2]
    hour = (moment.hour % 12 or 12) if is_half else moment.hour
    number = {"m": moment.month, "d": moment.day, "h": hour, "n": moment.minute, "s": moment.second}[letter]
    return f"{number:0{min(width, 2)}d}"


ALL_SHEETS = "*"
"""As `input.sheet`: every sheet that has the columns. No sheet can have this name."""

_ROW = "\0row"  # cannot be the name of a column in a workbook
_FIRST_ROWS = 20  # of a sheet, among which the header is
_ERROR = re.compile(r"Error\((\w+)\)")
_SHOWN_AS = {re.sub(r"\W", "", text): text for text in FAILED_FORMULAS}
_NO_RESULTS = "has formulas without a result, read as empty cells: open it in a spreadsheet, and save it"
# Cells in the XML of a sheet: parsing all of it takes twenty times as long.
_RESULT = rb"[^>]*[^/>]>\s*(?:<(?:\w+:)?f(?:[^>]*/>|[^>]*>[^<]*</(?:\w+:)?f>)\s*)?<(?:\w+:)?"
_FILLED = re.compile(rb'<(?:\w+:)?c (?=[^>]*\br="([A-Z]+)\d+")' + _RESULT + rb"(?:v>[^<]|is\b)")
_NUMBER = re.compile(rb'<(?:\w+:)?c (?=([^>]*\bs="[1-9]\d*"[^>]*))' + _RESULT + rb"v>([^<]+)<")
_HIDDEN_ROW = re.compile(rb'<(?:\w+:)?row\s(?=[^>]*\bhidden="(?:1|true)")[^>]*?\br="(\d+)"')
_ATTRIBUTE = re.compile(rb'\b(\w+)="([^"]*)"')
_PLACE = re.compile(rb"([A-Z]+)(\d+)")
_NO_RESULTS_END = (b"</f></c>", b"</f><v/></c>", b"</f><v /></c>", b"</f><v></v></c>")
_NO_RESULT = re.compile(rb'<c (?![^>]*t="str")[^>]*><f[^>]*>[^<]*</f>(?:<v ?/>|<v></v>)?</c>')


def sheet_names(path: Path, name: str) -> list[str]:
    """The names of a workbook's sheets, in its order.

    Raises:
        InputError: it is no workbook, or cannot be read.
    """
    return list(_opened(path, name)[0].sheet_names)


def _opened(path: Path, name: str) -> tuple[Any, bytes]:
    """A workbook, and its content."""
    import fastexcel  # which no other file needs, nor pyarrow, by which the failed formulas come

    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror or error}") from None
    try:
        return fastexcel.read_excel(content), content
    except fastexcel.FastExcelError as error:
        raise _no_workbook(name, content, str(error)) from None


def read_sheet(path: Path, name: str, sheet: str | None, needed: list[str], *, has_header: bool) -> Table:
    """A sheet of a workbook, the first one without a name.

    Blank rows are left out; the first other row is the header, or one below a title. A formula that has
    failed is read as the sheet shows it: `#N/A`.

    Args:
        path: the file on this machine.
        name: its name in messages.
        sheet: the sheet's name.
        needed: columns by which a header below a title is found.
        has_header: False: the columns are named by their numbers, from 1.

    Raises:
        InputError: it is no workbook, it has no such sheet, or the sheet has no rows.
    """
    from fastexcel import FastExcelError

    logging.getLogger("calamine").addHandler(logging.NullHandler())  # what it warns of is said below
    workbook, content = _opened(path, name)
    sheets = workbook.sheet_names
    try:
        if sheet is not None and sheet not in sheets:
            raise InputError(f"{name}: there is no sheet {sheet!r}; the sheets are {', '.join(sheets)}")
        # `skip_rows=0` keeps blank rows above the header, so that row numbers are the sheet's.
        loaded = workbook.load_sheet(sheet or 0, header_row=None, skip_rows=0, dtypes="string")
        batch, failed = loaded.to_arrow_with_errors()
    except FastExcelError as error:
        raise _no_workbook(name, content, str(error)) from None
    place = name
    if len(sheets) > 1:
        place += f", sheet {loaded.name!r} (input.sheet may be {', '.join(sheets)})"
    cells = _shown(pl.DataFrame(batch), failed.errors if failed else ())
    xml = _sheet_xml(content, loaded.name)
    cells = _formatted(cells, content, xml)
    rows = cells.fill_null("").with_row_index(_ROW, offset=1).cast({_ROW: pl.Int64})
    rows = rows.filter(pl.any_horizontal(pl.exclude(_ROW).str.strip_chars() != ""))
    if rows.is_empty():
        raise InputError(f"{place}: is empty")
    first = [(row[0], row[1:]) for row in rows.head(_FIRST_ROWS).iter_rows()]
    at = header_of([row for _, row in first], needed) if has_header else -1
    if at == rows.height - 1:
        raise InputError(f"{place}: has no rows")
    number, header_cells = first[max(at, 0)]
    header = f"{place}, line {number}"
    names = column_names(header_cells, header, has_header=has_header)
    selected = [pl.col(old).alias(new) for old, new in zip(cells.columns, names, strict=True) if new]
    notes = [f"{name} {_NO_RESULTS}"] if _unsolved(content) else []
    if sheet is None and len(sheets) > 1:
        notes.append(f"{place}: this one is read, because it is the first")
    if at > 0:
        notes.append(groups_above(first[:at], name))
    note = "; ".join(filter(None, notes))
    hidden = frozenset(map(int, _HIDDEN_ROW.findall(xml)))
    return Table(rows[at + 1 :].select(selected), rows[_ROW][at + 1 :], header, note=note, hidden=hidden)


def _shown(cells: pl.DataFrame, failed: Iterable[Any]) -> pl.DataFrame:
    """The cells with those of failed formulas, which come as null, as the sheet shows them."""
    texts: _Texts = defaultdict(dict)
    for error in failed:
        row, column = error.position
        kind = _ERROR.search(error.detail)
        texts[column][row] = _SHOWN_AS.get(kind[1].upper() if kind else "", "#ERROR!")
    return _with_texts(cells, texts)


def _with_texts(cells: pl.DataFrame, texts: _Texts) -> pl.DataFrame:
    return cells.with_columns(
        cells.to_series(column).scatter(list(rows), list(rows.values())) for column, rows in texts.items()
    )


def _sheet_xml(content: bytes, sheet: str) -> bytes:
    """The XML of a sheet; empty where there is none: it is an .xls by another name, or a part is missing."""
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as parts, suppress(KeyError):
            targets = _xml(parts, "xl/_rels/workbook.xml.rels")
            links = {link.get("Id"): link.get("Target", "") for link in targets}
            for node in _xml(parts, "xl/workbook.xml").iterfind("{*}sheets/{*}sheet"):
                if node.get("name") == sheet:
                    link = next((value for name, value in node.items() if name.endswith("}id")), "")
                    return parts.read(str(PurePosixPath("/xl", links[link])).lstrip("/"))
    return b""


def _formatted(cells: pl.DataFrame, content: bytes, xml: bytes) -> pl.DataFrame:
    """The cells with each number as its format shows it; a number whose format is not read stays as it is."""
    if not xml:
        return cells
    with zipfile.ZipFile(io.BytesIO(content)) as parts, suppress(KeyError):  # a part is not there
        styles, book = _xml(parts, "xl/styles.xml"), _xml(parts, "xl/workbook.xml")
        own_codes = {
            int(number_format.get("numFmtId", 0)): number_format.get("formatCode", "")
            for number_format in styles.iterfind(".//{*}numFmt")
        }
        codes = [
            code_of(int(cell_format.get("numFmtId", 0)), own_codes)
            for cell_format in styles.iterfind("{*}cellXfs/*")
        ]
        formats = {str(at).encode(): code for at, code in enumerate(codes) if code}
        since_1904 = any(
            properties.get("date1904") in ("1", "true") for properties in book.iterfind("{*}workbookPr")
        )
        return _with_numbers(cells, xml, formats, since_1904=since_1904) if formats else cells
    return cells


def _xml(parts: zipfile.ZipFile, name: str) -> ElementTree.Element:
    """A part of a workbook; KeyError where there is none of this name."""
    return ElementTree.fromstring(parts.read(name))  # noqa: S314 - expat bounds what entities grow to


def _with_numbers(
    cells: pl.DataFrame, sheet: bytes, formats: Mapping[bytes, str], *, since_1904: bool
) -> pl.DataFrame:
    """The cells with the numbers that have one of these formats, by style."""
    text_of = cache(partial(shown, since_1904=since_1904))
    first = min(map(_column, set(_FILLED.findall(sheet))), default=0)  # those before it are left out
    texts: _Texts = defaultdict(dict)
    for attributes, number in _NUMBER.findall(sheet):
        values = dict(_ATTRIBUTE.findall(attributes))
        place, code = _PLACE.fullmatch(values.get(b"r", b"")), formats.get(values[b"s"])
        if place and code and values.get(b"t", b"n") == b"n":
            text = text_of(number.decode().strip(), code)
            if text is not None:
                texts[_column(place[1]) - first][int(place[2]) - 1] = text
    return _with_texts(cells, texts)


def _column(letters: bytes) -> int:
    """The number of a column from 0: A is 0, AA is 26."""
    number = 0
    for letter in letters:
        number = number * 26 + letter - ord("A") + 1
    return number - 1


def _unsolved(content: bytes) -> bool:
    """Whether a workbook has formulas of which no result is saved, as programs write them."""
    if not zipfile.is_zipfile(io.BytesIO(content)):
        return False
    with zipfile.ZipFile(io.BytesIO(content)) as parts:
        names = (name for name in parts.namelist() if name.startswith("xl/worksheets/"))
        sheets = map(parts.read, names)  # the endings are found a hundred times as fast as the expression
        return any(
            any(end in sheet for end in _NO_RESULTS_END) and _NO_RESULT.search(sheet) for sheet in sheets
        )


def _no_workbook(name: str, content: bytes, reason: str) -> InputError:
    problem, hint = f"it is {kind_of(content) or 'none'}", "A table of text has a name that ends in .csv."
    if not content:
        return InputError(f"{name}: is empty")
    if content.startswith(b"\xd0\xcf\x11\xe0"):
        problem, hint = "it has a password, or is another document", "Save it as .xlsx, without a password."
    elif content.startswith(b"PK"):
        problem = reason.partition("\n")[0].removeprefix("calamine error: ")
        hint = "Is all of it there? Open it in a spreadsheet, and save it as .xlsx."
    return InputError(f"{name}: cannot be read as a workbook: {problem}", hint=hint)
