"""Excel workbooks -> a sheet as a table of text; a row's line is its number in the sheet.

A cell is the text that the sheet shows: a number is written by its format (`number_formats`), and a formula
is the result that is saved with it. Does not know what the columns mean.
"""

from __future__ import annotations

import io
import logging
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree

import polars as pl

from callsheet.batches import number_formats
from callsheet.batches.delimited import Table, column_names, header_of
from callsheet.batches.encodings import kind_of
from callsheet.cells import FAILED_FORMULAS
from callsheet.errors import InputError

_ROW = "\0row"  # cannot be the name of a column in a workbook
_FIRST_ROWS = 20  # of a sheet, among which the header is
_ERROR = re.compile(r"Error\((\w+)\)")
_SHOWN_AS = {re.sub(r"\W", "", each): each for each in FAILED_FORMULAS}
_NO_RESULTS = "has formulas without a result, read as empty cells: open it in a spreadsheet, and save it"
# Cells in the XML of a sheet: parsing all of it takes twenty times as long.
_RESULT = rb"[^>]*[^/>]>\s*(?:<(?:\w+:)?f(?:[^>]*/>|[^>]*>[^<]*</(?:\w+:)?f>)\s*)?<(?:\w+:)?"
_FILLED = re.compile(rb'<(?:\w+:)?c (?=[^>]*\br="([A-Z]+)\d+")' + _RESULT + rb"(?:v>[^<]|is\b)")
_NUMBER = re.compile(rb'<(?:\w+:)?c (?=([^>]*\bs="[1-9]\d*"[^>]*))' + _RESULT + rb"v>([^<]+)<")
_ATTRIBUTE = re.compile(rb'\b(\w+)="([^"]*)"')
_PLACE = re.compile(rb"([A-Z]+)(\d+)")
_NO_RESULT = re.compile(rb'<c (?![^>]*t="str")[^>]*><f[^>]*>[^<]*</f>(?:<v ?/>|<v></v>)?</c>')


def read_sheet(path: Path, name: str, sheet: str | None, needed: list[str]) -> Table:
    """A sheet of a workbook, the first one without a name.

    Blank rows are left out; the first other row is the header, or one below a title. A formula that has
    failed is read as the sheet shows it: `#N/A`.

    Args:
        path: the file on this machine.
        name: its name in messages.
        sheet: the sheet's name.
        needed: columns by which a header below a title is found.

    Raises:
        InputError: it is no workbook, it has no such sheet, or the sheet has no rows.
    """
    import fastexcel  # which no other file needs, nor pyarrow, by which the failed formulas come

    logging.getLogger("calamine").addHandler(logging.NullHandler())  # what it warns of is said below
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror or error}") from None
    try:
        workbook = fastexcel.read_excel(content)
        sheets = workbook.sheet_names
        if sheet is not None and sheet not in sheets:
            raise InputError(f"{name}: there is no sheet {sheet!r}; the sheets are {', '.join(sheets)}")
        # `skip_rows=0` keeps blank rows above the header, so that row numbers are the sheet's.
        loaded = workbook.load_sheet(sheet or 0, header_row=None, skip_rows=0, dtypes="string")
        batch, failed = loaded.to_arrow_with_errors()
    except fastexcel.FastExcelError as error:
        raise _no_workbook(name, content, str(error)) from None
    where = name
    if len(sheets) > 1:
        where += f", sheet {loaded.name!r} (input.sheet may be {', '.join(sheets)})"
    cells = _shown(pl.DataFrame(batch), failed.errors if failed else ())
    cells = _formatted(cells, content, loaded.name)
    rows = cells.fill_null("").with_row_index(_ROW, offset=1).cast({_ROW: pl.Int64})
    rows = rows.filter(pl.any_horizontal(pl.exclude(_ROW).str.strip_chars() != ""))
    if rows.is_empty():
        raise InputError(f"{where}: is empty")
    at = header_of([row[1:] for row in rows.head(_FIRST_ROWS).iter_rows()], needed)
    if at == rows.height - 1:
        raise InputError(f"{where}: has no rows")
    number, *header_cells = rows.row(at)
    header = f"{where}, line {number}"
    names = column_names(header_cells, header)
    named = [pl.col(old).alias(new) for old, new in zip(cells.columns, names, strict=True) if new]
    notes = [f"{name} {_NO_RESULTS}"] if _unsolved(content) else []
    if sheet is None and len(sheets) > 1:
        notes.append(f"{where}: this one is read, because it is the first")
    return Table(rows[at + 1 :].select(named), rows[_ROW][at + 1 :], header, note="; ".join(notes))


