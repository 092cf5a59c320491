"""Without a home folder, or with one that cannot be written, as in many containers: all works as ever."""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.conftest import Project
from tests.servers.forks import Forks
from tests.servers.prefect import PrefectServer

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


def callsheet(
    *words: str, home: str | None, environment: Mapping[str, str], cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs `callsheet <words>` as that user, with this home folder or without any."""
    variables = without_home() | environment | ({"HOME": home} if home else {})
    return somebody().run("-m", "callsheet", *words, cwd=cwd, env=variables)


@pytest.fixture(autouse=True)
def no_prefect_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PREFECT_HOME", "PREFECT_PROFILES_PATH", "PREFECT_API_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "home, with_prefect",
    [
        pytest.param(None, False, id="no home, alone"),
        pytest.param("/dev/null/home", False, id="cannot be made, alone"),
        pytest.param(None, True, id="no home, with Prefect", marks=pytest.mark.soak),
        pytest.param("/dev/null/home", True, id="cannot be made, with Prefect", marks=pytest.mark.soak),
    ],
)
def test_a_run_without_a_home_folder_is_a_run(
    project: Make, prefect: PrefectServer, home: str | None, with_prefect: bool
) -> None:
    made = project([{"id": "a", "prompt": "x", "model": "sketch-1"}])
    server = {"PREFECT_API_URL": prefect.api} if with_prefect else {}
    for command, submissions in (("run", 1), ("collect", 0)):
        done = callsheet(command, str(made.config), "--json", home=home, environment=server)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        assert (answer["stored"], answer["submissions"]) == (1, submissions)
        assert ("Starting Prefect" in done.stderr) is with_prefect
        for word in ("Traceback", "Warning", "Failed"):
            assert word not in done.stderr
    for command in ("quote", "status", "resolve"):
        done = callsheet(command, str(made.config), home=home, environment=server)
        assert done.returncode == 0, done.stderr


def test_profiles_are_read_from_a_home_that_cannot_be_written(project: Make, prefect: PrefectServer) -> None:
    """As from a mounted secret: the run is on the server that the profile names."""
    made = project([{"id": "a", "prompt": "x", "model": "sketch-1"}])
    home = made.folder / "home"
    (home / ".prefect").mkdir(parents=True)
    profile = f'active = "mine"\n[profiles.mine]\nPREFECT_API_URL = "{prefect.api}"\n'
    (home / ".prefect/profiles.toml").write_text(profile)
    (home / ".prefect").chmod(0o500)
    done = callsheet("run", str(made.config), home=str(home), environment={})
    assert done.returncode == 0, done.stderr
    assert "Starting Prefect" in done.stderr
    assert "Warning" not in done.stderr
    assert [file.name for file in (home / ".prefect").iterdir()] == ["profiles.toml"]


def test_without_any_folder_for_prefect_the_message_says_what_to_do(
    project: Make, prefect: PrefectServer
) -> None:
    made = project([{"id": "a", "prompt": "x", "model": "sketch-1"}])
    no_temporary_folder = "import tempfile; tempfile.tempdir = '/dev/null/tmp'"
    program = f"{no_temporary_folder}; from callsheet.cli.main import main; main()"
    environment = os.environ | {"HOME": "/dev/null/home", "PREFECT_API_URL": prefect.api}
    done = somebody().run("-c", program, "run", str(made.config), env=environment)
    assert done.returncode == 2, done.stderr
    assert "error: Prefect has no folder for its files" in done.stderr
    assert "Set PREFECT_HOME or TMPDIR" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.soak
def test_a_key_in_a_block_is_looked_for_without_a_home_folder(project: Make) -> None:
    """On the server of this process, where no other is configured."""
    made = project([{"id": "a", "prompt": "x", "model": "sketch-1"}])
    made.set(service={"api_key_block": "nope"})
    done = callsheet("run", str(made.config), home=None, environment={})
    assert done.returncode == 2, done.stderr
    assert "service.api_key_block: there is no Prefect Secret block named 'nope'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.soak
@pytest.mark.parametrize("home", [None, "/dev/null/home"], ids=["no home", "cannot be made"])
def test_the_demo_needs_no_home_folder(tmp_path: Path, home: str | None) -> None:
    """It starts a Prefect server, whose database then is in a temporary folder."""
    done = callsheet("demo", cwd=tmp_path, home=home, environment={})
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
