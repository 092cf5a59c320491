"""The config's own values, checked against the catalogue: a wrong one is an error of the config.

Otherwise it would reject every row, or each row in part. A value of `input.matrix` must be one that at least
one model in use takes; `input.defaults.model` must exist if a row uses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from callsheet.batches.read import Batch
from callsheet.cells import IMAGE_COLUMNS, Value, fixed_values
from callsheet.config.checks import KeyPath
from callsheet.config.load import dotted
from callsheet.config.settings import FileColumn, Settings
from callsheet.errors import ConfigError
from callsheet.pricing.rates import Combination, Reject, offer
from callsheet.pricing.references import examine, parse_references
from callsheet.service.models import Catalogue
from callsheet.storage.names import PLACEHOLDERS, carried_columns

_REASONS = 3  # that are shown, of one for each model in use


def check_config_values(settings: Settings, catalogue: Catalogue, batch: Batch) -> None:
    """Checks `input.matrix` and `input.defaults.model` against the catalogue, for the models in use: those of
    the matrix, otherwise those of the rows. Reads local and S3 images that the matrix names.

    Raises:
        ConfigError: values are wrong; the message names each of them with file, line and key.
    """
    problems = [
        f"{settings.where(place)}: {dotted(place)}: {reason}"
        for place, reason in _problems(settings, catalogue, batch)
    ]
    if problems:
        raise ConfigError("\n".join(problems), hint="`callsheet models` lists what each model takes.")


def _problems(settings: Settings, catalogue: Catalogue, batch: Batch) -> Iterator[tuple[KeyPath, str]]:
    for name in carried_columns(settings.storage.key):
        if name not in batch.columns.carried:
            expected = ", ".join(f"{{{each}}}" for each in PLACEHOLDERS)
            yield (
                ("storage", "key"),
                f"{{{name}}} is no carried column of the batch file, and none of {expected}",
            )
    matrix, default = settings.input.matrix, settings.input.defaults.get("model")
    models: Sequence[object] = matrix.get("model", ())
    if not models:
        unknown = default is not None and _unknown(default, catalogue)
        if not matrix and not unknown:
            return
        models = sorted(batch.rows["model"].unique())
        if unknown and default in models:
            yield ("input", "defaults", "model"), unknown
    usable = [str(model) for model in models if not _unknown(model, catalogue)]
    for column, cells in matrix.items():
        for position, cell in enumerate(cells):
            if column == "model":
                reason = _unknown(cell, catalogue)
            else:
                value = fixed_values({column: cell})[column]
                reason = _not_taken(column, value, usable, catalogue, settings)
            if reason:
                yield ("input", "matrix", column, position), reason


def _unknown(model: object, catalogue: Catalogue) -> str | None:
    """Why nothing can be bought from a model."""
    offered = offer(Combination(str(model)), catalogue)
    return offered.reason if isinstance(offered, Reject) and offered.column == "model" else None


def _not_taken(
    column: FileColumn, value: Value, models: Sequence[str], catalogue: Catalogue, settings: Settings
) -> str | None:
    """Why none of the models takes a value; None where one does."""
    if value is None or column == "prompt":
        return None
    images: list[tuple[str | None, str]] = []
    if column in IMAGE_COLUMNS:
        listed = parse_references(dict.fromkeys(IMAGE_COLUMNS) | {column: str(value)})
        if isinstance(listed, Reject):
            return listed.reason
        path, endpoint_url = settings.input.path, settings.storage.endpoint_url
        for reference in listed:
            image = examine(reference.source, path, endpoint_url)
            if isinstance(image, str):
                return f"{reference.source}: {image}"
            images.append((reference.role, column))
        if column == "last_frame":  # which needs a first_frame: the row may have one
            images.append(("first_frame", "first_frame"))
    reasons = []
    for model in models:
        asked: dict[str, Any] = {"images": tuple(images)} if images else {column: value}
        wanted = Combination(model, **asked)
        offered = offer(wanted, catalogue)
        if not (isinstance(offered, Reject) and offered.column == column):
            return None
        reasons.append(offered.reason)
    return "; ".join(reasons[:_REASONS]) or None
