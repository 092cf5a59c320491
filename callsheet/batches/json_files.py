"""JSON and JSON Lines -> tables of text, with the line of the file on which each row begins.

A row is an object, or a text, which is its prompt; in an object its key is the id, and the texts of a list
there are a group of that name. Objects in objects become columns with dotted names
(`body.prompt`), and lists become JSON text. Where the rows are in lists of other objects (`input.rows`), each
has what those objects have beside the lists.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import polars as pl

from callsheet.batches.headers import Table, id_name, in_yaml, needed, prompt_name
from callsheet.batches.judgements import called, judge, ranked
from callsheet.config.settings import COLUMNS, Input
from callsheet.errors import InputError

_EXPECTED = 'Expected [{"prompt": ...}, ...], a list of texts, or {"an id": {"prompt": ...}, ...}.'
_LARGEST_WHOLE = 2**53  # up to which a float has each whole number
_DEEPEST = 8  # lists and objects in each other, in which rows are looked for
_LOOKED_AT = 200  # entries of a list
_NAMED = 5  # lists

_Broken = list[tuple[int, str, str]]


class _Found(NamedTuple):
    """A row at a place in the text, and the fields of the objects around it; or what is wrong there."""

    at: int
    value: Any
    around: Mapping[str, Any] = {}
    problem: str = ""


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_number)


def read_lines(text: bytes, name: str, config: Input) -> Table:
    """A file with a row on each line (`.jsonl`, `.ndjson`). A line that is no row is rejected by its number.

    The text has `\\n` at the end of every line.

    Raises:
        InputError: no line is a row.
    """
    broken: _Broken = []
    entries: list[_Found] = []
    first = None
    for number, line in enumerate(text.decode().split("\n"), 1):
        try:
            value = _DECODER.decode(line) if line.strip() else None
        except json.JSONDecodeError as error:
            broken.append((number, line, f"is not JSON: {error.msg} at character {error.colno}"))
            continue
        except (ValueError, RecursionError) as error:
            broken.append((number, line, f"is not JSON: {error}"))
            continue
        if not line.strip():
            continue
        first = first if entries else value
        if config.rows is None:
            entries.append(_Found(number, value))
        else:
            entries += [entry._replace(at=number) for entry in _rows_in(line, value, config)]
    return _table(entries, first, name, config, broken)


def read_document(text: bytes, name: str, config: Input) -> Table:
    """A file with one value (`.json`): a list of rows, an object of rows whose keys are their ids, or one of
    these inside it. Lines of objects under this name are read as such.

    Raises:
        InputError: it is no JSON, or no list or object of rows; or they are in a list that `input.rows` does
            not name.
    """
    document = text.decode()
    try:
        content = _DECODER.decode(document)
        if not isinstance(content, list | dict):
            raise ValueError("it is neither a list nor an object")  # noqa: TRY301, TRY004 - of the file
    except json.JSONDecodeError as error:
        if _is_lines(document):
            return read_lines(text, name, config)
        raise InputError(f"{name}, line {error.lineno}: is not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}: is not JSON with rows: {error}", hint=_EXPECTED) from None
    entries, line, counted_to = list[_Found](), 1, 0
    for entry in _rows_in(document, content, config):  # in the document's order
        line, counted_to = line + document.count("\n", counted_to, entry.at), entry.at
        entries.append(entry._replace(at=line))
    advice = _advice(content, config) if config.rows is None else ""
    if advice and isinstance(content, dict):
        raise InputError(f"{name}: has no rows itself; they seem to be in a list inside it", hint=advice)
    if config.rows is None and entries and not any(isinstance(entry.value, dict) for entry in entries):
        raise InputError(f"{name}: has no rows", hint=_EXPECTED)
    return replace(_table(entries, content, name, config, []), advice=advice)


def _is_lines(document: str) -> bool:
    """Whether a text that is no JSON has an object on each line, by the first two."""
    lines = (line for line in document.split("\n") if line.strip())
    first = [line for line, _ in zip(lines, range(2), strict=False)]
    try:
        return len(first) > 1 and all(isinstance(_DECODER.decode(line), dict) for line in first)
    except (ValueError, RecursionError):
        return False


# ---- rows in a document


def _rows_in(document: str, content: Any, config: Input) -> Iterator[_Found]:
    """The rows at the path `input.rows`, in the document's order; without one, those of the whole."""
    if not isinstance(content, list | dict):
        return iter([_Found(0, content, {}, "is neither a list nor an object")])
    path = config.rows.split(".") if config.rows else []
    return _at_path(document, document.index("[" if isinstance(content, list) else "{"), path, config)


