"""The models of a catalogue, compared: what the rows of a batch cost on each, and why one does not take some;
and rows for the cheapest models, as a first batch for somebody who has none.

It buys nothing, and writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from operator import itemgetter

import polars as pl

from callsheet.batches.read import Batch
from callsheet.config.settings import Settings
from callsheet.pricing.jobs import make_jobs
from callsheet.pricing.plan import Plan
from callsheet.pricing.rates import Combination, Offer, offer
from callsheet.pricing.sources import read_rows
from callsheet.records import ModelType
from callsheet.service.models import Catalogue, Model


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


async def compare_models(plan: Plan, settings: Settings) -> list[Comparison]:
    """The rows of a batch on each model of a plan's catalogue that takes some of them."""
    batch = await read_rows(settings)
    compared = await asyncio.to_thread(compare, batch, plan.catalogue, settings)
    return sorted(
        (comparison for comparison in compared if comparison.rows), key=lambda comparison: comparison.price
    )


def compare(batch: Batch, catalogue: Catalogue, settings: Settings) -> list[Comparison]:
    """The rows of a batch, whichever models they name, on each model that makes images or videos: those that
    take most rows first, of these the cheapest first. A matrix of models is left out.
    """
    matrix = {column: cells for column, cells in settings.input.matrix.items() if column != "model"}
    update = {"matrix": matrix}
    settings = settings.model_copy(update={"input": settings.input.model_copy(update=update)})
    comparisons = []
    for model in catalogue.values():
        if model.type not in (ModelType.IMAGE, ModelType.VIDEO):
            continue
        table = make_jobs(batch.rows.with_columns(model=pl.lit(model.id)), catalogue, settings)
        jobs = table.jobs.filter(pl.col("price").is_not_null())
        reasons = table.wrong.unique("column", keep="first", maintain_order=True)
        comparisons.append(
            Comparison(
                model=model.id,
                type=ModelType(model.type),
                rows=jobs["row_id"].n_unique(),
                of=batch.rows.height,
                jobs=jobs.height,
                price=Decimal(jobs["price"].sum() or 0),
                reasons=dict(reasons.select("column", "reason").iter_rows()),
            )
        )
    return sorted(comparisons, key=lambda comparison: (-comparison.rows, comparison.price))


# ---- a first batch


_FIRST_COLUMNS = ("id", "model", "prompt", "aspect_ratio", "resolution", "duration")
"""The columns of the file, in their order."""

_PROMPTS = {
    ModelType.IMAGE: (
        ("harbour", "A small harbour at dusk, the first lamps lit"),
        ("orchard", "An orchard in bloom, seen through a rusty gate"),
        ("workshop", "A violin maker's workshop, shavings on the floor"),
    ),
    ModelType.VIDEO: (
        ("waves", "Waves break on a dark beach, seen from above"),
        ("kettle", "Steam rises from a kettle, rain runs down the window"),
    ),
}


@dataclass(frozen=True, slots=True)
class Starter:
    """A first batch: values of these columns, at least one row, the cheapest first; its costs in dollars;
    and the types of models of which the catalogue has none with a price.
    """

    rows: list[dict[str, str]]
    quoted: Decimal
    without: tuple[ModelType, ...]

    def as_csv(self) -> str:
        """The rows as a batch file, without the columns that no row uses."""
        used = [name for name in _FIRST_COLUMNS if name == "model" or any(row.get(name) for row in self.rows)]
        rows = [{name: row.get(name) or None for name in used} for row in self.rows]
        return pl.DataFrame(rows, dict.fromkeys(used, pl.String)).write_csv()


def starter(catalogue: Catalogue) -> Starter:
    """A few rows for the two cheapest models of each type, with the cheapest values that each of them offers.

    Where no model has a price, one row for a model without a price, or for no model: a quote then rejects the
    row, and says why.
    """
    priced: list[tuple[Decimal, dict[str, str]]] = []
    without_price = []
    for of_type, prompts in _PROMPTS.items():
        models = [model for model in catalogue.values() if model.type == of_type]
        offered = [cheapest for model in models if (cheapest := _cheapest(model, catalogue))]
        best = sorted(offered, key=itemgetter(0))[:2]
        if not best:
            without_price.append(of_type)
            continue
        for number, (row_id, prompt) in enumerate(prompts):
            price, cells = best[-1 if number == len(prompts) - 1 else 0]
            ratios = catalogue[cells["model"]].supported_aspect_ratios
            ratio = {"aspect_ratio": ratios[number % len(ratios)]} if ratios else {}
            priced.append((price, {"id": row_id, "prompt": prompt, **cells, **ratio}))
    rows = [row for _, row in sorted(priced, key=itemgetter(0))]
    if not rows:
        row_id, prompt = _PROMPTS[ModelType.IMAGE][0]
        model_ids = (model.id for model in catalogue.values() if model.type in _PROMPTS)
        rows = [{"id": row_id, "prompt": prompt, "model": next(model_ids, "")}]
    return Starter(rows, sum((price for price, _ in priced), Decimal(0)), tuple(without_price))


def _cheapest(model: Model, catalogue: Catalogue) -> tuple[Decimal, dict[str, str]] | None:
    """The cheapest size and duration of a model, with the price; a cell that is left out is the model's first
    entry. None where the model has no price.
    """
    choices = []
    for size, duration in product((*model.supported_resolutions, None), (*model.supported_durations, None)):
        offered = offer(Combination(model.id, resolution=size, duration=duration), catalogue)
        if isinstance(offered, Offer) and offered.price:
            cells = {"model": model.id, "resolution": size, "duration": duration}
            texts = {name: str(value) for name, value in cells.items() if value is not None}
            choices.append((offered.price.total, texts))
    return min(choices, key=itemgetter(0), default=None)
