"""What a batch file without a config probably means: a proposal, which a person sees before it is bought.

What the cells of a column hold is judged (`batches/judgements.py`), and the likeliest column of each field is
taken. Where another is as likely, it is a doubt: it stands in the config with what else it may be
(`input.guessed`), or is asked on a terminal. The model is a choice, the cheapest that takes most rows, and
a doubt only where the file names models that the catalogue does not have. A guess that multiplies money is
never made. It buys nothing, and writes nothing.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import islice
from typing import Any

import polars as pl

from callsheet.batches import columns
from callsheet.batches.formats import names_images
from callsheet.batches.headers import in_yaml
from callsheet.batches.judgements import called
from callsheet.batches.read import Batch, batch_of
from callsheet.cells import IMAGE_COLUMNS, rejects, rejects_in_words
from callsheet.config.settings import COLUMNS
from callsheet.errors import InputError
from callsheet.first_look.fields import (
    NO_IMAGES,
    choose_columns,
    choose_prompt_of_images,
    types_of,
)
from callsheet.first_look.form import FileLook, Proposal, look_at_form
from callsheet.plain_text import and_more
from callsheet.pricing.cast import with_cast
from callsheet.pricing.compare import Comparison, compare
from callsheet.pricing.rates import price_requests
from callsheet.pricing.requests import make_requests
from callsheet.records import ModelType
from callsheet.service.models import Catalogue

_SAMPLE = 2_000  # rows that are priced on each model
_IMAGES = 100  # rows of which each is an image, which is read for each model
_OTHERS = 3  # that are named
_FIRST = 3  # rows that are shown
_STILLS = 3  # of each row, to choose the one from of which a film is made


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
        jobs: what is bought, at its price.
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

    @property
    def without_jobs(self) -> Guess | None:
        """The stills or the films, where nothing of them can be bought."""
        parts = (self, self.films) if self.films else (self,)
        return next((part for part in parts if part.jobs.is_empty()), None)

    def guesses(self) -> dict[str, dict[str, Any]]:
        """`input.guessed`: of each guess what is taken, and what else it may be."""
        return {
            proposal.setting: {"taken": proposal.taken, "others": proposal.others}
            for proposal in self.proposals
        }


def guess(path: str, catalogue: Catalogue, answers: Mapping[str, str]) -> Guess:
    """Guesses how a batch file (as in `input.path`) is to be read.

    Args:
        answers: what a person has said. `prompt`: the column of the prompts, or with braces a template of
            columns; of images the prompt for all. `media`: `images`, `videos`, or `both`: stills, and films
            of those that are kept. `model`. `images`: the columns of the images that are sent, with commas,
            or `none`. `header`: `none`, or `names` where the file has one. `sheet`, `rows`, `encoding` and
            `split` as in `input`.

    Raises:
        InputError: it cannot be read, has no column that can be the prompts, or lacks one that is given.
    """
    file = FileLook(path, catalogue, answers)
    if names_images(file.settings()):
        choose_prompt_of_images(file)
        return _priced(file, answers.get("media") or "")
    look_at_form(file)
    media = choose_columns(file)
    if file.films_by and "samples" not in file.judged:
        file.input["defaults"] = {"samples": _STILLS}
    return _priced(file, media)


# ---- the model


def _priced(file: FileLook, media: str) -> Guess:
    media = "images" if media == "both" else media
    batch, sample, comparisons = _compared(file, media)
    is_mixed = not media and _choose_models_of_types(file, comparisons)
    proposed = None if is_mixed else _cheapest_model(file, comparisons, media)
    rows, refused = batch.rows, {}
    if proposed:
        _propose_model(file, [proposed.model], comparisons)
        file.input["defaults"] = {"model": proposed.model} | file.input.get("defaults", {})
        rows = rows.with_columns(model=pl.lit(proposed.model))
        names = file.input.get("columns", {})
        takes = file.catalogue[proposed.model].supported_references
        is_one = isinstance(names.get("reference_image"), str)
        if proposed.type is ModelType.VIDEO and is_one and "first_frame" in takes:
            names["first_frame"] = names.pop("reference_image")
        if not proposed.rows:
            model = file.given.get("model")
            tried = [comparison for comparison in comparisons if comparison.type is proposed.type]
            tried = [comparison for comparison in tried if model in (None, comparison.model)]
            refused = dict.fromkeys(reason for comparison in tried for reason in comparison.reasons.values())
    settings = file.settings()
    if is_mixed:
        batch = asyncio.run(with_cast(batch_of(file.tables, settings.input), settings))
        rows = batch.rows
    priced = price_requests(make_requests(rows, file.catalogue, settings), file.catalogue, settings)
    wrong = pl.concat([batch.rejects, rejects(priced.wrong, batch.names)])
    first = file.cells.head(_FIRST).select(pl.exclude(pl.Struct, pl.Binary, pl.List))
    return Guess(
        input=file.input,
        films=_films(file) if file.films_by else None,
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
        jobs=priced.jobs,
    )


def _compared(file: FileLook, media: str) -> tuple[Batch, pl.DataFrame, list[Comparison]]:
    """The batch, and a sample of its rows on each model of the medium; where no model takes any, without the
    column that is wrong.
    """
    while True:
        settings = file.settings()
        batch = asyncio.run(with_cast(batch_of(file.tables, settings.input), settings))
        sample_size = _IMAGES if file.tables[0].placed else _SAMPLE
        sample = batch.rows.gather_every(max(1, -(-batch.rows.height // sample_size)))
        if "model" in batch.columns.used:
            return batch, sample, []
        comparisons = [
            comparison
            for comparison in compare(replace(batch, rows=sample), file.catalogue, settings)
            if media in ("", f"{comparison.type.value}s")
        ]
        model = file.given.get("model")
        eligible = [comparison for comparison in comparisons if model in (None, comparison.model)]
        if not _leave_out_misfit(file, eligible):
            return batch, sample, comparisons


def _leave_out_misfit(file: FileLook, comparisons: Sequence[Comparison]) -> bool:
    """Whether there is a column of a setting with which none of these models takes any row; it is not used
    any more.
    """
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
        model = file.given.get("model")
        why = (
            f"holds what {model} does not take as {ours}" if model else f"no model takes its cells as {ours}"
        )
        file.not_used[label] = f"{why}: {because}"
        return True
    return False


def _cheapest_model(file: FileLook, comparisons: Sequence[Comparison], media: str) -> Comparison | None:
    """The cheapest model of those that take most rows; images, where nothing says videos."""
    model = file.given.get("model")
    if model and model not in file.catalogue:
        raise InputError(f"the catalogue has no model {model!r}", hint="callsheet models lists them.")
    eligible = [comparison for comparison in comparisons if model in (None, comparison.model)]
    if model and comparisons and not eligible:
        made = f"{file.catalogue[model].type}s"
        raise InputError(f"{model} makes {made}, not {media or 'images or videos'}")
    best = [comparison for comparison in eligible if comparison.rows == eligible[0].rows]
    likely = ModelType.VIDEO if media == "videos" else ModelType.IMAGE
    return next((comparison for comparison in best if comparison.type is likely), next(iter(best), None))


def _propose_model(file: FileLook, cheapest: Sequence[str], comparisons: Sequence[Comparison]) -> None:
    """The model, or that of each medium, is a doubt where the file names models that the catalogue lacks."""
    unknown, types = file.unknown_models, {comparison.type for comparison in comparisons}
    if not unknown:
        return
    if "media" not in file.given:  # a model says it, too
        types = {ModelType.IMAGE, ModelType.VIDEO}
    models = [model.id for model in file.catalogue.values() if model.type in types]
    candidates = {", ".join(cheapest): "the cheapest"}
    for name in unknown:
        for similar in difflib.get_close_matches(name.lower(), models):
            candidates.setdefault(similar, f"like {name}")
    for comparison in comparisons:
        if comparison.type in {file.catalogue[model].type for model in cheapest}:
            candidates.setdefault(comparison.model, "")
    names = and_more(unknown[:_OTHERS], len(unknown))
    question = f"Which model is meant? The catalogue has no {names}."
    file.propose("model", question, dict(islice(candidates.items(), 1 + _OTHERS)))


def _choose_models_of_types(file: FileLook, comparisons: Sequence[Comparison]) -> bool:
    """Whether a column says image of some rows and video of others; each gets the cheapest model of that."""
    column, values = types_of(file)
    cheapest = {compared.type: compared.model for compared in reversed(comparisons)}
    models = {
        value: cheapest.get(ModelType.VIDEO if called(value, "video") else ModelType.IMAGE)
        for value in values
    }
    chosen = [*dict.fromkeys(model for model in models.values() if model)]
    if len(chosen) < 2 or file.given.get("model", ", ".join(chosen)) != ", ".join(chosen):
        return False
    _propose_model(file, chosen, comparisons)
    file.input["columns"] = {**file.input.get("columns", {}), "model": column}
    file.input["values"] = {"model": models}
    file.why[column] = "says image or video of each row"
    return True


def _films(file: FileLook) -> Guess:
    """How films of the stills are made: by a prompt of their own, on a model that takes a first frame."""
    catalogue = {
        name: model for name, model in file.catalogue.items() if "first_frame" in model.supported_references
    }
    answers = {**file.given, "prompt": file.films_by, "media": "videos", "images": NO_IMAGES}
    if answers.get("model") not in catalogue:  # it is that of the stills
        answers.pop("model", None)
    films = guess(file.path, catalogue, answers)
    read = {
        ours: name for ours, name in films.input["columns"].items() if ours in ("prompt", "duration", "sound")
    }
    if "duration" in file.judged and "duration" not in read:
        read["duration"] = "duration"
    doubts = tuple(proposal for proposal in films.proposals if proposal.setting == "model")
    return replace(films, input={"columns": read, "defaults": films.input["defaults"]}, proposals=doubts)


def _explained(file: FileLook, batch: Batch) -> list[ExplainedColumn]:
    """What each column holds, and what becomes of it."""
    names: dict[str, str] = {
        name: ours
        for ours, used in file.settings().input.columns.items()
        for name in ([used] if isinstance(used, str) else used or ())
    }
    names = {**{column: ours for ours, column in batch.columns.used.items()}, **names}
    explained = []
    for column in file.judged.values() if not file.tables[0].placed else ():
        taken_for = names.get(column.name, "")
        why = file.not_used.get(column.name) or file.why.get(column.name) or (taken_for and "by its name")
        why = why or ("like a prompt, and less likely" if column.name in file.other_texts else "")
        explained.append(ExplainedColumn(column.name, str(column.holds), column.example, taken_for, why))
    return explained


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
