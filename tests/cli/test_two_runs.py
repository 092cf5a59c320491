"""Two runs of one batch at once: the second one says which other run is at work, and what to do."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cli.test_commands import callsheet
from tests.conftest import Project
from tests.servers.forks import forks
from tests.waiting import wait_until

Make = Callable[..., Project]


@contextmanager
def run_at_work(made: Project, jobs: int) -> Iterator[int]:
    """A run that has sent so many requests, and waits for their answers; yields its process number."""

    def sent() -> int:
        done = callsheet("status", str(made.config), "--json")
        return done.returncode == 0 and json.loads(done.stdout)["submitting"]

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


@pytest.mark.parametrize("command", ["run", "collect"])
def test_a_run_beside_another_one_names_it_and_says_what_to_do(slow: Project, command: str) -> None:
    with run_at_work(slow, jobs=3) as pid:
        first = f"{os.uname().nodename}, pid {pid}, since {datetime.now(UTC):%Y-}"
        done = callsheet(command, str(slow.config))
        assert done.returncode == 3, done.stderr
        [note] = [line for line in done.stderr.splitlines() if "another run of this batch is at work" in line]
        assert first in note
        assert note.endswith("UTC: 3 jobs in hand")
        assert "Other run" in done.stdout
        assert done.stdout.count(first) == 1
        assert "it finishes its jobs; wait for it, or run again later" in done.stdout
        assert "callsheet collect CONFIG" not in done.stdout, "which would find nothing to do"

        done = callsheet(command, str(slow.config), "--json")
        answer = json.loads(done.stdout)
        assert (done.returncode, answer["outcome"], answer["pending"]) == (3, "partial", 3)
        [other] = answer["other_runs"]
        assert (other["host"], other["pid"], other["jobs"]) == (os.uname().nodename, pid, 3)
        assert timedelta(0) < datetime.now(UTC) - datetime.fromisoformat(other["started_at"])
        assert json.loads((slow.folder / "out/report/report.json").read_text())["other_runs"] == [other]


def test_status_shows_the_runs_at_work(slow: Project) -> None:
    with run_at_work(slow, jobs=3) as pid:
        text = callsheet("status", str(slow.config)).stdout
        assert f"{os.uname().nodename}, pid {pid}, since " in text
        [run] = json.loads(callsheet("status", str(slow.config), "--json").stdout)["other_runs"]
        assert (run["pid"], run["jobs"]) == (pid, 3)
    assert json.loads(callsheet("status", str(slow.config), "--json").stdout)["other_runs"] == []
    assert "pid" not in callsheet("status", str(slow.config)).stdout


def test_a_run_that_is_alone_has_nothing_to_say_of_others(project: Make) -> None:
    made = project([{"id": "a", "prompt": "x", "model": "sketch-1"}])
    done = callsheet("run", str(made.config), "--json")
    assert json.loads(done.stdout)["other_runs"] == []
    assert "another run" not in done.stderr
