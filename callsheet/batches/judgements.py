"""What a column holds, by its cells; and what it may be for, with its name as the second witness.

A column holds the first of the kinds below of which most of its cells are (`judge`). `NAMES` has the words by
which a name says what its column is for. Both make a ranking for each field (`ranked`): the first is taken,
and a second that is close is a doubt. It reads no file, and knows no config.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import polars as pl


class Kind(StrEnum):
    """What a column may hold, in the order in which it is looked for."""

    NOTHING = "nothing"
    IMAGES = "images"
    ADDRESSES = "paths or addresses"
    JSON = "JSON"
    RATIOS = "ratios"
    PIXELS = "sizes in pixels"
    RESOLUTIONS = "resolutions"
    SECONDS = "seconds"
    TIMES = "dates or times"
    NUMBERS = "numbers"
    YES_OR_NO = "yes or no"
    MEDIA_TYPES = "media types"
    STATES = "states"
    CODES = "codes"
    SENTENCES = "sentences"
    CHOICES = "a few words, again and again"
    SHORT = "short texts"


_SIDE = r"(?:[1-9]|1\d|2[01])"
_PATH = r"(?:[^\s:*?\"<>|]|\S [^\s:*?\"<>|])+"
_IMAGE = rf"(?:data:image/.*|(?:https?:|s3:)?{_PATH}\.(?:png|jpe?g|webp|gif|bmp|tiff?|heic|avif)(?:[?#].*)?)"
_FORMS = {
    Kind.IMAGES: rf"(?i)^\s*(?:\[\s*\")?{_IMAGE}(?:\".*\])?\s*$",  # one, or a list
    Kind.ADDRESSES: rf"^\s*(?:(?:https?|s3|gs|file|data):.*|{_PATH}\.[A-Za-z][A-Za-z0-9]{{1,4}}|/\S+)\s*$",
    Kind.JSON: r"(?s)^\s*(?:\{\s*\".*\}|\[.*\])\s*$",
    Kind.RATIOS: rf"^\s*0?{_SIDE}\s*[:x/\u00d7]\s*0?{_SIDE}(?::00)?\s*(?:\(.*\))?\s*$",
    Kind.PIXELS: r"^\s*\d{2,5}\s*[xX*\u00d7]\s*\d{2,5}\s*(?:px)?\s*$",
    Kind.RESOLUTIONS: r"(?i)^\s*(?:\d{3,4}p|\d(?:\.\d+)?k)\s*$",
    Kind.SECONDS: r"(?i)^\s*\d+(?:[.,]\d+)?\s*(?:s|secs?|seconds?)\s*$",
    Kind.TIMES: r"^\s*(?:\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?(?:\s*-\s*[\d:.,]+)?|\d{4}-\d\d-\d\d.*)\s*$",
    Kind.NUMBERS: r"^\s*[+-]?[\d.,\s]+%?\s*$",
    Kind.YES_OR_NO: r"(?i)^\s*(?:true|false|yes|no|on|off)\s*$",
}
_MEDIA_TYPES = {"image", "images", "photo", "picture", "still", "video", "videos", "clip", "movie", "film"}
_STATES = {
    *("done", "open", "todo", "to do", "new", "draft", "pending", "ready", "approved", "rejected", "ok"),
    *("wip", "complete", "completed", "in progress", "failed", "error", "skip", "skipped", "active"),
    *("inactive", "archived", "published", "cancelled", "finished"),
    *("offen", "fertig", "erledigt", "neu", "entwurf"),
}
_CODE = r"^\s*[\w.:#/-]*[\d_/-][\w.:#/-]*\s*$"
_NO_BLANKS = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
_SECRET = re.compile(r"(?:api|access|secret|private)key|secret|passw(?:or)?d|(?:auth|access|api)token|token")

ROWS = 1_000
"""That are looked at."""

MOST = 0.5
"""Of the cells that are filled: one odd cell is no reason."""

_SENTENCE = 4  # words
_PHRASE = 2
_VARIETY = 0.2  # of the cells differ, where they are prompts
_FEW = 5  # cells, of which variety says nothing
_CLOSE = 1.5  # scores

NAMES: Mapping[str, str] = {
    "prompt": "prompt prompts",
    "text": "caption description text instruction instructions instruct scene visual shot content",
    "unseen": "result output target edited generated narration voiceover voice dialogue script subtitle "
    "lyrics note notes comment system response answer alt style sound audio music title transition",
    "negative": "negative",
    "id": "id uid uuid key slug sku nr no number index name filename file_name handle shot scene code",
    "aspect_ratio": "aspect_ratio aspect ratio ar size dimensions orientation format seitenverhältnis",
    "resolution": "resolution res quality size",
    "duration": "duration seconds secs sec length dauer durée duración 时长 秒数",
    "time": "time timestamp timecode start end begin date at",
    "samples": "n num count samples num_images number_of_images variations copies quantity stock anzahl",
    "output_format": "output_format format file_type",
    "sound": "sound audio with_sound with_audio generate_audio",
    "model": "model model_name model_id engine",
    "first_frame": "first_frame start_frame start_image first_image",
    "last_frame": "last_frame end_frame end_image last_image",
    "image": "image img photo picture foto bild sketch reference references ref input source init file path",
    "made": "output result target generated edited save dest filename file_name file mask thumbnail",
    "given": "source input init reference references ref image_1 image_2 image_3 img_1 img_2",
    "result": "output result target generated edited",
    "edit": "instruction instructions instruct edit edits",
    "video": "video videos clip clips film films movie animation motion i2v t2v 视频 動画",
    "still": "image images photo photos picture pictures poster still stills illustration thumbnail cover",
    "other": "seed type steps style sampler scheduler guidance guidance_scale cfg cfg_scale strength fps",
}
"""By what it is for: words of names, in small letters. A name is split at blanks, marks and capitals."""


def words_of(name: str) -> list[str]:
    """The words of a name: of a dotted one its end. `imagePrompt_2` has `image`, `prompt`, `2`."""
    last = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name.rpartition(".")[2] or name)
    return re.findall(r"[^\W\d_]+|\d+", last.lower())


def called(name: str, purpose: str) -> bool:
    """Whether a name says that it is for this, by `NAMES`."""
    words = words_of(name)
    text, joined = f"_{'_'.join(words)}_", "".join(words)
    phrases = NAMES[purpose].split()
    return any(f"_{phrase}_" in text or phrase.replace("_", "") == joined for phrase in phrases)


def is_called_only(name: str, purpose: str) -> bool:
    """Whether a name says this and nothing else: of models `Model Name` does, and `car_model` does not."""
    return "_".join(words_of(name)) in NAMES[purpose].split()


def is_secret(name: str) -> bool:
    """Whether a column has the name of a secret. Such a one is never carried."""
    return _SECRET.fullmatch(re.sub(r"[\W_]+", "", name.lower())) is not None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a column holds.

    Attributes:
        words: in a cell, on average; where a script has no blanks, two characters are one.
        filled: the share of its cells that are not blank.
        tells_apart: whether each cell is filled, and there is none like it.
        examples: the first cells that differ.
    """

    name: str
    holds: Kind
    words: float = 0
    filled: float = 0
    tells_apart: bool = False
    examples: tuple[str, ...] = ()

    @property
    def example(self) -> str:
        """The first cell that is filled; empty where none is."""
        return next(iter(self.examples), "")

    @property
    def are_images(self) -> bool:
        """Whether it names images, also without an ending, where its name says so."""
        is_place = self.holds in (Kind.CODES, Kind.ADDRESSES)
        return self.holds is Kind.IMAGES or (
            is_place and called(self.name, "image") and "id" not in words_of(self.name)
        )


