"""JSON and JSON Lines -> tables of text, with the line of the file on which each row begins.

A row is an object, or a text, which is its prompt. Objects in objects become columns with dotted names
(`body.prompt`), and lists become JSON text. Where the rows are in lists of other objects (`input.rows`), each
has what those objects have beside the lists. Does not know what the columns mean.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from callsheet.batches.delimited import Table
from callsheet.batches.names import has_prompts, in_yaml
from callsheet.config.settings import COLUMNS
from callsheet.errors import InputError

_EXPECTED = 'Expected [{"prompt": ...}, ...], a list of texts, or {"an id": {"prompt": ...}, ...}.'
_LARGEST_WHOLE = 2**53  # up to which a float has each whole number
_DEEPEST = 8  # lists and objects in each other, in which rows are looked for
_LOOKED_AT = 1_000  # entries of a list
_NAMED = 5  # lists


@dataclass(frozen=True, slots=True)
class Rows:
    """What the config says of rows.

    Attributes:
        prompt: the column of a row that is a text.
        ids: the column of the keys of an object of rows.
        needed: the columns without which a file has no prompts.
        path: where the rows are (`input.rows`).
    """

    prompt: str
    ids: str
    needed: Collection[str] = ()
    path: str | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    """A row at a place in the text, and the fields of the objects around it. Or what is wrong, and the whole
    value in which it is.
    """

    at: int
    value: Any
    around: Mapping[str, Any]
    problem: str = ""
    whole: Any = None


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_number)


def read_lines(text: bytes, name: str, wanted: Rows) -> Table:
    """A file with a row on each line (`.jsonl`, `.ndjson`). A line that is no row is rejected by its number.

    The text has `\\n` at the end of every line.

    Raises:
        InputError: no line is a row.
    """
    rows: list[tuple[int, Any]] = []
    broken: list[tuple[int, str, str]] = []
    found: list[tuple[int, _Found]] = []
    for number, line in enumerate(text.decode().split("\n"), 1):
        try:
            if line.strip() and wanted.path is None:
                rows.append((number, _DECODER.decode(line)))
            elif line.strip():
                found += [(number, each) for each in _rows_at(line, _DECODER.decode(line), wanted)]
        except json.JSONDecodeError as error:
            broken.append((number, line, f"is not JSON: {error.msg} at character {error.colno}"))
        except (ValueError, RecursionError) as error:
            broken.append((number, line, f"is not JSON: {error}"))
    if found:
        return _unfolded(found, name, wanted, broken)
    return _table(rows, name, wanted.prompt, broken)


def read_document(text: bytes, name: str, wanted: Rows) -> Table:
    """A file with one value (`.json`): a list of rows, an object of rows whose keys are their ids, or one of
    these inside it. Lines of objects under this name are read as such.

    Raises:
        InputError: it is no JSON, or no list or object of rows; or they are in a list that `input.rows` does
            not name.
    """
    document = text.decode()
    try:
        whole = _decoded(document)
        if wanted.path is not None:
            lines = _with_lines(document, _rows_at(document, whole, wanted))
            return _unfolded(list(lines), name, wanted, [])
        entries = list(_entries(document, whole))
    except json.JSONDecodeError as error:
        if _is_lines(document):
            return read_lines(text, name, wanted)
        raise InputError(f"{name}, line {error.lineno}: is not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}: is not JSON with rows: {error}", hint=_EXPECTED) from None
    advice = _advice(whole, wanted)
    if advice and isinstance(whole, dict):
        raise InputError(f"{name}: has no rows itself; they seem to be in a list inside it", hint=advice)
    if entries and all(not isinstance(value, dict | str) for _, _, value in entries):
        raise InputError(f"{name}: has no rows", hint=_EXPECTED)
    rows: list[tuple[int, Any]] = []
    for line, key, value in entries:
        row = _as_object(value, wanted.prompt)
        rows.append((line, {wanted.ids: key, **row} if key is not None and isinstance(row, dict) else row))
    return replace(_table(rows, name, wanted.prompt, []), advice=advice)


def _decoded(document: str) -> Any:
    """The value of a document.

    Raises:
        json.JSONDecodeError: it is no JSON.
        ValueError: it is no list and no object.
    """
    whole = _DECODER.decode(document)
    if not isinstance(whole, list | dict):
        raise ValueError("it is neither a list nor an object")  # noqa: TRY004 - of the file
    return whole


def _is_lines(document: str) -> bool:
    """Whether a text that is no JSON has an object on each line, by the first two."""
    lines = (line for line in document.split("\n") if line.strip())
    first = [line for line, _ in zip(lines, range(2), strict=False)]
    try:
        return len(first) > 1 and all(isinstance(_DECODER.decode(line), dict) for line in first)
    except (ValueError, RecursionError):
        return False


def _entries(document: str, whole: Any) -> Iterator[tuple[int, str | None, Any]]:
    """The line, the key (None in a list) and the value of each entry of a list or an object."""
    line, counted_to = 1, 0
    for at, key, _, value in _children(document, _first(document, whole)):
        line, counted_to = line + document.count("\n", counted_to, at), at
        yield line, key, value


def _with_lines(document: str, found: Iterable[_Found]) -> Iterator[tuple[int, _Found]]:
    """Rows, which are in the document's order, each with its line."""
    line, counted_to = 1, 0
    for each in found:
        line, counted_to = line + document.count("\n", counted_to, each.at), each.at
        yield line, each


