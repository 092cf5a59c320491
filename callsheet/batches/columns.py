"""Which of a file's columns is which of ours, and hints where one is missing or looks like one of ours.

It looks at names and at cells, and reads no file. A hint never changes what is bought: it says what to write
into the config.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl
import yaml

from callsheet.batches.formats import field_names, is_a_prompt, prompt_name, template_columns, with_fields
from callsheet.cells import IMAGE_COLUMNS
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
_PROMPT_NAMES = ("prompt", "提示词", "提示詞", "プロンプト", "프롬프트", "промпт")
_TEXT_NAMES = {
    *("caption", "description", "text", "instruction", "instructions", "beschreibung", "bildbeschreibung"),
    *("texte", "légende", "texto", "descripción", "descrição", "descrizione", "testo", "описание"),
    *("描述", "説明", "文案", "설명"),
}
_NO_NAME = re.compile(r"[+-]?\d+([.,:x]\d+)?|https?://.*|s3://.*", re.IGNORECASE)
RATIOS = r"^\s*\d+\s*[:xX]\s*\d+\s*$"
_RATIO = re.compile(r"\d+:\d+")
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
    *(
        "done",
        "open",
        "todo",
        "to do",
        "new",
        "draft",
        "pending",
        "ready",
        "approved",
        "rejected",
        "finished",
    ),
    *("complete", "completed", "in progress", "wip", "ok", "failed", "error", "skip", "skipped", "active"),
    *("inactive", "archived", "published", "cancelled", "offen", "fertig", "erledigt", "neu", "entwurf"),
    *("fait", "terminé", "à faire", "hecho", "pendiente", "待处理", "完成", "未完了", "完了"),
}
_STATE_NAMES = {"status", "state", "stage", "done", "stand", "statut", "estado", "状态", "状態"}
_LONGEST_NAME = 40
_FAR_MORE = 8  # times
MOST = 0.5  # of the cells
_SENTENCE = 2  # words
_EXAMPLES = 3
_ROWS = 1_000  # that are looked at

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
        unused: those of them that look like a setting, and the setting; or what else they seem to hold that
            matters (`IMAGES` and the like). A secret is one of these, and not carried.
        examples: some cells of those that hold something else.
    """

    used: dict[str, str]
    carried: list[str]
    unused: dict[str, str]
    examples: dict[str, str] = field(default_factory=dict)


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
    guess = similar or like or (next(iter(prompts_like(cells)), None) if column == "prompt" else None)
    if guess is None:
        return f"Name the file's column in input.columns: {{{column}: NAME}}."
    return f"Name the file's column in input.columns, for example {{{column}: {in_yaml(guess)}}}."


def note(cells: pl.DataFrame, names: Mapping[str, str | None]) -> str:
    """Says so where another column looks far more like the prompts than theirs; otherwise empty."""
    lengths = {each.name: _length(each) for each in _texts(cells)}
    used, best = names["prompt"], max(lengths, key=lengths.__getitem__, default=None)
    if best is None or used not in lengths or lengths[best] < _FAR_MORE * lengths[used]:
        return ""
    return f"The prompts are from the column {used!r}; those in {best!r} are far longer."


def prompts_like(cells: pl.DataFrame) -> list[str]:
    """The columns that may have the prompts, the likeliest first: those with a prompt's name, then those with
    a text's, each in the file's order; then other sentences, the longest first.
    """
    found = []
    for position, column in enumerate(_texts(cells)):
        rank = _rank(column.name)
        if rank or _words(column) >= _SENTENCE:
            found.append((-rank, position if rank else -_length(column), column.name))
    return [name for *_, name in sorted(found)]


def is_named(name: str) -> bool:
    """Whether a column has the name of a prompt or of a text."""
    return _rank(name) > 0


def _rank(name: str) -> int:
    lower = name.lower()
    if any(word in lower for word in _PROMPT_NAMES):
        return 2
    return 1 if _TEXT_NAMES & {*re.split(r"[\W_]+", lower)} else 0


