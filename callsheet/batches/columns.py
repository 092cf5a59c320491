"""Which of a file's columns is which of ours, and hints where one is missing or looks like one of ours.

It looks at names and at cells, and reads no file. A hint never changes what is bought: it says what to write
into the config.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import gcd

import polars as pl

from callsheet.batches.headers import (
    NUMBER,
    Table,
    field_names,
    in_yaml,
    is_a_cell,
    is_a_number,
    prompt_name,
    read_by,
    with_fields,
)
from callsheet.batches.judgements import (
    NAMES,
    ROWS,
    Judgement,
    Kind,
    as_texts,
    is_secret,
    judge,
    ranked,
    setting_of,
    share,
    words_of,
)
from callsheet.cells import IMAGE_COLUMNS, wrong_cells
from callsheet.config.settings import COLUMNS, FileColumn, Input
from callsheet.errors import InputError
from callsheet.plain_text import cut

_HEADS = {word for words in NAMES.values() for word in words.split()} | set(
    """titel titre nom article item product day status category kind tag tags genre mood theme topic subject
    object action setting scenes shots location background camera lens lighting light colour color character
    author client email language country url link folder version batch group set part page column row body
    price opening ending heading building painting drawing styling""".split()  # noqa: SIM905 - one a line would be a screen
)
_QUESTIONS = {"what", "which", "how", "who", "where", "when", "why", "your", "you", "please"} | {
    *("describe", "choose", "select", "enter", "write", "pick", "upload", "take", "give", "draw")
}
_ARTICLES = "a|an|ein|eine|einen|einem|einer|un|une|una|uno"
_FORMS = (  # that texts have, and names of columns do not
    NUMBER,
    r"(?:\S\s+\S*){5}",  # a sentence: more than five words
    rf"(?i)(?:^|\s)(?:{_ARTICLES})\s+\S|\S\s+(?:{_ARTICLES})\s*$",  # `Riding a bicycle`
    r"(?i)^\s*\S*ing\s+\S",  # `Crossing roads`
    r"^\s*/\S+$",
)
_RATIO = re.compile(r"\d+:\d+")
_LONGEST_NAME = 40
_FAR_MORE = 8  # times
_NEARLY_ALL = 0.8
_LONGEST_HEADER = 5  # words
_PIXELS = r"^([0-9]{1,6})(?:\.0*)?\s*(?:px)?$"
_COMMON = {(1, 1), (5, 4), (4, 3), (3, 2), (16, 9), (2, 1)}
_FEWEST = 64  # pixels; smaller numbers are a ratio themselves


IMAGES, MEDIA_TYPES, STATES, SECRET = "image", "media type", "state", "secret"
HELD = {
    IMAGES: "images, which are not sent",
    MEDIA_TYPES: "media types, which have no effect",
    STATES: "states, and every row is bought",
    SECRET: "a secret, which is not carried",
}
"""What a column may hold that is no setting, and what becomes of it."""


@dataclass(frozen=True, slots=True)
class Columns:
    """How the columns of a batch's files are used.

    Attributes:
        used: the file's name of each of our columns that it has.
        carried: the other columns, which are copied to the manifest.
        unused: those of them that look like a setting, and the setting (width and height, of which one can be
            made, are one: `[width, height]`); or what else they seem to hold that matters (`IMAGES` and the
            like). A secret is one of these, and not carried.
        examples: some cells of those that hold something else.
    """

    used: dict[str, str]
    carried: list[str]
    unused: dict[str, str]
    examples: dict[str, str] = field(default_factory=dict)


def names_of(config: Input, source: Table) -> dict[str, str | None]:
    """The file's name of each of our columns; None of one that the config releases or makes itself.

    A column that each row needs, and that the file has in other capitals only, is that one. So is the only
    column of a file without a header.
    """
    if source.placed:
        return _names_of_images(config, source)
    file_names: Collection[str] = source.cells.columns
    names: dict[str, str | None] = {column: config.names.get(column, column) for column in COLUMNS}
    if "prompt" in file_names and config.names.get("prompt") not in file_names:
        names["prompt"] = prompt_name(config.names)
    if config.id is not None:
        names["id"] = None
    if config.header is not None and len(file_names) == 1 and "prompt" not in config.columns:
        names["prompt"] = None if config.template else next(iter(file_names))
    needed = [] if config.template or names["prompt"] is None else ["prompt"]
    for column in (*needed, "model"):
        similar = [name for name in file_names if name.strip().lower() == column]
        filled = column in config.configured
        if not filled and column not in file_names and len(similar) == 1:
            names[column] = similar[0]
    return names


LAST_FRAME = "last_frame"
"""Where the rows are files of another batch, the column with the last frame of a video."""


def _names_of_images(config: Input, source: Table) -> dict[str, str | None]:
    """The same where the rows are images: of their columns only the id, the prompt and the image are used
    where the config does not say more.
    """
    names: dict[str, str | None] = {column: config.names.get(column) for column in COLUMNS}
    if "id" not in config.configured and config.id is None:
        names["id"] = "id"
    # The prompt by which a file was made is another one's default; that beside an image is its own.
    is_configured = "prompt" in (config.configured if config.other else config.columns)
    if not is_configured and "prompt" in source.cells.columns:
        names["prompt"] = "prompt"
    if config.has_ratio_of_files:
        names["aspect_ratio"] = "aspect_ratio"
    is_named = any(names[column] in (source.placed, LAST_FRAME) for column in IMAGE_COLUMNS)
    if not is_named and "images" not in config.configured:
        names["images"] = source.placed
    return names


def check(source: Table, names: Mapping[str, str | None], config: Input) -> None:
    """Makes sure that a file has the columns that the config names, and a prompt and a model.

    Raises:
        InputError: it lacks one; the hint says what to write into the config, or into the file.
    """
    cells, header = source.cells, source.header
    needed = [name for column in COLUMNS if config.names.get(column) and (name := names[column])]
    needed += read_by(config)
    filled = {*config.defaults, *config.matrix} | ({"prompt"} if config.template else set())
    needed += [names[column] or column for column in ("prompt", "model") if column not in filled]
    missing = next((name for name in needed if name not in cells.columns), None)
    if missing is None:
        return
    cells = with_fields(cells, fields := list(field_names(cells.schema)))
    is_prompt, has_header = missing == names["prompt"], config.header is None
    has_cells = any(map(is_a_cell, cells.columns)) or is_no_header(cells.columns, cells)
    if is_prompt and has_header and has_cells:
        problem = f"{header}: is no header: its cells are not the names of columns"
        raise InputError(problem, hint=_guessed_header(cells.columns))
    pair = _pair(config)
    if pair and missing == names["aspect_ratio"]:
        missing = next((name for name in pair if name not in fields), missing)
    listed = [cut(name, _LONGEST_NAME) for name in fields]
    raise InputError(
        f"{header}: there is no column {missing!r}; the columns are {', '.join(listed)}",
        hint=(source.advice if is_prompt else "") or _hint(missing, names, cells, has_header=has_header),
    )


def _guessed_header(first: Sequence[str]) -> str:
    """What to write into the config or into a file without a header, whose first row has these cells."""
    names = ["id", *(f"column_{number}" for number in range(2, len(first) + 1))]
    for at, cell in enumerate(first):
        if cell == max(first, key=len):
            names[at] = "prompt"
        elif _RATIO.fullmatch(cell):
            names[at] = "aspect_ratio"
    numbers = {name: at for at, name in enumerate(names, 1) if name in ("prompt", "aspect_ratio")}
    columns = ", ".join(f"{name}: {number}" for name, number in sorted(numbers.items(), reverse=True))
    set_columns = f" with input.columns: {{{columns}}}" if len(names) > 1 else ""
    return (
        f"Set input.header: none{set_columns}; or write the names of the columns above it, perhaps: "
        f"{','.join(names)}"
    )


def is_no_header(names: Sequence[str], cells: pl.DataFrame) -> bool:
    """Whether a file's first line, which has these names, is a row, and the file has no header.

    Only where it is certain: no name is like one of a column, and one of them is of the form that the cells
    below it have. `cells` are the columns, in the order of the names.
    """
    if not names or not all(names) or any(map(is_name, names)):
        return False
    below = {name: column.drop_nulls() for name, column in zip(names, cells.head(ROWS), strict=False)}
    are_texts = [texts.dtype == pl.String and texts.len() > 0 for texts in below.values()]
    if not all(are_texts) or any(
        share(texts, NUMBER) == 1 and not is_a_cell(name) for name, texts in below.items()
    ):
        return False
    return any(
        re.search(form, name) and share(texts, form) >= _NEARLY_ALL
        for name, texts in below.items()
        for form in _FORMS
    )


def is_name(name: str) -> bool:
    """Whether a text has a word that names of columns have, or is written as programs write them."""
    words = re.findall(r"[^\W_]+", name.lower())
    if is_a_number(name):
        return False
    is_question = name.rstrip().endswith(("?", ":")) or not _QUESTIONS.isdisjoint(words)
    if is_question or "_" in name or re.search(r"[a-z][A-Z]", name):
        return True
    if len(words) > _LONGEST_HEADER:
        return False
    return not _HEADS.isdisjoint(["".join(words), *words, *words_of(name)])


def _hint(missing: str, names: Mapping[str, str | None], cells: pl.DataFrame, *, has_header: bool) -> str:
    """What to write into the config where the file lacks a column."""
    column = next((column for column in COLUMNS if names[column] == missing), None)
    if column is None:
        return "input.template, input.id and input.where name columns; a literal brace is written twice."
    similar = next((name for name in cells.columns if name.strip().lower() == missing.lower()), None)
    if column == "model" and similar is None:
        return "Name a model for all rows in input.defaults, for example {model: still-1}."
    if not has_header:
        number = next(iter(prompts_like(cells)), "N") if column == "prompt" else "N"
        return f"Give the number of its column in input.columns, for example {{{column}: {number}}}."
    pair = width_and_height(cells.columns) if column == "aspect_ratio" and similar is None else None
    alike = next(
        (file_column.name for file_column in cells if setting_of(judge(file_column)) == column), None
    )
    guess = similar or alike or (next(iter(prompts_like(cells)), None) if column == "prompt" else None)
    if guess is None and pair is None:
        return f"Name the file's column in input.columns: {{{column}: NAME}}."
    example = _in_list(pair) if pair else in_yaml(str(guess))
    return f"Name the file's column in input.columns, for example {{{column}: {example}}}."


def _in_list(names: Sequence[str]) -> str:
    return f"[{', '.join(map(in_yaml, names))}]"


def judge_others(source: Table, names: Mapping[str, str | None]) -> list[Judgement]:
    """What those of a file's columns hold that are not ours. Where the rows are images, nobody asks."""
    if source.placed:
        return []
    return [judge(column) for column in source.cells if column.name not in names.values()]


