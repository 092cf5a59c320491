"""The models of a catalogue, compared: what the rows of a batch cost on each, and why one does not take some.

It buys nothing, and writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

import polars as pl

from callsheet.batches.read import Batch
from callsheet.config.settings import Settings
from callsheet.pricing.bought import leave_out_repeated
from callsheet.pricing.plan import Plan
from callsheet.pricing.rates import price_requests
from callsheet.pricing.requests import make_requests
from callsheet.pricing.sources import read_rows
from callsheet.records import ModelType
from callsheet.service.models import Catalogue


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
        rows = batch.rows.with_columns(model=pl.lit(model.id))
        priced = price_requests(make_requests(rows, catalogue, settings), catalogue, settings)
        jobs, _ = leave_out_repeated(priced.jobs, settings)
        jobs = jobs.filter(pl.col("price").is_not_null())
        reasons = priced.wrong.unique("column", keep="first", maintain_order=True)
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
