"""What the ledger says about each job of a plan: a Boolean for each mark and job, in the plan's order.

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

    def jobs(self, plan: Plan) -> pl.DataFrame:
        """The rows of the plan with `to_buy` and `bought`."""
        return plan.table.with_columns(to_buy=self.to_buy, bought=self.bought)


def mark(plan: Plan, known: Iterable[pl.DataFrame]) -> Marks:
    """Marks the jobs of a plan by what the ledger knows (`queries.known_jobs`); it buys all others."""
    found = pl.concat(known)
    jobs = plan.table.select("key", offered=pl.col("request").is_not_null())
    jobs = jobs.join(found, left_on="key", right_on="job_key", how="left", maintain_order="left")
    marks = jobs.select(
        to_buy=pl.col("to_buy").fill_null(pl.col("state").is_null()) & pl.col("offered"),
        bought=pl.col("bought").fill_null(value=False),
        open=~pl.col("final").fill_null(value=False) & pl.col("offered"),
    )
    removed = found.join(jobs, left_on="job_key", right_on="key", how="anti").select("job_key", "state")
    return Marks(marks["to_buy"], marks["bought"], marks["open"], removed)


def with_reused(marks: Marks, plan: Plan, stored: Iterable[pl.DataFrame]) -> Marks:
    """Marks the jobs that take another batch's files as bought, as `Ledger.reserve` will decide.

    Args:
        marks: by what the ledger knows of this batch.
        plan: the plan.
        stored: what other batches have stored (`queries.reusable_requests`).
    """
    jobs = plan.table.select(request_key(), to_buy=marks.to_buy)
    jobs = jobs.join(pl.concat(stored), on="request_key", how="left", maintain_order="left")
    nth = pl.col("to_buy").cum_sum().over("request_key")  # of the jobs to buy that ask for the same
    reused = jobs.select(pl.col("to_buy") & (nth <= pl.col("stored").fill_null(0))).to_series()
    return replace(marks, to_buy=marks.to_buy & ~reused, bought=marks.bought | reused)