def _first(document: str, whole: Any) -> int:
    """Where the list or object begins that is the whole document."""
    return document.index("[" if isinstance(whole, list) else "{")


def _children(document: str, at: int) -> Iterator[tuple[int, str | None, int, Any]]:
    """Of each entry of the list or object at a place: where it begins, its key (None in a list), where its
    value begins, and the value.
    """
    is_object, key = document[at] == "{", None
    at = _after(document, at + 1)
    while document[at] not in "]}":
        begin = at
        if is_object:
            key, at = _DECODER.raw_decode(document, at)
            at = _after(document, at)
        value_at = at
        value, at = _DECODER.raw_decode(document, at)
        yield begin, key, value_at, value
        at = _after(document, at)


def _after(document: str, at: int) -> int:
    """Where the next key or value begins, or the end of the list or object."""
    while document[at].isspace() or document[at] in ",:":
        at += 1
    return at


# ---- rows in lists inside the document


def lists_of_rows(document: Any) -> list[str]:
    """The lists of objects inside a document, each as `input.rows` names it, and lists of texts that are
    named like prompts. The document itself is none of them.

    Those come first whose objects have a field that is named like prompts, of these the one with the longest
    texts.
    """
    return list(_lists(document))


def _lists(document: Any) -> dict[str, tuple[int, float]]:
    """The lists of rows, and how much each looks like rows: by its names, then by its texts."""
    found: dict[str, list[Any]] = {}
    _collect(document, (), found)
    scores = {path: _score(path, entries) for path, entries in found.items()}
    kept = {path: score for path, score in scores.items() if score is not None}
    return {path: kept[path] for path in sorted(kept, key=kept.__getitem__, reverse=True)}


def _collect(value: Any, path: tuple[str, ...], found: dict[str, list[Any]]) -> None:
    """Collects the entries of all lists, by their paths."""
    if len(path) > _DEEPEST:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            _collect(inner, (*path, key), found)
    elif isinstance(value, list):
        if path and value:
            entries = found.setdefault(".".join(path), [])
            entries += value[: max(0, _LOOKED_AT - len(entries))]
        for entry in value[:_LOOKED_AT]:
            if isinstance(entry, dict):
                _collect(entry, path, found)


def _score(path: str, entries: Sequence[Any]) -> tuple[int, float] | None:
    """How much a list looks like rows; None: it is no list of rows."""
    if all(isinstance(entry, str) for entry in entries):
        name = path.rpartition(".")[2]
        return (_named(name), _length(entries)) if _named(name) else None
    if not all(isinstance(entry, dict) for entry in entries):
        return None
    texts: dict[str, list[str]] = {}
    for entry in entries:
        for name, text in _texts(entry):
            texts.setdefault(name, []).append(text)
    return max(((_named(name), _length(each)) for name, each in texts.items()), default=(0, 0.0))


