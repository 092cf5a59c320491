"""Which jobs of a plan a run is for: some that a person names, or a pilot that is bought before the rest.

It looks at the plan alone, so the same plan gives the same jobs. What is bought already is not decided here.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from callsheet.errors import InputError
from callsheet.plain_text import counted, printable
from callsheet.pricing.plan import Plan

_KIND = ["model", "type", "resolution", "duration", "sound", "price"]  # what sets the price


@dataclass(frozen=True, slots=True)
class Choice:
    """The jobs that a person names; without any, all jobs.

    Attributes:
        first: only so many of the jobs that are not bought, the first in the file's order.
        only: only the jobs of the rows with these ids.
    """

    first: int | None = None
    only: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.first is not None or bool(self.only)

    def line(self) -> str:
        """The choice in words."""
        what = "the jobs"
        if self.first is not None:
            what = (
                f"the first {counted(self.first, 'job')} that {'is' if self.first == 1 else 'are'} not bought"
            )
        return f"{what} of {counted(len(self.only), 'row')}" if self.only else what


ALL = Choice()


def chosen(choice: Choice, plan: Plan, to_buy: pl.Series) -> pl.Series:
    """The jobs that a person names: a Boolean for every job, in the plan's order.

    Args:
        choice: what was named.
        plan: the plan.
        to_buy: whether a run would buy it: a Boolean for every job.

    Raises:
        InputError: a row is not in the plan.
    """
    mask = pl.repeat(True, plan.jobs, dtype=pl.Boolean, eager=True)
    if choice.only:
        ids = plan.table["row_id"]
        known = set(ids.filter(ids.is_in(list(choice.only))))
        if unknown := [row_id for row_id in choice.only if row_id not in known]:
            raise InputError(
                f"the batch has no job of row {printable(unknown[0])!r}",
                hint="Nothing was bought. rejects.csv, next to the report, has the rows that were rejected.",
            )
        mask = ids.is_in(list(choice.only))
    if choice.first is not None:
        mask = mask & to_buy
        mask = mask & (mask.cum_sum() <= choice.first)
    return mask


def pilot(plan: Plan, number: int) -> pl.Series:
    """So many jobs, spread over the models, and in each model over what sets the price.

    The models take turns, in the order in which the file first has them; so do the kinds of each model. Of
    each kind the first jobs of the file are taken.

    Returns:
        A Boolean for every job, in the plan's order.
    """
    kinds = (
        plan.table.select(*_KIND)
        .with_row_index("position")
        .with_columns(rank=pl.int_range(pl.len()).over(_KIND), kind=pl.col("position").min().over(_KIND))
        .filter(pl.col("rank") < number)
        .sort("rank", "kind")
        .with_columns(turn=pl.int_range(pl.len()).over("model"), place=pl.col("position").min().over("model"))
        .sort("turn", "place")
    )
    positions = kinds.head(number)["position"]
    mask = pl.repeat(False, plan.jobs, dtype=pl.Boolean, eager=True)
    return mask.scatter(positions, True)
