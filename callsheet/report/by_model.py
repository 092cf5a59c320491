"""The jobs of a batch by model: how many there are, what became of them, and what they cost. For people.

The jobs that cost most are here too, because the same pass over the attempts finds them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import polars as pl

from callsheet.ledger.columns import MONEY
from callsheet.plain_text import row_name
from callsheet.pricing.plan import Plan
from callsheet.records import State
from callsheet.report.counts import ENDED

_MOST = 10
_DEAREST: dict[str, Any] = {
    "job_key": pl.String,
    "row_id": pl.String,
    "sample": pl.Int64,
    "model": pl.String,
    "cost": MONEY,
}


@dataclass(frozen=True, slots=True)
class ModelLine:
    """The jobs of one model.

    Attributes:
        model: its id.
        jobs: how many the batch file has.
        states: how many of them have ended, by state.
        quoted: the price of all of them, in dollars; jobs without a price count as free.
        spent: what they have cost so far, in dollars.
    """

    model: str
    jobs: int
    states: Counter[State]
    quoted: Decimal
    spent: Decimal

    @property
    def open(self) -> int:
        """Jobs that are not bought, or not stored yet."""
        return self.jobs - sum(self.states[state] for state in ENDED)


@dataclass(slots=True)
class ByModel:
    """Adds up a batch's attempts, some thousands at a time."""

    states: defaultdict[str, Counter[State]] = field(default_factory=lambda: defaultdict(Counter))
    spent: defaultdict[str, Decimal] = field(default_factory=lambda: defaultdict(Decimal))
    quoted: defaultdict[str, Decimal] = field(default_factory=lambda: defaultdict(Decimal))
    dearest: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_DEAREST))

    def add(self, attempts: pl.DataFrame) -> None:
        """Takes in rows of the ledger's `attempts`, of jobs of the batch file."""
        money = [pl.col("cost").sum(), pl.col("quoted").filter(~pl.col("superseded")).sum()]
        current = pl.col("superseded").not_().sum()
        for model, state, jobs, cost, quoted in (
            attempts.group_by("model", "state").agg(current.alias("jobs"), *money).iter_rows()
        ):
            self.states[model][State(state)] += jobs
            self.spent[model] += cost or Decimal(0)
            self.quoted[model] += quoted or Decimal(0)
        paid = attempts.filter(pl.col("cost") > 0).select([*_DEAREST])
        self.dearest = pl.concat([self.dearest, paid.top_k(_MOST, by="cost")]).top_k(_MOST, by="cost")

    def lines(self, plan: Plan | None) -> tuple[ModelLine, ...]:
        """A line for each model, by its id.

        Args:
            plan: the batch's plan; without one, the jobs are those that were ever sent.
        """
        jobs = {model: (states.total(), self.quoted[model]) for model, states in self.states.items()}
        if plan:
            sums = plan.scan().group_by("model").agg(pl.len(), pl.col("price").sum())
            rows = sums.collect(engine="streaming").iter_rows()
            jobs = {model: (count, price or Decimal(0)) for model, count, price in rows}
        return tuple(
            ModelLine(model, count, self.states[model], quoted, self.spent[model])
            for model, (count, quoted) in sorted(jobs.items())
        )

    def most_expensive(self, lines: Mapping[str, int]) -> tuple[tuple[str, str, Decimal], ...]:
        """Row, model and cost of the ten jobs that cost most, the first most.

        Args:
            lines: the line of each job in the batch file, by key, where it is known.
        """
        rows = self.dearest.sort("cost", "row_id", "sample", descending=[True, False, False]).iter_rows()
        return tuple(
            (row_name(row_id, sample, lines.get(key)), model, cost)
            for key, row_id, sample, model, cost in rows
        )
