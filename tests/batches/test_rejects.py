"""However many rows are rejected, each is listed in the order of the file."""

from __future__ import annotations

import csv
from pathlib import Path

import polars as pl

from callsheet.batches.rejects import Rejects, in_order, write_csv
from callsheet.rows import REJECTS


def some(*lines: int, reason: str = "is wrong") -> pl.DataFrame:
    return pl.DataFrame([(line, "id", "", reason) for line in lines], schema=REJECTS, orient="row")


def written(rejects: pl.DataFrame, folder: Path) -> list[dict[str, str]]:
    write_csv(rejects.lazy(), folder / "rejects.csv")
    with (folder / "rejects.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_rejects_come_in_the_order_of_lines_and_on_one_line_in_that_of_their_collections():
    first, second = Rejects(), Rejects()
    second.add(some(900_000, 2, reason="costs too much"))
    first.add(some(3, 70_000))
    first.add(some())
    first.add(some(900_000, 2))
    tables = list(in_order(first, second))
    assert tables[0].is_empty()
    assert pl.concat(tables).select("line", "reason").rows() == [
        (2, "is wrong"),
        (2, "costs too much"),
        (3, "is wrong"),
        (70_000, "is wrong"),
        (900_000, "is wrong"),
        (900_000, "costs too much"),
    ]
    assert max(table.height for table in tables) == 3, "they are read a part at a time"


def test_rejects_csv_has_one_header_whether_it_is_written_in_parts_or_empty(tmp_path):
    lines = range(70_000)
    assert [row["line"] for row in written(some(*lines), tmp_path)] == [str(line) for line in lines]
    assert written(some(), tmp_path) == []
    assert (tmp_path / "rejects.csv").read_text() == "line,column,value,reason\n"


def test_rejects_as_csv_contain_no_formula_that_a_spreadsheet_would_run(tmp_path):
    formulas = ['=HYPERLINK("http://x","y")', "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1"]
    texts = ["a=b", "-1", "+5", "-1.5", "+", "", "'=1"]
    table = pl.DataFrame(
        {"line": range(13), "column": ["=c", *["duration"] * 12], "value": formulas + texts}
    ).with_columns(reason=pl.lit("is wrong"))
    found = written(table, tmp_path)
    assert [row["value"] for row in found] == [
        *(f"'{formula}" for formula in formulas),
        "a=b",
        "-1",
        "+5",
        "-1.5",
        "'+",
        "",
        "'=1",
    ]
    assert [row["column"] for row in found[:2]] == ["'=c", "duration"]
    assert [row["line"] for row in found[:2]] == ["0", "1"]
