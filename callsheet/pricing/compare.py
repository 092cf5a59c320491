"""What the rows of a batch would cost on each model of the catalogue; and a config for a batch file that is
there: which of its columns are which, and the cheapest model that fits.

It buys nothing, and writes nothing. A guess is used only if every row can be bought with it; what is not used
is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import polars as pl

from callsheet.batches import columns
from callsheet.batches.formats import field_names, read_tables, with_fields
from callsheet.batches.read import Batch, read_batch
from callsheet.config.settings import COLUMNS, Input, Settings
from callsheet.pricing.jobs import JobTable, make_jobs
from callsheet.pricing.plan import Plan
from callsheet.records import ModelType, dollars
from callsheet.service.models import Catalogue

_IDS = ("id", "key", "name", "slug", "sku", "filename")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rows of a batch on one model.

    Attributes:
        rows: how many of the rows it takes, at a known price.
        of: how many rows there are.
        jobs: how many generations that is.
        price: of all of them, in dollars.
        reasons: why it does not take a row, by the column that is wrong there; the first one of each.
    """

    model: str
    type: ModelType
    rows: int
    of: int
    jobs: int
    price: Decimal
    reasons: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        """The JSON object; money is a string."""
        return {
            "model": self.model,
            "type": self.type.value,
            "rows": self.rows,
            "jobs": self.jobs,
            "quoted": dollars(self.price),
        }


def compare_models(plan: Plan, settings: Settings, dearest_first: bool) -> list[Comparison]:
    """The rows of the batch file on each model of a plan's catalogue that takes some of them."""
    found = [each for each in compare(read_batch(settings), plan.catalogue, settings) if each.rows]
    return sorted(found, key=lambda each: each.price, reverse=dearest_first)


def compare(batch: Batch, catalogue: Catalogue, settings: Settings) -> list[Comparison]:
    """The rows of a batch, whichever models they name, on each model that makes images or videos: those that
    take most rows first, of these the cheapest first. A matrix of models is left out.
    """
    matrix = {column: cells for column, cells in settings.input.matrix.items() if column != "model"}
    update = {"matrix": matrix}
    settings = settings.model_copy(update={"input": settings.input.model_copy(update=update)})
    found = []
    for model in catalogue.values():
        if model.type not in (ModelType.IMAGE, ModelType.VIDEO):
            continue
        table = make_jobs(batch.rows.with_columns(model=pl.lit(model.id)), catalogue, settings)
        jobs = table.jobs.filter(pl.col("price").is_not_null())
        found.append(
            Comparison(
                model=model.id,
                type=ModelType(model.type),
                rows=jobs["row_id"].n_unique(),
                of=batch.rows.height,
                jobs=jobs.height,
                price=Decimal(jobs["price"].sum() or 0),
                reasons=_reasons_of(table),
            )
        )
    return sorted(found, key=lambda each: (-each.rows, each.price))


def _reasons_of(table: JobTable) -> dict[str, str]:
    """Why rows cannot be bought, by the column that is wrong; the first reason of each."""
    reasons = table.wrong.select("column", "reason").unique("column", keep="first", maintain_order=True)
    return dict(reasons.iter_rows())


# ---- a batch file without a config


@dataclass(frozen=True, slots=True)
class Guess:
    """How a batch file is read.

    Attributes:
        columns: `input.columns`: the file's name of a column of ours; None for one that is released.
        taken: the cheapest model that takes most rows, what they cost; None where the file names models.
        rows: how many rows the file has.
        not_used: columns that look like a setting and are not used, each with the reason.
    """

    columns: Mapping[str, str | None]
    taken: Comparison | None
    rows: int
    not_used: Mapping[str, str]


def guess(path: str, catalogue: Catalogue) -> Guess:
    """Guesses how a batch file (as in `input.path`) is to be read.

    Raises:
        InputError: it cannot be read, or has no column that can be the prompts.
    """
    table = next(iter(read_tables(Input(path=path), None))).cells
    table = with_fields(table, field_names(table.schema))
    chosen, likely = _needed(table), _likely(table)
    not_used: dict[str, str] = {}
    while True:
        settings = _settings(path, chosen | likely, catalogue)
        batch = read_batch(settings)
        has_models = "model" in batch.columns.used
        best = None if has_models else next(iter(compare(batch, catalogue, settings)), None)
        wrong = best.reasons if best else _reasons_of(make_jobs(batch.rows, catalogue, settings))
        reasons = {name: reason for _, name, _, reason in reversed(batch.rejects.rows())}
        reasons |= {likely[ours]: reason for ours, reason in wrong.items() if ours in likely}
        refused = {ours: reasons[name] for ours, name in likely.items() if name in reasons}
        if not refused:
            break
        not_used |= {likely.pop(ours): f"looks like {ours}: {reason}" for ours, reason in refused.items()}
    others = {
        name: f"looks like {like}" if like in COLUMNS else "is no setting of the service"
        for name, like in batch.columns.unused.items()
    }
    return Guess(chosen | likely, best if best and best.rows else None, batch.total, others | not_used)


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
