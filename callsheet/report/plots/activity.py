"""Adds up what the plots of a batch show, from its attempts. Money is `Decimal`. Nothing is drawn here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


def figures_of(attempts: pl.DataFrame) -> Figures | None:
    """The numbers to plot; None where nothing was submitted.

    Args:
        attempts: what was submitted: `model`, `type`, `state`, `cost`, `submitted_at`, `finished_at`.
    """
    if attempts.is_empty():
        return None
    sent = pl.col("submitted_at")
    minutes = attempts.group_by(sent.dt.truncate("1m").alias("minute"), "type").len("count")
    span = _span(_length(minutes["minute"]) / 60 + 1)
    busiest = minutes.group_by(pl.col("minute").dt.truncate(f"{span}m"), "type").max().sort("minute")
    submissions: dict[str, list[tuple[datetime, int]]] = {}
    for minute, of_type, count in busiest.select("minute", "type", "count").iter_rows():
        submissions.setdefault(of_type, []).append((minute, count))
    paid = attempts.filter(pl.col("cost") > 0)
    return Figures(
        spending=_spending(paid),
        submissions=dict(sorted(submissions.items())),
        span=span,
        latency=_latencies(attempts),
        costs=_by_day(paid),
    )


def _spending(paid: pl.DataFrame) -> list[tuple[datetime, Decimal]]:
    if paid.is_empty():
        return []
    seconds = _span(_length(paid["submitted_at"]) + 1)
    spans = paid.group_by(pl.col("submitted_at").dt.truncate(f"{seconds}s")).agg(pl.col("cost").sum())
    moments, costs = zip(*spans.sort("submitted_at").iter_rows(), strict=True)
    ends = [moment + timedelta(seconds=seconds) for moment in moments]
    return [(moments[0], Decimal(0)), *zip(ends, accumulate(costs), strict=True)]


def _latencies(attempts: pl.DataFrame) -> dict[str, tuple[int, list[float]]]:
    """Of each model; those with the most files first."""
    seconds = (pl.col("finished_at") - pl.col("submitted_at")).dt.total_microseconds() / 1e6
    stored = attempts.filter(pl.col("state") == State.STORED).select("model", seconds=seconds)
    places = [pl.col("seconds").quantile(each, "nearest").round(4).alias(f"{each}") for each in QUANTILES]
    models = stored.filter(pl.col("seconds") > 0).group_by("model").agg(pl.len().alias("files"), *places)
    rows = models.sort("files", "model", descending=[True, False]).iter_rows()
    return {model: (count, [*quantiles]) for model, count, *quantiles in rows}


def _by_day(paid: pl.DataFrame) -> dict[str, dict[str, Decimal]]:
    day = pl.col("submitted_at").dt.strftime("%Y-%m-%d").alias("day")
    days: dict[str, dict[str, Decimal]] = {}
    sums = paid.group_by(day, "model").agg(pl.col("cost").sum()).sort("day", "model")
    for name, model, cost in sums.iter_rows():
        days.setdefault(name, {})[model] = cost
    return days


def _length(moments: pl.Series) -> float:
    """Seconds from the first moment to the last."""
    first: Any = moments.min()
    last: Any = moments.max()
    return float((last - first).total_seconds())


def _span(length: float) -> int:
    """The shortest handy span of which at most `_BINS` make up the length, in the same unit."""
    longest = _SPANS[-1]
    return next((span for span in _SPANS if length <= span * _BINS), longest * ceil(length / longest / _BINS))
