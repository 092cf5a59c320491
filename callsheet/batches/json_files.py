"""JSON and JSON Lines -> tables of text, with the line of the file on which each row begins.

A row is an object, or a text, which is its prompt. Objects in objects become columns with dotted names
(`body.prompt`), and lists become JSON text. Does not know what the columns mean.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import polars as pl

from callsheet.batches.delimited import Table
from callsheet.errors import InputError

_EXPECTED = 'Expected [{"prompt": ...}, ...], a list of texts, or {"an id": {"prompt": ...}, ...}.'
_LARGEST_WHOLE = 2**53  # up to which a float has each whole number


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_number)


def read_lines(text: bytes, name: str, column: str) -> Table:
    """A file with a row on each line (`.jsonl`, `.ndjson`). A line that is no row is rejected by its number.

    A row that is a text is put into `column`. The text has `\\n` at the end of every line.
    """
    rows: list[tuple[int, Any]] = []
    broken: list[tuple[int, str, str]] = []
    for number, line in enumerate(text.decode().split("\n"), 1):
        try:
            if line.strip():
                rows.append((number, _DECODER.decode(line)))
        except json.JSONDecodeError as error:
            broken.append((number, line, f"is not JSON: {error.msg} at character {error.colno}"))
        except (ValueError, RecursionError) as error:
            broken.append((number, line, f"is not JSON: {error}"))
    return _table(rows, name, column, broken)


def read_document(text: bytes, name: str, column: str, ids: str) -> Table:
    """A file with one value (`.json`): a list of rows, or an object of rows whose keys are put into `ids`.

    Raises:
        InputError: it is no JSON, or no list or object of rows.
    """
    try:
        entries = list(_entries(text.decode()))
    except json.JSONDecodeError as error:
        raise InputError(f"{name}, line {error.lineno}: is not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}: is not JSON with rows: {error}", hint=_EXPECTED) from None
    if entries and all(not isinstance(value, dict | str) for _, _, value in entries):
        lists = [key for _, key, value in entries if key is not None and isinstance(value, list)]
        hint = f"{_EXPECTED} Save what is under {json.dumps(lists[0])} as a file." if lists else _EXPECTED
        raise InputError(f"{name}: has no rows", hint=hint)
    rows: list[tuple[int, Any]] = []
    for line, key, value in entries:
        row = _as_object(value, column)
        rows.append((line, {ids: key, **row} if key is not None and isinstance(row, dict) else row))
    return _table(rows, name, column, [])


def _entries(document: str) -> Iterator[tuple[int, str | None, Any]]:
    """The line, the key (None in a list) and the value of each entry of a list or an object.

    Raises:
        json.JSONDecodeError: it is no JSON.
        ValueError: it is no list and no object.
    """
    whole = _DECODER.decode(document)
    if not isinstance(whole, list | dict):
        raise ValueError("it is neither a list nor an object")  # noqa: TRY004 - of the file
    line, counted_to, key = 1, 0, None
    at = _after(document, document.index("[" if isinstance(whole, list) else "{") + 1)
    while document[at] not in "]}":
        line, counted_to = line + document.count("\n", counted_to, at), at
        if isinstance(whole, dict):
            key, at = _DECODER.raw_decode(document, at)
            at = _after(document, at)
        value, at = _DECODER.raw_decode(document, at)
        yield line, key, value
        at = _after(document, at)


def _after(document: str, at: int) -> int:
    """Where the next key or value begins, or the end of the list or object."""
    while document[at].isspace() or document[at] in ",:":
        at += 1
    return at


def _table(
    values: Iterable[tuple[int, Any]], name: str, column: str, broken: list[tuple[int, str, str]]
) -> Table:
    """Rows, each with its line, with the columns of all of them in the order in which they come."""
    lines: list[int] = []
    rows: list[dict[str, str | None]] = []
    for line, value in values:
        try:
            rows.append(_row(_as_object(value, column)))
            lines.append(line)
        except (ValueError, RecursionError) as error:
            broken.append((line, json.dumps(value, default=str), str(error)))
    if broken and not rows:
        line, _, reason = min(broken)
        hint = "A list, or an object on several lines, is read where the file's name ends in .json."
        raise InputError(f"{name}: has no rows; line {line} {reason}", hint=hint)
    names = dict.fromkeys(key for row in rows for key in row)
    cells = {key: pl.Series([row.get(key) for row in rows], dtype=pl.String) for key in names}
    return Table(pl.DataFrame(cells), pl.Series(lines, dtype=pl.Int64), name, tuple(sorted(broken)))


def _as_object(value: Any, column: str) -> Any:
    """A row that is a text as an object, of which it is the prompt."""
    return {column: value} if isinstance(value, str) else value


def _row(value: Any) -> dict[str, str | None]:
    """A row's cells by column.

    Raises:
        ValueError: it is no row.
    """
    if not isinstance(value, dict):
        raise ValueError("is neither an object nor a text")  # noqa: TRY004 - of the file
    row = dict(_flat(value))
    if any(0xD800 <= ord(character) <= 0xDFFF for cell in (*row, *row.values()) for character in cell or ""):
        raise ValueError("has half a character: a \\ud... without its other half")
    return row


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str | None]]:
    """The cells of an object, and those of the objects in it under dotted names."""
    for key, cell in value.items():
        if isinstance(cell, dict):
            yield from _flat(cell, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", _text(cell)


def _text(cell: Any) -> str | None:
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bool | list):
        return json.dumps(cell, ensure_ascii=False)
    if isinstance(cell, float):
        if not math.isfinite(cell):
            raise ValueError("has a number that is too large")
        if cell.is_integer() and abs(cell) < _LARGEST_WHOLE:
            return str(int(cell))
    return str(cell)
