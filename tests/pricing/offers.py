"""What a model takes for a row's words, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from callsheet.pricing.parameters import Combination, Reject, resolve
from callsheet.pricing.rates import price_of
from callsheet.records import Price
from callsheet.service.models import Catalogue


@dataclass(frozen=True)
class Offer:
    """What is sent for a combination, and its price, or why it has none."""

    parameters: Mapping[str, Any]
    price: Price | None
    unpriced: str


def offer(wanted: Combination, catalogue: Catalogue, defaults: Mapping[str, Any] = {}) -> Offer | Reject:
    resolved = resolve(wanted, catalogue, defaults)
    if isinstance(resolved, Reject):
        return resolved
    return Offer(resolved.parameters, *price_of(catalogue[wanted.model], resolved.parameters))
