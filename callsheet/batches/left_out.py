"""Rows of a table that are none: its header again, the types of its columns, and what stands below it.

Each is left out with a note that says on which line it is. Everything else stays a row.
"""

from __future__ import annotations

import re

import polars as pl

from callsheet.batches.delimited import Table
from callsheet.plain_text import counted

_OF_TEXT = ("text", "string", "str", "char", "varchar")
_TYPES = {*_OF_TEXT, "int", "integer", "number", "numeric", "float", "decimal", "bool", "boolean", "date"} | {
    *("datetime", "list", "array", "object", "json", "enum", "url", "uri", "uuid", "optional", "required")
}
_MOST_BELOW = 20  # rows that stand below a table
_SHOWN = 60  # characters of a row
_FOOTER = re.compile(
    r"""(?:
    (?:grand\ total|sub-?total|totals?|sum|gesamt(?:summe)?|summe|somme|suma
      |notes?|source|sources|copyright|hinweis|anmerkung|quelle|remarque|nota|fuente)
      (?:\s*$|\s*[:=#(©]|\s+(?:of\s+)?\d|\s+[-\u2013\u2014]\s)
    |(?:exported|generated|exportiert|generiert|erstellt|export[ée]e?|g[ée]n[ée]r[ée]e?|exportado|generado)
      (?:\s*$|\s*[:=(]|\s+\d|\s+(?:by|on|at|from|with|via|am|von|vom|mit|aus|le|par|depuis|el|por|con|desde)\b)
    |©
    )""",
    re.IGNORECASE | re.VERBOSE,
)


def without_headers(table: Table, name: str) -> Table:
    """A table without the rows that are its header again, as in joined files, of which each may have begun
    with a byte order mark; a note says where.
    """
    columns = table.cells.columns
    again = table.cells.select(
        pl.all_horizontal(
            pl.lit(True),
            *(pl.col(each).str.strip_prefix("\ufeff").str.strip_chars() == each for each in columns),
        )
    ).to_series()
    if not columns or not again.any():
        return table
    lines = table.lines.filter(again)
    more = f" and on {counted(lines.len() - 1, 'more line')}" if lines.len() > 1 else ""
    return table.without(
        again, f"{name}: the header comes again on line {lines[0]}{more}; that is no row, and left out"
    )


def without_numbers(table: Table) -> Table:
    """A table of a file without a header, without a first row that has the numbers of the columns: rows that
    `callsheet failed --csv` has written begin with it.
    """
    if table.cells.is_empty() or [*table.cells.row(0)] != table.cells.columns:
        return table
    return table.without(pl.int_range(table.cells.height, eager=True) == 0, "")


def without_types(table: Table, name: str, prompt: str) -> Table:
    """A table without its first row where that has the types of the columns (`text`, `integer`)."""
    if prompt not in table.cells.columns or table.cells.is_empty():
        return table
    row = {column: (cell or "").strip().lower() for column, cell in table.cells.row(0, named=True).items()}
    filled = [cell for cell in row.values() if cell]
    if len(filled) < 2 or row[prompt] not in _OF_TEXT or not _TYPES.issuperset(filled):
        return table
    is_first = pl.int_range(table.cells.height, eager=True) == 0
    said = f"{name}: line {table.lines[0]} has the types of the columns; that is no row, and left out"
    return table.without(is_first, said)


def without_footers(table: Table, name: str, prompt: str) -> Table:
    """A table without what stands below it: last rows with a text like `Total: 12` in the first column, or
    in that of the prompts, and nothing in the others, of which all other rows fill one.
    """
    cells, texts = table.cells, list[str]()
    if cells.width < 2:
        return table
    places = {0, *(at for at, column in enumerate(cells.columns) if column == prompt)}
    used: set[int] = set()
    for row in reversed(cells.tail(_MOST_BELOW).rows()):
        filled = [at for at, cell in enumerate(row) if cell and cell.strip()]
        if len(filled) != 1 or filled[0] not in places or not _FOOTER.match(row[filled[0]].strip()):
            break
        texts.insert(0, " ".join(row[filled[0]].split()))
        used.update(filled)
    rows = cells.height - len(texts)
    if not texts or not rows:
        return table
    others = [column for at, column in enumerate(cells.columns) if at not in used]
    is_filled = (pl.col(column).fill_null("").str.strip_chars() != "" for column in others)
    if not others or not any(cells.head(rows).select(each.all() for each in is_filled).row(0)):
        return table
    below = pl.int_range(cells.height, eager=True) >= rows
    found = zip(table.lines.filter(below), texts, strict=True)
    said = ", ".join(f"line {line} ({_cut(text)})" for line, text in found)
    return table.without(below, f"{name}: below the rows stands what is none, and left out: {said}")


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
