"""Which jobs of a plan a run is for: some that a person names, or a pilot that is bought before the rest.

Pure: the same plan gives the same pilot, whatever is bought of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from callsheet.errors import InputError
from callsheet.plain_text import counted, printable

_KIND = ["model", "type", "resolution", "duration", "sound", "price"]  # what sets the price


@dataclass(frozen=True, slots=True)
class Choice:
    """The jobs that a person names: only those of the rows with these ids, and of those only so many that are
    not bought, the `first` in the file's order. Without any, all jobs.
    """

    first: int | None = None
    only: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.first is not None or bool(self.only)

    def line(self) -> str:
        """The choice in words."""
        what = "the jobs"
        if self.first is not None:
            are = "is" if self.first == 1 else "are"
            what = f"the first {counted(self.first, 'job')} that {are} not bought"
        return f"{what} of {counted(len(self.only), 'row')}" if self.only else what


ALL = Choice()


def chosen(choice: Choice, jobs: pl.DataFrame) -> pl.Series:
    """The jobs that a person names: a Boolean for every job with its standing.

    Raises:
        InputError: a row is not in the plan.
    """
    mask = pl.repeat(True, jobs.height, dtype=pl.Boolean, eager=True)
    if choice.only:
        known = set(jobs["row_id"])
        if unknown := [row_id for row_id in choice.only if row_id not in known]:
            raise InputError(
                f"the batch has no job of row {printable(unknown[0])!r}",
                hint="Nothing was bought. rejects.csv, next to the report, has the rows that were rejected.",
            )
        mask = jobs["row_id"].is_in(list(choice.only))
    if choice.first is not None:
        mask = mask & jobs["to_buy"]
        mask = mask & (mask.cum_sum() <= choice.first)
    return mask


def pilot(jobs: pl.DataFrame, number: int) -> pl.Series:
    """So many jobs of a plan, spread over the models, and in each model over what sets the price.

    The models take turns, in the order in which the file first has them; so do the kinds of each model. Of
    each kind the first jobs of the file are taken.

    Returns:
        A Boolean for every job, in the plan's order.
    """
    kinds = (
        jobs.select(*_KIND)
        .with_row_index("position")
        .with_columns(rank=pl.int_range(pl.len()).over(_KIND), kind=pl.col("position").min().over(_KIND))
        .filter(pl.col("rank") < number)
        .sort("rank", "kind")
        .with_columns(turn=pl.int_range(pl.len()).over("model"), place=pl.col("position").min().over("model"))
        .sort("turn", "place")
    )
    mask = pl.repeat(False, jobs.height, dtype=pl.Boolean, eager=True)
    return mask.scatter(kinds.head(number)["position"], True)
