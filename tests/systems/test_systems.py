"""Commands start, buy and go on without the modules, flags and signals of Linux, by the rules of Windows."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Project

Make = Callable[..., Project]
AS_WINDOWS = (sys.executable, "-m", "tests.systems.as_windows")
ROOT = Path(__file__).parents[2]
IMAGE = {"model": "sketch-1", "aspect_ratio": "1:1"}
VIDEO = {"model": "dailies-1", "duration": 1}


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}


def callsheet(made: Project, *commands: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Runs commands in the project's folder, by the rules of Windows."""
    words = [word for command in commands for word in (*command, "and")]
    return subprocess.run(
        [*AS_WINDOWS, str(made.folder), *words[:-1]],
        cwd=made.folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def answers(made: Project, *commands: Sequence[str]) -> list[dict[str, Any]]:
    """What commands print as JSON; each ends with 0."""
    done = callsheet(made, *([*command, "--json"] for command in commands))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_batch_is_bought_marked_handed_on_and_not_bought_again(project: Make) -> None:
    made = project(
        [
            {"id": "CON", "prompt": "a device", **IMAGE},
            {"id": "a:b?", "prompt": "characters", **IMAGE},
            {"id": "film", "prompt": "a video", **VIDEO},
        ]
    )
    made.set(
        storage={"key": "{row_id}/day 1: {batch}."},
        report={"url": "out/report", "contact_sheet": 10, "plots": True},
        checks={"blank": "flag", "duplicate": "flag"},
    )
    config = str(made.config)
    quote, first, again, _, _, status, _, copied = answers(
        made,
        ["quote", config],
        ["run", config],
        ["run", config],
        ["review", config, "--keep", "CON", "--reject", "film"],
        ["report", config],
        ["status", config],
        ["export", config, "--to", "out/handed-on", "--as", "imagefolder"],
        ["ledger", "backup", config, "--to", "out/copy.db"],
    )
    assert (quote["to_buy"], first["stored"], again["stored"], status["stored"]) == (3, 3, 3, 3)
    assert copied["rows"]["attempts"] == len(made.sold) == 3, "bought once"
    names = sorted(path.name for path in (made.folder / "out/media").iterdir() if path.is_dir())
    assert names == ["%43ON", "a%3Ab%3F", "film"]


def asked(made: Project, answer: bytes) -> int:
    """Runs the batch on a terminal and types an answer to its question; returns the exit code."""
    terminal, end = pty.openpty()
    command = [*AS_WINDOWS, str(made.folder), "run", str(made.config)]
    with subprocess.Popen(
        command, cwd=made.folder, env=environment(), stdin=end, stdout=end, stderr=end
    ) as process:
        os.close(end)
        shown = b""
        while b"[y/N] " not in shown:
            shown += os.read(terminal, 4096)
        os.write(terminal, answer)
        with suppress(OSError):  # how a terminal ends
            while os.read(terminal, 4096):
                pass
        process.wait()
    os.close(terminal)
    return process.returncode


@pytest.mark.parametrize(
    ("answer", "bought"), [(b"yes\n", 1), pytest.param(b"\x04", 0, marks=pytest.mark.soak)]
)
def test_a_question_is_answered_key_by_key(project: Make, answer: bytes, bought: int) -> None:
    made = project([{"id": "a", "prompt": "x", **IMAGE}])
    made.set(budget={"approve_above": "0.0010"})
    assert asked(made, answer) == (0 if bought else 4)
    assert len(made.sold) == bought


def test_journals_are_locked_while_their_run_is_at_work(project: Make) -> None:
    """By the lock on a byte: what is in use is seen to be, is read all the same, and is not removed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.systems.journal_as_windows", str(project().folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
