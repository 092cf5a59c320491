"""The rows of a first batch, made from a catalogue: `callsheet init` writes them to a file.

Pure: no files, no network. A row is used only if reading and pricing it gives the price that was meant.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from itertools import product

from callsheet.pricing.rates import Combination, Offer, offer
from callsheet.records import ModelType
from callsheet.rows import fixed_values
from callsheet.service.models import Catalogue, Model

COLUMNS = ("id", "model", "prompt", "aspect_ratio", "resolution", "duration")
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
_TOO_EXPENSIVE = Decimal(10**9)  # for an example; sums of it still fit into a budget


@dataclass(frozen=True, slots=True)
class Starter:
    """A first batch.

    Attributes:
        rows: values of `COLUMNS`; the cheapest first. At least one.
        quoted: what it costs, in dollars.
        without: the types of models of which the catalogue has none with a price.
    """

    rows: list[dict[str, str]]
    quoted: Decimal
    without: tuple[ModelType, ...]

    @property
    def limit(self) -> Decimal:
        """A budget for it: what it costs, in whole dollars, rounded up; at least one."""
        return max(self.quoted.to_integral_value(ROUND_CEILING), Decimal(1)).quantize(Decimal("0.01"))

    def as_csv(self) -> str:
        """The rows as a batch file, without the columns that no row uses."""
        used = [name for name in COLUMNS if name == "model" or any(row.get(name) for row in self.rows)]
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, used, restval="", extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()


def starter(catalogue: Catalogue) -> Starter:
    """A few rows for the cheapest models of each type, each with the cheapest values that its model offers.

    Where no model has a price, one row for a model without a price, or for no model: a quote then rejects the
    row, and says why.
    """
    priced = [
        (price, row)
        for of_type, prompts in _PROMPTS.items()
        for (price, row) in _rows(_cheapest(catalogue, of_type), prompts, catalogue)
    ]
    priced.sort(key=lambda pair: pair[0])
    types = {catalogue[row["model"]].type for _, row in priced}
    rows = [row for _, row in priced] or [_row_without_price(catalogue)]
    quoted = sum((price for price, _ in priced), Decimal(0))
    return Starter(rows, quoted, tuple(of_type for of_type in _PROMPTS if of_type not in types))


def _rows(
    cheapest: Sequence[dict[str, str]], prompts: Sequence[tuple[str, str]], catalogue: Catalogue
) -> Iterator[tuple[Decimal, dict[str, str]]]:
    """A row for each prompt, with its price: the cheapest model for the first ones, then the next one."""
    if not cheapest:
        return
    for number, (row_id, prompt) in enumerate(prompts):
        last = number == len(prompts) - 1
        cells = cheapest[-1 if last else 0]
        ratios = catalogue[cells["model"]].supported_aspect_ratios
        with_ratio = cells | ({"aspect_ratio": ratios[number % len(ratios)]} if ratios else {})
        chosen = with_ratio if _price(with_ratio, catalogue) is not None else cells
        price = _price(chosen, catalogue)
        assert price is not None  # noqa: S101 - `_cheapest` has seen it
        yield price, {"id": row_id, "prompt": prompt, **chosen}


def _cheapest(catalogue: Catalogue, of_type: ModelType) -> list[dict[str, str]]:
    """The cheapest cells of each of the two cheapest models of a type."""
    best = []
    for model in catalogue.values():
        if model.type == of_type:
            choices = [(price, cells) for price, cells in _choices(model, catalogue)]
            best += sorted(choices, key=lambda choice: choice[0])[:1]
    return [cells for _, cells in sorted(best, key=lambda choice: choice[0])[:2]]


def _choices(model: Model, catalogue: Catalogue) -> Iterator[tuple[Decimal, dict[str, str]]]:
    """Each size and duration of a model that can be bought, with its price.

    An empty cell means the model's first; it comes last, for values that a cell cannot have.
    """
    for resolution, duration in product((*model.supported_resolutions, ""), (*model.supported_durations, "")):
        cells = {"model": model.id, "resolution": resolution, "duration": str(duration)}
        if model.type == ModelType.IMAGE:
            del cells["duration"]
        price = _price(cells, catalogue)
        if price is not None and 0 <= price < _TOO_EXPENSIVE:
            yield price, cells


def _price(cells: dict[str, str], catalogue: Catalogue) -> Decimal | None:
    """What a row with these cells costs once a file has it; None where it would be rejected."""
    if not all(map(str.isprintable, cells.values())):  # a line break need not survive in a file
        return None
    try:
        values = fixed_values(cells)
    except ValueError:
        return None
    offered = offer(Combination(**values), catalogue)  # type: ignore[arg-type]  # typed by fixed_values
    return offered.price.total if isinstance(offered, Offer) and offered.price else None


def _row_without_price(catalogue: Catalogue) -> dict[str, str]:
    row_id, prompt = _PROMPTS[ModelType.IMAGE][0]
    unpriced = (
        model.id
        for model in catalogue.values()
        if model.type in _PROMPTS
        and model.id.isprintable()
        and _price({"model": model.id}, catalogue) is None
    )
    return {"id": row_id, "prompt": prompt, "model": next(unpriced, "")}
