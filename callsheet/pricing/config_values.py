"""The config's own values against the catalogue, before any row: a wrong one is an error of the config.

Otherwise it would reject every row, or each row in part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from callsheet.batches.read import UNTIL_PRICED, Batch
from callsheet.cells import IMAGE_COLUMNS, Value, as_text, fixed_values
from callsheet.config.load import dotted
from callsheet.config.setting_types import KeyPath
from callsheet.config.settings import FileColumn, Settings
from callsheet.errors import ConfigError
from callsheet.pricing.parameters import Combination, Reject, resolve
from callsheet.pricing.references import batch_file, examine, parse_references, reading_of
from callsheet.records import ModelType
from callsheet.service.models import Catalogue
from callsheet.storage.names import PLACEHOLDERS, carried_columns

_REASONS = 3  # that are shown, of one for each model in use


def check_config_values(settings: Settings, catalogue: Catalogue, batch: Batch) -> None:
    """Checks `input.matrix` and `input.defaults` against the catalogue, for the models in use: those of the
    matrix, otherwise those of the rows. Reads local and S3 images that these name.

    Raises:
        ConfigError: values are wrong; the message names each of them with file, line and key.
    """
    wrong_values = [
        *_unknown_columns(settings, batch),
        *_wrong_matrix(settings, catalogue, batch),
        *_wrong_defaults(settings, catalogue, batch),
    ]
    if wrong_values:
        problems = [f"{settings.where(place)}: {dotted(place)}: {reason}" for place, reason in wrong_values]
        is_of_a_model = any(place[0] == "input" for place, _ in wrong_values)
        hint = "`callsheet models` lists what each model takes." if is_of_a_model else ""
        raise ConfigError("\n".join(problems), hint=hint)


def _unknown_columns(settings: Settings, batch: Batch) -> Iterator[tuple[KeyPath, str]]:
    """What `storage.key` names, and is neither carried nor one of its own placeholders."""
    for name in carried_columns(settings.storage.key):
        if name not in batch.columns.carried:
            expected = ", ".join(f"{{{placeholder}}}" for placeholder in PLACEHOLDERS)
            yield (
                ("storage", "key"),
                f"{{{name}}} is no carried column of the batch file, and none of {expected}",
            )


def _wrong_matrix(settings: Settings, catalogue: Catalogue, batch: Batch) -> Iterator[tuple[KeyPath, str]]:
    """Values of the matrix that no model in use takes."""
    matrix = settings.input.matrix
    models = matrix.get("model") or batch.rows["model"].unique().sort()
    usable = [str(model) for model in models if not _unknown(model, catalogue)]
    for column, cells in matrix.items():
        for position, cell in enumerate(cells):
            value = fixed_values({column: cell})[column]
            if reason := _not_taken(column, value, usable, catalogue, settings):
                yield ("input", "matrix", column, position), reason


def _wrong_defaults(settings: Settings, catalogue: Catalogue, batch: Batch) -> Iterator[tuple[KeyPath, str]]:
    """Defaults that no model takes of the rows that use them; and a model that is used, and not offered."""
    matrix = settings.input.matrix
    for column, value in fixed_values(settings.input.defaults).items():
        if column == "samples" or column in matrix:
            continue
        cells = batch.rows[column]
        using = batch.rows.filter(cells.is_null() if column in UNTIL_PRICED else cells == as_text(value))
        if using.is_empty():  # of an image, also where each row has the kept file that it names
            continue
        models = matrix.get("model") or using["model"].unique().sort()
        usable = [str(model) for model in models if not _unknown(model, catalogue)]
        if column in UNTIL_PRICED:  # a default for the models of one type
            type_ = ModelType.IMAGE if column == "output_format" else ModelType.VIDEO
            usable = [model for model in usable if catalogue[model].type == type_]
        if reason := _not_taken(column, value, usable, catalogue, settings):
            yield ("input", "defaults", column), reason


def _unknown(model: object, catalogue: Catalogue) -> str | None:
    """Why nothing can be bought from a model."""
    resolved = resolve(Combination(str(model)), catalogue)
    return resolved.reason if isinstance(resolved, Reject) and resolved.column == "model" else None


def _not_taken(
    column: FileColumn, value: Value, models: Sequence[str], catalogue: Catalogue, settings: Settings
) -> str | None:
    """Why none of the models takes a value, or of a model why it is none; None where all is well."""
    if value is None or column == "prompt":
        return None
    if column == "model":
        return _unknown(value, catalogue)
    images: list[tuple[str | None, str]] = []
    if column in IMAGE_COLUMNS:
        listed = parse_references(dict.fromkeys(IMAGE_COLUMNS) | {column: str(value)})
        if isinstance(listed, Reject):
            return listed.reason
        path, reading = batch_file(settings), reading_of(settings)
        for reference in listed:
            image = examine(reference.source, path, reading)
            if isinstance(image, str):
                return f"{reference.source}: {image}"
            images.append((reference.role, column))
        if column == "last_frame":  # which needs a first_frame: the row may have one
            images.append(("first_frame", "first_frame"))
    reasons = []
    for model in models:
        asked: dict[str, Any] = {"images": tuple(images)} if images else {column: value}
        resolved = resolve(Combination(model, **asked), catalogue)
        if not (isinstance(resolved, Reject) and resolved.column == column):
            return None
        reasons.append(resolved.reason)
    return "; ".join(reasons[:_REASONS]) or None