def _texts(cells: pl.DataFrame) -> Iterator[pl.Series]:
    """The columns that may be prompts: of text, and neither numbers, paths, JSON nor anything else that is
    known. Each without its empty cells.
    """
    for column in cells.head(_ROWS).select(pl.col(pl.String)):
        name, texts = column.name.lower(), filled(column)
        has_name = 0 < len(name) <= _LONGEST_NAME and not _is_a_cell(name)
        if not has_name or not texts.len() or "negative" in name or name.startswith("__"):
            continue
        others = (_ADDRESS, _FILE, _JSON, *(() if _rank(name) else (_NUMBERS, RATIOS)))
        if not any(share(texts, pattern) > MOST for pattern in others) and holds(column) is None:
            yield texts


def filled(column: pl.Series) -> pl.Series:
    """The cells of a column of text that are not blank, of the first rows."""
    texts = column.head(_ROWS).drop_nulls().str.strip_chars()
    return texts.filter(texts != "")


def share(texts: pl.Series, pattern: str) -> float:
    """How many of some texts match a pattern, from 0 to 1."""
    return float(texts.str.contains(pattern).sum()) / max(texts.len(), 1)


def first_cell(column: pl.Series) -> str:
    """The first cell of a column of text that is not blank; empty where there is none."""
    return str(next(iter(filled(column)), ""))


def width_and_height(cells: pl.DataFrame) -> tuple[str, str] | None:
    """The columns of width and height in pixels, where a file has both, and no ratio."""
    by_name = {_plain(name): name for name in cells.columns}
    both = [by_name.get(name) for name in ("width", "height")]
    width, height = both
    if width is None or height is None:
        return None
    numbers = all(
        share(filled(cells[name].cast(pl.String, strict=False)), r"^\d+(\.0*)?$") > MOST
        for name in (width, height)
    )
    return (width, height) if numbers else None


def _length(texts: pl.Series) -> float:
    return float(texts.str.len_chars().sum()) / max(texts.len(), 1)


def _words(texts: pl.Series) -> float:
    """The words of a text, on average; of Chinese and Japanese two characters count as one."""
    words = texts.str.count_matches(r"\S+") + texts.str.count_matches(r"[\u3040-\u9fff]{2}")
    return float(words.sum()) / max(texts.len(), 1)


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
        each.name for each in column.dtype.fields
    }:
        return IMAGES
    if column.dtype != pl.String or not (texts := filled(column)).len():
        return None
    words = {text.lower() for text in texts.unique()}
    if words <= _MEDIA_TYPES:
        return MEDIA_TYPES
    if words <= _STATES and (len(words) > 1 or _plain(column.name) in _STATE_NAMES):
        return STATES
    is_place = share(texts, _ADDRESS) > MOST or share(texts, r"^\s*\S+\s*$") > MOST
    named = _NAMED_IMAGES.search(column.name) and is_place and share(texts, _NUMBERS) < MOST
    return IMAGES if named or share(texts, _IMAGE_FILE) > MOST else None


def is_secret(name: str) -> bool:
    """Whether a column has the name of a secret. Such a one is never carried."""
    return _SECRET.fullmatch(_plain(name)) is not None


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.lower())


def used_and_carried(
    tables: Sequence[pl.DataFrame], names: Sequence[Mapping[str, str | None]], config: Input
) -> Columns:
    """How the columns of all files are used. What a template or `where` reads is no missed setting."""
    read = {*template_columns(config.template), *template_columns(config.id), *config.where}
    used: dict[str, str] = {}
    others: dict[str, str | None] = {}
    examples: dict[str, str] = {}
    for table, ours in zip(tables, names, strict=True):
        used |= {column: name for column, name in ours.items() if name in table.columns}
        for column in table:
            if column.name in ours.values():
                continue
            others[column.name] = held = holds(column)
            if held is None or (held == IMAGES and looks_like(column) in IMAGE_COLUMNS):
                others[column.name] = looks_like(column)
            if held in (MEDIA_TYPES, STATES, IMAGES) and column.dtype == pl.String:
                cells = filled(column).unique(maintain_order=True)
                examples.setdefault(column.name, ", ".join(cells.head(_EXAMPLES)))
    unused = {name: like for name, like in others.items() if name not in read and like is not None}
    carried = [name for name, like in others.items() if like != SECRET]
    return Columns({column: used[column] for column in COLUMNS if column in used}, carried, unused, examples)


def in_yaml(text: str) -> str:
    """A text as a value of YAML on one line."""
    is_plain = re.fullmatch(r"[^\W\d][\w .-]*\w", text) and yaml.safe_load(text) == text
    return text if is_plain else json.dumps(text, ensure_ascii=False)