def note(cells: pl.DataFrame, prompts: str | None, other_columns: Iterable[Judgement]) -> str:
    """Says so where one of the other columns looks far more like the prompts than theirs; otherwise empty."""
    by_name = {column.name: column for column in other_columns}
    likely = [by_name[candidate.column] for candidate in ranked("prompt", by_name.values())]
    best = max(likely, key=lambda column: column.words, default=None)
    if best is None or prompts not in cells.columns or best.words < _FAR_MORE * judge(cells[prompts]).words:
        return ""
    return f"The prompts are from the column {prompts!r}; those in {best.name!r} are far longer."


def prompts_like(cells: pl.DataFrame) -> list[str]:
    """The columns that may have the prompts, the likeliest first."""
    named = [column for column in cells if 0 < len(column.name) <= _LONGEST_NAME]
    return [candidate.column for candidate in ranked("prompt", map(judge, named))]


def holds(judged: Judgement) -> str | None:
    """What a column holds that is no setting, and matters: images, media types, states or secrets."""
    if is_secret(judged.name):
        return SECRET
    kinds = {Kind.MEDIA_TYPES: MEDIA_TYPES, Kind.STATES: STATES}
    return IMAGES if judged.are_images else kinds.get(judged.holds)


def used_and_carried(
    files: Iterable[tuple[Table, Mapping[str, str | None], Iterable[Judgement]]], config: Input
) -> Columns:
    """How the columns of all files are used, by the names of ours and what the other columns hold. What a
    template or `where` reads is no missed setting, nor is what a ratio is made of.
    """
    read = {*read_by(config), *(name for names in _of_several(config).values() for name in names)}
    used: dict[str, str] = {}
    meanings: dict[str, str | None] = {}
    examples: dict[str, str] = {}
    for source, names, other_columns in files:
        used |= {column: name for column, name in names.items() if name in source.cells.columns}
        if source.placed:
            other_names = [name for name in source.cells.columns if name not in names.values()]
            meanings |= {name: SECRET if is_secret(name) else None for name in other_names}
        for judged in other_columns:
            held = IMAGES if judged.name in source.images else holds(judged)
            setting = setting_of(judged)
            is_setting = held is None or (held == IMAGES and setting in IMAGE_COLUMNS)
            meanings[judged.name] = setting if is_setting else held
            if held in (MEDIA_TYPES, STATES, IMAGES) and judged.examples:
                examples.setdefault(judged.name, ", ".join(judged.examples))
    unused = {name: meaning for name, meaning in meanings.items() if name not in read and meaning is not None}
    pair = width_and_height(meanings)
    if pair and "aspect_ratio" not in used and not read & {*pair}:
        unused |= {_in_list(pair): "aspect_ratio"}
    carried = [name for name, meaning in meanings.items() if meaning != SECRET]
    ordered = {str(column): used[column] for column in COLUMNS if column in used}
    return Columns(ordered, carried, unused, examples)


