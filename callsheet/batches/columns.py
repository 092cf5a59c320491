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

from callsheet.batches.formats import field_names, with_fields
from callsheet.batches.headers import (
    NUMBER,
    Table,
    in_yaml,
    is_a_cell,
    is_a_number,
    prompt_name,
    rank,
    read_by,
)
from callsheet.cells import IMAGE_COLUMNS, wrong_cells
from callsheet.config.settings import COLUMNS, Input
from callsheet.errors import InputError

_ALIASES = {  # of each setting: how columns are named that look like it, without blanks and marks
    "aspect_ratio": "aspectratio ratio ar aspect size imagesize dimensions width height orientation "
    "seitenverhältnis bildformat proporción relacióndeaspecto formatimage rapport proporzioni "
    "画幅 比例 宽高比 縦横比 アスペクト比 화면비 соотношениесторон",
    "resolution": "resolution res quality auflösung résolution resolución resolução risoluzione 分辨率 "
    "解像度",
    "samples": "n num count numimages numberofimages samples numsamples variations batchsize quantity copies "
    "stock anzahl nombre cantidad 数量 枚数",
    "duration": "seconds secs duration length durationseconds videolength dauer länge sekunden durée "
    "duración duração durata 时长 時間 秒数 長さ 길이 длительность",
    "output_format": "outputformat format filetype fileformat responseformat",
    "sound": "sound audio withsound withaudio generateaudio ton son sonido som 音声 声音",
    "reference_image": "image imageurl img imagepath referenceimage reference inputimage initimage "
    "sourceimage images",
    "first_frame": "firstframe startframe startimage firstimage",
    "last_frame": "lastframe endframe endimage lastimage",
    "model": "model modelname modelid engine modell modèle modelo 模型 モデル",
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
_ARTICLES = "a|an|ein|eine|einen|einem|einer|un|une|una|uno"
_FORMS = (  # that texts have, and names of columns do not
    NUMBER,
    r"(?:\S\s+\S*){5}",  # a sentence: more than five words
    rf"(?i)(?:^|\s)(?:{_ARTICLES})\s+\S|\S\s+(?:{_ARTICLES})\s*$",  # `Riding a bicycle`
    r"(?i)^\s*\S*ing\s+\S",  # `Crossing roads`
)
_RATIO = re.compile(r"\d+:\d+")
RATIOS = r"^\s*\d+\s*[:xX]\s*\d+\s*$"
_NUMBERS = r"^\s*[+-]?[\d.,:\s]+$"
_ADDRESS = r"^\s*(?:https?|s3|gs|file|data):"
_FILE = r"^\s*(?:[^\s:*?\"<>|]|\S [^\s:*?\"<>|])+\.[A-Za-z][A-Za-z0-9]{1,4}\s*$"
_IMAGE_FILE = r"(?i)\.(?:png|jpe?g|webp|gif|bmp|tiff?|heic|avif)(?:[?#].*)?\s*$"
_JSON = r"(?s)^\s*(?:\{\s*\".*\}|\[.*\])\s*$"
_NAMED_IMAGES = re.compile(
    r"image|img|photo|picture|foto|bild$|sketch|file_?name|file$|[\W_](?:path|url|file)$|画像|图片",
    re.IGNORECASE,
)
_SECRET = re.compile(r"(?:api|access|secret|private)key|secret|passw(?:or)?d|(?:auth|access|api)token|token")
_MEDIA_TYPES = {
    *("image", "images", "img", "photo", "picture", "still", "video", "videos", "clip", "movie", "film"),
    *("bild", "foto", "vidéo", "imagen", "图片", "视频", "画像", "動画"),
}
_STATES = {
    *("done", "open", "todo", "to do", "new", "draft", "pending", "ready", "approved", "rejected", "ok"),
    *("complete", "completed", "in progress", "wip", "failed", "error", "skip", "skipped", "active"),
    *("inactive", "archived", "published", "cancelled", "finished", "offen", "fertig", "erledigt", "neu"),
    *("entwurf", "fait", "terminé", "à faire", "hecho", "pendiente", "待处理", "完成", "未完了", "完了"),
}
_STATE_NAMES = {"status", "state", "stage", "done", "stand", "statut", "estado", "状态", "状態"}
_LONGEST_NAME = 40
_FAR_MORE = 8  # times
MOST = 0.5  # of the cells
_SENTENCE = 2  # words
_EXAMPLES = 3
_ROWS = 1_000  # that are looked at
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
        filled = column in {*config.defaults, *config.matrix, *config.names}
        if not filled and column not in file_names and len(similar) == 1:
            names[column] = similar[0]
    return names


LAST_FRAME = "last_frame"
"""Where the rows are files of another batch, the column with the last frame of a video."""


def _names_of_images(config: Input, source: Table) -> dict[str, str | None]:
    """The same where the rows are images: of their columns only the id, the prompt and the image are used
    where the config does not say more.
    """
    configured = {*config.columns, *config.defaults, *config.matrix}
    names: dict[str, str | None] = {column: config.names.get(column) for column in COLUMNS}
    if "id" not in configured and config.id is None:
        names["id"] = "id"
    # The prompt by which a file was made is another one's default; that beside an image is its own.
    is_configured = "prompt" in (configured if config.other else config.columns)
    if not is_configured and "prompt" in source.cells.columns:
        names["prompt"] = "prompt"
    if config.has_ratio_of_files:
        names["aspect_ratio"] = "aspect_ratio"
    is_named = any(names[column] in (source.placed, LAST_FRAME) for column in IMAGE_COLUMNS)
    if not is_named and "images" not in configured:
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
    listed = [name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…" for name in fields]
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
    if not names or not all(names) or any(map(_is_known, names)):
        return False
    below = {name: column.drop_nulls() for name, column in zip(names, cells.head(_ROWS), strict=False)}
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
    return rank(name) > 0 or any(word in _OTHER_NAMES or word in _LIKE for word in ["".join(words), *words])


def _hint(missing: str, names: Mapping[str, str | None], cells: pl.DataFrame, *, has_header: bool) -> str:
    """What to write into the config where the file lacks a column."""
    column = next((column for column in COLUMNS if names[column] == missing), None)
    if column is None:
        return "input.template, input.id and input.where name columns; a literal brace is written twice."
    similar = next((name for name in cells.columns if name.strip().lower() == missing.lower()), None)
    if column == "model" and similar is None:
        return "Name a model for all rows in input.defaults, for example {model: still-1}."
    if not has_header:
        numbers = cells.rename(lambda number: f"column {number}")
        likely = prompts_like(numbers) if column == "prompt" else []
        number = (likely[0] if likely else "N").removeprefix("column ")
        return f"Give the number of its column in input.columns, for example {{{column}: {number}}}."
    pair = width_and_height(cells.columns) if column == "aspect_ratio" and similar is None else None
    alike = next((file_column.name for file_column in cells if looks_like(file_column) == column), None)
    guess = similar or alike or (next(iter(prompts_like(cells)), None) if column == "prompt" else None)
    if guess is None:
        return f"Name the file's column in input.columns: {{{column}: NAME}}."
    example = _in_list(pair) if pair else in_yaml(guess)
    return f"Name the file's column in input.columns, for example {{{column}: {example}}}."


def _in_list(names: Sequence[str]) -> str:
    return f"[{', '.join(map(in_yaml, names))}]"


def note(cells: pl.DataFrame, names: Mapping[str, str | None]) -> str:
    """Says so where another column looks far more like the prompts than theirs; otherwise empty."""
    lengths = {column.name: _length(column) for column in _texts(cells)}
    used, best = names["prompt"], max(lengths, key=lengths.__getitem__, default=None)
    if best is None or used not in lengths or lengths[best] < _FAR_MORE * lengths[used]:
        return ""
    return f"The prompts are from the column {used!r}; those in {best!r} are far longer."


def prompts_like(cells: pl.DataFrame) -> list[str]:
    """The columns that may have the prompts, the likeliest first: those with a prompt's name, then those with
    a text's, each in the file's order; then other sentences, the longest first.
    """
    candidates = []
    for position, column in enumerate(_texts(cells)):
        name_rank = rank(column.name)
        if name_rank or _words(column) >= _SENTENCE:
            candidates.append((-name_rank, position if name_rank else -_length(column), column.name))
    return [name for *_, name in sorted(candidates)]


def _texts(cells: pl.DataFrame) -> Iterator[pl.Series]:
    """The columns that may be prompts: of text, and neither numbers, paths, JSON nor anything else that is
    known. Each without its empty cells.
    """
    for column in cells.head(_ROWS).select(pl.col(pl.String)):
        name, texts = column.name.lower(), filled(column)
        has_name = 0 < len(name) <= _LONGEST_NAME and not is_a_cell(name)
        if not has_name or not texts.len() or "negative" in name or name.startswith("__"):
            continue
        patterns = (_ADDRESS, _FILE, _JSON, *(() if rank(name) else (_NUMBERS, RATIOS)))
        if not any(share(texts, pattern) > MOST for pattern in patterns) and holds(column) is None:
            yield texts


def filled(column: pl.Series) -> pl.Series:
    """The cells of a column of text that are not blank, of the first rows."""
    texts = column.head(_ROWS).drop_nulls().str.strip_chars()
    return texts.filter(texts != "")


def share(texts: pl.Series, pattern: str) -> float:
    """How many of some texts match a pattern, from 0 to 1."""
    return float(texts.str.contains(pattern).sum()) / max(texts.len(), 1)


def _length(texts: pl.Series) -> float:
    return float(texts.str.len_chars().sum()) / max(texts.len(), 1)


def _words(texts: pl.Series) -> float:
    """The words of a text, on average; of Chinese and Japanese two characters count as one."""
    counts = texts.str.count_matches(r"\S+") + texts.str.count_matches(r"[\u3040-\u9fff]{2}")
    return float(counts.sum()) / max(texts.len(), 1)


def looks_like(column: pl.Series) -> str | None:
    """The setting that a column looks like by its name or its cells; None where it looks like none."""
    plain = _plain(column.name.rpartition(".")[2])  # of a dotted name its end
    by_name = _LIKE.get(plain) or (plain if plain in _LIKE else None)
    if by_name != "duration" and column.dtype == pl.String and share(filled(column), RATIOS) > MOST:
        return "aspect_ratio"
    return by_name


def holds(column: pl.Series) -> str | None:
    """What a column holds that is no setting, and matters: images, media types, states or secrets."""
    if is_secret(column.name):
        return SECRET
    if isinstance(column.dtype, pl.Struct) and {"bytes", "path"} == {
        member.name for member in column.dtype.fields
    }:
        return IMAGES
    if column.dtype != pl.String or not (texts := filled(column)).len():
        return None
    values = {text.lower() for text in texts.unique()}
    if values <= _MEDIA_TYPES:
        return MEDIA_TYPES
    if values <= _STATES and (len(values) > 1 or _plain(column.name) in _STATE_NAMES):
        return STATES
    is_place = share(texts, _ADDRESS) > MOST or share(texts, r"^\s*\S+\s*$") > MOST
    is_named = _NAMED_IMAGES.search(column.name) and is_place and share(texts, _NUMBERS) < MOST
    return IMAGES if is_named or share(texts, _IMAGE_FILE) > MOST else None


def is_secret(name: str) -> bool:
    """Whether a column has the name of a secret. Such a one is never carried."""
    return _SECRET.fullmatch(_plain(name)) is not None


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.lower())


def used_and_carried(
    sources: Sequence[Table], names: Sequence[Mapping[str, str | None]], config: Input
) -> Columns:
    """How the columns of all files are used. What a template or `where` reads is no missed setting, nor is
    what a ratio is made of.
    """
    read = {*read_by(config), *(_pair(config) or ())}
    used: dict[str, str] = {}
    meanings: dict[str, str | None] = {}
    examples: dict[str, str] = {}
    for source, ours in zip(sources, names, strict=True):
        used |= {column: name for column, name in ours.items() if name in source.cells.columns}
        for column in source.cells:
            if column.name in ours.values():
                continue
            if source.placed:
                meanings[column.name] = SECRET if is_secret(column.name) else None
                continue
            held = IMAGES if column.name in source.images else holds(column)
            setting = looks_like(column)
            meanings[column.name] = (
                setting if held is None or (held == IMAGES and setting in IMAGE_COLUMNS) else held
            )
            if held in (MEDIA_TYPES, STATES, IMAGES) and column.dtype == pl.String:
                cells = filled(column).unique(maintain_order=True)
                examples.setdefault(column.name, ", ".join(cells.head(_EXAMPLES)))
    unused = {name: meaning for name, meaning in meanings.items() if name not in read and meaning is not None}
    pair = width_and_height(unused)
    if pair and "aspect_ratio" not in used:
        unused = {_in_list(pair) if name == pair[0] else name: meaning for name, meaning in unused.items()}
        del unused[pair[1]]
    carried = [name for name, meaning in meanings.items() if meaning != SECRET]
    ordered = {str(column): used[column] for column in COLUMNS if column in used}
    return Columns(ordered, carried, unused, examples)


# ---- a width and a height


def _pair(config: Input) -> tuple[str, str] | None:
    """The columns of width and height that the config makes a ratio of."""
    name = config.columns.get("aspect_ratio")
    return name if isinstance(name, tuple) else None


def width_and_height(columns: Iterable[str]) -> tuple[str, str] | None:
    """Those of a file's columns that are the width and the height of what is wanted, by their names."""
    by_name = {name.strip().lower().rpartition(".")[2]: name for name in reversed([*columns])}
    for width, height in (("width", "height"), ("w", "h"), ("image_width", "image_height")):
        if width in by_name and height in by_name:
            return by_name[width], by_name[height]
    return None


def with_ratios(source: Table, config: Input) -> Table:
    """A table with a column of ratios as `input.columns` makes it: `1024` and `576` are `16:9`.

    Where no common ratio is exactly that, it is the size itself, of which `pricing` finds the nearest ratio.
    """
    pair = _pair(config)
    if pair is None:
        return source
    cells = with_fields(source.cells, pair)
    if not {*pair} <= {*cells.columns}:
        return source
    pairs = zip(*(_sizes(cells, name).str.extract(_PIXELS) for name in pair), strict=True)
    ratios = pl.Series(config.names["aspect_ratio"], [_ratio(*size) for size in pairs], pl.String)
    return replace(source, cells=cells.with_columns(ratios))


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
