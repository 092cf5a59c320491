"""Which of a file's columns is which of ours, and hints where one is missing or looks like one of ours.

It looks at names and at cells, and reads no file. A hint never changes what is bought: it says what to write
into the config.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from callsheet.batches import sizes
from callsheet.batches.delimited import Table
from callsheet.batches.formats import field_names, with_fields
from callsheet.batches.names import (
    has_prompts,
    in_yaml,
    is_a_cell,
    is_a_number,
    prompt_name,
    read_by,
)
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
_OTHER_NAMES = frozenset(
    """id nr no number index key code name names title titel titre nom nombre label slug handle sku product
    article item date day time timestamp status state note notes comment comments remark category kategorie
    categorie type kind tag tags style genre mood tone theme topic subject object action setting scene scenes
    shot shots clip location place background camera movement motion angle lens lighting light colour color
    character characters author owner client email user language country city url link path file filename
    folder source duration dauer seconds minutes format size width height version batch group set part page
    column row beschreibung bild video audio voice voiceover dialogue dialog script text texte texto body
    content caption price quantity numero número nombre descripción descripcion formato cadre plan plano
    motif szene opening ending closing heading building painting drawing framing clothing styling""".split()  # noqa: SIM905 - one a line would be a screen
)
_QUESTIONS = {"what", "which", "how", "who", "where", "when", "why", "your", "you", "please"} | {
    *("describe", "choose", "select", "enter", "write", "pick", "upload", "take", "give", "draw")
}
_ARTICLES = {"a", "an", "ein", "eine", "einen", "einem", "einer", "un", "une", "una", "uno"}
_RATIOS = r"^\s*\d+\s*[:xX]\s*\d+\s*$"
_RATIO = re.compile(r"\d+:\d+")
_NO_PROMPT = r"^(https?|s3)://|^\s*[\[{].*[\]}]\s*$"  # an address, or JSON
_LONGEST_NAME = 40
_NAMED = 40  # characters that a good name is worth
_FAR_MORE = 8  # times
_ROWS = 1_000  # that are looked at
_NEARLY_ALL = 0.8
_LONGEST_HEADER = 5  # words


@dataclass(frozen=True, slots=True)
class Columns:
    """How the columns of a batch's files are used.

    Attributes:
        used: the file's name of each of our columns that it has.
        carried: the other columns, which are copied to the manifest.
        unused: those of them that look like a setting, and the setting; width and height, of which one can
            be made, are one: `[width, height]`.
        images: the columns that hold images, and not their addresses; they are used or carried as paths.
    """

    used: dict[str, str]
    carried: list[str]
    unused: dict[str, str]
    images: list[str] = field(default_factory=list)


def names_of(config: Input, file_names: Collection[str]) -> dict[str, str | None]:
    """The file's name of each of our columns; None of one that the config releases or makes itself.

    A column that each row needs, and that the file has in other capitals only, is that one. So is the only
    column of a file without a header.
    """
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
        filled = column in {*config.defaults, *config.matrix, *config.names}
        if not filled and column not in file_names and len(similar) == 1:
            names[column] = similar[0]
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
    if (
        is_prompt
        and has_header
        and (any(map(is_a_cell, cells.columns)) or is_no_header(cells.columns, cells))
    ):
        raise InputError(
            f"{header}: is no header: its cells are not the names of columns", hint=_without_header(cells)
        )
    pair = sizes.names(config)
    if pair and missing == names["aspect_ratio"]:
        missing = next((name for name in pair if name not in fields), missing)
    named = [name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…" for name in fields]
    raise InputError(
        f"{header}: there is no column {missing!r}; the columns are {', '.join(named)}",
        hint=(source.advice if is_prompt else "") or _hint(missing, names, cells, has_header=has_header),
    )


def _without_header(cells: pl.DataFrame) -> str:
    """What to write into the config or into the file where a file has no header."""
    names = _guessed_header(cells)
    numbers = {name: at for at, name in enumerate(names, 1) if name in ("prompt", "aspect_ratio")}
    columns = ", ".join(f"{name}: {number}" for name, number in sorted(numbers.items(), reverse=True))
    with_columns = f" with input.columns: {{{columns}}}" if len(names) > 1 else ""
    line = ",".join(names)
    return (
        f"Set input.header: none{with_columns}; or write the names of the columns above it, perhaps: {line}"
    )


def is_no_header(names: Sequence[str], cells: pl.DataFrame) -> bool:
    """Whether a file's first line, which has these names, is a row, and the file has no header.

    Only where it is certain: no name is like one of a column, and one of them is of the form that the cells
    below it have. `cells` are the columns, in the order of the names.
    """
    if not names or not all(names) or any(map(_is_known, names)):
        return False
    below = [(name, column.drop_nulls()) for name, column in zip(names, cells.head(_ROWS), strict=False)]
    below = [(name, texts) for name, texts in below if texts.dtype == pl.String and texts.len()]
    if len(below) < len(names) or any(_are_numbers(texts) and not is_a_cell(name) for name, texts in below):
        return False
    return any(_is_one_of(name, texts) for name, texts in below)


def _is_known(name: str) -> bool:
    """Whether a text has a word that names of columns have, or is written as programs write them."""
    words = re.findall(r"[^\W_]+", name.lower())
    if is_a_number(name):
        return False
    is_question = name.rstrip().endswith(("?", ":")) or not _QUESTIONS.isdisjoint(words)
    if is_question or "_" in name or re.search(r"[a-z][A-Z]", name):
        return True
    if len(words) > _LONGEST_HEADER:
        return False
    return has_prompts(name) or any(
        word in _OTHER_NAMES or word in _LIKE for word in ["".join(words), *words]
    )


def _are_numbers(texts: pl.Series) -> bool:
    return all(is_a_number(text.strip()) for text in texts)


def _is_one_of(name: str, texts: pl.Series) -> bool:
    """Whether a name has a form that nearly all texts below it have, and names of columns do not: a number; a
    sentence; several words with an article (`Riding a bicycle`), or of which the first ends in `ing`.
    """
    forms = (is_a_number, _is_a_sentence, _has_an_article, _says_what_is_done)
    return any(form(name) and sum(map(form, texts)) >= _NEARLY_ALL * texts.len() for form in forms)


def _is_a_sentence(text: str) -> bool:
    return len(text.split()) > _LONGEST_HEADER


def _has_an_article(text: str) -> bool:
    words = text.lower().split()
    return len(words) > 1 and not _ARTICLES.isdisjoint(words)


def _says_what_is_done(text: str) -> bool:
    words = text.lower().split()
    return len(words) > 1 and words[0].endswith("ing")


def _hint(missing: str, names: Mapping[str, str | None], cells: pl.DataFrame, *, has_header: bool) -> str:
    """What to write into the config where the file lacks a column."""
    column = next((column for column in COLUMNS if names[column] == missing), None)
    if column is None:
        return "input.template, input.id and input.where name columns; a literal brace is written twice."
    similar = next((name for name in cells.columns if name.strip().lower() == missing.lower()), None)
    if column == "model" and similar is None:
        return "Name a model for all rows in input.defaults, for example {model: still-1}."
    if not has_header:
        prompts = prompt_like(cells.rename(lambda number: f"column {number}")) if column == "prompt" else None
        number = (prompts or "N").removeprefix("column ")
        return f"Give the number of its column in input.columns, for example {{{column}: {number}}}."
    pair = sizes.together(cells.columns) if column == "aspect_ratio" and similar is None else None
    like = next((each.name for each in cells if looks_like(each) == column), None)
    guess = similar or like or (prompt_like(cells) if column == "prompt" else None)
    if guess is None:
        return f"Name the file's column in input.columns: {{{column}: NAME}}."
    named = _in_list(pair) if pair else in_yaml(guess)
    return f"Name the file's column in input.columns, for example {{{column}: {named}}}."


def _in_list(names: Sequence[str]) -> str:
    return f"[{', '.join(map(in_yaml, names))}]"


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
        is_named = 0 < len(name) <= _LONGEST_NAME and not is_a_cell(name)
        if not is_named or not texts.len() or texts.str.contains(_NO_PROMPT).all():
            continue
        length = float(texts.str.len_chars().sum()) / texts.len() + (_NAMED if has_prompts(name) else 0)
        scores[column.name] = length * texts.n_unique() / texts.len()
    return scores


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
    sources: Sequence[Table], names: Sequence[Mapping[str, str | None]], config: Input
) -> Columns:
    """How the columns of all files are used. What a template or `where` reads is no missed setting, nor is
    what a ratio is made of.
    """
    read = {*read_by(config), *(sizes.names(config) or ())}
    used: dict[str, str] = {}
    carried: dict[str, str | None] = {}
    images = {name for source in sources for name in source.images}
    for table, ours in zip((source.cells for source in sources), names, strict=True):
        used |= {column: name for column, name in ours.items() if name in table.columns}
        carried |= {each.name: looks_like(each) for each in table if each.name not in ours.values()}
    carried |= {name: "reference_image" for name in images if name in carried and not carried[name]}
    unused = {name: like for name, like in carried.items() if name not in read and like}
    pair = sizes.together(unused)
    if pair and "aspect_ratio" not in used:
        unused = {_in_list(pair) if name == pair[0] else name: like for name, like in unused.items()}
        del unused[pair[1]]
    named = {str(column): used[column] for column in COLUMNS if column in used}
    return Columns(named, list(carried), unused, sorted(images))
