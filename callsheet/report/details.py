"""The parts of a summary that are for people: jobs by model, what went wrong and why, what cost most.

They are made from attempts at the jobs that count: rows of the ledger's `attempts`, with `line`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import polars as pl

from callsheet.ledger.marks import Counts, MediaDecision
from callsheet.plain_text import and_more, counted, row_in_words, row_name
from callsheet.pricing.plan import Plan
from callsheet.records import State, dollars
from callsheet.report.counts import ENDED
from callsheet.report.plots import Figures

_ROWS_NAMED = 5  # for each reason; the others are counted
_REASONS_NAMED = 10  # the jobs with others are counted
_DEAREST = 10
_PROBLEMS = (State.FAILED, State.IN_DOUBT, State.LOST)
PARTICULARS = r"req-[\w-]+|\d[\d:.TZ+-]*"
"""Ids, times and numbers in a reason: they differ from job to job, and do not make another reason."""


@dataclass(frozen=True, slots=True)
class ModelLine:
    """The jobs of one model; `states` has those that were submitted.

    `quoted` is the price of all of them, in dollars; jobs without a price count as free. `spent` is what they
    have cost so far.
    """

    model: str
    jobs: int
    states: Counter[State]
    quoted: Decimal
    spent: Decimal
    review: Counts

    @property
    def cost_per_kept(self) -> Decimal | None:
        """What a kept file of the model costs, in dollars; None without one."""
        return self.review.cost_per_kept(self.spent)

    def as_json(self) -> dict[str, Any]:
        """The JSON object in the `models` of `run --json`; money is a string."""
        each = self.cost_per_kept
        return {
            "model": self.model,
            "jobs": self.jobs,
            "stored": self.states[State.STORED],
            "quoted": dollars(self.quoted),
            "spent": dollars(self.spent),
            **self.review._asdict(),
            "cost_per_kept": None if each is None else dollars(each),
        }

    @property
    def open(self) -> int:
        """Jobs that are not bought, or not stored yet."""
        return self.jobs - sum(self.states[state] for state in ENDED)


@dataclass(frozen=True, slots=True)
class Problem:
    """Jobs in one state for one reason: failed, in doubt, lost, or pending with a status that is not known.

    `reason` is the message of the first of them, `code` its error code, empty where there is none; `rows` are
    the names of the first ones.
    """

    state: State
    reason: str
    code: str
    jobs: int
    rows: tuple[str, ...]

    def line(self) -> str:
        """The problem in one line: `3 jobs failed (row a, row b, row c): ...`."""
        state = self.state.replace("_", " ")
        if self.jobs == 1:
            return f"{self.rows[0]} {state}: {self.reason}"
        return f"{self.jobs} jobs {state} ({and_more(self.rows, self.jobs)}): {self.reason}"


@dataclass(frozen=True, slots=True)
class Details:
    """The parts of a summary that are for people only.

    Attributes:
        stop_message: what stopped the buying, or the collecting of what is bought; None without such.
        stop_hint: what to do about it.
        rows: how many the batch file has; None where the run knows no plan.
        rejects: where `rejects.csv` is.
        rejected: what is wrong with the rejected rows, a line for each reason.
        surcharge: the jobs that cost more than quoted; empty where there are none.
        other_problems: the number of jobs with other reasons than those of `problems`.
        kept: bought jobs of rows that are rejected now, because the catalogue no longer offers them.
        others: how many of the jobs are of rows that the batch file does not have, or has changed.
        dearest: row, model and cost of the jobs that cost most, the first most.
        contact_sheet: where the page is; None where there is none.
        figures: what the plots show; None where nothing was submitted.
        all_chosen_stored: whether all jobs are stored that the run was for; None where it was for all jobs.
    """

    stop_message: str | None = None
    stop_hint: str = ""
    rows: int | None = None
    rejects: str = ""
    rejected: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    other_problems: int = 0
    surcharge: str = ""
    kept: int = 0
    others: int = 0
    models: tuple[ModelLine, ...] = ()
    dearest: tuple[tuple[str, str, Decimal], ...] = ()
    contact_sheet: str | None = None
    figures: Figures | None = field(default=None, repr=False)
    all_chosen_stored: bool | None = None


def model_lines(
    attempts: pl.DataFrame, others: pl.DataFrame, files: pl.DataFrame, plan: Plan | None
) -> tuple[ModelLine, ...]:
    """A line for each model, by its id. Without a plan, the jobs are those that were ever sent.

    `attempts` were submitted; `others` are the newest attempts at the jobs that the plan does not have;
    `files` are stored, with `model` and `decision`.
    """
    newest = attempts.filter(~pl.col("superseded"))
    jobs = [(others if plan else newest).select("model", price="quoted", jobs=pl.lit(1))]
    jobs += [plan.table.select("model", "price", jobs=pl.lit(1))] if plan else []
    decided = files.select("model", decision=pl.col("decision").fill_null("left"))
    parts = [*jobs, newest.select("model", "state"), attempts.select("model", "cost"), decided]
    sums = pl.col("jobs", "price", "cost").sum()
    lists = pl.col("state", "decision").drop_nulls()
    of_model = pl.concat(parts, how="diagonal_relaxed").group_by("model").agg(sums, lists).sort("model")
    return tuple(
        ModelLine(
            model=model,
            jobs=count,
            states=Counter(map(State, states)),
            quoted=price or Decimal(0),
            spent=cost or Decimal(0),
            review=Counts(*map(decisions.count, (*MediaDecision, "left"))),
        )
        for model, count, price, cost, states, decisions in of_model.iter_rows()
        if count
    )


def most_expensive(attempts: pl.DataFrame) -> tuple[tuple[str, str, Decimal], ...]:
    """Row, model and cost of the ten jobs that cost most, the first most."""
    paid = attempts.filter(pl.col("cost") > 0).select("row_id", "sample", "line", "model", "cost")
    dearest = paid.sort("cost", "row_id", "sample", descending=[True, False, False]).head(_DEAREST)
    return tuple((row_name(*row), model, cost) for *row, model, cost in dearest.iter_rows())


def problems_of(attempts: pl.DataFrame) -> tuple[tuple[Problem, ...], int]:
    """The most common problems, and the number of jobs with others."""
    said = (pl.col("state") == State.PENDING) & pl.col("error_message").is_not_null()
    known = [pl.when(pl.col(name) != "").then(name) for name in ("error_message", "error_code")]
    reason = pl.col("message").str.replace_all(PARTICULARS, "#").alias("reason")
    groups = (
        attempts.filter(pl.col("state").is_in(_PROBLEMS) | said, ~pl.col("superseded"))
        .with_columns(message=pl.coalesce(*known, pl.lit("no reason is known")))
        .group_by("state", reason, maintain_order=True)
        .agg(
            pl.col("message", "error_code").first(),
            pl.len().alias("jobs"),
            pl.struct("row_id", "sample", "line").head(_ROWS_NAMED).alias("rows"),
        )
        .sort("jobs", "state", descending=True, maintain_order=True)  # of states, what is open first
        .drop("reason")
    )
    named = tuple(
        Problem(State(state), message, code or "", jobs, tuple(row_in_words(**row) for row in rows))
        for state, message, code, jobs, rows in groups.head(_REASONS_NAMED).iter_rows()
    )
    return named, int(groups["jobs"].slice(_REASONS_NAMED).sum())


def surcharge_of(attempts: pl.DataFrame) -> str:
    """The jobs that cost more than quoted, in one line; empty where there are none."""
    dearer = attempts.filter(pl.col("cost") > pl.col("quoted"))
    if dearer.is_empty():
        return ""
    first = dearer.select("row_id", "sample", "line", "cost", "quoted").head(_ROWS_NAMED)
    rows = [
        f"{row_in_words(*row)} {dollars(cost)} instead of {dollars(quoted)}"
        for *row, cost, quoted in first.iter_rows()
    ]
    more = f"{dollars(sum(dearer['cost'] - dearer['quoted'], Decimal(0)))} USD more than quoted"
    return f"{counted(dearer.height, 'job')} cost {more}: {and_more(rows, dearer.height)}"
