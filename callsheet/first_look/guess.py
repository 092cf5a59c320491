"""What a batch file without a config probably means: a proposal, which a person sees before it is bought.

What a column's name and cells say is certain, and done. All else is a guess: it stands in the config with
what else it may be (`input.guessed`), or is asked on a terminal. A guess that multiplies money is never made.
It buys nothing, and writes nothing.
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
from callsheet.batches.columns import IMAGES
from callsheet.batches.formats import FILE, field_names, find_files, names_images, read_tables, with_fields
from callsheet.batches.headers import Table, in_yaml, rank
from callsheet.batches.json_files import lists_of_rows
from callsheet.batches.read import Batch, batch_of
from callsheet.batches.texts import likely_readings
from callsheet.batches.workbooks import sheet_names
from callsheet.cells import IMAGE_COLUMNS
from callsheet.config.load import in_words
from callsheet.config.settings import COLUMNS, Settings
from callsheet.errors import ConfigError, InputError
from callsheet.plain_text import and_more
from callsheet.pricing.compare import Comparison, compare
from callsheet.pricing.rates import price_requests
from callsheet.pricing.requests import make_requests
from callsheet.records import ModelType, dollars
from callsheet.service.models import Catalogue

_IDS = ("id", "key", "name", "slug", "sku", "filename", "nr", "no", "number", "shot", "code")
_VIDEO = ("video", "clip", "film", "movie", "animation", "vidéo", "视频", "動画", "영상")
_TEXTS = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson")
_NO_SETTINGS = ("prompt", "model", "samples", *IMAGE_COLUMNS)  # that a column's name alone makes one
_SAMPLE = 2_000  # rows that are priced on each model
_IMAGES = 100  # rows of which each is an image, which is read for each model
_OTHERS = 3  # that are named
_FIRST = 3  # rows that are shown
_NO_IMAGES = "none"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A guess: the setting, the question, and by each value that it may be what a person sees of that; the
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
class Guess:
    """How a batch file is read.

    Attributes:
        input: the settings of `input` that read it, without its path.
        proposals: what was guessed, in the order in which it is asked.
        rows: how many rows the file has.
        is_sample: a part of them was priced on each model, because they are many.
        taken: what the rows cost on the model that is taken; None where the file names models.
        price: of all of them, in dollars, where that is known.
        refused: where no model takes a row, what the models say that were tried.
        not_used: columns that look like a setting or hold something that matters, each with the reason.
        first: the first rows, as they stand in the file.
    """

    input: dict[str, Any]
    proposals: tuple[Proposal, ...]
    rows: int
    is_sample: bool
    taken: Comparison | None
    price: Decimal
    refused: tuple[str, ...]
    not_used: Mapping[str, str]
    first: tuple[Mapping[str, str], ...]

    def guesses(self) -> dict[str, dict[str, Any]]:
        """`input.guessed`: of each guess what is taken, and what else it may be."""
        return {
            proposal.setting: {"taken": proposal.taken, "others": proposal.others}
            for proposal in self.proposals
        }


@dataclass
class _File:
    """A batch file that is being looked at: its settings so far, and what was guessed."""

    path: str
    catalogue: Catalogue
    given: Mapping[str, str]
    input: dict[str, Any] = field(default_factory=dict)
    proposals: list[Proposal] = field(default_factory=list)

    @cached_property
    def table(self) -> Table:
        """What is in the file; of a glob, in its first one."""
        table = next(iter(read_tables(self.settings())))
        return replace(table, cells=with_fields(table.cells, field_names(table.cells.schema)))

    def again(self, **settings: Any) -> None:
        """Reads the file anew, with these settings of `input`."""
        self.input |= settings
        del self.table

    def propose(self, setting: str, question: str, candidates: Mapping[str, str]) -> None:
        """Adds a guess, unless a person has said what it is."""
        if setting not in self.given:
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
        if name not in self.table.cells.columns:
            raise InputError(f"{self.path}: there is no column {name!r}; {self.its_columns()}")

    def its_columns(self) -> str:
        """Its columns in words, the first of them."""
        cells = self.table.cells
        return f"the columns are {and_more(cells.columns[: _OTHERS * 4], cells.width)}"


def guess(path: str, catalogue: Catalogue, answers: Mapping[str, str]) -> Guess:
    """Guesses how a batch file (as in `input.path`) is to be read.

    Args:
        answers: what a person has said. `prompt`: the column of the prompts, or with braces a template of
            columns; of images the prompt for all. `media`: `images` or `videos`. `model`. `images`: the
            column of the images that are sent, or `none`. `header`: `none`, or `names` where the file has
            one. `sheet`, `rows`, `encoding` and `split` as in `input`.

    Raises:
        InputError: it cannot be read, has no column that can be the prompts, or lacks one that is given.
    """
    file = _File(path, catalogue, answers)
    if names_images(file.settings()):
        _choose_prompt_of_images(file)
        return _choose_model(file)
    file_settings = ("sheet", "rows", "encoding")
    file.input |= {setting: answers[setting] for setting in file_settings if answers.get(setting)}
    name = find_files(file.path)[0]
    if name.lower().endswith(".xlsx") and "sheet" not in answers:
        sheets = sheet_names(Path(name), name)
        if len(sheets) > 1:
            file.input["sheet"] = sheets[0]
            file.propose("sheet", "Which sheet has the prompts?", dict.fromkeys(sheets[: 1 + _OTHERS], ""))
    if name.lower().endswith(_TEXTS) and "encoding" not in answers:
        _choose_encoding(file, name)
    if name.lower().endswith(".json") and "rows" not in answers:
        _choose_rows(file, name)
    _choose_form(file)
    _choose_columns(file)
    return _choose_model(file)


def _choose_encoding(file: _File, name: str) -> None:
    """Takes the likeliest encoding of a text file that is not UTF-8."""
    content = Path(name).read_bytes()
    try:
        content.decode("utf-8-sig")
    except UnicodeDecodeError:
        if readings := likely_readings(content):
            file.input["encoding"] = next(iter(readings))
            file.propose("encoding", "In which of these encodings is the text right?", readings)


def _choose_rows(file: _File, name: str) -> None:
    """Takes the list of objects that look like rows, where the document itself has none."""
    try:
        document = json.loads(Path(name).read_bytes().decode(file.input.get("encoding", "utf-8-sig")))
    except ValueError:  # reading it says more
        return
    first = document[0] if isinstance(document, list) and document else document
    names = first if isinstance(first, dict) else {}
    has_rows = isinstance(document, list) and not isinstance(first, dict)
    has_rows |= any(rank(key) and isinstance(names[key], str) for key in names)
    has_ids = isinstance(document, dict) and all(isinstance(value, dict | str) for value in document.values())
    if not has_rows and not has_ids and (paths := lists_of_rows(document)):
        file.input["rows"] = paths[0]
        if len(paths) > 1:
            file.propose("rows", "Which list has the rows?", dict.fromkeys(paths[: 1 + _OTHERS], ""))


def _choose_form(file: _File) -> None:
    """Says whether a table has a header, and what is a prompt in a text without one."""
    answers, cells, lines = file.given, file.table.cells, file.table.lines
    header = answers.get("header")
    if header == "none" or (not header and columns.is_no_header(cells.columns, cells)):
        file.again(header="none")
        candidates = {"none": "its first line is a row", "names": "its first line has names"}
        file.propose("header", "Has the file a header?", candidates)
        return
    if not Path(file.path).name.lower().endswith(".txt") or cells.columns != ["prompt"]:
        return
    prompts = cells["prompt"].to_list()
    split = answers.get("split") or _likely_split(prompts, lines.to_list())
    if split != "lines":
        file.again(split=split)
        both = {split: file.table.cells["prompt"][0], "lines": prompts[0]}
        file.propose("split", "What is a prompt?", both)


def _likely_split(lines: Sequence[str], numbers: Sequence[int]) -> str:
    """What is a prompt in a text of these lines, with their numbers, as `input.split` has it."""
    if all(texts.NAMED.fullmatch(line.strip()) for line in lines):
        return "named_lines"
    return "paragraphs" if _are_paragraphs(lines, numbers) else "lines"


def _are_paragraphs(lines: Sequence[str], numbers: Sequence[int]) -> bool:
    """Whether the lines of a text, with their numbers, go on in the next line up to a blank one."""
    pairs = zip(lines, numbers, lines[1:], numbers[1:], strict=False)
    follows = [
        (line, next_line) for line, number, next_line, next_number in pairs if next_number == number + 1
    ]
    goes_on = [
        line.rstrip()[-1:] in ",;:-" or next_line.lstrip()[:1].islower() for line, next_line in follows
    ]
    return len(numbers) > len(follows) + 1 and 2 * sum(goes_on) > len(follows)


# ---- columns


def _choose_columns(file: _File) -> None:
    """Says which column has the prompts, the ids, the images, and each setting that is named by its name."""
    table = file.table.cells
    column_of: dict[str, Any] = {}
    _choose_prompt(file, table, column_of)
    for column in table:
        setting = columns.looks_like(column)
        is_taken = setting in table.columns or setting in column_of or column.name in column_of.values()
        if setting in COLUMNS and setting not in _NO_SETTINGS and not is_taken and _fits(column, setting):
            column_of[setting] = column.name
    if (pair := columns.width_and_height(table.columns)) and all(
        _fits(table[name], "width") for name in pair
    ):
        column_of["aspect_ratio"] = list(pair)
    if "id" in table.columns:
        column_of |= {} if _tells_apart(table["id"]) else {"id": None}
    elif ids := [column.name for column in table if column.name not in column_of.values() and _is_id(column)]:
        column_of["id"] = ids[0]
    _choose_images(file, table, column_of)
    if column_of:
        file.input["columns"] = column_of


def _choose_prompt(file: _File, table: pl.DataFrame, column_of: dict[str, Any]) -> None:
    if (prompt := file.given.get("prompt", "")) and "{" in prompt:
        file.input["template"] = prompt
        return
    if prompt:
        file.check_column(prompt)
        column_of |= {} if prompt == "prompt" else {"prompt": int(prompt) if prompt.isdecimal() else prompt}
        return
    has_header = "header" not in file.input
    likely = columns.prompts_like(table if has_header else table.rename(lambda number: f"column {number}"))
    likely = likely if has_header else [name.removeprefix("column ") for name in likely]
    exact = [name for name in table.columns if name.strip().lower() == "prompt"]
    if not likely and not exact:
        raise InputError(
            f"{file.path}: no column looks like prompts; {file.its_columns()}",
            hint='Name it: --prompt COLUMN. Or make prompts of columns: --prompt "A photo of a {COLUMN}".',
        )
    column = exact[0] if exact else likely[0]
    if column.strip().lower() != "prompt":
        column_of["prompt"] = column if has_header else int(column)
    if not exact and len(likely) > 1 and (not rank(column) or rank(likely[1])):
        candidates = {name: _first_cell(table[name]) for name in likely[: 1 + _OTHERS]}
        file.propose("prompt", "Which column has the prompts?", candidates)


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
            _ = file.table
        except InputError as error:
            hint = f'Give one for all: --prompt "A slow push in". {error.hint}'
            raise InputError(error.message, hint=hint) from None


def _fits(column: pl.Series, setting: str) -> bool:
    """Whether most cells of a column can be values of a setting; one odd or empty cell is no reason."""
    pattern = {
        "aspect_ratio": columns.RATIOS,
        "duration": r"^\s*\d+([.,:]\d+)*\s*(s|sec|secs|seconds)?\s*$",
        "width": r"^\s*\d+(\.0*)?\s*(px)?\s*$",
    }.get(setting, "")
    return columns.share(column.cast(pl.String, strict=False), pattern) > columns.MOST


def _is_id(column: pl.Series) -> bool:
    lower = column.name.lower()
    return (lower in _IDS or lower.endswith(("_id", " id", ".id", "-id"))) and _tells_apart(column)


def _tells_apart(column: pl.Series) -> bool:
    return not column.null_count() and not column.dtype.is_nested() and column.n_unique() == column.len()


def _choose_images(file: _File, table: pl.DataFrame, column_of: dict[str, Any]) -> None:
    """The column of images that is sent, where there is one whose images are found."""
    held = [column.name for column in table if columns.holds(column) == IMAGES and column.dtype == pl.String]
    chosen = file.given.get("images")
    if not chosen:
        chosen = held[0] if len(held) == 1 and _is_there(file, table[held[0]]) else _NO_IMAGES
        candidates = {name: _first_cell(table[name]) for name in held if name not in IMAGE_COLUMNS}
        candidates[_NO_IMAGES] = "no images are sent"
        if len(candidates) > 1:
            candidates = dict(sorted(candidates.items(), key=lambda candidate: candidate[0] != chosen))
            file.propose("images", "Which images are sent with the prompts?", candidates)
    if chosen != _NO_IMAGES:
        file.check_column(chosen)
    if chosen not in (_NO_IMAGES, *IMAGE_COLUMNS):
        setting = columns.looks_like(table[chosen])
        column_of[setting if setting in IMAGE_COLUMNS else "reference_image"] = chosen


def _first_cell(column: pl.Series) -> str:
    """The first cell of a column of text that is not blank; empty where there is none."""
    return str(next(iter(columns.filled(column)), ""))


def _is_there(file: _File, column: pl.Series) -> bool:
    """Whether the first image of a column is found: beside the batch file, or from the folder here."""
    cell = _first_cell(column)
    return "://" in cell or any((folder / cell).is_file() for folder in (Path(file.path).parent, Path()))


# ---- the medium and the model


def _choose_model(file: _File) -> Guess:
    batch, sample, comparisons, not_used = _compared(file)
    proposed = _cheapest_model(file, comparisons, sample.height, batch.rows.height)
    rows, refused = batch.rows, {}
    if proposed:
        file.input["defaults"] = {"model": proposed.model} | file.input.get("defaults", {})
        rows = rows.with_columns(model=pl.lit(proposed.model))
        names = file.input.get("columns", {})
        takes = file.catalogue[proposed.model].supported_references
        if proposed.type is ModelType.VIDEO and "reference_image" in names and "first_frame" in takes:
            names["first_frame"] = names.pop("reference_image")
        if not proposed.rows:
            tried = (comparison for comparison in comparisons if comparison.type is proposed.type)
            refused = dict.fromkeys(reason for comparison in tried for reason in comparison.reasons.values())
    settings = file.settings()
    priced = price_requests(make_requests(rows, file.catalogue, settings), file.catalogue, settings)
    first = file.table.cells.head(_FIRST).select(pl.exclude(pl.Struct, pl.Binary, pl.List))
    return Guess(
        input=file.input,
        proposals=tuple(file.proposals),
        rows=batch.total,
        is_sample=sample.height < batch.rows.height,
        taken=proposed,
        price=Decimal(priced.jobs["price"].sum() or 0),
        refused=tuple(refused)[:_OTHERS],
        not_used=_not_used(batch) | not_used,
        first=tuple(
            {name: "" if cell is None else str(cell) for name, cell in row.items()}
            for row in first.iter_rows(named=True)
        ),
    )


def _compared(file: _File) -> tuple[Batch, pl.DataFrame, list[Comparison], dict[str, str]]:
    """The batch, and a sample of its rows on each model; where no model takes any, without the column that is
    wrong, and why.
    """
    not_used: dict[str, str] = {}
    while True:
        settings = file.settings()
        batch = batch_of([file.table], settings.input)
        sample_size = _IMAGES if file.table.placed else _SAMPLE
        sample = batch.rows.gather_every(max(1, -(-batch.rows.height // sample_size)))
        if "model" in batch.columns.used:
            return batch, sample, [], not_used
        comparisons = compare(replace(batch, rows=sample), file.catalogue, settings)
        misfit = _fits_nowhere(file, comparisons)
        if misfit is None:
            return batch, sample, comparisons, not_used
        not_used |= dict([misfit])


def _fits_nowhere(file: _File, comparisons: Sequence[Comparison]) -> tuple[str, str] | None:
    """The first column of a setting with which no model takes any row, and why; it is not used any more."""
    if not comparisons or comparisons[0].rows:
        return None
    names: dict[str, Any] = file.input.get("columns", {})
    for ours in [column for column in names if column not in ("prompt", "id")]:
        reasons = {
            comparison.model: comparison.reasons[ours]
            for comparison in comparisons
            if ours in comparison.reasons
        }
        if len(reasons) == len(comparisons):
            name = names.pop(ours)
            label = name if isinstance(name, str) else " x ".join(name)
            texts = [*dict.fromkeys(reasons.values())]
            return label, f"no model takes its cells as {ours}: {and_more(texts[:_OTHERS], len(texts))}"
    return None


def _cheapest_model(
    file: _File, comparisons: Sequence[Comparison], sampled: int, rows: int
) -> Comparison | None:
    """The cheapest model of those that take most rows; images, unless a name says videos."""
    model, media = file.given.get("model"), file.given.get("media")
    if model and model not in file.catalogue:
        raise InputError(f"the catalogue has no model {model!r}", hint="callsheet models lists them.")
    eligible = [
        comparison
        for comparison in comparisons
        if media in (None, _media(comparison)) and model in (None, comparison.model)
    ]
    names = [Path(file.path).name, *file.table.cells.columns]
    able = [comparison for comparison in eligible if comparison.rows]
    if not able:
        kind = ModelType.VIDEO if "duration" in names[1:] else ModelType.IMAGE
        return next(
            (comparison for comparison in eligible if comparison.type is kind), next(iter(eligible), None)
        )
    best = [comparison for comparison in able if comparison.rows == able[0].rows]
    says_video = any(word in name.lower() for name in names for word in _VIDEO)
    likely = ModelType.VIDEO if says_video else ModelType.IMAGE
    proposed = next((comparison for comparison in best if comparison.type is likely), best[0])
    same_type = [
        comparison for comparison in able if comparison.type is proposed.type and comparison is not proposed
    ]
    other_type = [comparison for comparison in able if comparison.type is not proposed.type]
    offered = (proposed, *same_type[:_OTHERS], *other_type[:_OTHERS])
    if not model and len(offered) > 1:
        candidates = {comparison.model: _with_price(comparison, sampled, rows) for comparison in offered}
        file.propose("model", "Images or videos, and on which model?", candidates)
        if other_type:
            file.propose("media", "Images or videos?", {_media(proposed): "", _media(other_type[0]): ""})
    return proposed


def _media(comparison: Comparison) -> str:
    return f"{comparison.type.value}s"


def _with_price(comparison: Comparison, sampled: int, rows: int) -> str:
    """A model with its price for all rows; where a sample was priced, about."""
    able = "" if comparison.rows == comparison.of else f", {comparison.rows:,} of {comparison.of:,} rows"
    if sampled == rows:
        return f"{_media(comparison)}, {dollars(comparison.price)} USD{able}"
    price = (comparison.price * rows / sampled).quantize(Decimal("0.01"))
    return f"{_media(comparison)}, about {price} USD{able}"


def _not_used(batch: Batch) -> dict[str, str]:
    """What is not used, and why it may matter."""
    reasons = {}
    for name, meaning in batch.columns.unused.items():
        cells = batch.columns.examples.get(name, "")
        held = columns.HELD.get(IMAGES if meaning in IMAGE_COLUMNS else meaning)
        if meaning in COLUMNS and meaning not in IMAGE_COLUMNS:
            reasons[name] = f"looks like {meaning}; to use it: columns: {{{meaning}: {in_yaml(name)}}}"
        elif held:
            reasons[name] = f"holds {held}{f' ({cells})' if cells else ''}"
        else:
            reasons[name] = "is no setting of the service"
    return reasons
