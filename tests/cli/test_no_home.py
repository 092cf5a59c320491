"""Without a home folder, or with one that cannot be written, as in many containers: all works as ever. And
without the right to write a ledger: looking needs none.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from callsheet.ledger import leases
from tests.conftest import Project, images
from tests.crash.test_points import killed
from tests.servers.forks import Forks
from tests.waiting import LONGEST

Make = Callable[..., Project]

# A user whom the system does not know, and who has no more rights than the tests' own without being root.
SOMEBODY = ("unshare", "--user", "--map-user=12345")
CAN_BE_SOMEBODY = subprocess.run([*SOMEBODY, "true"], capture_output=True, check=False).returncode == 0

pytestmark = pytest.mark.skipif(not CAN_BE_SOMEBODY, reason="this machine allows no user namespaces")


def without_home() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "HOME"}


@functools.cache
def somebody() -> Forks:
    """That user's forks; what they import is imported without a home folder too."""
    made = Forks(*SOMEBODY, env=without_home())
    atexit.register(made.close)
    return made


def callsheet(*words: str, home: str | None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs `callsheet <words>` as that user, with this home folder or without any."""
    variables = without_home() | ({"HOME": home} if home else {})
    return somebody().run("-m", "callsheet", *words, cwd=cwd, env=variables)


def test_a_run_without_a_home_folder_is_a_run(project: Make) -> None:
    made = project([{"id": "a", "prompt": "x", "model": "sketch-1"}])
    for command, submissions in (("run", 1), ("collect", 0)):
        done = callsheet(command, str(made.config), "--json", home="/dev/null/home")
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        assert (answer["stored"], answer["submissions"]) == (1, submissions)
        for word in ("Traceback", "Warning", "Failed"):
            assert word not in done.stderr
    for command in ("quote", "status", "resolve"):
        done = callsheet(command, str(made.config), home=None)
        assert done.returncode == 0, done.stderr


def may_not_write(made: Project, *folders: str) -> None:
    """Nobody but root may write in the project, but in these folders."""
    for path in [made.folder, *made.folder.rglob("*")]:
        if not any(path.is_relative_to(made.folder / each) for each in folders):
            path.chmod(0o555 if path.is_dir() else 0o444)


def test_who_may_only_read_a_project_can_look_at_its_batch(project: Make) -> None:
    """Also beside a run, and after one that was killed: what it has written is in the -wal file still."""
    made = project([{"id": "a", "prompt": "x", "model": "sketch-1"}])
    made.run()
    (made.folder / "copy").mkdir()
    may_not_write(made, "copy")
    names = sorted(path.name for path in (made.folder / "out").iterdir())
    looks = [("status",), ("show", "a"), ("failed",), ("resolve",)]
    looks += [("export", "--to", f"copy/{kind}", "--as", kind) for kind in ("csv", "imagefolder")]
    for command, *words in looks:
        done = callsheet(command, str(made.config), *words, home=None, cwd=made.folder)
        assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (made.folder / "out").iterdir()) == names
    refused = callsheet("review", str(made.config), "--keep", "a", home=None, cwd=made.folder)
    assert refused.returncode == 2
    assert "ledger" in refused.stderr
    assert "Traceback" not in refused.stderr

    with closing(sqlite3.connect(made.folder / "out/ledger.db", isolation_level=None)) as run:
        run.execute("UPDATE attempts SET state = 'failed'")
        may_not_write(made)
        done = callsheet("status", str(made.config), "--json", home=None, cwd=made.folder)
        assert json.loads(done.stdout)["failed"] == 1, done.stderr


def test_a_database_of_another_program_is_no_empty_ledger_for_who_may_only_read_it(project: Make) -> None:
    made = project([{"id": "a", "prompt": "x", "model": "sketch-1"}])
    (made.folder / "out").mkdir()
    with closing(sqlite3.connect(made.folder / "out/ledger.db")) as another:
        another.execute("CREATE TABLE notes (text)")
    may_not_write(made)
    refused = callsheet("status", str(made.config), home=None, cwd=made.folder)
    assert refused.returncode == 2, refused.stdout
    assert "has tables of another program" in refused.stderr


@pytest.mark.parametrize("who", ["owner", "reader"])
def test_what_a_killed_run_had_on_the_wire_is_in_doubt_for_everybody_at_once(project: Make, who: str) -> None:
    """By every command, before a run takes it over, and without a write to the ledger."""
    made = project(images(3), image_seconds=LONGEST)
    made.set(limits={"concurrency": 2})
    killed(made, "before submit", nth=2)  # the first has left, and is not answered
    (made.folder / "out/report").mkdir(exist_ok=True)
    ledger = made.folder / "out/ledger.db"
    with closing(sqlite3.connect(ledger)) as database:
        rows = database.execute("SELECT * FROM attempts").fetchall()

    def said(*words: str, code: int = 0) -> dict[str, Any]:
        done = callsheet(*words, home=None, cwd=made.folder)
        assert done.returncode == code, done.stdout + done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    if who == "reader":
        may_not_write(made, "out/report")
    batch = said("status", "batch.yaml", "--json")
    assert (batch["submitting"], batch["in_doubt"], batch["planned"]) == (0, 2, 1)
    [other] = said("status", "--json")["batches"]
    for totals in (batch, other):
        assert (totals["in_doubt_exposure"], totals["in_flight_exposure"]) == ("0.0030", "0.0000")
    listed = said("resolve", "batch.yaml", "--json", code=3)
    assert [doubt["row_id"] for doubt in listed["in_doubt"]] == ["s0", "s1"]
    assert listed["evidence"]["in_doubt_since"] == "0.0030"
    assert said("quote", "batch.yaml", "--json")["quoted"] == "0.0015"
    [attempt] = said("show", "batch.yaml", "s0", "--json")["attempts"]
    assert (attempt["state"], attempt["error_message"]) == ("in_doubt", leases.NO_ANSWER)
    reconciled = said("reconcile", "batch.yaml", "--json")
    assert [doubt["row_id"] for doubt in reconciled["doubts"]] == ["s0", "s1"]
    callsheet("report", "batch.yaml", home=None, cwd=made.folder)
    costs = {row["row_id"]: row["state"] for row in made.costs().iter_rows(named=True)}
    assert [costs[row] for row in ("s0", "s1")] == ["in_doubt"] * 2
    with closing(sqlite3.connect(ledger)) as database:
        assert database.execute("SELECT * FROM attempts").fetchall() == rows
    settle = ("resolve", "batch.yaml", "s0", "--charged", "--json")
    if who == "owner":
        assert said(*settle, code=3)["left"] == 1
        assert said("status", "batch.yaml", "--json")["spent"] == "0.0015"
    else:
        refused = callsheet(*settle, home=None, cwd=made.folder)
        assert (refused.returncode, "Traceback" in refused.stderr) == (2, False)


def test_looking_makes_no_ledger_and_no_folder(project: Make) -> None:
    made = project([{"id": "a", "prompt": "x", "model": "sketch-1"}])
    before = sorted(made.folder.iterdir())
    for command in ("status", "failed", "resolve"):
        done = callsheet(command, str(made.config), home=None, cwd=made.folder)
        assert done.returncode == 0, done.stderr
    assert sorted(made.folder.iterdir()) == before
    done = callsheet("quote", str(made.config), home=None, cwd=made.folder)
    assert done.returncode == 0, done.stderr
    assert not list(made.folder.rglob("*.db"))
