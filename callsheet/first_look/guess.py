"""What a batch file without a config probably means: a proposal, which a person sees before it is bought.

What the cells of a column hold is judged (`batches/judgements.py`), and the likeliest column of each field is
taken. Where another is as likely, it is a doubt: it stands in the config with what else it may be
(`input.guessed`), or is asked on a terminal. The model is none: it is a choice, the cheapest that takes most
rows. A guess that multiplies money is never made. It buys nothing, and writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import ValidationError

from callsheet.batches import columns, texts
from callsheet.batches.formats import FILE, field_names, find_files, names_images, read_tables, with_fields
from callsheet.batches.headers import Table, in_yaml
from callsheet.batches.json_files import lists_of_rows
from callsheet.batches.judgements import (
    Candidate,
    Judgement,
    Kind,
    called,
    filled,
    in_doubt,
    judge,
    ranked,
    share,
    words_of,
)
from callsheet.batches.read import Batch, batch_of
from callsheet.batches.workbooks import ALL_SHEETS, sheet_names
from callsheet.cells import IMAGE_COLUMNS, rejects, rejects_in_words
from callsheet.config.load import in_words
from callsheet.config.settings import COLUMNS, Settings
from callsheet.errors import ConfigError, InputError
from callsheet.plain_text import and_more, counted
from callsheet.pricing.compare import Comparison, compare
from callsheet.pricing.rates import price_requests
from callsheet.pricing.requests import make_requests
from callsheet.records import ModelType, dollars
from callsheet.service.models import Catalogue

_TEXTS = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson")
_OF_VIDEOS = ("duration", "sound", "first_frame", "last_frame")
_SETTINGS = ("aspect_ratio", "resolution", "duration", "sound", "output_format")
_SAMPLE = 2_000  # rows that are priced on each model
_IMAGES = 100  # rows of which each is an image, which is read for each model
_OTHERS = 3  # that are named
_FIRST = 3  # rows that are shown
_NO_IMAGES = "none"
_VIDEO_TYPES = {"video", "videos", "clip", "movie", "film"}


@dataclass(frozen=True, slots=True)
class Proposal:
    """A doubt: the setting, the question, and by each value that it may be what a person sees of that; the
    first one is taken.
    """

    setting: str
    question: str
    candidates: Mapping[str, str]

    @property
    def taken(self) -> str:
        """What is written into the config."""
        return next(iter(self.candidates))

    @property
    def others(self) -> list[str]:
        """What else it may be."""
        return [*self.candidates][1:]


@dataclass(frozen=True, slots=True)
class ExplainedColumn:
    """A column of the file: what it holds, for what it is taken (mostly for nothing), and why."""

    name: str
    holds: str
    example: str
    taken_for: str
    why: str


@dataclass(frozen=True, slots=True)
class Guess:
    """How a batch file is read.

    Attributes:
        input: the settings of `input` that read it, without its path.
        films: where stills and films of them are wanted, how the films are read from the stills' columns.
        proposals: what is in doubt, in the order in which it is asked.
        rows: how many rows the file has.
        is_sample: a part of them was priced on each model, because they are many.
        taken: what the rows cost on the model that is taken; None where the file names models.
        price: of all of them, in dollars, where that is known.
        refused: where no model takes a row, what the models say that were tried.
        not_used: columns that look like a setting or hold something that matters, each with the reason.
        other_texts: columns that hold texts like prompts, and are not meant as far as is seen.
        notes: what a person should know of how the file was read.
        rejects: why rows cannot be bought, in words.
        columns: all of them.
        first: the first rows, as they stand in the file.
        jobs: what is bought for the first rows.
    """

    input: dict[str, Any]
    films: Guess | None
    proposals: tuple[Proposal, ...]
    rows: int
    is_sample: bool
    taken: Comparison | None
    price: Decimal
    refused: tuple[str, ...]
    not_used: Mapping[str, str]
    other_texts: tuple[str, ...]
    notes: tuple[str, ...]
    rejects: tuple[str, ...]
    columns: tuple[ExplainedColumn, ...]
    first: tuple[Mapping[str, str], ...]
    jobs: pl.DataFrame

    def guesses(self) -> dict[str, dict[str, Any]]:
        """`input.guessed`: of each guess what is taken, and what else it may be."""
        return {
            proposal.setting: {"taken": proposal.taken, "others": proposal.others}
            for proposal in self.proposals
        }


@dataclass
class _File:
    """A batch file that is being looked at: its settings so far, and what is in doubt."""

    path: str
    catalogue: Catalogue
    given: Mapping[str, str]
    input: dict[str, Any] = field(default_factory=dict)
    proposals: list[Proposal] = field(default_factory=list)
    why: dict[str, str] = field(default_factory=dict)
    not_used: dict[str, str] = field(default_factory=dict)
    other_texts: list[str] = field(default_factory=list)

    @cached_property
    def tables(self) -> list[Table]:
        """What is in the file: a table, or of a workbook one for each sheet that is read; of a glob, what is
        in its first file.
        """
        tables = read_tables(self.settings())
        read = [*tables] if self.input.get("sheet") == ALL_SHEETS else [next(iter(tables))]
        return [
            replace(table, cells=with_fields(table.cells, field_names(table.cells.schema))) for table in read
        ]

    @property
    def cells(self) -> pl.DataFrame:
        """The cells of the first table."""
        return self.tables[0].cells

    @cached_property
    def judged(self) -> dict[str, Judgement]:
        """What each column holds."""
        return {column.name: judge(column) for column in self.cells if column.name}

    def again(self, **settings: Any) -> None:
        """Reads the file anew, with these settings of `input`."""
        self.input |= settings
        for name in ("tables", "judged"):
            self.__dict__.pop(name, None)

    def propose(self, setting: str, question: str, candidates: Mapping[str, str]) -> None:
        """Adds a doubt, unless a person has said what it is."""
        if setting not in self.given and len(candidates) > 1:
            self.proposals.append(Proposal(setting, question, candidates))

    def settings(self) -> Settings:
        """A config with what is known, and with any model where the file names none."""
        defaults = {"model": next(iter(self.catalogue), "any")} | self.input.get("defaults", {})
        service = {"base_url": "http://127.0.0.1:1"}
        input_values = {"path": self.path} | self.input | {"defaults": defaults}
        try:
            return Settings.model_validate({"batch": "guess", "service": service, "input": input_values})
        except ValidationError as error:  # what a person has given
            raise ConfigError(in_words(error)) from None

    def check_column(self, name: str) -> None:
        """Raises InputError where the file has no column of this name."""
        if name not in self.cells.columns:
            raise InputError(f"{self.path}: there is no column {name!r}; {self.its_columns()}")

    def its_columns(self) -> str:
        """Its columns in words, the first of them."""
        return f"the columns are {and_more(self.cells.columns[: _OTHERS * 4], self.cells.width)}"

    def example(self, name: str) -> str:
        """The first cell of a column that is filled."""
        return self.judged[name].example


def guess(path: str, catalogue: Catalogue, answers: Mapping[str, str]) -> Guess:
    """Guesses how a batch file (as in `input.path`) is to be read.

    Args:
        answers: what a person has said. `prompt`: the column of the prompts, or with braces a template of
            columns; of images the prompt for all. `media`: `images`, `videos`, or `both`: stills, and films
            of those that are kept. `model`. `images`: the columns of the images that are sent, with commas, or
            `none`. `header`: `none`, or `names` where the file has one. `sheet`, `rows`, `encoding` and
            `split` as in `input`.

    Raises:
        InputError: it cannot be read, has no column that can be the prompts, or lacks one that is given.
    """
    file = _File(path, catalogue, answers)
    if names_images(file.settings()):
        _choose_prompt_of_images(file)
        return _priced(file, answers.get("media") or "")
    file_settings = ("sheet", "rows", "encoding")
    file.input |= {setting: answers[setting] for setting in file_settings if answers.get(setting)}
    name = find_files(file.path)[0]
    if name.lower().endswith(".xlsx") and "sheet" not in answers:
        _choose_sheet(file, sheet_names(Path(name), name))
    if name.lower().endswith(_TEXTS) and "encoding" not in answers:
        _choose_encoding(file, name)
    if name.lower().endswith(".json") and "rows" not in answers:
        _choose_rows(file, name)
    _choose_form(file)
    return _priced(file, _choose_columns(file))


# ---- the form of the file


def _choose_sheet(file: _File, sheets: Sequence[str]) -> None:
    """Takes the first sheet whose columns hold prompts best; all that have its columns are a doubt."""
    scores: dict[str, float] = {}
    names: dict[str, list[str]] = {}
    for sheet in sheets if len(sheets) > 1 else ():
        try:
            file.again(sheet=sheet)
            names[sheet] = file.cells.columns
            scores[sheet] = max((likely.score for likely in ranked("prompt", file.judged.values())), default=0)
        except InputError:  # an empty one
            scores[sheet] = 0
    likely = [sheet for sheet in scores if scores[sheet]]
    if len(sheets) < 2 or not likely:
        file.again(**({"sheet": sheets[0]} if len(sheets) > 1 else {}))
        return
    best = max(likely, key=lambda sheet: scores[sheet])
    file.again(sheet=best)
    alike = [sheet for sheet in likely if names[sheet] == names[best]]
    candidates = {best: "this sheet alone"}
    if len(alike) > 1:
        candidates[ALL_SHEETS] = f"all {len(alike)} sheets with these columns"
    candidates |= {sheet: "" for sheet in likely if sheet != best}
    file.propose("sheet", "Which sheet has the prompts?", candidates)


def _choose_encoding(file: _File, name: str) -> None:
    """Takes the likeliest encoding of a text file that is not UTF-8."""
    content = Path(name).read_bytes()
    try:
        content.decode("utf-8-sig")
    except UnicodeDecodeError:
        if readings := texts.likely_readings(content):
            file.input["encoding"] = next(iter(readings))
            file.propose("encoding", "In which of these encodings is the text right?", readings)


def _choose_rows(file: _File, name: str) -> None:
    """Takes the list or object whose entries look most like rows with prompts."""
    try:
        document = json.loads(Path(name).read_bytes().decode(file.input.get("encoding", "utf-8-sig")))
    except ValueError:  # reading it says more
        return
    scores = lists_of_rows(document)
    best = next(iter(scores), "")
    if best and scores[best]:
        file.input["rows"] = best
        close = [path for path in scores if path and scores[best] - scores[path] < 1]
        file.propose("rows", "Which list has the rows?", dict.fromkeys(close, ""))


def _choose_form(file: _File) -> None:
    """Says whether a table has a header, and what is a prompt in a text without one."""
    answers, cells, lines = file.given, file.cells, file.tables[0].lines
    header = answers.get("header")
    if header == "none" or (not header and columns.is_no_header(cells.columns, cells)):
        file.again(header="none")
        candidates = {"none": "its first line is a row", "names": "its first line has names"}
        file.propose("header", "Has the file a header?", candidates)
        return
    if not Path(file.path).name.lower().endswith(".txt") or cells.columns != ["prompt"]:
        return
    prompts = cells["prompt"].to_list()
    split, is_doubt = (
        (answers["split"], False) if "split" in answers else texts.likely_split(prompts, lines.to_list())
    )
    if split == "#":
        file.again(comments=split)
    elif split != "lines":
        file.again(split=split)
        if is_doubt:
            file.propose("split", "What is a prompt?", {split: file.cells["prompt"][0], "lines": prompts[0]})


# ---- columns


def _choose_columns(file: _File) -> str:
    """Says which column is for which field, and returns the medium: `images`, `videos` or `both`."""
    judged, names = file.judged, dict[str, Any]()
    media = _choose_prompt(file, names)

    def free(field: str) -> list[Candidate]:
        used = {name for taken in names.values() for name in (taken if isinstance(taken, list) else [taken])}
        return ranked(field, [column for name, column in judged.items() if name not in used])

    for ours in _SETTINGS:
        likely = [candidate for candidate in free(ours) if _fits(file.cells[candidate.column], ours)]
        if likely:
            file.why[likely[0].column] = likely[0].why
        if ours in judged and (not likely or likely[0].column != ours) and judged[ours].holds != Kind.NOTHING:
            names[ours] = None
            file.not_used[ours] = f"holds {judged[ours].holds}; it is no {ours.replace('_', ' ')}"
        if likely and likely[0].column != ours:
            names[ours] = likely[0].column
    pair = columns.width_and_height(file.cells.columns)
    if pair and all(_fits(file.cells[name], "width") for name in pair):
        names["aspect_ratio"] = list(pair)
    _choose_models_of_file(file, names)
    _choose_images(file, names)
    ids = free("id")
    if "id" in judged:
        names |= {} if _tells_apart(file, "id") else {"id": None}
    elif ids := [candidate for candidate in ids if _tells_apart(file, candidate.column)]:
        names["id"] = ids[0].column
        file.why[ids[0].column] = ids[0].why
    media = media or _choose_medium(file, names)
    if media in ("images", "both"):
        for ours in _OF_VIDEOS:
            name = names.pop(ours, ours if ours in judged else None)
            if name:
                names |= {ours: None} if name == ours else {}
                file.not_used[name] = "is for videos, and images are bought"
    if names:
        file.input["columns"] = names
    return media


def _choose_prompt(file: _File, names: dict[str, Any]) -> str:
    """Takes the likeliest column of prompts, or what a person says. Where one is for stills and one for films
    of them, the medium is a doubt, and is returned.
    """
    given = file.given.get("prompt", "")
    if "{" in given:
        file.input["template"] = given
        return ""
    ranking = ranked("prompt", file.judged.values())
    if given:
        file.check_column(given)
        ranking = [Candidate(given, 0, "as you say")]
    if not ranking:
        raise InputError(
            f"{file.path}: no column looks like prompts; {file.its_columns()}",
            hint='Name it: --prompt COLUMN. Or make prompts of columns: --prompt "A photo of a {COLUMN}".',
        )
    close = [ranking[0].column, *in_doubt(ranking)]
    stills = [name for name in close if called(name, "still") and not called(name, "video")]
    films = [name for name in close if called(name, "video") and not called(name, "still")]
    column, media = close[0], ""
    if stills and films:
        media = file.given.get("media", "images")
        column = films[0] if media == "videos" else stills[0]
        candidates = {"images": f"{stills[0]}: {file.example(stills[0])}"}
        candidates["videos"] = f"{films[0]}: {file.example(films[0])}"
        candidates["both"] = f"stills of {stills[0]}, then films of those that you keep, by {films[0]}"
        file.propose("media", "Images or videos?", candidates)
        if media == "both":
            file.input["films"] = films[0]
    elif file.given.get("media") == "both":
        raise InputError(
            f"{file.path}: no two columns are prompts for stills and for films of them; {file.its_columns()}",
            hint="Such columns are named like image_prompt and motion_prompt.",
        )
    else:
        file.propose("prompt", "Which column has the prompts?", {name: file.example(name) for name in close})
    file.other_texts = [likely.column for likely in ranking if likely.column not in {column, *close}]
    file.why[column] = next(candidate.why for candidate in ranking if candidate.column == column)
    if column != "prompt":
        names["prompt"] = int(column) if "header" in file.input else column
    return media


def _choose_prompt_of_images(file: _File) -> None:
    """Takes the prompt that is given for images, as a text, a template or a column; otherwise they have texts
    beside them.
    """
    prompt = file.given.get("prompt")
    if prompt in ("id", FILE):
        file.input["columns"] = {"prompt": prompt}
    elif prompt and "{" in prompt:
        file.input["template"] = prompt
    elif prompt and prompt != "prompt":
        file.input["defaults"] = {"prompt": prompt}
    else:
        try:
            _ = file.tables
        except InputError as error:
            hint = f'Give one for all: --prompt "A slow push in". {error.hint}'
            raise InputError(error.message, hint=hint) from None


def _fits(column: pl.Series, setting: str) -> bool:
    """Whether most cells of a column can be values of a setting; one odd or empty cell is no reason."""
    pattern = {
        "duration": r"(?i)^(?:\d+(?:[.,]0*)?\s*(?:s|secs?|seconds?)?|(?:\d+:)?\d+:\d\d)$",
        "width": r"^\d+(\.0*)?\s*(px)?$",
    }.get(setting, "")
    return share(filled(column), pattern) > 0.5


def _tells_apart(file: _File, name: str) -> bool:
    """Whether a column has another value in each row, of all tables."""
    if len(file.tables) == 1 or not file.judged[name].tells_apart:
        return file.judged[name].tells_apart
    cells = pl.concat([table.cells[name] for table in file.tables if name in table.cells.columns])
    return cells.n_unique() == cells.len()


def _choose_models_of_file(file: _File, names: dict[str, Any]) -> None:
    """The column of models is used where the catalogue has one of them."""
    for candidate in ranked("model", file.judged.values()):
        if not {*filled(file.cells[candidate.column])}.isdisjoint(file.catalogue):
            names |= {} if candidate.column == "model" else {"model": candidate.column}
            return
    if "model" in file.judged:
        names["model"] = None
        file.not_used["model"] = f"({file.example('model')}) names no model of the catalogue"


def _choose_images(file: _File, names: dict[str, Any]) -> None:
    """The columns of images that are sent: those that are found, and are not what was made of the prompts."""
    held = {name: column for name, column in file.judged.items() if column.are_images}
    sources = [name for name in held if not called(name, "made")]
    sources = [name for name in sources if called(name, "image") or _is_there(file, name)]
    is_edit = any(called(name, "edit") for name in file.why)
    if not sources and is_edit:
        sources = [name for name in held if not called(name, "result")]
    made = [name for name in held if name not in sources and _is_there(file, name)]
    found = [name for name in sources if _is_there(file, name)]
    given = file.given.get("images")
    taken = [] if given in (None, _NO_IMAGES) else [name.strip() for name in given.split(",")]
    taken = taken if given else found
    for name in taken:
        file.check_column(name)
    roles = {role: name for role in ("first_frame", "last_frame") for name in taken if called(name, role)}
    others = [name for name in taken if name not in roles.values() and name not in IMAGE_COLUMNS]
    names |= {role: name for role, name in roles.items() if role != name}
    names |= {"reference_image": others[0] if len(others) == 1 else others} if others else {}
    names |= {name: None for name in held if name in IMAGE_COLUMNS and name not in taken}
    file.why |= {name: "holds images, which are found" for name in taken}
    is_sure = all(name in roles.values() or name in IMAGE_COLUMNS or called(name, "given") for name in taken)
    if held and not (taken and is_sure):
        answers = {", ".join(taken) or _NO_IMAGES, ", ".join(sources), *sources, *made, _NO_IMAGES} - {""}
        order = sorted(answers, key=lambda answer: (answer != (", ".join(taken) or _NO_IMAGES), answer))
        examples = {name: file.example(name) for name in held}
        file.propose(
            "images",
            "Which images are sent with the prompts?",
            {answer: examples.get(answer, "no images are sent" if answer == _NO_IMAGES else "") for answer in order},
        )


def _is_there(file: _File, name: str) -> bool:
    """Whether the first image of a column is found: beside the batch file, or from the folder here."""
    cell = file.example(name).strip('[]" ').split('"')[0].split("|")[0].strip()
    folders = (Path(file.path).parent, Path())
    return "://" in cell or (bool(cell) and any((folder / cell).is_file() for folder in folders))


# ---- the medium and the model


def _choose_medium(file: _File, names: Mapping[str, Any]) -> str:
    """Images or videos; it is a doubt where there is a reason for both, or a duration alone says videos."""
    stem, judged = Path(file.path).stem, file.judged
    prompt = str(names.get("prompt", "prompt"))
    frames = [name for role in ("first_frame", "last_frame") if (name := names.get(role))]
    videos = [name for name in (stem, *judged) if called(name, "video") and name != prompt]
    is_duration = "duration" in judged and "duration" not in names
    duration = "duration" if is_duration else names.get("duration")
    made = [name for name, column in judged.items() if column.holds is Kind.IMAGES and called(name, "made")]
    stills = [name for name in (stem, *made) if called(name, "still") or name in made]
    of_types, types = _types_of(file)
    if file.given.get("media") or file.given.get("model") in file.catalogue:
        given = file.catalogue.get(file.given.get("model", ""))
        return file.given.get("media") or (f"{given.type}s" if given else "")
    reasons = {"videos": [*frames, *videos, *([duration] if duration else [])], "images": stills}
    if called(prompt, "video"):
        reasons = {"videos": [prompt], "images": []}
    elif called(prompt, "still"):
        reasons["images"] = [prompt, *stills]
    if types and types[-1].lower() in _VIDEO_TYPES:
        if types[0].lower() not in _VIDEO_TYPES:
            return ""
        reasons["videos"].insert(0, of_types)
    taken = "videos" if reasons["videos"] and not called(prompt, "still") else "images"
    other = "images" if taken == "videos" else "videos"
    if reasons["videos"] and (reasons["images"] or reasons["videos"] == [duration]):
        because = {medium: ", ".join(dict.fromkeys(words)) for medium, words in reasons.items()}
        file.propose("media", "Images or videos?", {taken: because[taken], other: because[other]})
    return taken if reasons["videos"] or reasons["images"] else ""


def _priced(file: _File, media: str) -> Guess:
    films = file.input.pop("films", None)
    media = "images" if media == "both" else media
    batch, sample, comparisons = _compared(file, media)
    is_mixed = not media and _choose_models_of_types(file, comparisons)
    proposed = None if is_mixed else _cheapest_model(file, comparisons, media)
    rows, refused = batch.rows, {}
    if proposed:
        file.input["defaults"] = {"model": proposed.model} | file.input.get("defaults", {})
        rows = rows.with_columns(model=pl.lit(proposed.model))
        names = file.input.get("columns", {})
        takes = file.catalogue[proposed.model].supported_references
        is_one = isinstance(names.get("reference_image"), str)
        if proposed.type is ModelType.VIDEO and is_one and "first_frame" in takes:
            names["first_frame"] = names.pop("reference_image")
        if not proposed.rows:
            tried = (comparison for comparison in comparisons if comparison.type is proposed.type)
            refused = dict.fromkeys(reason for comparison in tried for reason in comparison.reasons.values())
    settings = file.settings()
    if is_mixed:
        batch = batch_of(file.tables, settings.input)
        rows = batch.rows
    priced = price_requests(make_requests(rows, file.catalogue, settings), file.catalogue, settings)
    wrong = pl.concat([batch.rejects, rejects(priced.wrong, batch.names)])
    first = file.cells.head(_FIRST).select(pl.exclude(pl.Struct, pl.Binary, pl.List))
    return Guess(
        input=file.input,
        films=films and _films(file, films),
        proposals=tuple(file.proposals),
        rows=batch.total,
        is_sample=sample.height < batch.rows.height,
        taken=proposed,
        price=Decimal(priced.jobs["price"].sum() or 0),
        refused=tuple(refused)[:_OTHERS],
        not_used=_not_used(batch) | file.not_used,
        other_texts=tuple(file.other_texts[:_OTHERS]),
        notes=batch.notes,
        rejects=tuple(rejects_in_words(wrong)[:_OTHERS]) if proposed is None or proposed.rows else (),
        columns=tuple(_explained(file, batch)),
        first=tuple(
            {name: "" if cell is None else str(cell) for name, cell in row.items()}
            for row in first.iter_rows(named=True)
        ),
        jobs=priced.jobs.head(_FIRST),
    )


def _compared(file: _File, media: str) -> tuple[Batch, pl.DataFrame, list[Comparison]]:
    """The batch, and a sample of its rows on each model of the medium; where no model takes any, without the
    column that is wrong.
    """
    while True:
        settings = file.settings()
        batch = batch_of(file.tables, settings.input)
        sample_size = _IMAGES if file.tables[0].placed else _SAMPLE
        sample = batch.rows.gather_every(max(1, -(-batch.rows.height // sample_size)))
        if "model" in batch.columns.used:
            return batch, sample, []
        comparisons = [
            comparison
            for comparison in compare(replace(batch, rows=sample), file.catalogue, settings)
            if media in ("", f"{comparison.type.value}s")
        ]
        if not _leave_out_misfit(file, comparisons):
            return batch, sample, comparisons


def _leave_out_misfit(file: _File, comparisons: Sequence[Comparison]) -> bool:
    """Whether there is a column of a setting with which no model takes any row; it is not used any more."""
    if not comparisons or comparisons[0].rows:
        return False
    names: dict[str, Any] = file.input.get("columns", {})
    exact = [ours for ours in ("resolution", "output_format") if ours in file.judged and ours not in names]
    for ours in [column for column in (*names, *exact) if column not in ("prompt", "id")]:
        reasons = [comparison.reasons[ours] for comparison in comparisons if ours in comparison.reasons]
        if len(reasons) < len(comparisons) or names.get(ours, ours) is None:
            continue
        name = names.pop(ours, ours)
        if ours in file.judged:
            file.input["columns"] = names | {ours: None}
        label = name if isinstance(name, str) else " x ".join(name)
        reasons = [*dict.fromkeys(reasons)]
        because = and_more(reasons[:_OTHERS], len(reasons))
        file.not_used[label] = f"no model takes its cells as {ours}: {because}"
        return True
    return False


def _cheapest_model(file: _File, comparisons: Sequence[Comparison], media: str) -> Comparison | None:
    """The cheapest model of those that take most rows; images, where nothing says videos."""
    model = file.given.get("model")
    if model and model not in file.catalogue:
        raise InputError(f"the catalogue has no model {model!r}", hint="callsheet models lists them.")
    eligible = [comparison for comparison in comparisons if model in (None, comparison.model)]
    best = [comparison for comparison in eligible if comparison.rows == eligible[0].rows]
    likely = ModelType.VIDEO if media == "videos" else ModelType.IMAGE
    return next((comparison for comparison in best if comparison.type is likely), next(iter(best), None))


def _types_of(file: _File) -> tuple[str, list[str]]:
    """The column that says image or video of each row, and its values, those of images first; none: empty."""
    for column in file.judged.values():
        if column.holds is Kind.MEDIA_TYPES:
            values = filled(file.cells[column.name]).unique(maintain_order=True)
            return column.name, sorted(values, key=lambda value: value.lower() in _VIDEO_TYPES)
    return "", []


def _choose_models_of_types(file: _File, comparisons: Sequence[Comparison]) -> bool:
    """Whether a column says image of some rows and video of others; each goes to the cheapest model of that."""
    column, values = _types_of(file)
    cheapest = {compared.type: compared.model for compared in reversed(comparisons)}
    models = {
        value: cheapest.get(ModelType.VIDEO if value.lower() in _VIDEO_TYPES else ModelType.IMAGE)
        for value in values
    }
    if len({*models.values()} - {None}) < 2 or "model" in file.given:
        return False
    file.input["columns"] = {**file.input.get("columns", {}), "model": column}
    file.input["values"] = {"model": models}
    file.why[column] = "says image or video of each row"
    return True


def _films(file: _File, prompt: str) -> Guess:
    """How films of the stills are made: by a prompt of their own, on a model that takes a first frame."""
    catalogue = {name: model for name, model in file.catalogue.items() if "first_frame" in model.supported_references}
    answers = {**file.given, "prompt": prompt, "media": "videos", "images": _NO_IMAGES}
    films = guess(file.path, catalogue, answers)
    read = {ours: name for ours, name in films.input["columns"].items() if ours in ("prompt", "duration", "sound")}
    if "duration" in file.judged and "duration" not in read:
        read["duration"] = "duration"
    return replace(films, input={"columns": read, "defaults": films.input["defaults"]}, proposals=())


def _explained(file: _File, batch: Batch) -> list[ExplainedColumn]:
    """What each column holds, and what becomes of it."""
    names = {
        name: ours
        for ours, used in file.settings().input.columns.items()
        for name in ([used] if isinstance(used, str) else used or ())
    }
    names = {column: ours for ours, column in batch.columns.used.items()} | names
    return [
        ExplainedColumn(
            column.name, str(column.holds), column.example, names.get(column.name, ""), file.why.get(column.name, "")
        )
        for column in (file.judged.values() if not file.tables[0].placed else ())
    ]


def _not_used(batch: Batch) -> dict[str, str]:
    """What is not used, and why it may matter."""
    reasons = {}
    for name, meaning in batch.columns.unused.items():
        cells = batch.columns.examples.get(name, "")
        held = columns.HELD.get(columns.IMAGES if meaning in IMAGE_COLUMNS else meaning)
        if meaning in COLUMNS and meaning not in IMAGE_COLUMNS:
            reasons[name] = f"looks like {meaning}; to use it: columns: {{{meaning}: {in_yaml(name)}}}"
        elif held:
            reasons[name] = f"holds {held}{f' ({cells})' if cells else ''}"
        else:
            reasons[name] = "is no setting of the service"
    return reasons
