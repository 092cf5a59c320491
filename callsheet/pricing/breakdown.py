"""The jobs of a plan in tables that people read: by price, and the rows that cost most.

Knows nothing of the ledger: which jobs are bought and which are to buy is said in two columns, `bought` and
`to_buy`.
"""

from __future__ import annotations

from decimal import Decimal

import polars as pl

_MOST_EXPENSIVE = 5


def by_price(jobs: pl.DataFrame) -> pl.DataFrame:
    """A line for each combination of what sets the price.

    Args:
        jobs: the plan's columns, `bought` and `to_buy`.

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


def most_expensive(jobs: pl.DataFrame) -> pl.DataFrame:
    """The rows of the batch file that cost most, of what is to buy: `row_id`, `line`, `jobs`, `total`."""
    sums = [pl.col("line").min(), pl.len().alias("jobs"), pl.col("price").sum().alias("total")]
    rows = jobs.filter("to_buy").group_by("row_id").agg(sums)
    return rows.sort("total", "line", descending=[True, False]).head(_MOST_EXPENSIVE)


def count_fitting(jobs: pl.DataFrame, amount: Decimal, on_exceed: str) -> int:
    """How many of the jobs to buy an amount of dollars pays for, as `budget.on_exceed` chooses them.

    Args:
        jobs: the plan's jobs in the file's order, with `to_buy`. A job without a price counts as free.
        amount: in dollars.
        on_exceed: `stop`, `skip` or `refuse`.
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
