"""The jobs of a batch by model: how many there are, what became of them, and what they cost. For people."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from decimal import Decimal

import polars as pl

from callsheet.plain_text import row_name
from callsheet.pricing.plan import Plan
from callsheet.records import State
from callsheet.report.counts import ENDED

_MOST = 10


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


def model_lines(attempts: pl.DataFrame, plan: Plan | None) -> tuple[ModelLine, ...]:
    """A line for each model, by its id.

    Args:
        attempts: what was submitted of the batch file's jobs: rows of the ledger's `attempts`.
        plan: the batch's plan; without one, the jobs are those that were ever sent.
    """
    newest = attempts.filter(~pl.col("superseded"))
    states: dict[str, Counter[State]] = {}
    for model, state, count in newest.group_by("model", "state").len().iter_rows():
        states.setdefault(model, Counter())[State(state)] = count
    spent = dict(attempts.group_by("model").agg(pl.col("cost").sum()).iter_rows())
    jobs = plan.table.lazy() if plan else newest.lazy().rename({"quoted": "price"})
    sums = jobs.group_by("model").agg(pl.len(), pl.col("price").sum()).sort("model").collect()
    return tuple(
        ModelLine(
            model, count, states.get(model, Counter()), price or Decimal(0), spent.get(model) or Decimal(0)
        )
        for model, count, price in sums.iter_rows()
    )


def most_expensive(attempts: pl.DataFrame) -> tuple[tuple[str, str, Decimal], ...]:
    """Row, model and cost of the ten jobs that cost most, the first most.

    Args:
        attempts: rows of the ledger's `attempts`, with the `line` of each in the batch file.
    """
    paid = attempts.filter(pl.col("cost") > 0)
    dearest = paid.sort("cost", "row_id", "sample", descending=[True, False, False]).head(_MOST)
    return tuple(
        (row_name(row_id, sample, line), model, cost)
        for row_id, sample, line, model, cost in dearest.select(
            "row_id", "sample", "line", "model", "cost"
        ).iter_rows()
    )