def _at_path(
    document: str,
    at: int,
    path: Sequence[str],
    config: Input,
    *,
    around: Mapping[str, Any] | None = None,
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
            yield _Found(at, value, {}, f"is no {kind}, and input.rows is {config.rows}")
    elif not path:
        prompt, ids = prompt_name(config.names), id_name(config)
        entries = [*_children(document, at)]
        if document[at] == "{" and _are_groups({str(key): value for _, key, _, value in entries}):
            for _, group, inner, _ in entries:
                for begin, _, _, text in _children(document, inner):
                    yield _Found(begin, {prompt: text, "group": group}, around or {})
            return
        for begin, key, _, value in entries:
            row = {prompt: value} if isinstance(value, str) else value
            has_key = key is not None and isinstance(row, dict)
            yield _Found(begin, {ids: key, **row} if has_key else row, around or {})
    elif document[at] == "[":
        for begin, _, _, _ in _children(document, at):
            yield from _at_path(document, begin, path, config, around=around, prefix=prefix)
    else:
        children = {key: (begin, value) for _, key, begin, value in _children(document, at)}
        dotted = ".".join(path)  # which may be a name with a dot
        key, left = (dotted, ()) if dotted in children else (path[0], path[1:])
        if key not in children:
            value = {name: value for name, (_, value) in children.items()}
            yield _Found(at, value, {}, f"has no {key!r}, and input.rows is {config.rows}")
            return
        fields = {
            f"{prefix}{name}": value
            for name, (_, value) in children.items()
            if name != key and not isinstance(value, list)
        }
        outer = None if around is None else {**around, **fields}
        inner = children[key][0]
        yield from _at_path(document, inner, left, config, around=outer, prefix=f"{prefix}{key}.")


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


# ---- lists that may be the rows


def lists_of_rows(document: Any) -> dict[str, float]:
    """The lists and objects of rows inside a document, each as `input.rows` names it (the document itself:
    empty), and how much each looks like prompts; the likeliest first, and last lists of objects without any.
    """
    entries: dict[tuple[str, ...], list[Any]] = {}
    _collect(document, (), entries, in_list=False)
    scores = {path: score for path, rows in entries.items() if (score := _score(path, rows)) is not None}
    likely = sorted(scores, key=lambda path: (-scores[path], len(path)))
    return {".".join(path): scores[path] for path in likely}


def _collect(
    value: Any, path: tuple[str, ...], entries: dict[tuple[str, ...], list[Any]], *, in_list: bool
) -> None:
    """Collects by their paths the entries of all lists, and of objects that are rows by their keys."""
    if len(path) > _DEEPEST or not value or not isinstance(value, list | dict):
        return
    rows: list[Any] = []
    if isinstance(value, list):
        rows = value
        for entry in value[:_LOOKED_AT]:
            if isinstance(entry, dict):
                for key, inner in entry.items():
                    _collect(inner, (*path, key), entries, in_list=True)
    else:
        values = [*value.values()]
        types = {type(inner) for inner in values}
        if types == {dict} or (types == {str} and not in_list):
            rows = values
        elif _are_groups(value):
            rows = [text for texts in values for text in texts]
        for key, inner in value.items() if not _are_groups(value) else ():
            _collect(inner, (*path, key), entries, in_list=in_list)
    collected = entries.setdefault(path, [])
    collected += rows[: max(0, _LOOKED_AT - len(collected))]


def _are_groups(value: Mapping[str, Any]) -> bool:
    """Whether an object has lists of texts alone, each under the name of a group."""
    are_texts = all(
        isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts)
        for texts in value.values()
    )
    is_field = any(called(key, what) for key in value for what in ("prompt", "negative", "text", "unseen"))
    return are_texts and len(value) > 1 and not is_field