def _shown(cells: pl.DataFrame, failed: Iterable[Any]) -> pl.DataFrame:
    """The cells with those of failed formulas, which come as null, as the sheet shows them."""
    texts: defaultdict[int, dict[int, str]] = defaultdict(dict)
    for error in failed:
        row, column = error.position
        kind = _ERROR.search(error.detail)
        texts[column][row] = _SHOWN_AS.get(kind[1].upper() if kind else "", "#ERROR!")
    return cells.with_columns(
        cells.to_series(column).scatter(list(rows), list(rows.values())) for column, rows in texts.items()
    )


def _formatted(cells: pl.DataFrame, content: bytes, sheet: str) -> pl.DataFrame:
    """The cells with each number as its format shows it; a number whose format is not read stays as it is."""
    if not zipfile.is_zipfile(io.BytesIO(content)):  # an .xls by another name
        return cells
    with zipfile.ZipFile(io.BytesIO(content)) as parts, suppress(KeyError):  # a part is not there
        formats, since_1904 = _formats(parts)
        if formats:
            return _with_numbers(cells, parts.read(_part_of(parts, sheet)), formats, since_1904=since_1904)
    return cells


def _with_numbers(
    cells: pl.DataFrame, sheet: bytes, formats: Mapping[bytes, str], *, since_1904: bool
) -> pl.DataFrame:
    """The cells with the numbers that have one of these formats, by style."""
    shown = cache(partial(number_formats.shown, since_1904=since_1904))
    first = min(map(_column, set(_FILLED.findall(sheet))), default=0)  # those before it are left out
    texts: defaultdict[int, dict[int, str]] = defaultdict(dict)
    for attributes, number in _NUMBER.findall(sheet):
        found = dict(_ATTRIBUTE.findall(attributes))
        place, code = _PLACE.fullmatch(found.get(b"r", b"")), formats.get(found[b"s"])
        if place and code and found.get(b"t", b"n") == b"n":
            text = shown(number.decode().strip(), code)
            if text is not None:
                texts[_column(place[1]) - first][int(place[2]) - 1] = text
    return cells.with_columns(
        cells.to_series(column).scatter(list(rows), list(rows.values())) for column, rows in texts.items()
    )


def _formats(parts: zipfile.ZipFile) -> tuple[dict[bytes, str], bool]:
    """The code of the format of each style that has one, and whether days are counted from 1904."""
    styles = _xml(parts, "xl/styles.xml")
    own = {
        int(each.get("numFmtId", 0)): each.get("formatCode", "")
        for each in styles.iter()
        if _is(each, "numFmt")
    }
    styled = (each for group in styles if _is(group, "cellXfs") for each in group)
    codes = {at: number_formats.code_of(int(each.get("numFmtId", 0)), own) for at, each in enumerate(styled)}
    book = _xml(parts, "xl/workbook.xml")
    since_1904 = any(each.get("date1904") in ("1", "true") for each in book if _is(each, "workbookPr"))
    return {str(at).encode(): code for at, code in codes.items() if code}, since_1904


def _part_of(parts: zipfile.ZipFile, sheet: str) -> str:
    """The name of the part that has a sheet."""
    book = _xml(parts, "xl/workbook.xml")
    links = _xml(parts, "xl/_rels/workbook.xml.rels")
    targets = {link.get("Id"): link.get("Target", "") for link in links}
    for each in book.iter():
        if _is(each, "sheet") and each.get("name") == sheet:
            link = next(value for name, value in each.items() if name.endswith("}id"))
            return str(PurePosixPath("/xl", targets[link])).lstrip("/")
    raise KeyError(sheet)


def _column(letters: bytes) -> int:
    """The number of a column from 0: A is 0, AA is 26."""
    number = 0
    for letter in letters:
        number = number * 26 + letter - ord("A") + 1
    return number - 1


def _xml(parts: zipfile.ZipFile, name: str) -> ElementTree.Element:
    """A part of a workbook.

    Raises:
        KeyError: there is no such part.
    """
    return ElementTree.fromstring(parts.read(name))  # noqa: S314 - expat bounds what entities grow to


def _is(element: ElementTree.Element, name: str) -> bool:
    """Whether an element has a name, in whichever namespace."""
    return element.tag.rpartition("}")[2] == name


def _unsolved(content: bytes) -> bool:
    """Whether a workbook has formulas of which no result is saved, as programs write them."""
    if not zipfile.is_zipfile(io.BytesIO(content)):
        return False
    with zipfile.ZipFile(io.BytesIO(content)) as parts:
        sheets = (name for name in parts.namelist() if name.startswith("xl/worksheets/"))
        return any(_has_unsolved(parts.read(name)) for name in sheets)


def _has_unsolved(sheet: bytes) -> bool:
    endings = (b"</f></c>", b"</f><v/></c>", b"</f><v /></c>", b"</f><v></v></c>")
    is_possible = any(ending in sheet for ending in endings)  # a hundred times as fast as the expression
    return is_possible and _NO_RESULT.search(sheet) is not None


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
