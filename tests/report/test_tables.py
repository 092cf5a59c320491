"""The report's tables: in the batch file's order, whatever order and however many parts the ledger has."""

from __future__ import annotations

import hashlib
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from callsheet.ledger.columns import MONEY, TIME
from callsheet.pricing.plan import Positions
from callsheet.report import tables
from callsheet.report.tables import MANIFEST, Manifest

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TYPES = {"sample": pl.Int64, "index": pl.Int64, "cost": MONEY, "stored_at": TIME}


def key(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def files(*rows: dict[str, Any]) -> pl.DataFrame:
    """Files of the ledger; what is not given is null."""
    filled = [dict.fromkeys(MANIFEST) | {"index": 0, "carried": "{}", "stored_at": NOW} | row for row in rows]
    return pl.DataFrame(filled, schema=dict.fromkeys(MANIFEST, pl.String) | TYPES)


def written(manifest: Manifest, folder: Path) -> pl.DataFrame:
    manifest.write(folder / "manifest.parquet")
    return pl.read_parquet(folder / "manifest.parquet")


def test_files_are_in_the_batch_files_order_and_removed_ones_follow_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_SLICE", 4)
    manifest = Manifest(Positions(pl.Series([key(n) for n in range(20)])))
    rows = [{"job_key": key(n), "index": index} for n in range(20) for index in range(2)]
    rows += [{"job_key": key(100 + n)} for n in range(10)]
    random.Random(1).shuffle(rows)
    for start in range(0, len(rows), 7):
        manifest.add(files(*rows[start : start + 7]))
    table = written(manifest, tmp_path)
    assert table["job_key"].to_list()[:40] == [key(n) for n in range(20) for _ in range(2)]
    assert table["index"].to_list()[:40] == [0, 1] * 20
    assert table["current"].to_list() == [True] * 40 + [False] * 10
    removed = [row["job_key"] for row in rows if row["job_key"] not in table["job_key"][:40].to_list()]
    assert table["job_key"].to_list()[40:] == removed


def test_of_two_attempts_at_a_job_the_file_that_was_stored_first_comes_first(tmp_path: Path) -> None:
    manifest = Manifest(Positions(pl.Series([key(0)])))
    later = {"job_key": key(0), "stored_at": NOW + timedelta(seconds=1), "url": "second"}
    manifest.add(files(later, {"job_key": key(0), "url": "first"}))
    assert written(manifest, tmp_path)["url"].to_list() == ["first", "second"]


def test_carried_columns_get_a_type_that_fits_all_parts_and_are_empty_where_a_row_has_none(
    tmp_path: Path,
) -> None:
    manifest = Manifest(None)
    for carried in (
        {"n": 1, "url": "x"},
        {},
        {"n": 2.5, "tags": ["a"]},
        {"n": None, "text": 7},
        {"text": "t"},
    ):
        manifest.add(files({"job_key": key(0), "carried": json.dumps(carried)}))
    table = written(manifest, tmp_path)
    assert table.columns == [*MANIFEST[:-1], "current", "n", "input_url", "tags", "text"]
    assert table.select("n", "input_url", "text").rows() == [
        (1.0, "x", None),
        (None, None, None),
        (2.5, None, None),
        (None, None, "7"),
        (None, None, "t"),
    ]
    assert table["tags"].to_list() == [None, None, ["a"], None, None]
    assert table["current"].all()


def test_a_manifest_without_files_has_its_columns(tmp_path: Path) -> None:
    table = written(Manifest(None), tmp_path)
    assert table.height == 0
    assert table.columns == [*MANIFEST[:-1], "current"]
    assert table.schema["cost"] == pl.Decimal(18, 6)
