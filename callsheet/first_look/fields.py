"""Which column of a file is for which field, and whether images or videos are made.

The likeliest column of each field is taken (`batches/judgements.py`); one that is as likely is a doubt. A
column of a setting's own name that holds something else is not used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from callsheet.batches import columns
from callsheet.batches.formats import FILE
from callsheet.batches.judgements import (
    MOST,
    Candidate,
    Kind,
    called,
    filled,
    in_doubt,
    is_called_only,
    ranked,
    share,
)
from callsheet.cells import IMAGE_COLUMNS
from callsheet.errors import InputError
from callsheet.first_look.form import FileLook
from callsheet.plain_text import and_more

NO_IMAGES = "none"
_SHOWN = 3  # models that the catalogue does not have
_OF_VIDEOS = ("duration", "sound", "first_frame", "last_frame")
_TEXTS = (Kind.SENTENCES, Kind.SHORT, Kind.CHOICES, Kind.CODES)
_SETTINGS = ("aspect_ratio", "resolution", "duration", "sound", "output_format")


def choose_columns(file: FileLook) -> str:
    """Says which column is for which field, and returns the medium: `images`, `videos` or `both`."""
    judged, names = file.judged, dict[str, Any]()
    media = _choose_prompt(file, names)

    def free(field: str) -> list[Candidate]:
        used = {
            name for column in names.values() for name in (column if isinstance(column, list) else [column])
        }
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
    if "id" in judged:
        names |= {} if _tells_apart(file, "id") else {"id": None}
    elif ids := [candidate for candidate in free("id") if _tells_apart(file, candidate.column)]:
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


def _choose_prompt(file: FileLook, names: dict[str, Any]) -> str:
    """Takes the likeliest column of prompts, or what a person says. Where one is for stills and one for films
    of them, the medium is a doubt, and is returned.
    """
    given = file.given.get("prompt", "")
    if "{" in given:
        file.input["template"] = given
        return ""
    ranking = ranked("prompt", file.judged.values())
    if file.cells.is_empty() and file.tables[0].ragged:
        line, _, reason = file.tables[0].ragged[0]
        raise InputError(f"{file.path}: no row can be read; line {line}: {reason}")
    if given:
        file.check_column(given)
        ranking = [Candidate(given, 0, "as you say")]
    if not ranking:
        raise InputError(
            f"{file.path}: no column looks like prompts; {file.its_columns()}",
            hint='Name it: --prompt COLUMN. Or make prompts of columns: --prompt "A photo of a {COLUMN}".',
        )
    likely_columns = [ranking[0].column, *in_doubt(ranking)]
    stills, films = _for_stills_and_films(file, ranking, likely_columns)
    column, media = likely_columns[0], ""
    if stills and films and column in (*stills, *films):
        given_medium = _given_medium(file)
        media = given_medium or "images"
        column = films[0] if media == "videos" else stills[0]
        candidates = {"images": f"{stills[0]}: {file.example(stills[0])}"}
        candidates["videos"] = f"{films[0]}: {file.example(films[0])}"
        candidates["both"] = f"stills of {stills[0]}, then films of those that you keep, by {films[0]}"
        if not given_medium:
            file.propose("media", "Images or videos?", candidates)
        if media == "both":
            file.films_by = films[0]
    elif file.given.get("media") == "both":
        raise InputError(
            f"{file.path}: no two columns are prompts for stills and for films of them; {file.its_columns()}",
            hint="Such columns are named like image_prompt and motion_prompt, or prompt and motion.",
        )
    else:
        examples = {name: file.example(name) for name in likely_columns}
        file.propose("prompt", "Which column has the prompts?", examples)
    texts = (candidate.column for candidate in ranking)
    file.other_texts = [name for name in texts if name not in {column, *likely_columns}]
    file.why[column] = next(candidate.why for candidate in ranking if candidate.column == column)
    if column != "prompt":
        names["prompt"] = int(column) if "header" in file.input else column
    return media


def _for_stills_and_films(
    file: FileLook, ranking: Sequence[Candidate], likely_columns: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The columns of prompts that are for stills, and those that are for films, by their names."""
    stills = [name for name in likely_columns if called(name, "still") and not called(name, "video")]
    sentences = [
        candidate.column for candidate in ranking if file.judged[candidate.column].holds is Kind.SENTENCES
    ]
    films = [name for name in sentences if called(name, "video") and not called(name, "still")]
    if file.given.get("media") == "both":  # then one prompt, and words about the motion, are enough
        stills = stills or [name for name in likely_columns[:1] if not called(name, "video")]
        texts = (name for name in file.judged if name not in stills and file.judged[name].holds in _TEXTS)
        films = films or [name for name in texts if called(name, "video")]
    return stills, films


def choose_prompt_of_images(file: FileLook) -> None:
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
    return share(filled(column), pattern) > MOST


def _tells_apart(file: FileLook, name: str) -> bool:
    """Whether a column has another value in each row, of all tables."""
    if len(file.tables) == 1 or not file.judged[name].tells_apart:
        return file.judged[name].tells_apart
    cells = pl.concat([table.cells[name] for table in file.tables if name in table.cells.columns])
    return cells.n_unique() == cells.len()


