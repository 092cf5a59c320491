"""What went wrong with the jobs of a batch, grouped by reason, and which jobs cost more than quoted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from callsheet.plain_text import counted
from callsheet.records import State, dollars

ROWS_NAMED = 5
"""Rows that are named for each reason; the others are counted."""

REASONS_NAMED = 10
"""Reasons that are named; the jobs with others are counted."""

_PROBLEMS = (State.FAILED, State.IN_DOUBT, State.LOST)
# Ids, times and numbers differ from job to job and do not make another reason.
_PARTICULARS = re.compile(r"req-[\w-]+|\d[\d:.TZ+-]*")
_GENERATED_ID = re.compile(r"[0-9a-f]{16}-\d+")


@dataclass(frozen=True, slots=True)
class Problem:
    """Jobs in one state for one reason.

    Attributes:
        state: failed, in doubt or lost.
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

    It keeps a few rows for each reason, however many jobs there are.
    """

    groups: dict[tuple[State, str], _Group] = field(default_factory=dict)
    surcharged: _Group = field(default_factory=lambda: _Group(""))
    surcharge: Decimal = Decimal(0)

    def add(self, attempts: Iterable[Mapping[str, Any]]) -> None:
        """Takes in rows of the ledger's `attempts`, with `quoted` null where there was no price."""
        for row in attempts:
            if row["state"] in _PROBLEMS and not row["superseded"]:
                self._add_problem(row)
            if row["cost"] is not None and row["quoted"] is not None and row["cost"] > row["quoted"]:
                self.surcharge += row["cost"] - row["quoted"]
                self.surcharged.add(row, f" {dollars(row['cost'])} instead of {dollars(row['quoted'])}")

    def _add_problem(self, row: Mapping[str, Any]) -> None:
        message = row["error_message"] or row["error_code"] or "no reason is known"
        key = (State(row["state"]), _PARTICULARS.sub("#", message))
        self.groups.setdefault(key, _Group(message)).add(row)

    def keys(self) -> list[str]:
        """The keys of all jobs that will be named."""
        groups = [*self.groups.values(), self.surcharged]
        return [key for group in groups for key, _, _ in group.first]

    def problems(self, lines: Mapping[str, int]) -> tuple[tuple[Problem, ...], int]:
        """The most common problems, and the number of jobs with others.

        Args:
            lines: the line of each job in the batch file, by key, where it is known.
        """
        ordered = sorted(self.groups.items(), key=lambda item: -item[1].jobs)
        problems = [
            Problem(state, group.reason, group.jobs, group.names(lines)) for (state, _), group in ordered
        ]
        return tuple(problems[:REASONS_NAMED]), sum(problem.jobs for problem in problems[REASONS_NAMED:])

    def surcharges(self, lines: Mapping[str, int]) -> Surcharges | None:
        """The jobs that cost more than quoted; None where there are none."""
        if not self.surcharged.jobs:
            return None
        return Surcharges(self.surcharged.jobs, self.surcharge, self.surcharged.names(lines))


@dataclass(slots=True)
class _Group:
    """Jobs with one reason: how many, and key, row id and addition of the first."""

    reason: str
    jobs: int = 0
    first: list[tuple[str, str, str]] = field(default_factory=list)

    def add(self, row: Mapping[str, Any], addition: str = "") -> None:
        self.jobs += 1
        if len(self.first) < ROWS_NAMED:
            sample = f" (sample {row['sample']})" if row["sample"] > 1 else ""
            self.first.append((row["job_key"], row["row_id"], sample + addition))

    def names(self, lines: Mapping[str, int]) -> tuple[str, ...]:
        return tuple(f"{row_name(row_id, lines.get(key))}{addition}" for key, row_id, addition in self.first)


def row_name(row_id: str, line: int | None) -> str:
    """A row as people know it: by its id, or by its line where the batch file gives it no id."""
    if line is not None and _GENERATED_ID.fullmatch(row_id):
        return f"line {line}"
    return f"row {row_id}"
