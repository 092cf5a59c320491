"""The report's tables: in the batch file's order, whatever order and however many parts the ledger has."""

from __future__ import annotations

import hashlib
import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from callsheet.ledger.frames import MONEY, TIME
from callsheet.report.parquet_tables import MANIFEST, manifest, parquet

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TYPES = {"sample": pl.Int64, "index": pl.Int64, "cost": MONEY, "stored_at": TIME}
COLUMNS = [*MANIFEST[:-6], "current", *MANIFEST[-6:-1]]


def key(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def files(*rows: dict[str, Any]) -> pl.DataFrame:
    """Files of the ledger; what is not given is null."""
    filled = [dict.fromkeys(MANIFEST) | {"index": 0, "carried": "{}", "stored_at": NOW} | row for row in rows]
    return pl.DataFrame(filled, schema=dict.fromkeys(MANIFEST, pl.String) | TYPES)


def jobs(count: int) -> pl.DataFrame:
    """As many jobs of a batch file."""
    return pl.DataFrame({"job_key": map(key, range(count)), "position": range(count)})


def test_files_are_in_the_batch_files_order_and_removed_ones_follow_as_they_come() -> None:
    rows = [{"job_key": key(n), "index": index} for n in range(20) for index in range(2)]
    rows += [{"job_key": key(100 + n)} for n in range(10)]
    random.Random(1).shuffle(rows)
    table = manifest(files(*rows), jobs(20))
    assert table["job_key"].to_list()[:40] == [key(n) for n in range(20) for _ in range(2)]
    assert table["index"].to_list()[:40] == [0, 1] * 20
    assert table["current"].to_list() == [True] * 40 + [False] * 10
    removed = [row["job_key"] for row in rows if row["job_key"] not in table["job_key"][:40].to_list()]
    assert table["job_key"].to_list()[40:] == removed


def test_of_two_attempts_at_a_job_the_file_that_was_stored_first_comes_first() -> None:
    later = {"job_key": key(0), "stored_at": NOW + timedelta(seconds=1), "url": "second"}
    table = manifest(files(later, {"job_key": key(0), "url": "first"}), jobs(1))
    assert table["url"].to_list() == ["first", "second"]


def test_carried_columns_get_a_type_that_fits_all_and_are_empty_where_a_row_has_none() -> None:
    each = ({"n": 1, "url": "x"}, {}, {"n": 2.5, "tags": ["a"]}, {"n": None, "text": 7}, {"text": "t"})
    table = manifest(files(*({"job_key": key(0), "carried": json.dumps(carried)} for carried in each)), None)
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


def test_a_carried_column_with_the_name_of_another_gets_another_name() -> None:
    carried = json.dumps({"current": "yes", "input_current": "no"})
    assert manifest(files({"job_key": key(0), "carried": carried}), None).columns == [
        *COLUMNS,
        "input_input_current",
        "input_current",
    ]


def test_a_manifest_without_files_has_its_columns_also_as_a_file() -> None:
    for known in (None, jobs(3)):
        table = pl.read_parquet(parquet(manifest(files(), known)))
        assert (table.height, table.columns) == (0, COLUMNS)
