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

from callsheet.ledger.marks import MediaDecision
from callsheet.records import State, six_decimals

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Of the latencies of a model, which the plot shows."""

_POINTS = 240  # of a line, and bars of a plot, at most; more bars after as many days
_SPANS = (1, 10, 60, 360, 1440)  # minutes


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
        kept: by model: how many files are kept, and what each of them costs in dollars; the cheapest first.
    """

    spending: Sequence[tuple[datetime, Decimal]]
    submissions: Mapping[str, Sequence[tuple[datetime, int]]]
    span: int
    latency: Mapping[str, tuple[int, Sequence[float]]]
    costs: Mapping[str, Mapping[str, Decimal]]
    kept: Mapping[str, tuple[int, Decimal]]


def figures_of(attempts: pl.DataFrame, files: pl.DataFrame) -> Figures | None:
    """The numbers to plot; None where nothing was submitted.

    Args:
        attempts: what was submitted: rows of the ledger's `attempts`.
        files: what is stored, with `model` and `decision`.
    """
    if attempts.is_empty():
        return None
    span, submissions = _submissions(attempts)
    paid = attempts.filter(pl.col("cost") > 0).sort("submitted_at")
    return Figures(
        _spending(paid), submissions, span, _latencies(attempts), _by_day(paid), _kept(paid, files)
    )


def _spending(paid: pl.DataFrame) -> list[tuple[datetime, Decimal]]:
    """From nothing to all that was spent, by the time of submission."""
    every = pl.int_range(pl.len()) // ceil(max(paid.height, 1) / _POINTS)
    moment, cost = pl.col("submitted_at").last(), pl.col("cost").sum()
    moments, costs = paid.group_by(every, maintain_order=True).agg(moment, cost)[:, 1:]
    points = [*zip(moments, accumulate(costs), strict=True)]
    return [(paid["submitted_at"][0] - timedelta(seconds=1), Decimal(0)), *points] if points else []


def _submissions(attempts: pl.DataFrame) -> tuple[int, dict[str, list[tuple[datetime, int]]]]:
    minutes = attempts.group_by(pl.col("submitted_at").dt.truncate("1m").alias("minute"), "type").len("count")
    first: Any = minutes["minute"].min()
    last: Any = minutes["minute"].max()
    least = ((last - first).total_seconds() / 60 + 1) / _POINTS
    span = next((span for span in _SPANS if span >= least), _SPANS[-1])
    busiest = minutes.group_by(pl.col("minute").dt.truncate(f"{span}m"), "type").max().sort("type", "minute")
    submissions: dict[str, list[tuple[datetime, int]]] = {}
    for minute, of_type, count in busiest.select("minute", "type", "count").iter_rows():
        submissions.setdefault(of_type, []).append((minute, count))
    return span, submissions


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


def _kept(paid: pl.DataFrame, files: pl.DataFrame) -> dict[str, tuple[int, Decimal]]:
    spent = dict(paid.group_by("model").agg(pl.col("cost").sum()).iter_rows())
    counts = files.filter(pl.col("decision") == MediaDecision.KEPT).group_by("model").len().iter_rows()
    known = {model: (count, six_decimals(spent.get(model, Decimal(0)) / count)) for model, count in counts}
    return dict(sorted(known.items(), key=lambda item: (item[1][1], item[0])))
