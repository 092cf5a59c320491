"""What went wrong with the jobs of a batch, grouped by reason, and which jobs cost more than quoted."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import polars as pl

from callsheet.plain_text import counted, row_in_words
from callsheet.records import State, dollars

ROWS_NAMED = 5
"""Rows that are named for each reason; the others are counted."""

REASONS_NAMED = 10
"""Reasons that are named; the jobs with others are counted."""

_PROBLEMS = (State.FAILED, State.IN_DOUBT, State.LOST)
# Ids, times and numbers differ from job to job and do not make another reason.
_PARTICULARS = r"req-[\w-]+|\d[\d:.TZ+-]*"


@dataclass(frozen=True, slots=True)
class Problem:
    """Jobs in one state for one reason.

    Attributes:
        state: failed, in doubt or lost; or pending, with a status that is not known.
        reason: the message of the first of these jobs.
        jobs: how many there are.
        rows: the names of the first rows, for people.
    """

    state: State
    reason: str
    jobs: int
    rows: tuple[str, ...]

    def line(self) -> str:
        """The problem in one line: `failed: ... (3 jobs: row a, row b and 1 more)`."""
        if self.jobs == 1:
            return f"{self.rows[0]} {self.state.replace('_', ' ')}: {self.reason}"
        more = f" and {self.jobs - len(self.rows)} more" if self.jobs > len(self.rows) else ""
        return (
            f"{self.jobs} jobs {self.state.replace('_', ' ')} ({', '.join(self.rows)}{more}): {self.reason}"
        )


@dataclass(frozen=True, slots=True)
class Surcharges:
    """Jobs that cost more than quoted; `amount` is the sum of the differences, in dollars."""

    jobs: int
    amount: Decimal
    rows: tuple[str, ...]

    def line(self) -> str:
        """The surcharges in one line."""
        more = f" and {self.jobs - len(self.rows)} more" if self.jobs > len(self.rows) else ""
        amount = f"{dollars(self.amount)} USD more than quoted"
        return f"{counted(self.jobs, 'job')} cost {amount}: {', '.join(self.rows)}{more}"


def problems_of(attempts: pl.DataFrame) -> tuple[tuple[Problem, ...], int]:
    """The most common problems, and the number of jobs with others.

    Args:
        attempts: rows of the ledger's `attempts`, with the `line` of each in the batch file.
    """
    said = (pl.col("state") == State.PENDING) & pl.col("error_message").is_not_null()
    known = [pl.when(pl.col(name) != "").then(name) for name in ("error_message", "error_code")]
    groups = (
        attempts.filter(pl.col("state").is_in(_PROBLEMS) | said, ~pl.col("superseded"))
        .with_columns(message=pl.coalesce(*known, pl.lit("no reason is known")))
        .group_by(
            "state", pl.col("message").str.replace_all(_PARTICULARS, "#").alias("reason"), maintain_order=True
        )
        .agg(
            pl.col("message").first(),
            pl.len().alias("jobs"),
            pl.struct("row_id", "sample", "line").head(ROWS_NAMED).alias("rows"),
        )
        .sort("jobs", "state", descending=True, maintain_order=True)  # of states, what is open first
        .drop("reason")
    )
    named = tuple(
        Problem(State(state), message, jobs, tuple(row_in_words(**row) for row in rows))
        for state, message, jobs, rows in groups.head(REASONS_NAMED).iter_rows()
    )
    return named, int(groups["jobs"].slice(REASONS_NAMED).sum())


def surcharges_of(attempts: pl.DataFrame) -> Surcharges | None:
    """The jobs that cost more than quoted; None where there are none.

    Args:
        attempts: rows of the ledger's `attempts`, with the `line` of each in the batch file.
    """
    dearer = attempts.filter(pl.col("cost") > pl.col("quoted"))
    if dearer.is_empty():
        return None
    first = dearer.select("row_id", "sample", "line", "cost", "quoted").head(ROWS_NAMED)
    rows = tuple(
        f"{row_in_words(row_id, sample, line)} {dollars(cost)} instead of {dollars(quoted)}"
        for row_id, sample, line, cost, quoted in first.iter_rows()
    )
    return Surcharges(dearer.height, sum(dearer["cost"] - dearer["quoted"], Decimal(0)), rows)
