"""Texts without a header -> their prompts.

A prompt is a line, a paragraph, what stands between rules or below labels, or what follows a name on a line
(`input.split`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import PurePath

import polars as pl

from callsheet.batches.headers import Table, id_name, prompt_name
from callsheet.config.settings import Input
from callsheet.errors import InputError
from callsheet.plain_text import counted

_PLACES = "scene|shot|clip|prompt|image|video|frame|szene|bild|scène|plan|escena|toma|カット|镜头"
_NAMED = re.compile(r"([^|]+?)\s*\|\s*(.+)", re.DOTALL)
"""A name and a prompt."""

_LABEL = re.compile(
    r"\[(?P<bracket>[^\[\]]+)\]|\#+\s*(?P<heading>.+)"
    r"|(?P<place>[^\W\d]+\s*\#?\d+)\s*[:.)-]?|(?P<words>[^.!?,:]{1,40}):"
)
"""A line that names the prompt below it: in brackets, a heading, `Scene 1`, or words with a colon."""

_RULE = re.compile(r"[\s=_*#~.+-]{3,}")

_NOT_MEANT = (
    ("a name before |", _NAMED),
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
            is_name = form is _NAMED and config.split == "lines"
            table = table.noted(note + ("; with input.split: named_lines it is the id" if is_name else ""))
    return table


def _read_named(lines: Mapping[int, str], name: str, config: Input) -> Table:
    """A text of which each line is `name | prompt`; the name is the id."""
    named_prompts: dict[int, tuple[str, str]] = {}
    broken: list[tuple[int, str, str]] = []
    for at, line in lines.items():
        if match := _NAMED.fullmatch(line.strip()):
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
        match = _LABEL.fullmatch(line.strip())
        if match or _RULE.fullmatch(line.strip()):
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
    if all(map(_NAMED.fullmatch, stripped)):
        return "named_lines", True
    labels = [match for line in stripped if (match := _LABEL.fullmatch(line))]
    names = [
        line for line, below in pairwise(stripped) if _LABEL.fullmatch(line) and not _LABEL.fullmatch(below)
    ]
    groups: list[list[tuple[str, int]]] = [[]]
    for line, number in zip(stripped, numbers, strict=True):
        if _LABEL.fullmatch(line) or _RULE.fullmatch(line):
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
        if sum(_RULE.fullmatch(line) is not None for line in stripped) > 1:
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
