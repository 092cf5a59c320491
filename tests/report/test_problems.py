"""What went wrong, by reason."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import polars as pl

from callsheet.ledger.frames import MONEY
from callsheet.report.details import problems_of, surcharges_of

TYPES = {"superseded": pl.Boolean, "sample": pl.Int64, "line": pl.Int64, "quoted": MONEY, "cost": MONEY}
TEXTS = ("job_key", "row_id", "state", "error_code", "error_message")


def attempts(*rows: dict[str, Any]) -> pl.DataFrame:
    blank = dict.fromkeys(TEXTS) | {"superseded": False, "sample": 1, "line": None}
    blank |= {"quoted": None, "cost": None}
    named = ({"job_key": f"key-{row['row_id']}"} | row for row in rows)
    return pl.DataFrame([blank | row for row in named], schema=dict.fromkeys(TEXTS, pl.String) | TYPES)


def failed(row: int, message: str | None = None, **more: Any) -> dict[str, Any]:
    return {"row_id": str(row), "state": "failed", "error_message": message, **more}


def test_ids_times_and_numbers_make_no_other_reason() -> None:
    rows = [failed(row, f"req-{row}: no at 1{row}:00") for row in range(8)]
    rows += [failed(8, None, error_code="full"), failed(9, ""), {"row_id": "10", "state": "stored"}]
    found, others = problems_of(attempts(*rows, failed(11, "old", superseded=True)))
    reasons = [("req-0: no at 10:00", 8), ("full", 1), ("no reason is known", 1)]
    assert [(problem.reason, problem.jobs) for problem in found] == reasons
    assert (len(found[0].rows), others) == (5, 0)


def test_the_ten_most_common_reasons_are_named_and_jobs_with_others_counted() -> None:
    rows = [failed(row, "abcdefghij"[row % 10] * (1 + row % 100)) for row in range(1_000)]
    found, others = problems_of(attempts(*rows, failed(1, "a")))
    assert (found[0].reason, found[0].jobs, len(found)) == ("a", 11, 10)
    assert sum(problem.jobs for problem in found) + others == 1_001


def test_what_costs_more_than_quoted_is_added_up_exactly() -> None:
    stored = {"state": "stored", "quoted": Decimal("0.1"), "cost": Decimal("0.100001")}
    rows = [{"row_id": f"{row}", **stored, "sample": 1 + row % 2} for row in range(8)]
    rows += [{"row_id": "8", **stored, "cost": None}, {"row_id": "9", **stored, "quoted": None}]
    surcharges = surcharges_of(attempts(*rows))
    assert surcharges is not None
    assert (surcharges.jobs, surcharges.amount) == (8, Decimal("0.000008"))
    assert surcharges.rows[:2] == (
        "row 0 0.100001 instead of 0.1000",
        "row 1 (sample 2) 0.100001 instead of 0.1000",
    )
    assert len(surcharges.rows) == 5
    assert surcharges_of(attempts(*rows[8:])) is None
