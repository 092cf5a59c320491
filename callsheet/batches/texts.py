"""Texts without a header -> tables: what a prompt is in them, and which parts of it are columns.

A prompt is a line, or a paragraph (`input.split`), whole or the parts that `input.pattern` names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

import polars as pl

from callsheet.batches.delimited import Table
from callsheet.batches.names import id_name, in_yaml, prompt_name
from callsheet.config.settings import Input
from callsheet.errors import InputError
from callsheet.plain_text import counted


def lines_of(text: str, config: Input) -> dict[int, str]:
    """The lines of a text by their numbers, blank ones too, without those that are comments."""
    comments = config.comments
    return {
        at: line
        for at, line in enumerate(text.split("\n"), 1)
        if not (comments and line.startswith(comments))
    }


def read_prompts(lines: Mapping[int, str], name: str, config: Input, *, several: bool) -> Table:
    """A text without a header, by its lines. Of `several` files each has one prompt, whose id is the file's
    name.

    Raises:
        InputError: one of several files has several lines or paragraphs, so it may be several prompts.
    """
    prompt, ids = prompt_name(config.names), id_name(config) if several else None
    prompts = {at: line for at, line in lines.items() if line.strip()}
    if config.split == "paragraphs":
        prompts = _paragraphs(lines)
    if ids is not None:
        if len(prompts) > 1:
            raise _several(len(prompts), lines, name, config)
        prompts = prompts or {1: ""}  # which is rejected
    rows: list[dict[str, str | None]] = []
    numbers: list[int] = []
    broken: list[tuple[int, str, str]] = []
    for at, text in prompts.items():
        cells = _cells(text, prompt, config)
        if cells is None:
            broken.append((at, text, "does not match input.pattern"))
            continue
        rows.append(cells if ids is None else {ids: _stem(name), **cells})
        numbers.append(at)
    groups = re.compile(config.pattern).groupindex if config.pattern else {prompt: 1}
    names = dict.fromkeys([*groups, *([ids] if ids else [])])
    table = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String))
    note = "" if config.pattern else _note([*prompts.values()])
    return Table(table, pl.Series(numbers, dtype=pl.Int64), name, tuple(broken), note=note)


def _paragraphs(lines: Mapping[int, str]) -> dict[int, str]:
    """What stands between blank lines, by the number of its first line."""
    found: dict[int, list[str]] = {}
    first = None
    for at, line in lines.items():
        if not line.strip():
            first = None
        else:
            first = at if first is None else first
            found.setdefault(first, []).append(line)
    return {at: "\n".join(paragraph) for at, paragraph in found.items()}


def _cells(text: str, prompt: str, config: Input) -> dict[str, str | None] | None:
    """The columns of a prompt; None where it does not match the pattern."""
    if config.pattern is None:
        return {prompt: text}
    flags = re.DOTALL if config.split == "paragraphs" else re.NOFLAG
    match = re.compile(config.pattern, flags).fullmatch(text.strip())
    if match is None:
        return None
    return {group: part and part.strip() for group, part in match.groupdict().items()}


class Form(NamedTuple):
    """How many prompts have a part that may be none of what is meant, what it is, and the pattern without."""

    number: int
    what: str
    pattern: str


_PLACES = "scene|shot|clip|prompt|image|video|frame|szene|bild|scène|plan|escena|toma|カット|镜头"
NAMED = "a name before |"
_FORMS = (
    (NAMED, r"(?P<id>[^|]+?)\s*\|\s*(?P<prompt>.+)"),
    ("a number first", r"\d+\s*[.):]\s+(?P<prompt>.+)"),
    ("a label first", rf"(?P<id>(?i:{_PLACES})\s*\d+)\s*[:.)-]\s*(?P<prompt>.+)"),
    ("quotes around it", '["“«„](?P<prompt>.+)["”»“]'),
)


def forms(prompts: Sequence[str]) -> list[Form]:
    """Which parts most prompts of a text have that may not be meant to be sent."""
    found = []
    for what, pattern in _FORMS:
        count = sum(re.fullmatch(pattern, prompt.strip(), re.DOTALL) is not None for prompt in prompts)
        if 2 * count > len(prompts):
            found.append(Form(count, what, pattern))
    return found


def _note(prompts: Sequence[str]) -> str:
    """What a person should know of the prompts of a text; mostly nothing."""
    return "; ".join(
        f"{form.number:,} of {counted(len(prompts), 'prompt')} have {form.what}, which is sent: "
        f"input.pattern: {in_yaml(form.pattern)} leaves it out"
        for form in forms(prompts)
    )


def _stem(name: str) -> str:
    """A file's name without its folder and its endings."""
    return PurePath(name.removesuffix(".gz").removesuffix(".zst")).stem


def _several(count: int, lines: Mapping[int, str], name: str, config: Input) -> InputError:
    hint = "Put a prompt of several lines on one line; or join lists of prompts into one file."
    if config.split == "lines" and len(_paragraphs(lines)) == 1:
        hint = "A prompt may have several lines with input.split: paragraphs. Join lists of prompts."
    what = counted(count, "line" if config.split == "lines" else "paragraph")
    problem = f"{name}: has {what}; of several .txt files without a header, each is one prompt"
    return InputError(problem, hint=hint)
