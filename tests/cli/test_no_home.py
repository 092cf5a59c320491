"""Without a home folder, or with one that cannot be written, as in many containers: all works as ever."""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
from collections.abc import Callable
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