@dataclass(frozen=True, slots=True)
class Candidate:
    """A column that may be for a field, by cells and name, and why."""

    column: str
    score: float
    why: str


def judge(column: pl.Series) -> Judgement:
    """What a column of a table holds, by its first cells."""
    fields = column.dtype.fields if isinstance(column.dtype, pl.Struct) else ()
    if {"bytes", "path"} <= {member.name for member in fields}:
        return Judgement(column.name, Kind.IMAGES)
    texts, rows = filled(column), min(column.len(), ROWS)
    if not texts.len():
        return Judgement(column.name, Kind.NOTHING)
    distinct = texts.unique(maintain_order=True)
    blanks = texts.str.count_matches(r"\S+") + texts.str.count_matches(_NO_BLANKS) // 2
    words = float(blanks.sum()) / texts.len()
    repeats = distinct.len() / texts.len()
    tells_apart = distinct.len() == rows and (
        column.len() <= ROWS or (not column.dtype.is_nested() and column.n_unique() == column.len())
    )
    return Judgement(
        column.name,
        _kind(column.name, texts, {text.lower() for text in distinct}, words, repeats),
        words,
        texts.len() / rows,
        tells_apart,
        tuple(distinct.head(3)),
    )


def as_texts(column: pl.Series) -> pl.Series:
    """A column of any type as text; of lists and structs as JSON."""
    if column.dtype in (pl.Binary, pl.Duration):
        return pl.repeat("", column.len(), eager=True).alias(column.name)
    if column.dtype.is_nested():
        texts = [None if value is None else json.dumps(value, default=str) for value in column.to_list()]
        return pl.Series(column.name, texts, pl.String)
    return column.cast(pl.String, strict=False).fill_null("")


def _kind(name: str, texts: pl.Series, values: set[str], words: float, variety: float) -> Kind:
    for kind, form in _FORMS.items():
        if share(texts, form) > MOST:
            return kind
    if values <= _MEDIA_TYPES:
        return Kind.MEDIA_TYPES
    if values <= _STATES and (len(values) > 1 or not {"status", "state", "stage"}.isdisjoint(words_of(name))):
        return Kind.STATES
    if share(texts, _CODE) > MOST:
        return Kind.CODES
    is_varied = variety > _VARIETY or texts.len() < _FEW
    if words >= _SENTENCE and is_varied:
        return Kind.SENTENCES
    return Kind.SHORT if is_varied else Kind.CHOICES


