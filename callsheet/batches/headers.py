"""A table of a batch's rows: what the names of its columns say, which line is its header, and which rows are
none.

A row that is left out (the header again, the types of the columns, what stands below the rows) is said in a
note, with its line. Everything else stays a row. It reads no file.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl
import yaml
from polars.datatypes import DataTypeClass

from callsheet.config.settings import COLUMNS, FileColumn, Input
from callsheet.errors import InputError
from callsheet.plain_text import counted, cut

_WORDS = 4  # of a line that is a prompt and not a column's name
NUMBER = r"(?i)^\s*(?:[+-]?\d+([.,:x]\d+)?|https?://.*|s3://.*)\s*$"
"""A number, a ratio or an address."""

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
        unclear: what may not be meant so, such as a cell of several lines that look like rows, each in words.
        hidden: the lines of hidden rows.
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
    unclear: tuple[str, ...] = ()
    hidden: frozenset[int] = frozenset()
    placed: str = ""

    def noted(self, note: str) -> Table:
        """The same table with one more note; an empty one is none."""
        return replace(self, note="; ".join(filter(None, (self.note, note))))

    def without(self, rows: pl.Series, note: str = "") -> Table:
        """The table without the rows for which this is true; and a note of it."""
        kept = replace(self, cells=self.cells.filter(~rows), lines=self.lines.filter(~rows))
        return kept.noted(note)


# ---- the names of columns


def template_columns(template: str | None) -> list[str]:
    """The columns that a template names, in its order."""
    return [name for _, name, _, _ in string.Formatter().parse(template or "") if name is not None]


def prompt_name(columns: Mapping[FileColumn, str | None]) -> str:
    """The name of the column with the prompts, by the config's columns; never a prompt itself."""
    name = columns.get("prompt")
    return "prompt" if name is None or is_a_prompt(name) else name


def id_name(config: Input) -> str:
    """The name of the column with the ids."""
    return config.names.get("id") or "id"


def needed(config: Input) -> list[str]:
    """The columns without which a file has no prompts."""
    return template_columns(config.template) or [prompt_name(config.names)]


def mapped(config: Input) -> list[str]:
    """The file's columns that `input.columns` names; of a ratio that of the width, and that of the height."""
    names = [name if isinstance(name, tuple) else (name,) for name in config.columns.values() if name]
    return [column for name in names for column in name]


def read_by(config: Input) -> list[str]:
    """The file's columns that the config reads beside those that `input.columns` names."""
    return [*template_columns(config.template), *template_columns(config.id), *config.where]


def is_a_prompt(name: str) -> bool:
    """Whether a text is a prompt rather than a column's name."""
    return len(name.split()) >= _WORDS and "prompt" not in name.lower()


def is_a_number(text: str) -> bool:
    """Whether a text is a number, a ratio or an address, and no column's name."""
    return re.search(NUMBER, text) is not None


def is_a_cell(text: str) -> bool:
    """Whether a text is a cell of a row, and no column's name."""
    return is_a_prompt(text) or is_a_number(text)


def in_yaml(text: str) -> str:
    """A text as a value of YAML on one line."""
    is_plain = re.fullmatch(r"[^\W\d][\w .-]*\w", text) and yaml.safe_load(text) == text
    return text if is_plain else json.dumps(text, ensure_ascii=False)


# ---- the header


def header_of(rows: Sequence[Sequence[str]], needed: Collection[str]) -> int:
    """Which of a file's first rows is the header: the first one, or one below a title or below names of
    groups of columns.

    A title has one cell in each row, and the header below it several, with one of the wanted columns.
    """
    names = {name.strip().lower() for name in needed}
    for at, row in enumerate(rows):
        if len(row) > 1 and names & _lower(row):
            return at
        if sum(bool(cell.strip()) for cell in row) > 1:
            below = next((place for place in range(at + 1, len(rows)) if any(_lower(rows[place]))), at)
            return below if names & _lower(rows[below]) and _are_groups(row, rows[below]) else 0
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


def column_names(cells: Sequence[str], header: str, *, has_header: bool) -> list[str]:
    """A header's cells as names; without a header the columns' numbers, from 1. `header` says where it is.

    Raises:
        InputError: two columns have one name.
    """
    if not has_header:
        return [str(number) for number in range(1, len(cells) + 1)]
    names = [cell.strip() for cell in cells]
    if twice := next((name for at, name in enumerate(names) if name and name in names[:at]), None):
        hint = "Where that line is a row, and the file has no header, set input.header: none."
        raise InputError(f"{header}: two columns are named {twice!r}", hint=hint)
    return names


# ---- rows that are none


