"""The quote as `callsheet.quote` returns it: the fields of `quote --json`, without the plan itself."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Self

from callsheet.pricing.quote import Quote
from callsheet.records import Record, dollars


@dataclass(frozen=True, slots=True)
class QuotedBatch(Record):
    """What the rest of a batch costs (docs/commands.md, "JSON"). Money is in US dollars.

    Attributes:
        quoted: the price of what is to buy.
        at_most: what it may come to: more than `quoted` where doubts are bought again, or the service is
            known to charge more.
        budget_limit: null, like the next three, where there is no limit.
        fits: how many of `to_buy` fit into the budget and the balance.
        pilot_to_buy: the jobs that are bought before the rest; null, like their price, without a pilot.
        plan: the path of `quote.parquet`.
        rejects: the path or URL of `rejects.csv`.
        warnings: what a person should look at before anything is bought, in words.
    """

    batch: str
    rows: int
    rejected_rows: int
    jobs: int
    already_bought: int
    to_buy: int
    unpriced: int
    quoted: Decimal
    at_most: Decimal
    budget_limit: Decimal | None
    budget_left: Decimal | None
    budget_per_day: Decimal | None
    budget_left_today: Decimal | None
    fits: int
    pilot_to_buy: int | None
    pilot_quoted: Decimal | None
    balance: Decimal
    currency: str
    plan: str
    rejects: str
    warnings: list[str]

    @classmethod
    def of(cls, quote: Quote) -> Self:
        """The quote without what it was made from."""
        money = {
            "quoted": quote.quoted,
            "at_most": quote.at_most,
            "budget_limit": quote.budget.limit,
            "budget_left": quote.budget_left,
            "budget_per_day": quote.budget.per_day,
            "budget_left_today": quote.day_left,
            "pilot_quoted": quote.pilot.quoted if quote.pilot else None,
            "balance": quote.balance,
        }
        return cls(**quote.as_json() | money)

    def as_json(self) -> dict[str, Any]:
        """The JSON object; money is a string."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {
            name: dollars(value) if isinstance(value, Decimal) else value for name, value in fields.items()
        }