def _score(path: tuple[str, ...], entries: Sequence[Any]) -> float | None:
    """How much entries look like rows with prompts; None: they are no rows."""
    if not entries or not all(isinstance(entry, dict | str) for entry in entries):
        return None
    name = path[-1] if path else ""
    fields = [dict(_flat({name: entry} if isinstance(entry, str) else entry)) for entry in entries]
    names = dict.fromkeys(key for row in fields for key in row)
    columns = (judge(pl.Series(key, [row.get(key) for row in fields], pl.String)) for key in names)
    best = max((candidate.score for candidate in ranked("prompt", columns)), default=0.0)
    return best if best or (path and isinstance(entries[0], dict)) else None


def _advice(content: Any, config: Input) -> str:
    """Which list to name in `input.rows`, where a document has its rows in one; otherwise empty."""
    values = list(content.values()) if isinstance(content, dict) else content
    objects = [value for value in values[:_LOOKED_AT] if isinstance(value, dict)]
    names = {part for name in needed(config) for part in (name, name.partition(".")[0])}
    if any(names & fields.keys() for fields in objects):
        return ""
    scores = lists_of_rows(content)
    best, *other_lists = [*scores][:_NAMED] or [""]
    best = best if best and scores[best] else ""
    also = f" Other lists: {', '.join(filter(None, other_lists))}." if any(other_lists) else ""
    return f"Set input.rows: {in_yaml(best)}.{also}" if best else ""


# ---- rows as a table


def _table(entries: Sequence[_Found], content: Any, name: str, config: Input, broken: _Broken) -> Table:
    """Rows, each `at` its line, with the columns of all of them in the order in which they come.

    A field of the objects around them that has the name of one of the rows' columns, or of one of ours, is
    carried as `outer.NAME`: it is none of the row itself.

    Raises:
        InputError: there are none.
    """
    if entries and all(entry.problem for entry in entries):
        lists = [*filter(None, lists_of_rows(content))]
        hint = f"The lists are: {', '.join(lists[:_NAMED])}." if lists else "It has no list of objects."
        raise InputError(f"{name}: has no list {config.rows}, as input.rows says", hint=hint)
    prompt = prompt_name(config.names)
    row_columns = {*COLUMNS, prompt, id_name(config)}
    if config.rows is not None:
        row_columns |= {key for entry in entries if isinstance(entry.value, dict) for key in entry.value}
    lines: list[int] = []
    rows: list[dict[str, str | None]] = []
    for line, value, around, problem in entries:
        outer = {f"outer.{key}" if key in row_columns else key: cell for key, cell in around.items()}
        try:
            if problem:
                raise ValueError(problem)  # noqa: TRY301 - as what is found to be wrong with a row
            rows.append(_row({**outer, **value} if isinstance(value, dict) else value, prompt))
            lines.append(line)
        except (ValueError, RecursionError) as error:
            broken.append((line, json.dumps(value, ensure_ascii=not problem), str(error)))
    if broken and not rows:
        line, _, reason = min(broken)
        hint = "A list, or an object on several lines, is read where the file's name ends in .json."
        raise InputError(f"{name}: has no rows; line {line} {reason}", hint=hint)
    names = dict.fromkeys(key for row in rows for key in row)
    cells = {key: pl.Series([row.get(key) for row in rows], dtype=pl.String) for key in names}
    return Table(pl.DataFrame(cells), pl.Series(lines, dtype=pl.Int64), name, tuple(sorted(broken)))


def _row(value: Any, prompt: str) -> dict[str, str | None]:
    """A row's cells by column; ValueError where it is no row."""
    if isinstance(value, str):
        value = {prompt: value}
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
