"""`review`: stored files are marked as kept or rejected, by row or by file, and nothing is bought."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pandas as pd
import polars as pl
import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

import callsheet
from callsheet.cli.main import app
from callsheet.errors import CallsheetError, InputError
from callsheet.ledger.tables import marks
from tests.cli.test_commands import callsheet as callsheet_at
from tests.cli.test_rows import printed
from tests.conftest import Project

Make = Callable[..., Project]
ROWS = [
    {"id": "mug", "prompt": "a mug", "model": "sketch-1", "samples": 2, "note": "for the cover"},
    {"id": "lamp", "prompt": "a lamp", "model": "still-1", "samples": 1, "note": ""},
    {"id": "bad", "prompt": "forbidden-test-word", "model": "sketch-1", "samples": 1, "note": ""},
]

CUT_OFF = {"endpoint": "images", "prompt": "a mug", "nth": 2, "do": "drop", "when": "after_charging"}


@pytest.fixture
def bought(project: Make) -> Project:
    """Two images of a mug, one of a lamp, 0.0430 USD; one row was refused."""
    made = project(ROWS)
    assert made.run().stored == 3
    return made


def decided(made: Project) -> list[tuple[str, int, str | None, str | None]]:
    printed("report", str(made.config))
    return made.manifest().select("row_id", "sample", "decision", "note").rows()


def refused(*words: str) -> str:
    """What a command says that ends with 2, and takes nothing."""
    with pytest.raises(CallsheetError) as error:
        CliRunner().invoke(app, [*words], catch_exceptions=False)
    assert error.value.exit_code == 2
    return f"{error.value.message} {error.value.hint}"


def csv(made: Project, *lines: str, header: str = "row_id,sample,index,decision,note") -> Path:
    path = made.folder / "marks.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def test_rows_and_samples_are_marked_from_the_command_line(bought: Project) -> None:
    config = str(bought.config)
    words = ("--keep", "lamp", "--keep", "mug/2", "--reject", "mug/1", "--note", "six fingers", "--json")
    assert json.loads(printed("review", config, *words)) == {
        "batch": "test",
        "kept": 2,
        "rejected": 1,
        "to_review": 0,
        "cost_per_kept": "0.0215",
    }
    note = "six fingers"
    assert decided(bought) == [
        ("mug", 1, "rejected", note),
        ("mug", 2, "kept", note),
        ("lamp", 1, "kept", note),
    ]
    printed("review", config, "--clear", "mug")
    assert decided(bought)[:2] == [("mug", 1, None, None), ("mug", 2, None, None)]
    assert bought.charged == Decimal("0.0430")


def test_the_page_of_status_report_and_summary_say_the_same(bought: Project) -> None:
    config = str(bought.config)
    text = printed("review", config, "--reject", "mug/1", "--keep", "lamp")
    assert "2 of 3 files: 1 kept, 1 rejected, 0.0430 USD a kept file" in text
    assert "2 of 3 files: 1 kept, 1 rejected, 0.0430 USD a kept file" in printed("status", config)
    assert "2 of 3 files: 1 kept, 1 rejected, 0.0430 USD a kept file" in printed("report", config)
    counts = {"kept": 1, "rejected": 1, "to_review": 1, "cost_per_kept": "0.0430"}
    status, report = json.loads(printed("status", config, "--json")), bought.report()
    assert {name: status[name] for name in counts} == {name: report[name] for name in counts} == counts
    of_model = {
        line["model"]: (line["kept"], line["rejected"], line["cost_per_kept"]) for line in report["models"]
    }
    assert of_model == {"sketch-1": (0, 1, None), "still-1": (1, 0, "0.0400")}


def test_a_later_mark_replaces_an_earlier_one_and_none_is_deleted(bought: Project) -> None:
    for words in (("--keep", "mug/1"), ("--keep", "mug/1"), ("--reject", "mug/1"), ("--clear", "mug/1")):
        printed("review", str(bought.config), *words)
    assert decided(bought)[0] == ("mug", 1, None, None)
    with sa.create_engine(f"sqlite:///{bought.folder}/out/ledger.db").connect() as connection:
        rows = connection.execute(sa.select(marks.c.decision, marks.c.decided_by, marks.c.decided_at)).all()
    assert [row.decision for row in rows] == ["kept", "rejected", None]  # the second "kept" said nothing new
    assert all(row.decided_by and row.decided_at for row in rows)


def test_marks_of_a_file_are_taken_all_or_none(bought: Project) -> None:
    config = str(bought.config)
    path = csv(bought, 'mug,1,0,rejected,"blurred, dark"', "mug,2,,kept,", "lamp,1,0,KEPT,")
    assert json.loads(printed("review", config, "--from", str(path), "--json"))["kept"] == 2
    assert decided(bought)[0] == ("mug", 1, "rejected", "blurred, dark")
    wrong = {
        "nosuch,1,0,kept,": "line 3: the batch has no stored file of row 'nosuch', sample 1, index 0",
        "bad,1,0,kept,": "line 3: the batch has no stored file of row 'bad', sample 1, index 0",
        "mug,3,0,kept,": "line 3: the batch has no stored file of row 'mug', sample 3, index 0",
        "mug,one,0,kept,": "line 3: sample is 'one'; a number is expected",
        "mug,1,0,maybe,": "line 3: decision is 'maybe'; kept, rejected or nothing is expected",
        ",1,0,kept,": "line 3: row_id is empty",
    }
    for line, message in wrong.items():
        assert message in refused("review", config, "--from", str(csv(bought, "mug,1,0,,", line)))
    assert decided(bought)[0][2] == "rejected"
    as_excel = csv(bought, "mug;1;", header="row_id;sample;decision")
    printed("review", config, "--from", str(as_excel))
    assert decided(bought)[0][2] is None


def test_what_makes_no_sense_is_refused_with_what_to_do(bought: Project) -> None:
    config = str(bought.config)
    assert "named twice" in refused("review", config, "--keep", "mug", "--reject", "mug")
    assert "no stored file of row 'rug'" in refused("review", config, "--keep", "lamp", "--reject", "rug")
    assert "Add --keep, --reject or --clear" in refused("review", config, "--note", "why")
    assert "cannot be combined" in refused("review", config, "--keep", "mug", "--from", "marks.csv")
    assert "no such file" in refused("review", config, "--from", "marks.csv")
    assert "no column decision" in refused(
        "review", config, "--from", str(csv(bought, "mug", header="row_id"))
    )
    assert decided(bought)[2] == ("lamp", 1, None, None)


def test_marks_survive_a_reordered_file_another_run_and_a_move_of_the_ledger(
    bought: Project, url: str
) -> None:
    printed("review", str(bought.config), "--reject", "mug/1", "--keep", "lamp")
    printed("ledger", "move", str(bought.config), "--to", url)
    bought.set(ledger={"url": url})
    bought.rows(*reversed(ROWS))
    assert bought.run().submissions == 0
    assert decided(bought) == [
        ("lamp", 1, "kept", None),
        ("mug", 1, "rejected", None),
        ("mug", 2, None, None),
    ]
    printed("review", str(bought.config), "--keep", "mug/2")
    assert bought.report()["kept"] == 1
    assert json.loads(printed("review", str(bought.config), "--json"))["kept"] == 2


def test_from_python_a_dataframe_marks_and_a_dataframe_tells(bought: Project) -> None:
    said = pd.DataFrame({"row_id": ["mug", "lamp"], "sample": [2, None], "decision": ["kept", "rejected"]})
    result = callsheet.review(bought.config, said)
    assert (result.kept, result.rejected, result.to_review) == (1, 1, 1)
    assert result.cost_per_kept == Decimal("0.043")
    told = callsheet.reviews(bought.config).set_index(["row_id", "sample"])
    assert told.loc[("mug", 2), "decision"] == "kept"
    assert told.loc[("lamp", 1), "decision"] == "rejected"
    assert told.loc[("mug", 1), "decision"] is pd.NA
    assert told["decided_by"].notna().sum() == 2
    with pytest.raises(InputError, match="marks, row 1: the batch has no stored file of row 'rug'"):
        callsheet.review(bought.config, pd.DataFrame({"row_id": ["rug"], "decision": ["kept"]}))
    with pytest.raises(InputError, match="marks: has no column decision"):
        callsheet.review(bought.config, pd.DataFrame({"row_id": ["mug"]}))


@pytest.mark.parametrize("kind", ["csv", "imagefolder", "webdataset"])
def test_only_what_is_kept_is_exported(bought: Project, kind: str) -> None:
    printed("review", str(bought.config), "--keep", "mug/2", "--reject", "lamp", "--note", "sharp")
    words = ("export", str(bought.config), "--to", "out/kept", "--as", kind, "--kept")
    printed(*words)
    out = bought.folder / "out/kept"
    if kind == "csv":
        rows = pl.read_csv(out / "manifest.csv").select("row_id", "sample", "decision", "note").rows()
        assert rows == [("mug", 2, "kept", "sharp")]
    elif kind == "imagefolder":
        (line,) = (out / "train/metadata.jsonl").read_text().splitlines()
        said = json.loads(line)
        assert (said["row_id"], said["sample"], said["decision"], said["note"]) == ("mug", 2, "kept", "sharp")
        assert said["input_note"] == "for the cover"
        assert len([*out.glob("train/mug-2-*")]) == 1
    else:
        assert [*out.glob("*.tar")]
    printed("review", str(bought.config), "--clear", "mug/2", "--keep", "lamp")
    printed(*words)  # the export follows
    if kind == "imagefolder":
        assert [path.name.split("-")[0] for path in out.glob("train/*.jp*g")] == ["lamp"]


def test_the_table_of_a_reviewed_batch_names_its_models_at_80_columns(project: Make) -> None:
    made = project(ROWS, faults={"rules": [CUT_OFF]})
    made.run()
    printed("review", str(made.config), "--keep", "lamp", "--reject", "mug/1")
    shown = callsheet_at("report", str(made.config), COLUMNS="80").stdout
    assert all(line == line[:80] for line in shown.splitlines()[:8])
    assert [line.split()[0] for line in shown.splitlines() if line.startswith("  s")] == [
        "still-1",
        "sketch-1",
    ]
