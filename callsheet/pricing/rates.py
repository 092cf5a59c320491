"""The exact price of a request, by the catalogue. Pure: no files, no network, no clock.

The rules are those of INTERFACE 2.10. Money is `Decimal`, from the catalogue's text on; nothing is guessed,
and nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import polars as pl

from callsheet.cells import separate
from callsheet.config.settings import Settings
from callsheet.pricing.requests import PLACE, REQUEST_COLUMNS, Requests, for_each_combination
from callsheet.records import ModelType, Price
from callsheet.service.models import Catalogue, Model

PRICED_COLUMNS = [*REQUEST_COLUMNS, "billable_unit", "unit_price", "quantity", "price", "currency"]
"""The columns of priced jobs."""

_MONEY = pl.Decimal(18, 6)
_PRICE = {
    **dict.fromkeys(["billable_unit", "currency", "unpriced"], pl.String),
    **dict.fromkeys(["unit_price", "price"], _MONEY),
    "quantity": pl.Int64,
}
_PRICED_BY = ("model", "resolution", "duration", "sound")
_SOUND_RATES = {None: "not_applicable", False: "sound_off", True: "sound_on"}
_TOO_EXPENSIVE = 10**9


@dataclass(frozen=True)
class PricedJobs:
    """The requests of a batch with their prices.

    Attributes:
        jobs: a row for each sample of each request that can be bought, in the file's order: `PRICED_COLUMNS`,
            and `asked`.
        not_offered: `row_id`, `sample`, `line` and `asked` of each that cannot be bought now.
        wrong: why: `line`, `file`, `column`, `value`, `reason`.
        rejected: how many prompt rows have at least one entry in `wrong`.
        unpriced_rows: how many prompt rows have a request without a price in the catalogue.
    """

    jobs: pl.DataFrame
    not_offered: pl.DataFrame
    wrong: pl.DataFrame
    rejected: int
    unpriced_rows: int


def price_requests(requests: Requests, catalogue: Catalogue, settings: Settings) -> PricedJobs:
    """Prices the requests of a batch, each distinct combination of what sets the price once.

    A request without a price is a reject, unless `budget.allow_unpriced`.
    """
    rows = for_each_combination(requests.rows, _PRICED_BY, partial(_prices, catalogue=catalogue), _PRICE)
    priced, unpriced = separate(rows, pl.col("price").is_null())
    wrong, not_offered = requests.wrong, requests.not_offered
    if settings.budget.allow_unpriced:
        priced = rows
    else:
        reject = {"column": pl.lit("model"), "value": pl.col("model"), "reason": pl.col("unpriced")}
        wrong = pl.concat([wrong, unpriced.select(*PLACE, **reject)])
        not_offered = pl.concat([not_offered, unpriced.select(not_offered.columns)])
    return PricedJobs(
        jobs=_per_sample(priced).select("asked", *PRICED_COLUMNS),
        not_offered=_per_sample(not_offered).select("row_id", "sample", "line", "asked"),
        wrong=wrong.drop("row"),
        rejected=wrong["row"].n_unique(),
        unpriced_rows=unpriced["row"].n_unique(),
    )


def _prices(combinations: list[dict[str, Any]], catalogue: Catalogue) -> list[dict[str, Any]]:
    """The price of each combination as cells of `_PRICE`, or why there is none."""
    cells: list[dict[str, Any]] = []
    for combination in combinations:
        price, unpriced = price_of(catalogue[combination["model"]], combination)
        if price is None:
            cells.append({"unpriced": unpriced})
            continue
        cells.append(
            {
                "billable_unit": price.billable_unit,
                "currency": price.currency,
                "quantity": price.quantity,
                "unit_price": f"{price.unit_price:f}",
                "price": f"{price.total:f}",
            }
        )
    return cells


def _per_sample(rows: pl.DataFrame) -> pl.DataFrame:
    """A row per sample."""
    if (rows["samples"] == 1).all():
        return rows.with_columns(sample=pl.lit(1, pl.Int64))
    return rows.with_columns(sample=pl.int_ranges(1, pl.col("samples") + 1)).explode("sample")


def price_of(model: Model, parameters: Mapping[str, Any]) -> tuple[Price | None, str]:
    """The price of a request by the matching rate (INTERFACE 2.10, rules 1 to 4), or why there is none."""
    resolution, duration, sound = map(parameters.get, _PRICED_BY[1:])
    pricing, sound_rate = model.pricing, _SOUND_RATES[sound]
    if model.ambiguous:
        return None, f"{model.id} stands in the catalogue twice, with different prices"
    if not pricing.rates:
        return None, f"{model.id} has no rates in the catalogue, which does not mean that it is free"
    if pricing.currency != "USD":
        return None, f"{model.id} is priced in {pricing.currency or 'no currency'}, and a budget is in USD"
    at_resolution = [rate for rate in pricing.rates if rate.resolution == resolution]
    for rate_sound in dict.fromkeys((sound_rate, _SOUND_RATES[None])):
        rates = [rate for rate in at_resolution if rate.sound == rate_sound]
        matching = {(rate.billable_unit, rate.unit_price) for rate in rates}
        if len(matching) > 1:
            return None, f"{model.id} has several rates for resolution {resolution} and sound {rate_sound}"
        if matching:
            return _quantified(model, duration, *matching.pop())
    request = f"resolution {resolution}" if resolution else "a request without a resolution"
    return None, f"{model.id} has no rate for {request} and sound {sound_rate}"


def _quantified(
    model: Model, duration: int | None, unit: str, unit_price: Decimal
) -> tuple[Price | None, str]:
    is_video = model.type == ModelType.VIDEO
    expected_unit, quantity = ("video_second", duration) if is_video else ("image", 1)
    if unit != expected_unit or quantity is None or quantity < 0:
        billed = f"{model.id} is billed by {unit or 'no unit'}"
        return None, f"{billed}, and the number of them in {model.type}s is not known"
    is_amount = unit_price.is_finite() and 0 <= unit_price < _TOO_EXPENSIVE
    if not is_amount or unit_price != round(unit_price, 6):
        expected = "an amount of at least 0 with at most six decimals"
        return None, f"{model.id} has the unit price {unit_price}; expected {expected}"
    return Price(unit, unit_price, quantity, model.pricing.currency), ""


def changed_rates(old_catalogue: Catalogue, new_catalogue: Catalogue, models: Iterable[str]) -> list[str]:
    """How the rates of these models differ between two catalogues, a line each; new models do not count."""
    changes = []
    for name in filter(old_catalogue.__contains__, models):
        old, new = _rates(old_catalogue[name]), _rates(new_catalogue[name]) if name in new_catalogue else {}
        for rate in sorted({*old, *new}):
            if old.get(rate) != new.get(rate):
                prices = [", ".join(map(str, rates.get(rate, ()))) or "no price" for rates in (old, new)]
                changes.append(f"{name} {' '.join(rate)}: {prices[1]}, was {prices[0]}")
    return changes


def _rates(model: Model) -> dict[tuple[str, str, str], list[Decimal]]:
    prices: dict[tuple[str, str, str], list[Decimal]] = {}
    for rate in model.pricing.rates:
        prices.setdefault((rate.resolution, rate.sound, rate.billable_unit), []).append(rate.unit_price)
    return prices