def share(texts: pl.Series, form: str) -> float:
    """How many of some texts match a pattern, from 0 to 1."""
    return float(texts.str.contains(form).sum()) / max(texts.len(), 1)


def filled(column: pl.Series) -> pl.Series:
    """The cells of a column that are not blank, as text, of the first rows."""
    texts = as_texts(column.head(ROWS)).str.strip_chars()
    return texts.filter((texts != "").fill_null(value=False))


# ---- the rankings


def ranked(field: str, columns: Iterable[Judgement]) -> list[Candidate]:
    """The columns that may be for a field, the likeliest first."""
    candidates = []
    for column in columns:
        if is_secret(column.name):
            continue
        score, by_name = _of_prompt(column) if field == "prompt" else _of_setting(field, column)
        if score > 0:
            why = f"holds {column.holds}" + (f"; named {by_name}" if by_name else "")
            candidates.append(Candidate(column.name, score, why))
    return sorted(candidates, key=lambda candidate: -candidate.score)


def in_doubt(candidates: Sequence[Candidate]) -> list[str]:
    """The columns that may be meant as well as the first: their score is close to its."""
    return [other.column for other in candidates[1:] if other.score > candidates[0].score - _CLOSE]


_PROMPTS = {Kind.SENTENCES: 4.0, Kind.SHORT: 1.0, Kind.CHOICES: 1.0, Kind.CODES: 0.1, Kind.NUMBERS: 0.1}
"""How much what a column holds looks like prompts."""


def _of_prompt(column: Judgement) -> tuple[float, str]:
    """How likely a column has the prompts, and what of its name counts."""
    is_prompt, is_text = called(column.name, "prompt"), called(column.name, "text")
    score, by_name = _PROMPTS.get(column.holds, 0), ""
    if column.holds in (Kind.CODES, Kind.NUMBERS) and called(column.name, "id"):
        return 0, ""
    is_hidden = column.name.startswith("__") or called(column.name, "negative")
    if is_hidden or not score or not (is_prompt or is_text or column.words >= _PHRASE):
        return 0, ""
    if is_prompt:
        score, by_name = score + 2, "like a prompt"
        score += 2 if column.name.strip().lower() in ("prompt", "prompts") else 0
    elif called(column.name, "unseen"):
        score, by_name = max(score - 2, 0.5), "like what is not shown"
    elif is_text:
        score, by_name = score + 1, "like a text"
    else:  # of sentences without a word on them the longest
        score += min(column.words, 50) / 100
    return score - (2 if column.filled <= MOST else 0), by_name


_SURE = {"aspect_ratio": Kind.RATIOS, "resolution": Kind.RESOLUTIONS, "duration": Kind.SECONDS}
_NAMED = {  # what a column may hold that is for a field by its name
    "aspect_ratio": (Kind.RATIOS, Kind.PIXELS),
    "resolution": (Kind.RESOLUTIONS, Kind.PIXELS),
    "duration": (Kind.SECONDS, Kind.NUMBERS, Kind.TIMES, Kind.RATIOS),
    "sound": (Kind.YES_OR_NO, Kind.NUMBERS),
    "output_format": (Kind.CHOICES, Kind.SHORT),
    "samples": (Kind.NUMBERS,),
    "model": (Kind.CODES, Kind.CHOICES, Kind.SHORT),
}
_OUTPUT_FORMATS = r"^(?:jpeg|png|webp)$"


def _of_setting(field: str, column: Judgement) -> tuple[float, str]:
    """How likely a column is for a setting, and what of its name counts."""
    if field == "id":
        is_id = called(column.name, "id") and column.tells_apart and column.holds is not Kind.SENTENCES
        return (1.0 if is_id else 0, "like an id")
    is_named = called(column.name, field)
    if field in ("first_frame", "last_frame"):
        return (2.0 if is_named and column.are_images else 0, f"like a {field}")
    is_exact = column.name.strip().lower() == field
    cells = 2.0 if column.holds is _SURE.get(field) else 0
    if called(column.name, "time") and not is_exact:
        return 0, ""
    if field == "output_format" and not re.match(_OUTPUT_FORMATS, column.example.lower()):
        return 0, ""
    if is_named and column.holds in _NAMED[field]:
        return cells + (3 if is_exact else 2), f"like {field}"
    return cells, ""


def setting_of(column: Judgement) -> str | None:
    """The setting that a column is likely for, by cells and name, or by its name that of another service."""
    for field in ("first_frame", "last_frame", *_NAMED):
        if ranked(field, [column]):
            return field
    if called(column.name, "negative"):
        return "negative_prompt"
    return "_".join(words_of(column.name)) if is_called_only(column.name, "other") else None
