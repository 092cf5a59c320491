"""Which of a file's columns is which of ours, and hints where one is missing or looks like one of ours.

It looks at names and at cells, and reads no file. A hint never changes what is bought: it says what to write
into the config.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import polars as pl
import yaml

from callsheet.batches.formats import field_names, is_a_prompt, prompt_name, template_columns, with_fields
from callsheet.config.settings import COLUMNS, Input
from callsheet.errors import InputError

_ALIASES = {  # of each setting: how columns are named that look like it, without blanks and marks
    "aspect_ratio": "aspectratio ratio ar aspect size imagesize dimensions width height orientation",
    "resolution": "resolution res quality",
    "samples": "n num count numimages numberofimages samples numsamples variations batchsize quantity copies",
    "duration": "seconds secs duration length durationseconds videolength",
    "output_format": "outputformat format filetype fileformat responseformat",
    "sound": "sound audio withsound withaudio generateaudio",
    "reference_image": "image imageurl img imagepath referenceimage reference inputimage initimage "
    "sourceimage images",
    "first_frame": "firstframe startframe startimage firstimage",
    "last_frame": "lastframe endframe endimage lastimage",
    "model": "model modelname modelid engine",
    "prompt": "prompt prompts",
    "negative_prompt": "negativeprompt negative",
    # settings of other services, each by its own name
    "": "seed type steps style sampler scheduler guidance guidancescale cfg cfgscale strength fps",
}
_LIKE = {alias: setting for setting, aliases in _ALIASES.items() for alias in aliases.split()}
_PROMPT_NAMES = ("prompt", "caption", "description", "text", "instruction")
_NO_NAME = re.compile(r"[+-]?\d+([.,:x]\d+)?|https?://.*|s3://.*", re.IGNORECASE)
_RATIOS = r"^\s*\d+\s*[:xX]\s*\d+\s*$"
_RATIO = re.compile(r"\d+:\d+")
_ADDRESS = r"^(https?|s3)://"
_LONGEST_NAME = 40
_NAMED = 40  # characters that a good name is worth
_FAR_MORE = 8  # times
_ROWS = 1_000  # that are looked at


@dataclass(frozen=True, slots=True)
class Columns:
    """How the columns of a batch's files are used.

    Attributes:
        used: the file's name of each of our columns that it has.
        carried: the other columns, which are copied to the manifest.
        unused: those of them that look like a setting, and the setting.
    """

    used: dict[str, str]
    carried: list[str]
    unused: dict[str, str]


def names_of(config: Input, file_names: Collection[str]) -> dict[str, str | None]:
    """The file's name of each of our columns; None of one that the config releases or makes itself.

    A column that each row needs, and that the file has in other capitals only, is that one.
    """
    names: dict[str, str | None] = {column: config.names.get(column, column) for column in COLUMNS}
    if "prompt" in file_names and config.names.get("prompt") not in file_names:
        names["prompt"] = prompt_name(config.names)
    if config.id is not None:
        names["id"] = None
    needed = [] if config.template or names["prompt"] is None else ["prompt"]
    for column in (*needed, "model"):
        similar = [name for name in file_names if name.strip().lower() == column]
        filled = column in {*config.defaults, *config.matrix, *config.names}
        if not filled and column not in file_names and len(similar) == 1:
            names[column] = similar[0]
    return names


def check(header: str, cells: pl.DataFrame, names: Mapping[str, str | None], config: Input) -> None:
    """Makes sure that a file has the columns that the config names, and a prompt and a model.

    Raises:
        InputError: it lacks one; the hint says what to write into the config, or into the file.
    """
    needed = [name for column in COLUMNS if config.names.get(column) and (name := names[column])]
    needed += [*template_columns(config.template), *template_columns(config.id), *config.where]
    filled = {*config.defaults, *config.matrix} | ({"prompt"} if config.template else set())
    needed += [names[column] or column for column in ("prompt", "model") if column not in filled]
    missing = next((name for name in needed if name not in cells.columns), None)
    if missing is None:
        return
    cells = with_fields(cells, fields := list(field_names(cells.schema)))
    if missing == names["prompt"] and any(map(_is_a_cell, cells.columns)):
        first = ",".join(_guessed_header(cells))
        raise InputError(
            f"{header}: is no header: its cells are not the names of columns",
            hint=f"Write a line with the names of the columns above it, perhaps: {first}",
        )
    named = [name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…" for name in fields]
    raise InputError(
        f"{header}: there is no column {missing!r}; the columns are {', '.join(named)}",
        hint=_hint(missing, names, cells),
    )


def _hint(missing: str, names: Mapping[str, str | None], cells: pl.DataFrame) -> str:
    """What to write into the config where the file lacks a column."""
    column = next((column for column in COLUMNS if names[column] == missing), None)
    if column is None:
        return "input.template, input.id and input.where name columns; a literal brace is written twice."
    similar = next((name for name in cells.columns if name.strip().lower() == missing.lower()), None)
    if column == "model" and similar is None:
        return "Name a model for all rows in input.defaults, for example {model: still-1}."
    like = next((each.name for each in cells if looks_like(each) == column), None)
    guess = similar or like or (prompt_like(cells) if column == "prompt" else None)
    if guess is None:
        return f"Name the file's column in input.columns: {{{column}: NAME}}."
    return f"Name the file's column in input.columns, for example {{{column}: {in_yaml(guess)}}}."


def note(cells: pl.DataFrame, names: Mapping[str, str | None]) -> str:
    """Says so where another column looks far more like the prompts than theirs; otherwise empty."""
    scores, used = _scores(cells), names["prompt"]
    best = max(scores, key=scores.__getitem__, default=None)
    if best is None or used not in scores or scores[best] < _FAR_MORE * scores[used]:
        return ""
    return f"The prompts are from the column {used!r}; those in {best!r} are longer, and differ more."


def prompt_like(cells: pl.DataFrame) -> str | None:
    """The column that has the prompts, by its name, and by how long and how different its texts are."""
    scores = _scores(cells)
    return max(scores, key=scores.__getitem__) if scores else None


def _scores(cells: pl.DataFrame) -> dict[str, float]:
    """How much each column of text looks like prompts."""
    scores = {}
    for column in cells.head(_ROWS).select(pl.col(pl.String)):
        texts, name = column.drop_nulls(), column.name.lower()
        is_named = 0 < len(name) <= _LONGEST_NAME and not _is_a_cell(name)
        if not is_named or not texts.len() or texts.str.contains(_ADDRESS).all():
            continue
        named = "negative" not in name and any(word in name for word in _PROMPT_NAMES)
        length = float(texts.str.len_chars().sum()) / texts.len() + (_NAMED if named else 0)
        scores[column.name] = length * texts.n_unique() / texts.len()
    return scores


def _is_a_cell(text: str) -> bool:
    """Whether a text is a cell of a row, and no column's name."""
    return is_a_prompt(text) or _NO_NAME.fullmatch(text) is not None


