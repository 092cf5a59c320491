"""`review`: stored files are marked as kept or rejected, by row or by file, and nothing is bought."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest
import sqlalchemy as sa

import callsheet
from callsheet.errors import InputError
from callsheet.ledger.tables import marks
from tests.cli.test_commands import callsheet as callsheet_at
from tests.cli.test_rows import printed, refusal
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
    """What `callsheet.manifest` says, which has each mark at once; the file has it later."""
    table = callsheet.manifest(made.config, as_arrow=True)
    return pl.DataFrame(table).select("row_id", "sample", "decision", "note").rows()


def refused(*words: str) -> str:
    """What a command says that ends with 2, and takes nothing."""
    error = refusal(*words)
    return f"{error.message} {error.hint}"


def share(spent: str, each: str | None = None, **more: Any) -> dict[str, Any]:
    """What `--json` has of a model, or of a value of a setting."""
    counts = {"jobs": more["files"], "stored": more["files"], "kept": 0, "rejected": 0, "to_review": 0}
    return counts | {"quoted": spent, "spent": spent, "cost_per_kept": each} | more


def parts(made: Project, command: str) -> tuple[list[dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    """What `--json` has by model and by setting."""
    told = json.loads(printed(command, str(made.config), "--json"))
    return told["by_model"], told["by_setting"]


def csv(made: Project, *lines: str, header: str = "row_id,sample,index,decision,note") -> Path:
    path = made.folder / "marks.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def test_marks_of_the_command_line_count_everywhere_and_the_ledger_keeps_each(bought: Project) -> None:
    """A later mark replaces an earlier one, and none is deleted; nothing is bought."""
    config, note = str(bought.config), "six fingers"
    words = ("--keep", "lamp", "--keep", "mug/2", "--reject", "mug/1", "--note", note, "--json")
    assert json.loads(printed("review", config, *words)) == {
        "batch": "test",
        "kept": 2,
        "rejected": 1,
        "to_review": 0,
        "cost_per_kept": "0.0215",
        "by_model": [
            share("0.0030", "0.0030", model="sketch-1", jobs=3, quoted="0.0045", files=2, kept=1, rejected=1),
            share("0.0400", "0.0400", model="still-1", files=1, kept=1),
        ],
        "by_setting": {},  # no row has asked for several values
    }
    assert decided(bought) == [
        ("mug", 1, "rejected", note),
        ("mug", 2, "kept", note),
        ("lamp", 1, "kept", note),
    ]
    for word in ("--clear", "--clear", "--reject"):  # the second one says nothing new
        printed("review", config, word, "mug/2")
    said = "3 of 3 files: 1 kept, 2 rejected, 0.0430 USD a kept file"
    assert said in printed("review", config, "--reject", "mug/2")
    assert said in printed("status", config)
    assert said in printed("report", config)
    assert decided(bought)[1] == ("mug", 2, "rejected", None)
    counts = {"kept": 1, "rejected": 2, "to_review": 0, "cost_per_kept": "0.0430"}
    status, report = json.loads(printed("status", config, "--json")), bought.report()
    assert {name: status[name] for name in counts} == {name: report[name] for name in counts} == counts
    of_model = {
        line["model"]: (line["kept"], line["rejected"], line["cost_per_kept"]) for line in report["models"]
    }
    assert of_model == {"sketch-1": (0, 2, None), "still-1": (1, 0, "0.0400")}
    with sa.create_engine(f"sqlite:///{bought.folder}/out/ledger.db").connect() as connection:
        rows = connection.execute(sa.select(marks).order_by(marks.c.number)).all()
    assert [row.decision for row in rows if row.job_key == rows[-1].job_key] == ["kept", None, "rejected"]
    assert all(row.decided_by and row.decided_at for row in rows)
    assert bought.charged == Decimal("0.0430")


def test_a_mark_leaves_the_manifest_to_who_needs_it_next(project: Make) -> None:
    made = project(ROWS[:1])
    made.run()
    [path] = made.folder.rglob("manifest.parquet")
    needing = [
        lambda: callsheet.manifest(made.config),
        lambda: printed("report", str(made.config)),
        made.run,
        made.collect,
    ]
    for number, needs_it in enumerate(needing):
        before = path.read_bytes()
        said = printed("review", str(made.config), "--keep", "mug", "--note", f"{number}", "--json")
        status = json.loads(printed("status", str(made.config), "--json"))
        assert status | json.loads(said) == status
        assert path.read_bytes() == before
        needs_it()
        assert made.manifest()["note"].to_list() == [f"{number}"] * 2
    before = path.stat().st_ino
    callsheet.manifest(made.config)
    assert path.stat().st_ino == before, "it is up to date"
    (made.folder / "out/ledger.db").write_bytes(b"no ledger")
    assert len(callsheet.manifest(made.config)) == 2, "the file is as it is"


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
    by_nobody = csv(bought, f"mug,1,kept,{'x' * 101}", header="row_id,sample,decision,by")
    assert "line 2: by has 101 characters" in refused("review", config, "--from", str(by_nobody))
    assert decided(bought)[0][2] == "rejected"
    assert "0 files marked" in printed("review", config, "--from", str(csv(bought))), "a file without marks"
    as_excel = csv(bought, "mug;1;", header="row_id;sample;decision")
    printed("review", config, "--from", str(as_excel))
    assert decided(bought)[0][2] is None


def test_a_file_that_marks_say_different_things_of_is_an_error_with_both_lines(bought: Project) -> None:
    config = str(bought.config)
    for first, second, said in (
        ("mug,1,0,kept,", "mug,1,0,rejected,dull", "says rejected of row mug, and"),
        ("mug,,,rejected,", "mug,2,,,", "says nothing of row mug, and"),  # a row and one of its samples
        ("mug,2,,kept,", "mug,,0,rejected,", "says rejected of row mug, and"),
    ):
        path = csv(bought, first, "lamp,1,0,kept,", second)
        message = refused("review", config, "--from", str(path))
        assert f"{path}, line 4: {said} {path}, line 2 says" in message
        assert "No mark was taken" in message
    assert {decision for *_, decision, _ in decided(bought)} == {None}
    path = csv(bought, "mug,,,kept,", "mug,2,,kept,sharp")
    assert json.loads(printed("review", config, "--from", str(path), "--json"))["kept"] == 2
    assert decided(bought)[1] == ("mug", 2, "kept", "sharp"), "the same twice is no contradiction"


def test_an_id_with_a_slash_is_named_with_the_number_of_a_file(project: Make) -> None:
    made = project([ROWS[0] | {"id": "set/4"}])
    made.run()
    said = refused("review", str(made.config), "--keep", "set/4")
    assert "To an id with a slash, add the number of the file: set/4/1." in said
    printed("review", str(made.config), "--keep", "set/4/1")
    assert [decision for _, _, decision, _ in decided(made)] == ["kept", None]


def test_one_command_keeps_a_sample_and_rejects_the_others_of_its_row(bought: Project) -> None:
    config = str(bought.config)
    printed("review", config, "--reject", "mug", "--keep", "mug/2")
    assert [row[:3] for row in decided(bought)[:2]] == [("mug", 1, "rejected"), ("mug", 2, "kept")]
    printed("review", config, "--keep", "mug/1", "--clear", "mug")
    assert [row[:3] for row in decided(bought)[:2]] == [("mug", 1, "kept"), ("mug", 2, None)]


def test_what_makes_no_sense_is_refused_with_what_to_do(bought: Project) -> None:
    config = str(bought.config)
    for row in "mug", "mug/1":
        said = refused("review", config, "--keep", row, "--reject", row)
        assert (
            f"--reject {row}: says rejected of row mug, and --keep {row} says kept of the same file" in said
        )
    assert "no stored file of row 'rug'" in refused("review", config, "--keep", "lamp", "--reject", "rug")
    assert "Add --keep, --reject or --clear" in refused("review", config, "--note", "why")
    assert "cannot be combined" in refused("review", config, "--keep", "mug", "--from", "marks.csv")
    assert "no such file" in refused("review", config, "--from", "marks.csv")
    assert "no column decision" in refused(
        "review", config, "--from", str(csv(bought, "mug", header="row_id"))
    )
    assert decided(bought)[2] == ("lamp", 1, None, None)


def test_marks_survive_a_reordered_file_another_run_and_a_move_of_the_ledger(
    bought: Project, new_database: Callable[[], str]
) -> None:
    """To PostgreSQL, where they are read and written as in SQLite."""
    url = new_database()
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


def test_only_what_is_kept_is_exported(bought: Project) -> None:
    config, out = str(bought.config), bought.folder / "out/kept"

    def export() -> None:
        for kind in ("csv", "imagefolder", "webdataset"):
            printed("export", config, "--to", f"out/kept/{kind}", "--as", kind, "--kept")

    printed("review", config, "--keep", "mug/2", "--reject", "lamp", "--note", "sharp")
    export()
    rows = pl.read_csv(out / "csv/manifest.csv").select("row_id", "sample", "decision", "note").rows()
    assert rows == [("mug", 2, "kept", "sharp")]
    (line,) = (out / "imagefolder/train/metadata.jsonl").read_text().splitlines()
    said = json.loads(line)
    assert (said["row_id"], said["sample"], said["decision"], said["note"]) == ("mug", 2, "kept", "sharp")
    assert said["input_note"] == "for the cover"
    assert len([*out.glob("imagefolder/train/mug-2-*")]) == 1
    assert [*out.glob("webdataset/*.tar")]
    printed("review", config, "--clear", "mug/2", "--keep", "lamp")
    again = printed("export", config, "--to", "out/kept/imagefolder", "--as", "imagefolder", "--kept")
    assert "Removed    1 file that is not part of it any more" in again
    export()
    assert [path.name.split("-")[0] for path in out.glob("imagefolder/train/*.jp*g")] == ["lamp"]
    printed("review", config, "--clear", "lamp")
    for kind in ("imagefolder", "webdataset"):
        said = refused("export", config, "--to", f"out/kept/{kind}", "--as", kind, "--kept")
        assert "no stored file is marked as kept" in said


def test_the_table_of_a_reviewed_batch_names_its_models_at_80_columns(project: Make) -> None:
    made = project(ROWS, faults={"rules": [CUT_OFF]})
    made.run()
    printed("review", str(made.config), "--keep", "lamp", "--reject", "mug")
    shown = callsheet_at("report", str(made.config), COLUMNS="80").stdout
    assert all(line == line[:80] for line in shown.splitlines()[:8])
    assert [line.split()[0] for line in shown.splitlines() if line.startswith("  s")] == [
        "still-1",
        "sketch-1",
    ]


def test_a_batch_is_compared_by_model_and_by_each_setting_of_its_matrix(
    project: Make, new_database: Callable[[], str]
) -> None:
    """In SQLite and in PostgreSQL; also after the matrix is gone, because the ledger knows what was sent.

    What was charged and is lost counts where it was spent. The resolution follows from the model, and has no
    table.
    """
    rule = {"endpoint": "images", "model": "still-1", "nth": 1, "do": "drop", "when": "after_charging"}
    made = project(
        [{"id": name, "prompt": f"a {name}"} for name in ("mug", "lamp")], faults={"rules": [rule]}
    )
    made.set(input={"matrix": {"model": ["sketch-1", "still-1"], "aspect_ratio": ["16:9", "1:1"]}})
    made.run()
    printed("resolve", str(made.config), "--charged", "--all")
    sketches = (
        made.manifest().filter(row_id="mug", model="sketch-1").sort(pl.col("width") != pl.col("height"))
    )
    square, wide = sketches["job_key"]
    header = "row_id,decision,job_key"
    path = csv(made, f"mug,kept,{square}", f"mug,rejected,{wide}", header=header)
    printed("review", str(made.config), "--from", str(path))
    by_model = [
        share("0.0060", "0.0060", model="sketch-1", files=4, kept=1, rejected=1, to_review=2),
        share("0.1600", model="still-1", jobs=4, files=3, to_review=3),
    ]
    found = parts(made, "review")
    assert found[0] == by_model
    ratios = found[1].pop("aspect_ratio")
    assert found[1] == {}
    assert [each["value"] for each in ratios] == ["1:1", "16:9"]
    assert [each["kept"] for each in ratios] == [1, 0]
    assert sum(each["files"] for each in ratios) == 7
    assert sum(Decimal(each["spent"]) for each in ratios) == Decimal("0.1660")
    before = parts(made, "status")
    assert before == (by_model, {"aspect_ratio": ratios})
    for command in ("review", "status"):
        words = ("--clear", "lamp") if command == "review" else ()
        shown = callsheet_at(command, str(made.config), *words, COLUMNS="80").stdout
        assert ["sketch-1", "4", "4", "0", "1", "1", "0.0060", "0.0060"] in map(str.split, shown.splitlines())
        assert " aspect ratio " in shown
    made.set(input={"matrix": {}, "defaults": {"model": "still-1"}})
    assert parts(made, "status") == before
    url = new_database()
    printed("ledger", "move", str(made.config), "--to", url)
    made.set(ledger={"url": url})
    assert parts(made, "status") == before


def test_numbers_and_yes_or_no_are_compared_too(project: Make, new_database: Callable[[], str]) -> None:
    made = project([{"id": "waves", "prompt": "waves", "model": "dailies-1"}], video_seconds=0)
    made.set(input={"matrix": {"duration": [3, 1], "sound": [True, False]}})
    made.run()
    for url in ("", new_database()):
        if url:
            printed("ledger", "move", str(made.config), "--to", url)
            made.set(ledger={"url": url})
        by_model, by_setting = parts(made, "review")
        assert by_model == [], "there is one"
        assert {name: [each["value"] for each in shares] for name, shares in by_setting.items()} == {
            "duration": [1, 3],
            "sound": [False, True],
        }