def _texts(entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The fields of an object that are texts, and those of the objects in it."""
    for name, value in entry.items():
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, dict):
            yield from ((inner, text) for inner, text in value.items() if isinstance(text, str))


def _named(name: str) -> int:
    """How much a name is like one of prompts: 2, 1 or 0."""
    return (1 + ("prompt" in name.lower())) if has_prompts(name) else 0


def _length(texts: Sequence[str]) -> float:
    return sum(map(len, texts)) / len(texts)


def _advice(whole: Any, wanted: Rows) -> str:
    """Which list to name in `input.rows`, where a document has its rows in one; otherwise empty."""
    values = list(whole.values()) if isinstance(whole, dict) else whole
    objects = [value for value in values[:_LOOKED_AT] if isinstance(value, dict)]
    needed = {name.partition(".")[0] for name in wanted.needed} | set(wanted.needed)
    if any(needed & each.keys() for each in objects):
        return ""
    lists = _lists(whole)
    has_list = isinstance(whole, dict) and any(isinstance(value, list) for value in values)
    if not has_list:
        if any(_named(name) for each in objects for name, _ in _texts(each)):
            return ""
        lists = {path: score for path, score in lists.items() if score[0]}
    best, *others = [*lists][:_NAMED] or [""]
    more = f" Other lists: {', '.join(others)}." if others else ""
    return f"Set input.rows: {in_yaml(best)}.{more}" if best else ""


def _rows_at(document: str, whole: Any, wanted: Rows) -> Iterator[_Found]:
    """The rows at the path `input.rows`, in the document's order."""
    path = (wanted.path or "").split(".")
    if not isinstance(whole, list | dict):
        yield _Found(0, whole, {}, "is neither a list nor an object", whole)
        return
    for each in _at_path(document, _first(document, whole), path, wanted, around=None):
        yield replace(each, whole=whole) if each.problem else each


def _at_path(
    document: str,
    at: int,
    path: Sequence[str],
    wanted: Rows,
    *,
    around: Mapping[str, Any] | None,
    prefix: str = "",
) -> Iterator[_Found]:
    """The rows at a path in the value at a place.

    Args:
        around: the fields of the objects around it, from the first list on: what is outside of all lists says
            nothing of a row. None: there was no list yet.
        prefix: of the names of fields that are added to them.
    """
    if document[at] == "[":
        around = around or {}
    if document[at] not in "[{":
        value, _ = _DECODER.raw_decode(document, at)
        if value is not None:
            kind = "object" if path else "list"
            yield _Found(at, value, {}, f"is no {kind}, and input.rows is {wanted.path}")
    elif not path:
        for begin, key, _, value in _children(document, at):
            row = _as_object(value, wanted.prompt)
            has_key = key is not None and isinstance(row, dict)
            yield _Found(begin, {wanted.ids: key, **row} if has_key else row, around or {})
    elif document[at] == "[":
        for begin, _, _, _ in _children(document, at):
            yield from _at_path(document, begin, path, wanted, around=around, prefix=prefix)
    else:
        children = {
            key: (begin, value) for _, key, begin, value in _children(document, at) if key is not None
        }
        rest = ".".join(path)  # which may be a name with a dot
        key, left = (rest, ()) if rest in children else (path[0], path[1:])
        if key not in children:
            value = {each: value for each, (_, value) in children.items()}
            yield _Found(at, value, {}, f"has no {key!r}, and input.rows is {wanted.path}")
            return
        fields = {
            f"{prefix}{each}": value
            for each, (_, value) in children.items()
            if each != key and not isinstance(value, list)
        }
        inner, outer = children[key][0], None if around is None else {**around, **fields}
        yield from _at_path(document, inner, left, wanted, around=outer, prefix=f"{prefix}{key}.")


def _unfolded(
    found: Sequence[tuple[int, _Found]],
    name: str,
    wanted: Rows,
    broken: list[tuple[int, str, str]],
) -> Table:
    """The table of rows that were found at the path, each with its line.

    A field of the objects around them that has the name of one of the rows' columns, or of one of ours, is
    carried as `outer.NAME`: it is none of the row itself.

    Raises:
        InputError: there are none.
    """
    rows = [(line, each) for line, each in found if not each.problem]
    if found and not rows:
        lists = lists_of_rows(found[0][1].whole)
        hint = f"The lists are: {', '.join(lists[:_NAMED])}." if lists else "It has no list of objects."
        raise InputError(f"{name}: has no list {wanted.path}, as input.rows says", hint=hint)
    taken = {*COLUMNS, wanted.prompt, wanted.ids}
    taken |= {key for _, each in rows if isinstance(each.value, dict) for key in each.value}
    broken += [
        (line, json.dumps(each.value, ensure_ascii=False), each.problem)
        for line, each in found
        if each.problem
    ]
    values = []
    for line, each in rows:
        around = {f"outer.{key}" if key in taken else key: value for key, value in each.around.items()}
        values.append((line, {**around, **each.value} if isinstance(each.value, dict) else each.value))
    return _table(values, name, wanted.prompt, broken)


# ---- rows as a table


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
