"""A first batch for somebody who has none: a few rows for the cheapest models of a catalogue.

It buys nothing, and writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from operator import itemgetter

import polars as pl

from callsheet.pricing.parameters import Combination, Reject, resolve
from callsheet.pricing.rates import price_of
from callsheet.records import ModelType
from callsheet.service.models import Catalogue, Model

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
        resolved = resolve(Combination(model.id, resolution=size, duration=duration), catalogue)
        price = None if isinstance(resolved, Reject) else price_of(model, resolved.parameters)[0]
        if price:
            cells = {"model": model.id, "resolution": size, "duration": duration}
            texts = {name: str(value) for name, value in cells.items() if value is not None}
            choices.append((price.total, texts))
    return min(choices, key=itemgetter(0), default=None)
