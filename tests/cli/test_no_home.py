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

import pytest

from tests.conftest import Project
from tests.servers.forks import Forks

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
