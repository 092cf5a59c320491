"""Adds up what the plots of a batch show, from its attempts, some thousands at a time.

However many jobs there are, it keeps little: counts and sums by second, minute, day and model. Money is
`Decimal`. Nothing is drawn here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import accumulate
from math import ceil
from typing import Any

import polars as pl

from callsheet.records import State, dollars

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Of the latencies of a model, which the plot shows."""

_BINS = 240  # of a plot, at most
_FINEST = 50_000  # rows of spending by second, before they are added up by longer spans
_PARTS = 16  # tables that are kept before they are added up
_STEP = 1.01  # latencies that differ by less than 1 % are one
_SPANS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400)


@dataclass(frozen=True, slots=True)
class Figures:
    """The numbers behind the plots: a few hundred, however large the batch is.

    Attributes:
        spending: moments, and what had been spent in dollars until then, by the time of submission.
        submissions: by model type, in order of time: the start of a span, and the submissions of its busiest
            minute. Spans without any are left out.
        span: the length of such a span, in minutes.
        latency: by model: how many files, and the seconds from submission to storage at each of `QUANTILES`.
        costs: by UTC day of submission, and by model: what was spent in dollars.
    """

    spending: Sequence[tuple[datetime, Decimal]]
    submissions: Mapping[str, Sequence[tuple[datetime, int]]]
    span: int
    latency: Mapping[str, tuple[int, Sequence[float]]]
    costs: Mapping[str, Mapping[str, Decimal]]

    def as_json(self) -> dict[str, Any]:
        """The same for JSON: money is a string, a moment is ISO 8601 in UTC."""
        return {
            "spending": [[moment.isoformat(), dollars(spent)] for moment, spent in self.spending],
            "submissions": {
                of_type: [[moment.isoformat(), count] for moment, count in counts]
                for of_type, counts in self.submissions.items()
            },
            "span": self.span,
            "latency": {model: [count, list(seconds)] for model, (count, seconds) in self.latency.items()},
            "costs": {
                day: {model: dollars(cost) for model, cost in models.items()}
                for day, models in self.costs.items()
            },
        }


@dataclass(slots=True)
class _Sums:
    """A table of sums by some keys, which takes in tables of the same columns."""

    keys: Sequence[str]
    tables: list[pl.DataFrame] = field(default_factory=list)

    def add(self, table: pl.DataFrame) -> None:
        self.tables.append(table)
        if len(self.tables) >= _PARTS:
            self.tables = [self.total()]

    def total(self) -> pl.DataFrame:
        return pl.concat(self.tables).group_by(self.keys).sum() if self.tables else pl.DataFrame()


class Activity:
    """What a batch has done, added up. Use `add` for all of its attempts, then `figures`."""

    def __init__(self) -> None:
        self._spent = _Sums(["moment"])
        self._second = 1  # the length of a moment of spending, in seconds
        self._sent = _Sums(["minute", "type"])
        self._latency = _Sums(["model", "step"])
        self._costs = _Sums(["day", "model"])

    def add(self, attempts: pl.DataFrame) -> None:
        """Takes in some attempts that were submitted.

        Args:
            attempts: `model`, `type`, `state`, `cost`, `submitted_at`, `finished_at`.
        """
        if not attempts.height:
            return
        sent = pl.col("submitted_at")
        paid = attempts.filter(pl.col("cost") > 0)
        spent = paid.select(sent.dt.truncate(f"{self._second}s").alias("moment"), "cost")
        self._spent.add(spent.group_by("moment").sum())
        day = sent.dt.strftime("%Y-%m-%d").alias("day")
        self._costs.add(paid.select(day, "model", "cost").group_by("day", "model").sum())
        minutes = attempts.select(sent.dt.truncate("1m").alias("minute"), "type", count=pl.lit(1, pl.Int64))
        self._sent.add(minutes.group_by("minute", "type").sum())
        seconds = (pl.col("finished_at") - sent).dt.total_microseconds() / 1e6
        stored = attempts.filter(pl.col("state") == State.STORED).select("model", seconds=seconds)
        step = pl.col("seconds").log(_STEP).round().cast(pl.Int32).alias("step")
        steps = stored.filter(pl.col("seconds") > 0).select("model", step, count=pl.lit(1, pl.Int64))
        self._latency.add(steps.group_by("model", "step").sum())
        self._coarsen()

    def _coarsen(self) -> None:
        """Adds spending up by longer spans, where it has too many rows."""
        while sum(table.height for table in self._spent.tables) > _FINEST:
            total = self._spent.total()
            if total.height > _FINEST // 2:
                self._second *= 10
                total = _by_span(total, "moment", self._second)
            self._spent.tables = [total]

    def figures(self) -> Figures | None:
        """The numbers to plot; None where nothing was submitted."""
        sent = self._sent.total()
        if not sent.height:
            return None
        first: Any = sent["minute"].min()
        last: Any = sent["minute"].max()
        span = _span((last - first).total_seconds() / 60 + 1)
        busiest = sent.group_by(pl.col("minute").dt.truncate(f"{span}m"), "type").max().sort("minute")
        submissions: dict[str, list[tuple[datetime, int]]] = {}
        for minute, of_type, count in busiest.select("minute", "type", "count").iter_rows():
            submissions.setdefault(of_type, []).append((minute, count))
        return Figures(
            spending=self._spending(),
            submissions=dict(sorted(submissions.items())),
            span=span,
            latency=self._latencies(),
            costs=self._by_day(),
        )

    def _spending(self) -> list[tuple[datetime, Decimal]]:
        spent = self._spent.total()
        if not spent.height:
            return []
        first: Any = spent["moment"].min()
        last: Any = spent["moment"].max()
        seconds = max(_span((last - first).total_seconds() + 1), self._second)
        rows = _by_span(spent, "moment", seconds).sort("moment").iter_rows()
        moments, costs = zip(*rows, strict=True)
        ends = [moment + timedelta(seconds=seconds) for moment in moments]
        return [(moments[0], Decimal(0)), *zip(ends, accumulate(costs), strict=True)]

    def _latencies(self) -> dict[str, tuple[int, list[float]]]:
        """Of each model; those with the most files first."""
        latencies = self._latency.total()
        if not latencies.height:
            return {}
        found: dict[str, tuple[int, list[float]]] = {}
        for (model,), steps in latencies.sort("step").partition_by("model", as_dict=True).items():
            count, so_far = int(steps["count"].sum()), steps["count"].cum_sum()
            places = [so_far.search_sorted(max(1, quantile * count)) for quantile in QUANTILES]
            found[str(model)] = (count, [round(_STEP ** int(steps["step"][place]), 4) for place in places])
        return dict(sorted(found.items(), key=lambda item: (-item[1][0], item[0])))

    def _by_day(self) -> dict[str, dict[str, Decimal]]:
        costs = self._costs.total()
        days: dict[str, dict[str, Decimal]] = {}
        if costs.height:
            for day, model, cost in costs.select("day", "model", "cost").sort("day", "model").iter_rows():
                days.setdefault(day, {})[model] = cost
        return days


def _by_span(table: pl.DataFrame, column: str, seconds: int) -> pl.DataFrame:
    return table.group_by(pl.col(column).dt.truncate(f"{seconds}s")).sum()


def _span(length: float) -> int:
    """The shortest handy span of which at most `_BINS` make up the length, in the same unit."""
    longest = _SPANS[-1]
    return next((span for span in _SPANS if length <= span * _BINS), longest * ceil(length / longest / _BINS))