# ---- one column of several: a ratio of width and height, images in their order


def _of_several(config: Input) -> dict[FileColumn, tuple[str, ...]]:
    """Our columns that the config makes of several of the file's."""
    return {column: names for column, names in config.columns.items() if isinstance(names, tuple)}


def _pair(config: Input) -> tuple[str, ...] | None:
    """The columns of width and height that the config makes a ratio of."""
    return _of_several(config).get("aspect_ratio")


def width_and_height(columns: Iterable[str]) -> tuple[str, str] | None:
    """Those of a file's columns that are the width and the height of what is wanted, by their names."""
    by_name = {name.strip().lower().rpartition(".")[2]: name for name in reversed([*columns])}
    for width, height in (("width", "height"), ("w", "h"), ("image_width", "image_height")):
        if width in by_name and height in by_name:
            return by_name[width], by_name[height]
    return None


def with_joined(source: Table, config: Input) -> Table:
    """A table with the columns that `input.columns` makes of several.

    Of width and height it is the ratio: `1024` and `576` are `16:9`. Where no common ratio is exactly that,
    it is the size itself, of which `pricing` finds the nearest ratio. Images are listed in their order.
    """
    for ours, names in _of_several(config).items():
        cells = with_fields(source.cells, names)
        if not {*names} <= {*cells.columns}:
            continue
        if ours == "aspect_ratio":
            pairs = zip(*(_sizes(cells, name).str.extract(_PIXELS) for name in names), strict=True)
            joined = pl.Series([_ratio(*size) for size in pairs], dtype=pl.String)
        else:
            texts = [as_texts(cells[name]).str.strip_chars().replace("", None) for name in names]
            joined = pl.select(pl.concat_str(texts, separator="|", ignore_nulls=True)).to_series()
        source = replace(source, cells=cells.with_columns(joined.alias(str(config.names[ours]))))
    return source


