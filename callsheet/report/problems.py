"""What went wrong with the jobs of a batch, grouped by reason, and which jobs cost more than quoted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice, repeat
from typing import Any

import polars as pl

from callsheet.plain_text import counted, row_in_words
from callsheet.records import State, dollars

ROWS_NAMED = 5
"""Rows that are named for each reason; the others are counted."""

REASONS_NAMED = 10
"""Reasons that are named; the jobs with others are counted."""

_REASONS_KEPT = 1_000  # of which the most common are named in the end
_NAMING = ["job_key", "row_id", "sample"]
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


@dataclass(slots=True)
class Findings:
    """Collects the problems and surcharges of a batch's attempts, some thousands at a time.

    It keeps a few rows for each reason, and a limited number of reasons, however many jobs there are.
    """

    groups: dict[tuple[State, str], _Group] = field(default_factory=dict)
    others: int = 0  # jobs with still other reasons
    surcharged: _Group = field(default_factory=lambda: _Group(""))
    surcharge: Decimal = Decimal(0)

    def add(self, attempts: pl.DataFrame) -> None:
        """Takes in rows of the ledger's `attempts`."""
        said = (pl.col("state") == State.PENDING) & pl.col("error_message").is_not_null()
        problems = attempts.filter(pl.col("state").is_in(_PROBLEMS) | said, ~pl.col("superseded"))
        if problems.height:
            self._add_problems(problems)
        surcharged = attempts.filter(pl.col("cost") > pl.col("quoted"))
        if surcharged.height:
            self.surcharge += sum(surcharged["cost"] - surcharged["quoted"], Decimal(0))
            amounts = (
                f" {dollars(cost)} instead of {dollars(quoted)}"
                for cost, quoted in surcharged.select("cost", "quoted").iter_rows()
            )
            self.surcharged.add(surcharged.height, surcharged.select(_NAMING).iter_rows(), amounts)

    def _add_problems(self, attempts: pl.DataFrame) -> None:
        known = [pl.when(pl.col(name) != "").then(name) for name in ("error_message", "error_code")]
        message = pl.coalesce(*known, pl.lit("no reason is known"))
        grouped = (
            attempts.with_columns(message=message, reason=message.str.replace_all(_PARTICULARS, "#"))
            .group_by("state", "reason", maintain_order=True)
            .agg(pl.col("message").first(), pl.len(), pl.struct(_NAMING).head(ROWS_NAMED).alias("first"))
        )
        for state, reason, text, jobs, first in grouped.iter_rows():
            key = (State(state), reason)
            if key not in self.groups and len(self.groups) >= _REASONS_KEPT:
                self.others += jobs
            else:
                rows = (tuple(row.values()) for row in first)
                self.groups.setdefault(key, _Group(text)).add(jobs, rows)

    def keys(self) -> list[str]:
        """The keys of all jobs that will be named."""
        groups = [*self.groups.values(), self.surcharged]
        return [key for group in groups for key, *_ in group.first]

    def problems(self, lines: Mapping[str, int]) -> tuple[tuple[Problem, ...], int]:
        """The most common problems, and the number of jobs with others.

        Args:
            lines: the line of each job in the batch file, by key, where it is known.
        """
        ordered = sorted(self.groups.items(), key=lambda item: -item[1].jobs)
        problems = [
            Problem(state, group.reason, group.jobs, group.names(lines)) for (state, _), group in ordered
        ]
        others = self.others + sum(problem.jobs for problem in problems[REASONS_NAMED:])
        return tuple(problems[:REASONS_NAMED]), others

    def surcharges(self, lines: Mapping[str, int]) -> Surcharges | None:
        """The jobs that cost more than quoted; None where there are none."""
        if not self.surcharged.jobs:
            return None
        return Surcharges(self.surcharged.jobs, self.surcharge, self.surcharged.names(lines))


@dataclass(slots=True)
class _Group:
    """Jobs with one reason: how many, and key, row id, sample and addition of the first."""

    reason: str
    jobs: int = 0
    first: list[tuple[str, str, int, str]] = field(default_factory=list)

    def add(self, jobs: int, rows: Iterable[tuple[Any, ...]], additions: Iterable[str] = repeat("")) -> None:
        """Counts some jobs, of which `rows` has the `_NAMING` of at least the first."""
        self.jobs += jobs
        missing = ROWS_NAMED - len(self.first)
        for (key, row_id, sample), addition in islice(zip(rows, additions, strict=False), missing):
            self.first.append((key, row_id, sample, addition))

    def names(self, lines: Mapping[str, int]) -> tuple[str, ...]:
        return tuple(
            row_in_words(row_id, sample, lines.get(key)) + addition
            for key, row_id, sample, addition in self.first
        )
