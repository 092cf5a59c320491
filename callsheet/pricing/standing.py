"""What the ledger says about each job of a plan, in columns beside the plan's own; and the tables of a quote.

It reads tables that are given to it.
"""

from __future__ import annotations

from decimal import Decimal

import polars as pl

from callsheet.pricing.jobs import request_key
from callsheet.records import BOUGHT, DELIVERED, State

_MOST_EXPENSIVE = 5
_ENDED = (*DELIVERED, State.FAILED)


def with_standing(
    jobs: pl.DataFrame, known: pl.DataFrame, stored: pl.DataFrame | None = None
) -> pl.DataFrame:
    """The jobs of a plan with what the ledger has of the batch; all others are to buy.

    `known` has the `job_key`, `state` and `to_buy` of these.

    Where a job takes what other batches have stored, as `Ledger.reserve` will decide, `stored` has that
    (`queries.reusable_requests`).

    Returns:
        The same rows with three Booleans: `to_buy` (a run buys it), `bought` (it is accepted, stored or lost,
        and costs nothing more) and `open` (what a run has to look at when it buys: what is to buy, what takes
        another batch's files, and what another run or a person may still free).
    """
    found = jobs.select("key").join(
        known, left_on="key", right_on="job_key", how="left", maintain_order="left"
    )
    is_offered = jobs["request"].is_not_null()
    jobs = jobs.with_columns(
        to_buy=found["to_buy"].fill_null(found["state"].is_null()) & is_offered,
        bought=found["state"].is_in(BOUGHT).fill_null(value=False),
        open=(found["to_buy"] | ~found["state"].is_in(_ENDED)).fill_null(value=True) & is_offered,
    )
    if stored is None:
        return jobs
    asked = jobs.select(request_key(), "to_buy")
    asked = asked.join(stored, on="request_key", how="left", maintain_order="left")
    nth = pl.col("to_buy").cum_sum().over("request_key")  # of the jobs to buy that ask for the same
    reused = asked.select(pl.col("to_buy") & (nth <= pl.col("stored").fill_null(0))).to_series()
    return jobs.with_columns(to_buy=pl.col("to_buy") & ~reused, bought=pl.col("bought") | reused)


def by_price(jobs: pl.DataFrame) -> pl.DataFrame:
    """A line for each combination of what sets the price of jobs with their standing.

    Returns:
        `model`, `type`, `resolution`, `duration`, `sound`, `unit`, `unit_price`, `each` (a job's price);
        then `jobs`, of these `bought` and `to_buy`, and `total`, the price of what is to buy. Money is
        decimal, and null where there is no price.
    """
    by = ["model", "type", "resolution", "duration", "sound", "billable_unit", "unit_price", "price"]
    counts = [pl.len().alias("jobs"), pl.col("bought").sum(), pl.col("to_buy").sum()]
    lines = jobs.group_by(by).agg(*counts, total=pl.col("price").filter("to_buy").sum())
    total = pl.when(pl.col("price").is_not_null()).then("total")
    lines = lines.with_columns(total=total).rename({"billable_unit": "unit", "price": "each"})
    return lines.sort("model", "resolution", "duration", "sound", "each", nulls_last=True)


def of_more_rounds(jobs: pl.DataFrame, samples: int) -> pl.DataFrame:
    """What may be bought again because it is rejected, up to so many samples of a row, of what is to buy.

    Returns:
        `model`, `each` and `jobs`, as `by_price` has them.
    """
    requests = jobs.group_by("row_id", "request", "model", each="price").agg(
        pl.col("sample").max(), pl.col("to_buy").any()
    )
    left = requests.filter("to_buy").with_columns(jobs=samples - pl.col("sample").cast(pl.Int64))
    return left.filter(pl.col("jobs") > 0).group_by("model", "each").agg(pl.col("jobs").sum())


def most_expensive(jobs: pl.DataFrame) -> pl.DataFrame:
    """The rows of the batch file that cost most, of what is to buy: `row_id`, `line`, `jobs`, `total`."""
    sums = [pl.col("line").min(), pl.len().alias("jobs"), pl.col("price").sum().alias("total")]
    rows = jobs.filter("to_buy").group_by("row_id").agg(sums)
    return rows.sort("total", "line", descending=[True, False]).head(_MOST_EXPENSIVE)


def count_fitting(jobs: pl.DataFrame, amount: Decimal, on_exceed: str) -> int:
    """How many of the jobs to buy an amount of dollars pays for, as `budget.on_exceed` chooses them.

    A job without a price counts as free.
    """
    prices = jobs.filter("to_buy")["price"].fill_null(0)
    sums = prices.cum_sum()
    if not prices.len() or sums[-1] <= amount:
        return prices.len()
    if on_exceed == "refuse":
        return 0
    if on_exceed == "stop":
        return int((sums <= amount).sum())
    fitting, left = 0, int(amount * 10**6)
    for price in prices.to_physical():  # millionths of a dollar
        if price <= left:
            fitting, left = fitting + 1, left - price
    return fitting
