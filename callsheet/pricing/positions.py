"""Where jobs stand in a plan, found by their keys, for the million jobs of a batch in one step."""

from __future__ import annotations

import polars as pl

_DIGITS = 31  # of a key: as many as fit a number of 128 bits


class Positions:
    """The jobs of a plan, ordered by key: 20 bytes a job.

    Args:
        keys: the keys of the plan's jobs, in the file's order.
    """

    def __init__(self, keys: pl.Series) -> None:
        numbers = _number(keys)
        self._positions = numbers.arg_sort()
        self._numbers = numbers.gather(self._positions)

    def of(self, keys: pl.Series) -> pl.Series:
        """The position of each job in the plan, from 0; null where the plan does not have it."""
        if not len(self._numbers):
            return pl.Series([None] * len(keys), dtype=pl.UInt32)
        wanted = _number(keys)
        places = self._numbers.search_sorted(wanted).clip(upper_bound=len(self._numbers) - 1)
        found = self._numbers.gather(places) == wanted
        positions = self._positions.gather(places)
        return pl.select(pl.when(found).then(positions)).to_series()


def _number(keys: pl.Series) -> pl.Series:
    return keys.str.head(_DIGITS).str.to_integer(base=16, dtype=pl.Int128)