def _guessed_header(cells: pl.DataFrame) -> list[str]:
    """Names for the columns of a file without a header, by what is in them; its first row stands as names."""
    first = cells.columns
    longest = max(first, key=len)
    names = []
    for position, name in enumerate(first):
        if name == longest:
            names.append("prompt")
        elif _RATIO.fullmatch(name):
            names.append("aspect_ratio")
        else:
            names.append("id" if position == 0 else f"column_{position + 1}")
    return names


def looks_like(column: pl.Series) -> str | None:
    """The setting that a column looks like by its cells or its name; None where it looks like none."""
    texts = column.head(_ROWS).drop_nulls()
    if column.dtype == pl.String and texts.len() and texts.str.contains(_RATIOS).all():
        return "aspect_ratio"
    plain = re.sub(r"[\W_]+", "", column.name.lower().rpartition(".")[2])  # of a dotted name its end
    return _LIKE.get(plain) or (plain if plain in _LIKE else None)


def used_and_carried(
    tables: Sequence[pl.DataFrame], names: Sequence[Mapping[str, str | None]], config: Input
) -> Columns:
    """How the columns of all files are used. What a template or `where` reads is no missed setting."""
    read = {*template_columns(config.template), *template_columns(config.id), *config.where}
    used: dict[str, str] = {}
    carried: dict[str, str | None] = {}
    for table, ours in zip(tables, names, strict=True):
        used |= {column: name for column, name in ours.items() if name in table.columns}
        carried |= {each.name: looks_like(each) for each in table if each.name not in ours.values()}
    unused = {name: like for name, like in carried.items() if name not in read and like}
    return Columns({column: used[column] for column in COLUMNS if column in used}, list(carried), unused)


def in_yaml(text: str) -> str:
    """A text as a value of YAML on one line."""
    is_plain = re.fullmatch(r"[^\W\d][\w .-]*\w", text) and yaml.safe_load(text) == text
    return text if is_plain else json.dumps(text, ensure_ascii=False)