def without_what_is_no_row(table: Table, name: str, prompt: str, *, has_header: bool) -> Table:
    """A table of text or of a sheet without a header that comes again, as in joined files, of which each may
    have begun with a byte order mark; without types below it (`text`, `integer`); and without footers.

    Rows without a header that `callsheet failed --csv` has written begin with the numbers of the columns.
    """
    cells, lines = table.cells, table.lines
    if cells.is_empty():
        return table
    if not has_header:
        is_numbers = [*cells.row(0)] == cells.columns
        table = table.without(_are_first(cells)) if is_numbers else table
        return _without_footers(table, name, prompt)
    texts = {column: pl.col(column).str.strip_prefix("\ufeff").str.strip_chars() for column in cells.columns}
    again = cells.select(pl.all_horizontal(text.eq_missing(column) for column, text in texts.items()))
    if (is_header := again.to_series()).any():
        places = lines.filter(is_header)
        also = f" and on {counted(places.len() - 1, 'more line')}" if places.len() > 1 else ""
        note = f"the header comes again on line {places[0]}{also}; that is no row, and left out"
        table = table.without(is_header, f"{name}: {note}")
    if prompt in table.cells.columns and not table.cells.is_empty():
        row = {key: (cell or "").strip().lower() for key, cell in table.cells.row(0, named=True).items()}
        types = [cell for cell in row.values() if cell]
        if len(types) > 1 and row[prompt] in _OF_TEXT and _TYPES.issuperset(types):
            note = f"line {table.lines[0]} has the types of the columns; that is no row, and left out"
            table = table.without(_are_first(table.cells), f"{name}: {note}")
    return _without_footers(table, name, prompt)


def _are_first(cells: pl.DataFrame) -> pl.Series:
    return pl.int_range(cells.height, eager=True) == 0


def _without_footers(table: Table, name: str, prompt: str) -> Table:
    """A table without what stands below it: last rows with a text like `Total: 12` in the first column, or
    in that of the prompts, and nothing in the others, of which all other rows fill one.
    """
    cells, texts = table.cells, list[str]()
    places = {0, *(at for at, column in enumerate(cells.columns) if column == prompt)}
    used: set[int] = set()
    for row in reversed(cells.tail(_MOST_BELOW).rows()):
        filled = [at for at, cell in enumerate(row) if cell and cell.strip()]
        if len(filled) != 1 or filled[0] not in places or not _FOOTER.match(row[filled[0]].strip()):
            break
        texts.insert(0, " ".join(row[filled[0]].split()))
        used.update(filled)
    rows = cells.height - len(texts)
    unused = [column for at, column in enumerate(cells.columns) if at not in used]
    is_filled = [(pl.col(column).fill_null("").str.strip_chars() != "").all() for column in unused]
    if not (texts and rows and unused) or not any(cells.head(rows).select(is_filled).row(0)):
        return table
    below = pl.int_range(cells.height, eager=True) >= rows
    texts = [cut(text, _SHOWN) for text in texts]
    footers = zip(table.lines.filter(below), texts, strict=True)
    note = ", ".join(f"line {line} ({text})" for line, text in footers)
    return table.without(below, f"{name}: below the rows stands what is none, and left out: {note}")


# ---- the fields of structs

_Types = Mapping[str, pl.DataType | DataTypeClass]


def with_fields(cells: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """A table with these fields of its structs, by dotted names such as `body.prompt`, as further columns. A
    name that it does not have is left out.
    """
    fields = {name: value for name, value, _ in _named_fields(cells.schema)}
    missing = [name for name in names if name in fields and name not in cells.columns]
    return cells.with_columns(fields[name].alias(name) for name in dict.fromkeys(missing))


def field_names(schema: _Types) -> list[str]:
    """The names of a table's columns; those of a struct's fields, dotted, in the place of its own."""
    return [name for name, _, dtype in _named_fields(schema) if not isinstance(dtype, pl.Struct)]


def _named_fields(
    types: _Types, prefix: str = "", parent: pl.Expr | None = None
) -> Iterator[tuple[str, pl.Expr, pl.DataType | DataTypeClass]]:
    """All columns and the fields of structs: their dotted names, values and types."""
    for name, dtype in types.items():
        value = pl.col(name) if parent is None else parent.struct.field(name)
        yield f"{prefix}{name}", value, dtype
        yield from _named_fields(struct_fields(dtype), f"{prefix}{name}.", value)


def struct_fields(dtype: pl.DataType | DataTypeClass) -> dict[str, pl.DataType | DataTypeClass]:
    """The fields of a struct, with their types; of any other type none."""
    return {field.name: field.dtype for field in dtype.fields} if isinstance(dtype, pl.Struct) else {}
