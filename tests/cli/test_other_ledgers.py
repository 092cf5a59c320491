"""Two ledgers and one batch: a lost one, a backup that is restored, a second one beside the first.

Nothing is bought twice unless a person says so, and nothing that is paid for is lost or taken for another.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

from tests.cli import test_commands
from tests.conftest import Project
from tests.storage.test_storage_trouble import Asked

Make = Callable[..., Project]


def callsheet(made: Project, command: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs `callsheet <command> CONFIG <words>` as a process of its own."""
    return test_commands.callsheet(command, "batch.yaml", *words, cwd=made.folder)


def row(name: str, **cells: Any) -> dict[str, Any]:
    return {"id": name, "prompt": f"a {name}", "model": "sketch-1"} | cells


def test_what_another_purchase_left_in_the_spool_is_not_taken_for_this_one(project: Make) -> None:
    made = project([row("vase")])
    made.backlot.service.faults = asked = Asked()
    (made.folder / "out/media").mkdir(parents=True)
    (made.folder / "out/media/test").touch()  # so that the storage takes no file of the batch
    assert callsheet(made, "run").returncode == 4
    spool = made.folder / "out/report/spool"
    [left] = spool.iterdir()
    other = ["--set", "ledger.url=sqlite:///out/other.db", "--set", "storage.url=out/others"]
    assert callsheet(made, "run", *other).returncode == 0
    assert asked.prompts["downloads"] == ["a vase", "a vase"]
    assert list(spool.iterdir()) == [left], "it is paid for, and its own ledger still wants it"
    (made.folder / "out/media/test").unlink()
    assert callsheet(made, "collect").returncode == 0
    assert len(asked.prompts["downloads"]) == 2
    assert not list(spool.iterdir())
