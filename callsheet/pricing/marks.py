"""What the ledger says about each job of a plan: a bit for each mark and job, in the plan's order.

It reads parts of the ledger that are given to it, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import polars as pl

from callsheet.pricing.jobs import request_key
from callsheet.pricing.plan import Plan


@dataclass(frozen=True, slots=True)
class Marks:
    """Marks of the jobs of a plan; each is a Boolean for every job, in the plan's order.

    Attributes:
        to_buy: a run buys it.
        bought: it is accepted, stored or lost, and costs nothing more.
        open: what a run has to look at when it buys: what is to buy, what takes another batch's files, and
            what another run or a person may still free.
        removed: `job_key` and `state` of each job that the ledger knows and the plan does not have.
    """

    to_buy: pl.Series
    bought: pl.Series
    open: pl.Series
    removed: pl.DataFrame

    def among(self, chosen: pl.Series) -> Marks:
        """The same with nothing to buy but what is chosen: a Boolean for every job."""
        return replace(self, to_buy=self.to_buy & chosen, open=self.open & chosen)

    def jobs(self, plan: Plan) -> pl.LazyFrame:
        """The columns of the plan with `to_buy` and `bought`."""
        marks = pl.LazyFrame({"to_buy": self.to_buy, "bought": self.bought})
        return pl.concat([plan.scan(), marks], how="horizontal")


def mark(plan: Plan, known: Iterable[pl.DataFrame]) -> Marks:
    """Marks the jobs of a plan by what the ledger knows (`queries.known_jobs`); it buys all others."""
    positions = plan.positions()
    found_parts, removed_parts = [], []
    for part in known:
        placed = part.with_columns(position=positions.of(part["job_key"]))
        in_plan = pl.col("position").is_not_null()
        found_parts.append(placed.filter(in_plan).drop("job_key", "state"))
        removed_parts.append(placed.filter(~in_plan).select("job_key", "state"))
    found = pl.concat(found_parts)

    def marked(name: str, *, unknown: bool) -> pl.Series:
        marks = pl.repeat(unknown, plan.jobs, dtype=pl.Boolean, eager=True)
        return marks.scatter(found["position"], found[name].fill_null(value=False))

    final = marked("final", unknown=False)
    offered = plan.scan().select(pl.col("request").is_not_null()).collect().to_series()
    removed = pl.concat(removed_parts)
    to_buy = marked("to_buy", unknown=True) & offered
    return Marks(to_buy, marked("bought", unknown=False), ~final & offered, removed)


def with_reused(marks: Marks, plan: Plan, stored: Iterable[pl.DataFrame]) -> Marks:
    """Marks the jobs that take another batch's files as bought, as `Ledger.reserve` will decide.

    Args:
        marks: by what the ledger knows of this batch.
        plan: the plan.
        stored: what other batches have stored (`queries.reusable_requests`).
    """
    wanted = marks.jobs(plan).select(request_key(), "to_buy").with_row_index("position").filter("to_buy")
    found = wanted.join(pl.concat(stored).lazy(), on="request_key").collect(engine="streaming")
    nth = pl.int_range(pl.len()).over("request_key")
    reused = found.sort("position").filter(nth < pl.col("stored"))["position"]
    to_buy, bought = marks.to_buy.clone(), marks.bought.clone()
    return replace(marks, to_buy=to_buy.scatter(reused, False), bought=bought.scatter(reused, True))
