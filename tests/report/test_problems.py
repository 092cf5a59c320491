"""What went wrong, by reason: exact counts, and a bounded memory whatever the reasons are."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from callsheet.ledger.columns import MONEY
from callsheet.report import problems
from callsheet.report.problems import Findings

TYPES = {"superseded": pl.Boolean, "sample": pl.Int64, "quoted": MONEY, "cost": MONEY}
TEXTS = ("job_key", "row_id", "state", "error_code", "error_message")


def attempts(*rows: dict[str, Any]) -> pl.DataFrame:
    blank = dict.fromkeys(TEXTS) | {"superseded": False, "sample": 1, "quoted": None, "cost": None}
    named = ({"job_key": f"key-{row['row_id']}"} | row for row in rows)
    return pl.DataFrame([blank | row for row in named], schema=dict.fromkeys(TEXTS, pl.String) | TYPES)


def failed(row: int, message: str | None = None, **more: Any) -> dict[str, Any]:
    return {"row_id": str(row), "state": "failed", "error_message": message, **more}


def test_jobs_with_one_reason_are_one_problem_over_all_parts() -> None:
    findings = Findings()
    findings.add(attempts(*(failed(row, f"req-{row}: no at 1{row}:00") for row in range(4))))
    findings.add(attempts(*(failed(row, f"req-{row}: no at 1{row}:00") for row in range(4, 8))))
    findings.add(
        attempts(failed(8, None, error_code="full"), failed(9, ""), {"row_id": "10", "state": "stored"})
    )
    findings.add(attempts(failed(11, "old", superseded=True)))
    found, others = findings.problems({"key-1": 7})
    assert [(problem.reason, problem.jobs) for problem in found] == [
        ("req-0: no at 10:00", 8),
        ("full", 1),
        ("no reason is known", 1),
    ]
    assert found[0].rows == ("row 0", "row 1", "row 2", "row 3", "row 4")
    assert others == 0


def test_reasons_beyond_a_limit_are_counted_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems, "_REASONS_KEPT", 20)
    findings = Findings()
    for start in range(0, 1000, 100):
        letters = ["abcdefghij"[row // 100] * (1 + row % 100) for row in range(start, start + 100)]
        findings.add(attempts(*(failed(row, text) for row, text in enumerate(letters))))
        findings.add(attempts(failed(1, "a")))
    found, others = findings.problems({})
    assert (found[0].reason, found[0].jobs) == ("a", 11)
    assert len(findings.groups) == 20
    assert sum(problem.jobs for problem in found) + others == 1010


def test_what_costs_more_than_quoted_is_added_up_exactly() -> None:
    findings = Findings()
    stored = {"state": "stored", "quoted": Decimal("0.1"), "cost": Decimal("0.100001")}
    for row in range(0, 8, 2):
        findings.add(
            attempts({"row_id": str(row), **stored}, {"row_id": str(row + 1), **stored, "sample": 2})
        )
    findings.add(attempts({"row_id": "8", **stored, "cost": None}, {"row_id": "9", **stored, "quoted": None}))
    surcharges = findings.surcharges({})
    assert surcharges is not None
    assert (surcharges.jobs, surcharges.amount) == (8, Decimal("0.000008"))
    assert surcharges.rows[:2] == (
        "row 0 0.100001 instead of 0.1000",
        "row 1 (sample 2) 0.100001 instead of 0.1000",
    )
    assert len(surcharges.rows) == 5
