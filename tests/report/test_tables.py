"""The report's tables: in the batch file's order, whatever order and however many parts the ledger has."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from callsheet.ledger.queries import MONEY, TIME
from callsheet.report.report import OF_MANIFEST, manifest
from callsheet.standing import Standing

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TYPES = {"sample": pl.Int64, "index": pl.Int64, "cost": MONEY, "stored_at": TIME}
REVIEW = ["decision", "decided_by", "decided_at", "note", "flags"]
NAMES = [*OF_MANIFEST, *REVIEW]
COLUMNS = [*OF_MANIFEST[:-1], "current", "made_from", *REVIEW]


def key(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def batch(jobs: int, *rows: dict[str, Any], has_plan: bool = True) -> Standing:
    """A batch with so many jobs, and these stored files; what is not given is null."""
    filled = [dict.fromkeys(NAMES) | {"index": 0, "carried": "{}", "stored_at": NOW} | row for row in rows]
    files = pl.DataFrame(filled, schema=dict.fromkeys(NAMES, pl.String) | TYPES).sort("stored_at")
    table = pl.DataFrame({"key": map(key, range(jobs)), "position": range(jobs)})
    return Standing(table.with_columns(current=pl.lit(True)), pl.DataFrame(), files, has_plan)


def test_of_two_attempts_at_a_job_the_file_that_was_stored_first_comes_first() -> None:
    later = {"job_key": key(0), "stored_at": NOW + timedelta(seconds=1), "url": "second"}
    table = manifest(batch(1, later, {"job_key": key(0), "url": "first"}))
    assert table["url"].to_list() == ["first", "second"]


def test_carried_columns_get_a_type_that_fits_all_and_are_empty_where_a_row_has_none() -> None:
    each = ({"n": 1, "url": "x"}, {}, {"n": 2.5, "tags": ["a"]}, {"n": None, "text": 7}, {"text": "t"})
    files = ({"job_key": key(0), "carried": json.dumps(carried)} for carried in each)
    table = manifest(batch(1, *files, has_plan=False))
    assert table.columns == [*COLUMNS, "n", "input_url", "tags", "text"]
    assert table.select("n", "input_url", "text").rows() == [
        (1.0, "x", None),
        (None, None, None),
        (2.5, None, None),
        (None, None, "7"),
        (None, None, "t"),
    ]
    assert table["tags"].to_list() == [None, None, ["a"], None, None]
    assert table["current"].all()
