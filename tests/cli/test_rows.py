"""`show`, `failed` and `report`: what became of a row, what to correct, and the report anew."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable

import polars as pl
import pytest
from typer.testing import CliRunner

from callsheet.cli.main import app
from callsheet.errors import CallsheetError
from callsheet.ledger.tables import SCHEMA_VERSION
from callsheet.present import results
from callsheet.processes import user_name
from tests.cli.test_commands import callsheet, refused
from tests.conftest import Project

Make = Callable[..., Project]
CUT_OFF = {"endpoint": "images", "prompt": "cut off", "nth": 1, "do": "drop", "when": "after_charging"}
THREE_CUT_OFF = {"rules": [CUT_OFF | {"nth": nth} for nth in (1, 2, 3)]}
ROWS = [
    {"id": "good", "prompt": "an apple", "model": "sketch-1", "shelf": "7"},
    {"id": "bad", "prompt": "=forbidden-test-word", "model": "sketch-1", "shelf": "8"},
    {"id": "odd", "prompt": "cut off", "model": "sketch-1", "shelf": "9"},
]


def printed(*words: str, code: int = 0, **environment: str) -> str:
    """What a command prints on stdout, in this process; it must end with `code`."""
    done = CliRunner().invoke(app, list(words), catch_exceptions=False, env=environment)
    assert done.exit_code == code, done.output
    return done.stdout


def refusal(*words: str, code: int = 2) -> CallsheetError:
    """The error with which a command ends, in this process."""
    with pytest.raises(CallsheetError) as caught:
        printed(*words)
    assert caught.value.exit_code == code
    return caught.value


def bought(project: Make) -> Project:
    made = project(ROWS, faults={"rules": [CUT_OFF]})
    assert made.run().exit_code == 3
    return made


def test_show_tells_the_whole_story_of_a_row(project: Make) -> None:
    made = bought(project)
    [attempt] = json.loads(printed("show", str(made.config), "good", "--json"))["attempts"]
    assert (attempt["state"], attempt["attempt"], attempt["cost"]) == ("stored", 1, "0.0015")
    assert json.loads(attempt["request"])["prompt"] == "an apple"
    assert attempt["carried"] == {"shelf": "7"}
    assert attempt["submitted_at"] < attempt["finished_at"]
    [file] = attempt["files"]
    assert (made.folder / file["url"]).stat().st_size == file["bytes"]
    shown = printed("show", str(made.config), attempt["job_key"][:8])
    for text in ("stored", "an apple", attempt["generation_id"], file["sha256"], "0.0015 USD charged"):
        assert text in shown
    printed("review", str(made.config), "--reject", "good", "--note", "six fingers")
    shown = " ".join(printed("show", str(made.config), "good").split())
    assert f"review rejected by {user_name()}, " in shown and ": six fingers" in shown
    [attempt] = json.loads(printed("show", str(made.config), "good", "--json"))["attempts"]
    assert (attempt["files"][0]["decision"], attempt["files"][0]["note"]) == ("rejected", "six fingers")
    assert "reason" in printed("show", str(made.config), "bad")
    printed("resolve", str(made.config), "odd", "--not-charged", "--why", "seen on the invoice")
    assert made.run("retry_failed=false").stored == 2
    shown = printed("show", str(made.config), "odd")
    for text in ("attempt 1: failed", "as not charged", "seen on the invoice", "attempt 2: stored"):
        assert text in shown


def test_the_counts_of_rows_that_are_rejected_in_part_or_left_out_agree(project: Make) -> None:
    made = project(
        [{"id": "a", "prompt": "waves", "duration": 3}, {"id": "b", "prompt": "wind", "duration": 2}]
    )
    made.set(input={"matrix": {"model": ["dailies-1", "reel-1"]}})
    quoted = " ".join(printed("quote", str(made.config)).split())
    assert "Buys 2 videos" in quoted and "Rows 2 read, 2 rejected, 2 of them in part" in quoted
    made.set(input={"matrix": {}, "where": {"id": ["none"]}, "defaults": {"model": "dailies-1"}})
    assert "Nothing to buy: no row is left." in printed("quote", str(made.config))


def test_what_is_not_bought_or_not_known_is_said(project: Make) -> None:
    made = project(ROWS[:1])
    printed("quote", str(made.config))
    assert "not bought yet" in printed("show", str(made.config), "good")
    refused(callsheet("show", str(made.config), "nobody"), "has no row nobody")
    refused(callsheet("show", str(made.config), "sent/1"), "show CONFIG sent.")
    refused(callsheet("export", str(made.config), "--to", "x", "--as", "zip"), "'--as': 'zip' is not one of")
    assert "no job has failed" in printed("failed", str(made.config))
    assert json.loads(printed("failed", str(made.config), "--json")) == {"batch": "test", "failed": []}
    refused(callsheet("failed", str(made.config), "--csv"), "no job has failed")


UNNAMED = [
    {"id": "lamp", "prompt": "a lamp", "model": "sketch-1"},
    {"id": "", "prompt": "a rug", "model": "sketch-1"},
    {"id": "", "prompt": "a vase", "model": "sketch-1"},
]


def test_a_row_without_an_id_is_named_by_its_line(project: Make) -> None:
    made = project(UNNAMED)
    config = str(made.config)
    [request] = json.loads(printed("quote", config, "--show", "line 3", "--json"))["requests"]
    assert request["prompt"] == "a rug"
    assert "line 3, as it would be sent" in printed("quote", config, "--show", "line 3")
    assert json.loads(printed("quote", config, "--only", "line 4", "--json"))["to_buy"] == 1
    assert callsheet("run", config, "--only", "line 4", "--only", "lamp").returncode == 0
    assert sorted(made.manifest()["prompt"]) == ["a lamp", "a vase"]
    shown = json.loads(printed("show", config, "line 4", "--json"))
    assert (shown["row"], [each["prompt"] for each in shown["attempts"]]) == ("line 4", ["a vase"])
    assert "line 3 of test" in (shown := printed("show", config, "line 3"))
    assert "not bought yet" in shown


def test_what_is_typed_is_read_as_utf_8_where_the_locale_knows_ascii_alone(project: Make) -> None:
    """As with LC_ALL=C in a container, where UTF-8 is turned off. Files' names are in UTF-8, too."""
    made = project([{"id": name, "prompt": f"a {name}", "model": "sketch-1"} for name in ("ö", "杯")])
    made.config.rename(made.folder / "März.yaml")
    assert callsheet("run", "März.yaml").returncode == 0
    for encoding, name in (("0", "ö"), ("0", "杯"), ("1", "ö")):
        command = (sys.executable, "-m", "callsheet", "show", "März.yaml", name)
        environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": encoding}
        done = subprocess.run(command, cwd=made.folder, env=environment, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert f"a {name}" in done.stdout.decode()


def test_a_line_that_names_no_row_is_an_error_that_says_why(project: Make) -> None:
    made = project([*UNNAMED, {"id": "", "prompt": "a vase", "model": "sketch-9"}])
    config = str(made.config)
    assert "no quote of test is here that knows the lines" in refusal("show", config, "line 3").message
    printed("quote", config)
    for words in (("show", config), ("quote", config, "--only"), ("quote", config, "--show")):
        assert refusal(*words, "line 2").message == "the row on line 2 has an id: lamp"
        for line in ("line 5", "line 99"):
            missing = refusal(*words, line)
            assert missing.message == f"the batch has no row on {line} that can be bought"
            assert "rejects.csv" in missing.hint
        for name in ("line 3 (sample 2)", "line 03", f"line {10**30}"):
            assert "has no" in refusal(*words, name).message
    made.rows(*UNNAMED, {"id": "line 3", "prompt": "a cup", "model": "sketch-1"})
    [request] = json.loads(printed("quote", config, "--show", "line 3", "--json"))["requests"]
    assert request["prompt"] == "a cup", "an id counts more"


def test_a_line_that_several_files_of_a_batch_have_is_an_error_with_the_ids(project: Make) -> None:
    made = project()
    made.set(input={"path": "*.csv"})
    for name, prompt in (("a.csv", "a rug"), ("b.csv", "a vase")):
        (made.folder / name).write_text(f"prompt,model\n{prompt},sketch-1\n")
    error = refusal("quote", str(made.config), "--show", "line 2")
    assert error.message == "2 rows, each of another file, are on line 2"
    row_id = error.hint.removesuffix(".").split(", ")[-1]
    [request] = json.loads(printed("quote", str(made.config), "--show", row_id, "--json"))["requests"]
    assert request["prompt"] == "a vase"


def test_failed_lists_the_reasons_and_prints_a_batch_file_to_correct_and_run_again(project: Make) -> None:
    made = bought(project)
    listed = printed("failed", str(made.config))
    assert "bad" in listed
    assert "good" not in listed
    [failure] = json.loads(printed("failed", str(made.config), "--json"))["failed"]
    assert (failure["row_id"], failure["cost"]) == ("bad", "0.0000")
    again = made.folder / "again.csv"
    again.write_text(printed("failed", str(made.config), "--csv"))
    assert list(csv.DictReader(again.open())) == [ROWS[1]]
    again.write_text(again.read_text().replace("=forbidden-test-word", "a pear"))
    summary = made.run(f"input.path={again}")
    assert (summary.submissions, summary.jobs, summary.stored, summary.in_doubt) == (1, 3, 2, 1)
    assert summary.failed == 0, "what failed before is of a row that asks for something else now"


NO_UTF8 = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
FAILS = "forbidden-test-word"


def test_failed_rows_are_printed_as_the_same_config_reads_them(project: Make) -> None:
    """Otherwise another text than that of the batch would be bought; also where the terminal has no UTF-8."""
    made = project()
    cases = [
        ("cp1252.csv", {"encoding": "cp1252"}, f"id,model,prompt\na,sketch-1,Café am Kürbisfeld {FAILS}\n"),
        ("marked.csv", {"encoding": "cp1252"}, f"\ufeffid,model,prompt\na,sketch-1,한국 {FAILS}\n"),
        (
            "odd.csv",
            {"encoding": "utf-16-le", "delimiter": ";", "quote": "'"},
            f"id;model;prompt\na;sketch-1;'Kürbis; it''s \"red\"\n{FAILS}'\n",
        ),
        (
            "rows.jsonl",
            {"delimiter": "¦"},
            json.dumps({"id": "a", "model": "sketch-1", "prompt": f" ¦x\r\n{FAILS}"}),
        ),
    ]
    for name, settings, text in cases:
        encoding = "utf-8" if text.startswith("\ufeff") else settings.get("encoding", "utf-8")
        (made.folder / name).write_bytes(text.encode(encoding))
        made.settings["input"] = {"path": name, **settings}
        made.set(batch=name.partition(".")[0], report={"url": f"out/{name}"})
        assert made.run().failed == 1
        with (made.folder / "again.csv").open("wb") as again:
            assert callsheet("failed", str(made.config), "--csv", stdout=again, **NO_UTF8).returncode == 0
        done = made.run("input.path=again.csv")
        assert (done.jobs, done.submissions, done.failed) == (1, 0, 1), f"{name}: it is that very job"


def test_failed_rows_have_no_control_characters_on_a_terminal(project: Make) -> None:
    made = project([{"id": "a", "model": "sketch-1", "prompt": f"{FAILS} \x1b]0;x\x07\n[bold]"}])
    assert made.run().failed == 1
    terminal, stdout = os.openpty()
    with os.fdopen(stdout, "w") as file:
        assert callsheet("failed", str(made.config), "--csv", stdout=file).returncode == 0
    with os.fdopen(terminal, "rb") as shown:
        assert shown.read1().decode().splitlines() == [
            "id,model,prompt",
            f'a,sketch-1,"{FAILS} \\x1b]0;x\\x07',
            '[bold]"',
        ]


def test_report_writes_the_same_report_anew_and_status_counts_every_batch_of_a_ledger(project: Make) -> None:
    made = bought(project)
    report = made.folder / "out/report"
    before = {name: pl.read_parquet(report / name) for name in ("manifest.parquet", "costs.parquet")}
    for name in (*before, "report.json", "rejects.csv"):
        (report / name).unlink()
    assert json.loads(printed("report", str(made.config), "--json"))["stored"] == 1
    for name, table in before.items():
        assert pl.read_parquet(report / name).equals(table)
    assert (report / "rejects.csv").exists()

    made.set(batch="another", report={"url": "out/another"})
    made.run()
    url = f"ledger.url=sqlite:///{made.folder}/out/ledger.db"
    told = json.loads(printed("status", "--set", url, "--json"))
    assert told["ledger_version"] == SCHEMA_VERSION
    batches = told["batches"]
    assert {each["batch"]: each["stored"] for each in batches} == {"test": 1, "another": 2}
    assert {each["in_flight_exposure"] for each in batches} == {"0.0000"}
    used = "2 batches, 0.0045 USD spent, 0.0015 in flight or in doubt"
    assert used in printed("status", "--set", url)


def test_status_names_the_money_in_flight(project: Make) -> None:
    made = project([{"id": "a", "prompt": "x", "model": "dailies-1", "duration": 1}], video_seconds=3600)
    assert made.run("poll.timeout=0.2").pending == 1
    assert json.loads(printed("status", str(made.config), "--json"))["in_flight_exposure"] == "0.0080"
    assert "In flight  0.0080 USD, sent and not answered yet" in printed("status", str(made.config))


def test_status_without_a_config_makes_no_ledger_where_there_is_none(project: Make) -> None:
    made = project(ROWS)
    shutil.rmtree(made.folder / "out", ignore_errors=True)
    error = refusal("status")
    assert error.message == "this folder has no ledger: there is no out/ledger.db"
    assert "The first run makes it. Go to the folder in which callsheet was run" in error.hint
    assert "callsheet status CONFIG" in error.hint
    assert json.loads(callsheet("status", "--json").stdout)["error"] == error.message
    named = refusal("status", "--set", "ledger.url=sqlite:///elsewhere.db")
    assert named.message == "there is no ledger at elsewhere.db"
    assert not (made.folder / "out").exists()
    refused(callsheet("status", "--set", "batch=x"), "only ledger.url can be set")


def test_a_dry_run_buys_nothing_and_a_quiet_run_prints_its_result_alone(project: Make) -> None:
    made = project(ROWS[:1])
    assert json.loads(printed("run", str(made.config), "--dry-run", "--json"))["to_buy"] == 1
    assert list(made.backlot.service.store.select("1 = 1")) == []
    done = callsheet("run", str(made.config), "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    assert "complete" in done.stdout


def test_version_and_short_help() -> None:
    assert printed("--version").startswith("callsheet 0.")
    assert "quote" in printed("-h")
    assert "--dry-run" in printed("run", "-h")


def test_the_jobs_of_a_row_that_ended_alike_are_named_once(project: Make) -> None:
    made = project(ROWS[1:], faults=THREE_CUT_OFF)
    made.set(input={"matrix": {"aspect_ratio": ["1:1", "16:9"]}})
    summary = made.run()
    assert (summary.failed, summary.in_doubt) == (2, 2)
    named = [results.problem(entry).partition(":")[0] for entry in summary.details.problems]
    assert named == ["2 jobs in doubt (row odd)", "2 jobs failed (row bad)"]
    for command, row, code in (("failed", "bad", 0), ("resolve", "odd", 3)):
        said = printed(command, str(made.config), code=code)
        assert f"{row}, {row}" not in said
        assert f"\n    {row}\n" in said or f"\n  {row}: " in said


def test_of_a_great_many_jobs_the_first_are_listed_and_the_others_counted(project: Make, monkeypatch) -> None:
    made = project([row | {"id": f"{row['id']}-{n}"} for row in ROWS for n in range(3)], faults=THREE_CUT_OFF)
    made.run()
    for module in ("cli.rows", "present.accounts"):
        monkeypatch.setattr(f"callsheet.{module}.MOST_LISTED", 2)
    failed = printed("failed", str(made.config))
    assert "3 jobs failed" in failed
    assert failed.count("bad-") == 2
    assert "and 1 more" in failed
    doubts = printed("resolve", str(made.config), code=3)
    assert "3 in doubt" in doubts
    assert "and 1 more" in doubts
    assert len(json.loads(printed("failed", str(made.config), "--json"))["failed"]) == 3
