"""The commands: what they print, their JSON, their exit codes, and what they say to bad input."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

import polars as pl
import pytest

from callsheet.processes import user_name
from tests.conftest import Project
from tests.servers.forks import forks
from tests.servers.prefect import BEHIND_A_PROXY
from tests.waiting import LONGEST, wait_until

Make = Callable[..., Project]
CALLSHEET = (sys.executable, "-m", "callsheet")
IMAGE = {"model": "sketch-1", "aspect_ratio": "1:1"}


def callsheet(
    *words: str, cwd: Path | None = None, stdout: IO[Any] | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs `callsheet <words>` as a process of its own."""
    env = os.environ | {"COLUMNS": "200"} | environment
    return forks().run("-m", "callsheet", *words, cwd=cwd, env=env, stdout=stdout)


def refused(done: subprocess.CompletedProcess[str], *words: str, code: int = 2) -> None:
    """Exit `code`, with a message that has all the words, and no stack trace."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def test_help_teaches_and_imports_neither_prefect_nor_an_agent_s_tools() -> None:
    done = callsheet("--help")
    assert done.returncode == 0
    commands = "demo init quote run collect status show failed report open review set pause resume"
    more = "export resolve reconcile ledger models balance backlot up docs"
    for command in [*commands.split(), *more.split()]:
        assert command in done.stdout
    shown = [line.strip() for line in callsheet("run", "--help", COLUMNS="80").stdout.splitlines()]
    start = shown.index("Any stop is a pause: the same command goes on where the last one ended, and")
    assert shown[start + 1] == "pays for nothing twice.", "a paragraph ends where the window does"
    assert " status [OPTIONS] [CONFIG]... " in callsheet("status", "--help").stdout
    not_loaded = {"prefect", "polars", "fastmcp", "mcp"}
    loads = f"import sys, callsheet.cli.main; sys.exit(bool({not_loaded} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", loads], check=False).returncode == 0


def test_docs_lists_the_pages_and_prints_one() -> None:
    pages = sorted((Path(__file__).parents[2] / "docs").glob("*.md"))
    *listed, last = callsheet("docs").stdout.splitlines()
    groups = [line for line in listed if not line.startswith("  ")]
    assert groups == ["Learn", "Do", "Look up", "Understand"]
    names = [line.split()[0] for line in listed if line not in groups]
    assert sorted(names) == [page.stem for page in pages]
    assert last.endswith(str(pages[0].parent))
    for name in ("configuration", "configuration.md", "docs/configuration.md"):
        assert callsheet("docs", name).stdout == pages[0].with_stem("configuration").read_text("utf-8")
    refused(callsheet("docs", "confguration"), "no page confguration", "`callsheet docs` lists")


def test_status_needs_no_address_and_notices_totals_that_something_else_has_changed(project: Make) -> None:
    made = project([{"id": "a", "prompt": "x", **IMAGE}])
    made.set(service={"base_url": "${NO_SUCH_VARIABLE}"})
    done = callsheet("status", str(made.config), "--json")
    assert (done.returncode, json.loads(done.stdout)["spent"]) == (0, "0.0000"), done.stderr
    made.set(service={"base_url": made.backlot.base_url})
    assert callsheet("run", str(made.config)).returncode == 0
    with closing(sqlite3.connect(made.folder / "out" / "ledger.db", isolation_level=None)) as ledger:
        ledger.execute("UPDATE totals SET spent = 0")
    refused(callsheet("status", str(made.config)), "are not the sums of its attempts")


def test_a_wrong_key_ends_with_4_and_names_the_variable_that_it_is_from(project: Make) -> None:
    made = project([{"id": "a", "prompt": "x", **IMAGE}])
    made.set(service={"api_key_env": "STUDIO_KEY"})
    for command in ("quote", "run"):
        done = callsheet(command, str(made.config), STUDIO_KEY="sk_wrong")
        assert done.returncode == 4, done.stderr
        assert "the API key in the environment variable STUDIO_KEY" in done.stderr + done.stdout
        assert "CALLSHEET_API_KEY" not in done.stderr + done.stdout
        assert "Traceback" not in done.stderr
    of_worker = "export STUDIO_KEY=sk_... A run in Prefect has the variables of its worker."
    refused(callsheet("quote", str(made.config)), "variable STUDIO_KEY is not set", of_worker)
    refused(callsheet("balance", CALLSHEET_API_KEY="sk_wrong"), "variable CALLSHEET_API_KEY", code=4)


def test_what_is_wrong_with_a_key_is_said_before_anything_is_asked(project: Make) -> None:
    made = project([{"id": "a", "prompt": "x", **IMAGE}])
    for key, wrong in (
        ("'sk_hidden' ", "is in quotes"),
        (" ", "is empty"),
        ("Bearer sk_hidden", "begins with Bearer"),
        ("sk_hid den", "has a blank"),
        ("sk_hidden\u00e9", "has a blank, a line break or a character that is not ASCII"),
    ):
        done = callsheet("quote", str(made.config), CALLSHEET_API_KEY=key)
        refused(done, f"the API key in the environment variable CALLSHEET_API_KEY {wrong}")
        assert "without quotes, blanks or the word Bearer" in done.stderr
        assert "hid" not in done.stderr
    assert callsheet("balance", CALLSHEET_API_KEY=f" {made.backlot.api_key} ").returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "batch.yaml", "--first", "0"], ["'--first'", "greater than or equal to 1", "run --help"]),
        (["run", "batch.yaml", "--frist", "1"], ["--frist", "--first", "callsheet run --help"]),
        (["quote"], ["CONFIG", "callsheet quote --help"]),
        (["rnu"], ["rnu", "'run'", "callsheet --help"]),
        (["export", "b.yaml", "--to", "x", "--as", "pdf"], ["'--as': 'pdf' is not one of 'folder'"]),
    ],
)
def test_a_wrong_command_line_is_an_error_as_any_other(words: list[str], said: list[str]) -> None:
    """Programs get it as JSON, people in two lines."""
    refused(callsheet(*words), *said)
    answer = json.loads(callsheet(*words, "--json").stdout)
    assert all(text in answer["error"] + answer["hint"] for text in said)


def test_models_and_balance_need_no_config(project: Make) -> None:
    project()
    listed = callsheet("models")
    assert "reel-1" in listed.stdout
    assert "unpriced" in listed.stdout
    for model in json.loads(callsheet("models", "--json").stdout)["models"]:
        assert model["created_at"] == "2026-01-15T09:00:00.000Z"
    assert callsheet("balance").stdout == "100.0000 USD\n"
    assert json.loads(callsheet("balance", "--json").stdout)["balance"] == "100.0000"
    refused(callsheet("models", "--set", "service.api_key_env=OTHER"), "--set", "config")


def test_an_address_from_the_environment_is_checked_as_one_in_a_config() -> None:
    address = "http://me:hunter2@127.0.0.1:9"
    done = callsheet("models", CALLSHEET_BASE_URL=address, CALLSHEET_API_KEY="sk_x")
    refused(done, "CALLSHEET_BASE_URL must not contain a user name or a password", "CALLSHEET_API_KEY")
    assert "hunter2" not in done.stderr
    assert done.stdout == ""


def test_bad_configs_name_the_place_and_cost_nothing(project: Make) -> None:
    made = project([{"id": "a", "prompt": "x", **IMAGE}])
    refused(callsheet("run", "nowhere.yaml"), "nowhere.yaml", f"looked for in {Path.cwd()}")
    text = made.config.read_text()
    made.config.write_text(text + "bugdet: {limit: 1}\n")
    refused(callsheet("run", str(made.config)), "bugdet", f"line {len(text.splitlines()) + 1}", "budget")
    made.config.write_text(text)
    refused(callsheet("quote", str(made.config), CALLSHEET_API_KEY=""), "CALLSHEET_API_KEY")


def asked(made: Project, answer: bytes) -> tuple[bytes, int]:
    """Runs the batch on a terminal and answers its question; returns what was shown up to it, and the exit
    code.
    """
    terminal, end = pty.openpty()
    with forks().start(*CALLSHEET[1:], "run", str(made.config), stdin=end, stdout=end, stderr=end) as process:
        os.close(end)
        question = b""
        while b"Buy 1 job " not in question or not question.endswith(b" "):
            question += os.read(terminal, 4096)
        os.write(terminal, answer)
        with suppress(OSError):  # how a terminal ends
            while os.read(terminal, 4096):
                pass
        process.wait()
    os.close(terminal)
    return question, process.returncode


def test_the_question_is_whole_and_ctrl_d_is_no(project: Make) -> None:
    made = project([{"id": "a", "prompt": "x", **IMAGE}])
    made.set(budget={"approve_above": "0.0010"})
    question, code = asked(made, b"\x04")
    assert question.endswith(b"? [y/N] ")
    assert code == 4
    assert made.run().stop_reason == "approval"
    assert json.loads(callsheet("run", str(made.config), "--yes", "--json").stdout)["stored"] == 1
    kept = json.loads(callsheet("status", str(made.config), "--json").stdout)["approvals"]
    assert [(one["decision"], one["place"], one["decided_by"]) for one in kept] == [
        ("refused", "terminal", user_name()),
        (None, None, None),
        ("approved", "--yes", user_name()),
    ]


def test_what_looks_like_bought_jobs_is_asked_about_on_a_terminal(project: Make) -> None:
    made = project([{"id": "001", "prompt": "x", **IMAGE}])
    assert made.run().stored == 1
    made.rows({"id": "1", "prompt": "x", **IMAGE})
    question, code = asked(made, b"n\n")
    assert b"1 of 1 job to buy looks like one that this batch has bought" in b" ".join(question.split())
    assert (code, made.costs().height) == (4, 1)
    assert asked(made, b"y\n")[1] == 0
    assert made.costs().height == 2


def test_a_signal_before_anything_is_bought_ends_with_130(project: Make) -> None:
    """Here while the service takes its time over the catalogue; with --json there is one object too."""
    made = project([{"id": "a", "prompt": "x", **IMAGE}])
    out, err = made.folder / "stdout", made.folder / "stderr"
    with socket.create_server(("127.0.0.1", 0)) as silent, out.open("w") as stdout, err.open("w") as stderr:
        made.set(service={"base_url": f"http://127.0.0.1:{silent.getsockname()[1]}"})
        silent.settimeout(LONGEST)
        with forks().start(
            *CALLSHEET[1:], "run", str(made.config), "--json", stdout=stdout, stderr=stderr
        ) as process:
            asked, _ = silent.accept()
            process.send_signal(signal.SIGTERM)
        asked.close()
    assert process.returncode == 130, err.read_text()
    assert "Traceback" not in err.read_text()
    assert json.loads(out.read_text())["error"].startswith("stopped by SIG")


# ---- two runs of one batch at once: the second one says which other run is at work, and what to do


@contextmanager
def run_at_work(made: Project, jobs: int) -> Iterator[int]:
    """A run that has sent so many requests, and waits for their answers; yields its process number."""

    def sent() -> int:
        to_read = f"file:{made.folder}/out/ledger.db?mode=ro"
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(to_read, uri=True)) as ledger:
            query = "SELECT count(*) FROM attempts WHERE state = 'submitting'"
            return int(ledger.execute(query).fetchone()[0])
        return 0  # there is no ledger yet

    with (
        Path(os.devnull).open("w") as nothing,
        forks().start("-m", "callsheet", "run", str(made.config), stderr=nothing) as process,
    ):
        try:
            wait_until(lambda: process.poll() is None and sent() == jobs, "the first run sends its jobs")
            yield process.pid
        finally:
            process.kill()


@pytest.fixture
def slow(project: Make) -> Project:
    """Three images that take for ever."""
    images = [{"id": f"s{n}", "prompt": f"{n}", "model": "sketch-1"} for n in range(3)]
    return project(images, image_seconds=3600)


def test_a_run_beside_another_one_names_it_and_says_what_to_do_and_so_does_status(slow: Project) -> None:
    with run_at_work(slow, jobs=3) as pid:
        first = f"{os.uname().nodename}, pid {pid}, since {datetime.now(UTC):%Y-}"
        done = callsheet("run", str(slow.config))
        assert done.returncode == 3, done.stderr
        [note] = [line for line in done.stderr.splitlines() if "another run of this batch is at work" in line]
        assert first in note
        assert note.endswith("UTC: 3 jobs in hand")
        assert "Other run" in done.stdout
        assert done.stdout.count(first) == 1
        assert "it finishes its jobs; wait for it, or run again later" in done.stdout
        assert "callsheet collect CONFIG" not in done.stdout, "which would find nothing to do"

        done = callsheet("collect", str(slow.config), "--json")
        answer = json.loads(done.stdout)
        assert (done.returncode, answer["outcome"], answer["pending"]) == (3, "partial", 3)
        [other] = answer["other_runs"]
        assert (other["host"], other["pid"], other["jobs"]) == (os.uname().nodename, pid, 3)
        assert timedelta(0) < datetime.now(UTC) - datetime.fromisoformat(other["started_at"])
        assert json.loads((slow.folder / "out/report/report.json").read_text())["other_runs"] == [other]

        assert f"{os.uname().nodename}, pid {pid}, since " in callsheet("status", str(slow.config)).stdout
        [run] = json.loads(callsheet("status", str(slow.config), "--json").stdout)["other_runs"]
        assert (run["pid"], run["jobs"]) == (pid, 3)
    assert json.loads(callsheet("status", str(slow.config), "--json").stdout)["other_runs"] == []
    assert "pid" not in callsheet("status", str(slow.config)).stdout


# ---- the demo


def test_the_demo_runs_clean_and_a_second_one_buys_nothing(tmp_path: Path) -> None:
    """Also for a newcomer who sits behind a proxy."""
    first = callsheet("demo", cwd=tmp_path, **BEHIND_A_PROXY)
    assert first.returncode == 0, first.stderr
    noise = [line for line in first.stderr.splitlines() if "Warning" in line or "Traceback" in line]
    assert noise == []
    manifest = pl.read_parquet(tmp_path / "out/demo/report/manifest.parquet")
    kinds = dict(manifest.group_by("mime_type").len().iter_rows())
    assert kinds["image/jpeg"] >= 15
    assert kinds["image/png"] >= 2
    assert kinds["video/mp4"] >= 6
    assert manifest["has_sound"].sum() == 1
    second = callsheet("demo", cwd=tmp_path, **BEHIND_A_PROXY)
    assert second.returncode == 0
    assert "Nothing was bought" in second.stdout
    assert pl.read_parquet(tmp_path / "out/demo/report/manifest.parquet").equals(manifest)


def test_a_demo_whose_backlot_cannot_start_says_what_to_do(tmp_path: Path) -> None:
    """Here another program has the port at which files of an unfinished demo wait."""
    (tmp_path / "out/demo").mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "out/demo/port").write_text(str(port))
        refused(callsheet("demo", cwd=tmp_path), f"port {port}", "did not start", "rm -r out/demo")


def test_an_error_in_json_has_its_place_and_the_commands_that_help(tmp_path: Path) -> None:
    """Of our words and the path alone, as a shell takes it."""
    service = "service: {base_url: 'http://127.0.0.1:9'}\ninput: {path: p.csv}\n"
    (tmp_path / "wrong.yaml").write_text(f"batch: x\n{service}budget: {{limits: 3}}\n")
    error = json.loads(callsheet("quote", "wrong.yaml", "--json", cwd=tmp_path).stdout)
    assert (error["code"], error["where"]) == ("config_error", "wrong.yaml, line 4")
    assert error["message"] == error["error"]
    assert error["next"] == [{"command": "callsheet docs configuration", "costs": "free"}]
    name = "it's $(here) {0}.yaml"
    (tmp_path / name).write_text(f"batch: x\n{service}limits: {{patience: 0.1}}\n")
    (tmp_path / "p.csv").write_text("prompt\na\n")
    error = json.loads(callsheet("balance", name, "--json", cwd=tmp_path, CALLSHEET_API_KEY="k").stdout)
    assert (error["code"], error["stop_reason"]) == ("not_sent", "service")
    assert [shlex.split(step["command"]) for step in error["next"]] == [
        ["callsheet", "collect", name],
        ["callsheet", "status", name],
    ]
