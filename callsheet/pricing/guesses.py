"""A config for a batch file that is there: which of its columns are which, and the cheapest model that fits.

A guess is used only if every row can be bought with it; what is not used is said. It writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from callsheet.batches import columns
from callsheet.batches.formats import read_tables
from callsheet.batches.read import read_batch
from callsheet.config.settings import COLUMNS, Input, Settings
from callsheet.pricing.compare import Comparison, compare, reasons_of
from callsheet.pricing.jobs import make_jobs
from callsheet.service.models import Catalogue

_IDS = ("id", "key", "name", "slug", "sku", "filename")


@dataclass(frozen=True, slots=True)
class Guess:
    """How a batch file is read.

    Attributes:
        columns: `input.columns`: the file's name of a column of ours; None for one that is released.
        model: the cheapest model that takes most rows; None where the file names models.
        taken: what the rows cost on it; None where the file names models.
        rows: how many rows the file has.
        not_used: columns that look like a setting and are not used, each with the reason.
    """

    columns: Mapping[str, str | None]
    model: str | None
    taken: Comparison | None
    rows: int
    not_used: Mapping[str, str] = field(default_factory=dict)


def guess(path: str, catalogue: Catalogue) -> Guess:
    """Guesses how a batch file is to be read.

    Args:
        path: as in `input.path`.
        catalogue: the live models.

    Raises:
        InputError: it cannot be read, or has no column that can be the prompts.
    """
    table = next(iter(read_tables(Input(path=path), None))).table.cells
    chosen, likely = _needed(table), _likely(table)
    not_used: dict[str, str] = {}
    while True:
        settings = _settings(path, chosen | likely, catalogue)
        batch = read_batch(settings)
        has_models = "model" in batch.columns.used
        best = None if has_models else next(iter(compare(batch, catalogue, settings)), None)
        wrong = best.reasons if best else reasons_of(make_jobs(batch.rows, catalogue, settings))
        reasons = {name: reason for _, name, _, reason in reversed(batch.rejects.rows())}
        reasons |= {likely[ours]: reason for ours, reason in wrong.items() if ours in likely}
        refused = {ours: reasons[name] for ours, name in likely.items() if name in reasons}
        if not refused:
            break
        not_used |= {likely.pop(ours): f"looks like {ours}: {reason}" for ours, reason in refused.items()}
    unused = batch.columns.unused.items()
    others = {name: f"looks like {like}" for name, like in unused if like in COLUMNS}
    others |= {name: "is no setting of the service" for name, like in unused if like not in COLUMNS}
    model = best.model if best and best.rows else None
    return Guess(chosen | likely, model, best if model else None, batch.total, others | not_used)


def _likely(table: pl.DataFrame) -> dict[str, str]:
    """The columns that look like one of ours by their names, the first of each."""
    found: dict[str, str] = {}
    for column in table:
        name, like = column.name, columns.looks_like(column)
        if like in COLUMNS and like not in ("prompt", "model", *table.columns):
            found.setdefault(like, name)
    return found


def _needed(table: pl.DataFrame) -> dict[str, str | None]:
    """The columns of prompts and ids, where the file has them under other names."""
    found: dict[str, str | None] = {}
    if not any(name.strip().lower() == "prompt" for name in table.columns):
        prompts = columns.prompt_like(table)
        found |= {"prompt": prompts} if prompts else {}
    if "id" in table.columns:
        if not _tells_apart(table["id"]):
            found["id"] = None
        return found
    ids = [
        name
        for name in table.columns
        if name not in found.values()
        and (name.lower() in _IDS or name.lower().endswith(("_id", " id", ".id", "-id")))
        and _tells_apart(table[name])
    ]
    return found | ({"id": ids[0]} if ids else {})


def _tells_apart(column: pl.Series) -> bool:
    return not column.null_count() and not column.dtype.is_nested() and column.n_unique() == column.len()


def _settings(path: str, chosen: Mapping[str, str | None], catalogue: Catalogue) -> Settings:
    """A config with these columns, and with any model where the file names none."""
    any_model = next(iter(catalogue), "any")
    given = {"path": path, "columns": dict(chosen), "defaults": {"model": any_model}}
    return Settings.model_validate(
        {"batch": "guess", "service": {"base_url": "http://127.0.0.1:1"}, "input": given}
    )