def _choose_models_of_file(file: FileLook, names: dict[str, Any]) -> None:
    """The column of models is used where the catalogue has one of them, and a person names no model. Where it
    has none, they are kept, to ask which one is meant.
    """
    columns_of_models = (
        [] if "model" in file.given else [name for name in file.judged if called(name, "model")]
    )
    for name in sorted(columns_of_models, key=lambda name: name != "model"):
        if not {*filled(file.cells[name])}.isdisjoint(file.catalogue):
            names |= {} if name == "model" else {"model": name}
            return
    if "model" in file.judged:
        names["model"] = None
    for name in columns_of_models:
        unknown = filled(file.cells[name]).unique(maintain_order=True).to_list()
        if unknown and is_called_only(name, "model"):
            file.unknown_models += unknown
            models = and_more(unknown[:_SHOWN], len(unknown))
            file.not_used[name] = f"names no model of the catalogue: {models}"


def _choose_images(file: FileLook, names: dict[str, Any]) -> None:
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
    image_columns = [] if given in (None, NO_IMAGES) else [name.strip() for name in given.split(",")]
    image_columns = image_columns if given else found
    for name in image_columns:
        file.check_column(name)
    roles = {
        role: name for role in ("first_frame", "last_frame") for name in image_columns if called(name, role)
    }
    others = [name for name in image_columns if name not in roles.values() and name not in IMAGE_COLUMNS]
    names |= {role: name for role, name in roles.items() if role != name}
    names |= {"reference_image": others[0] if len(others) == 1 else others} if others else {}
    names |= {name: None for name in held if name in IMAGE_COLUMNS and name not in image_columns}
    file.why |= dict.fromkeys(image_columns, "holds images, which are found")
    is_sure = all(
        name in roles.values() or name in IMAGE_COLUMNS or called(name, "given") for name in image_columns
    )
    if held and not (image_columns and is_sure):
        answers = {", ".join(image_columns) or NO_IMAGES, ", ".join(sources), *sources, *made, NO_IMAGES} - {
            ""
        }
        order = sorted(
            answers, key=lambda answer: (answer != (", ".join(image_columns) or NO_IMAGES), answer)
        )
        examples = {name: file.example(name) for name in held}
        file.propose(
            "images",
            "Which images are sent with the prompts?",
            {
                answer: examples.get(answer, "no images are sent" if answer == NO_IMAGES else "")
                for answer in order
            },
        )


def _is_there(file: FileLook, name: str) -> bool:
    """Whether the first image of a column is found: beside the batch file, or from the folder here."""
    cell = file.example(name).strip('[]" ').split('"')[0].split("|")[0].strip()
    folders = (Path(file.path).parent, Path())
    return "://" in cell or (bool(cell) and any((folder / cell).is_file() for folder in folders))


def _given_medium(file: FileLook) -> str:
    """What a person has said of the medium, by itself or by a model; mostly empty."""
    model = file.catalogue.get(file.given.get("model", ""))
    return file.given.get("media") or (f"{model.type}s" if model else "")


def _media_of_models(file: FileLook, names: Mapping[str, Any]) -> set[str]:
    """What the models make that the file names; mostly empty."""
    column = names.get("model", "model")
    if column not in file.judged:
        return set()
    models = [file.catalogue[name] for name in {*filled(file.cells[column])} if name in file.catalogue]
    return {f"{model.type}s" for model in models}


def _choose_medium(file: FileLook, names: Mapping[str, Any]) -> str:
    """Images or videos; it is a doubt where there is a reason for both, or a duration alone says videos."""
    stem, judged = Path(file.path).stem, file.judged
    prompt = str(names.get("prompt", "prompt"))
    frames = [name for role in ("first_frame", "last_frame") if (name := names.get(role))]
    videos = [name for name in (stem, *judged) if called(name, "video") and name != prompt]
    is_duration = "duration" in judged and "duration" not in names
    duration = "duration" if is_duration else names.get("duration")
    made = [name for name, column in judged.items() if column.holds is Kind.IMAGES and called(name, "made")]
    stills = [name for name in (stem, *made) if called(name, "still") or name in made]
    of_types, types = types_of(file)
    if given := _given_medium(file):
        return given
    if media := _media_of_models(file, names):
        return media.pop() if len(media) == 1 else ""  # each row's model says it
    reasons = {"videos": [*frames, *videos, *([duration] if duration else [])], "images": stills}
    if called(prompt, "video"):
        reasons = {"videos": [prompt], "images": []}
    elif called(prompt, "still"):
        reasons["images"] = [prompt, *stills]
    if types and called(types[-1], "video"):
        if not called(types[0], "video"):
            return ""
        reasons["videos"].insert(0, of_types)
    likelier = "videos" if reasons["videos"] and not called(prompt, "still") else "images"
    other = "images" if likelier == "videos" else "videos"
    if reasons["videos"] and (reasons["images"] or reasons["videos"] == [duration]):
        because = {medium: ", ".join(dict.fromkeys(words)) for medium, words in reasons.items()}
        file.propose("media", "Images or videos?", {likelier: because[likelier], other: because[other]})
    return likelier if reasons["videos"] or reasons["images"] else ""


def types_of(file: FileLook) -> tuple[str, list[str]]:
    """The column that says image or video of each row, and its values, those of images first; none: empty."""
    for column in file.judged.values():
        if column.holds is Kind.MEDIA_TYPES:
            values = filled(file.cells[column.name]).unique(maintain_order=True)
            return column.name, sorted(values, key=lambda value: called(value, "video"))
    return "", []
