"""The plan's file: complete or absent, read back as it was, and readable by other tools."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from callsheet.config.settings import Settings
from callsheet.errors import StorageError
from callsheet.pricing.choice import pilot
from callsheet.pricing.plan import PLAN, last_plan, open_plan
from callsheet.storage.spool import work_folder
from tests.pricing.plans import CATALOGUE, MIXED, jobs


def test_a_plan_replaces_the_last_one_and_a_run_keeps_the_one_that_it_has(plan, tmp_path):
    first = plan("id,prompt\n1,x\n2,y\n")
    reading = first.jobs_in_order()
    next(reading)
    second = plan("id,prompt\n3,z\n")
    assert [each.row_id for each in reading] == ["2"]
    assert [each.row_id for each in jobs(first)] == ["1", "2"]
    assert [each.row_id for each in jobs(second)] == ["3"]
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["plan.parquet", "plan.rejects.parquet", "shots.csv"]


def test_a_file_that_is_not_a_plan_is_none_and_a_plan_that_cannot_be_written_an_error(plan, tmp_path):
    (tmp_path / "text.parquet").write_bytes(b"text")
    assert open_plan(tmp_path / "text.parquet") is open_plan(tmp_path / "none.parquet") is None
    plan(MIXED, to="other.parquet")
    about = json.loads(pl.read_parquet_metadata(tmp_path / "other.parquet")["callsheet.plan"])
    about["columns"]["of_another_version"] = {}
    other = {**pl.read_parquet_metadata(tmp_path / "other.parquet"), "callsheet.plan": json.dumps(about)}
    pl.read_parquet(tmp_path / "other.parquet").write_parquet(tmp_path / "other.parquet", metadata=other)
    assert open_plan(tmp_path / "other.parquet") is None
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        plan(MIXED, to="file/plan.parquet")


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process grows beyond 1,000 bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_an_error_and_leaves_the_last_plan(plan, tmp_path):
    last = plan(MIXED)
    settings = plan.settings(tmp_path / "shots.csv")
    (tmp_path / "shots.csv").write_text("prompt\na cat\n")
    with full_disk(), pytest.raises(StorageError, match="the plan cannot be written"):
        plan.of(settings)
    assert jobs(open_plan(last.path)) == jobs(last)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_plan_is_read_back_as_it_was_and_by_other_tools(plan):
    planned = plan(MIXED)
    again = open_plan(planned.path)
    assert again == planned
    assert jobs(again) == jobs(planned)
    assert again.catalogue == CATALOGUE
    columns = "row_id, sample, price, carried.note, request->>'prompt'"
    rows = duckdb.sql(f"select {columns} from '{planned.path}' where line = 2").fetchall()
    assert rows == [("a", sample, Decimal("0.083300"), "first", "a cat") for sample in (1, 2)]
    schema = pl.read_parquet_schema(planned.path)
    assert schema["price"] == schema["unit_price"] == pl.Decimal(18, 6)
    assert list(schema) == [
        "key", "row_id", "sample", "line", "type", "model", "resolution", "duration", "sound", "request",
        "inlined", "inlined_bytes", "carried", "billable_unit", "unit_price", "quantity", "price", "currency",
        "repeats",
        "unseen",
        "again",
    ]  # fmt: skip
    texts = ["key", "row_id", "type", "model", "resolution", "request", "billable_unit", "currency"]
    assert {parquet.read_schema(planned.path).field(name).type for name in texts} == {pa.large_string()}


# ---- where it is


@pytest.fixture
def settings(plan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def settings(**sections: object) -> Settings:
        base = plan.settings(tmp_path / "shots.csv")
        return Settings.model_validate(base.model_dump() | sections)

    return settings


def test_a_batch_has_its_own_plan(settings, plan):
    assert last_plan(settings()) is None
    planned = plan("prompt\nx\n", to=str(work_folder(settings()) / PLAN))
    last = last_plan(settings())
    assert last is not None
    assert last.table.equals(planned.table)
    assert last_plan(settings(batch="another")) is None
    assert last_plan(settings(batch="another", report={"url": settings().report.url})) is None
    # of a report on S3 it is on this machine
    assert str(work_folder(settings(report={"url": "s3://bucket/{batch}"}))) == ".callsheet/shots"


@pytest.mark.parametrize("url", ["file", "file/below", "nul\0", "s3://bucket/report"])
def test_a_work_folder_that_cannot_be_made_is_named_in_the_error(settings, tmp_path, url):
    (tmp_path / "file").touch()
    (tmp_path / ".callsheet").touch()
    with pytest.raises(StorageError, match="the folder cannot be made") as caught:
        work_folder(settings(report={"url": url}))
    assert caught.value.message.startswith(".callsheet/shots: " if "://" in url else f"{url}: ")
    assert ("report.url" in caught.value.hint) == ("://" not in url)


ROWS = "id,prompt,model\na,x,still-1\nb,x,still-1\nc,x,reel-1\nd,x,still-1\n"


@pytest.mark.parametrize(
    ("matrix", "number", "expected"),
    [
        ({}, 3, {"a": 1, "c": 1, "b": 1}),
        ({"aspect_ratio": ["1:1", "16:9"]}, 2, {"d": 2}),
        ({"aspect_ratio": ["1:1", "16:9"]}, 3, {"d": 2, "c": 2}),
        ({"model": ["still-1", "reel-1"], "aspect_ratio": ["1:1", "16:9"]}, 5, {"c": 4, "d": 4}),
        ({"aspect_ratio": ["1:1", "16:9"]}, 99, dict.fromkeys("abcd", 2)),
    ],
)
def test_a_pilot_of_a_matrix_has_whole_rows(plan, matrix, number, expected):
    """And they take turns by model, as single jobs do."""
    made = plan(ROWS, matrix=matrix)
    bought = made.table.filter(pilot(made.table, number))
    assert dict(bought["row_id"].value_counts().iter_rows()) == expected


def test_a_pilot_of_a_matrix_is_from_all_over_the_file_and_the_same_where_rows_are_moved(plan):
    rows = [f"row-{n},x\n" for n in range(1_000)]
    matrix = {"model": ["still-1", "reel-1"]}
    in_order, moved = ({*_pilot_rows(plan, lines, matrix)} for lines in (rows, reversed(rows)))
    assert in_order == moved
    places = sorted(int(row.removeprefix("row-")) for row in in_order)
    assert (len(places), places[0] < 300, places[-1] > 700) == (10, True, True)


def _pilot_rows(plan, lines, matrix):
    made = plan("id,prompt\n" + "".join(lines), matrix=matrix)
    return made.table.filter(pilot(made.table, 20))["row_id"]
