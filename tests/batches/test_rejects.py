"""`rejects.csv`, as a spreadsheet opens it."""

from __future__ import annotations

import csv
from pathlib import Path

import polars as pl

from callsheet.cells import REJECTS, write_rejects


def some(*lines: int, reason: str = "is wrong") -> pl.DataFrame:
    return pl.DataFrame([(line, "id", "", reason) for line in lines], schema=REJECTS, orient="row")


def written(rejects: pl.DataFrame, folder: Path) -> list[dict[str, str]]:
    write_rejects(rejects, folder / "rejects.csv")
    with (folder / "rejects.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_rejects_csv_without_rejects_has_its_header(tmp_path):
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