def wrong_sizes(source: Table, rows: pl.DataFrame, config: Input) -> Iterator[pl.DataFrame]:
    """The cells of width and height of which no ratio can be made, with the schema `WRONG`. Where both are
    empty, there is none. `rows` has the `line` and the `file` of the table's rows.
    """
    pair = _pair(config)
    for name, other_name in (pair, pair[::-1]) if pair else ():
        text, beside = _sizes(source.cells, name), _sizes(source.cells, other_name)
        is_wrong = (text != "") & (text.str.extract(_PIXELS).cast(pl.Int64).fill_null(0) == 0)
        is_lacking = (text == "") & (beside != "")
        cells = rows.select("line", "file").with_columns(text.alias(name))
        yield wrong_cells(cells.filter(is_wrong), name, "is not a whole number of pixels")
        yield wrong_cells(cells.filter(is_lacking), name, f"is empty, and {other_name} is not")


def _sizes(cells: pl.DataFrame, name: str) -> pl.Series:
    """A column as text; of a nested one its type, which is no number."""
    column = cells[name]
    if column.dtype.is_nested():
        return pl.repeat(str(column.dtype), column.len(), eager=True)
    return column.cast(pl.String).fill_null("").str.strip_chars()


@lru_cache
def _ratio(width: str | None, height: str | None) -> str | None:
    if width is None or height is None or not (int(width) and int(height)):
        return None
    wide, high = int(width), int(height)
    divisor = gcd(wide, high)
    parts = wide // divisor, high // divisor
    if parts in _COMMON or parts[::-1] in _COMMON:
        return f"{parts[0]}:{parts[1]}"
    return f"{wide}x{high}" if min(wide, high) >= _FEWEST else f"{wide}:{high}"
