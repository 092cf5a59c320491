"""What commands print: no control characters from outside, and streams that cannot be written."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from rich.console import Console

from callsheet.cli.output import print_line
from callsheet.plain_text import printable
from tests.cli.test_commands import callsheet
from tests.conftest import Project

Make = Callable[..., Project]
COMMAND = f"{sys.executable} -m callsheet"
IMAGE = {"model": "sketch-1", "aspect_ratio": "1:1"}
ESCAPE = "\x1b[2J\x1b]0;owned\x07"
OVERRIDE = "\u202egnp.exe"


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a line of shell in which `callsheet` is the command; the exit code is the first that is not 0."""
    script = f'set -o pipefail; callsheet() {{ {COMMAND} "$@"; }}; {line}'
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, capture_output=True, text=True, check=False, env=dict(os.environ)
    )


# ---- streams that cannot be written


@pytest.fixture
def full() -> Iterator[IO[str]]:
    """A file on a disk that is full."""
    with Path("/dev/full").open("w") as file:
        yield file


@pytest.mark.parametrize("command", ["models --json", "--help"])
def test_a_full_disk_behind_stdout_is_an_error_in_words(project: Make, full: IO[str], command: str) -> None:
    done = callsheet(*command.split(), stdout=full, cwd=project().folder)
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert "stdout" in done.stderr
    assert "No space left on device" in done.stderr


def test_an_error_keeps_its_exit_code_where_stdout_cannot_be_written(project: Make, full: IO[str]) -> None:
    done = callsheet("status", "no-such.yaml", "--json", stdout=full, cwd=project().folder)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "no-such.yaml" in done.stderr


def test_a_reader_that_stops_reading_ends_the_command_quietly(project: Make) -> None:
    done = shell("callsheet models | head -1", project().folder)
    assert done.returncode in (0, 141)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1


def test_a_run_goes_on_when_nobody_reads_its_progress(project: Make) -> None:
    rows = [{"id": f"i{number}", "prompt": "x", **IMAGE} for number in range(4)]
    made = project(rows, image_seconds=0.2)
    done = shell(f"callsheet run {made.config} --json 2>&1 >answer.json | head -c 1", made.folder)
    assert done.returncode == 0
    answer = json.loads((made.folder / "answer.json").read_text())
    assert (answer["outcome"], answer["stored"]) == ("complete", 4)


def test_a_run_against_a_service_that_is_down_gives_the_reason_as_json(project: Make) -> None:
    made = project([{"id": "a", "prompt": "x", **IMAGE}])
    made.set(service={"base_url": "http://127.0.0.1:9"})
    done = callsheet("run", str(made.config), "--json")
    answer = json.loads(done.stdout)
    assert done.returncode == 4
    assert (answer["outcome"], answer["stop_reason"]) == ("stopped", "service")


# ---- control characters


@pytest.mark.parametrize(
    "text, printed",
    [
        (ESCAPE, r"\x1b[2J\x1b]0;owned\x07"),
        (OVERRIDE, r"\u202egnp.exe"),
        ("two\nlines\r\x00", r"two\nlines\r\x00"),
        ("\x9b31m\x85\u2028\u2067\ufeff\ud83d", r"\x9b31m\x85\u2028\u2067\ufeff\ud83d"),
        (
            "caf\u00e9 \U0001f469\u200d\U0001f680 \u4e2d\u6587",
            "caf\u00e9 \U0001f469\u200d\U0001f680 \u4e2d\u6587",
        ),
    ],
    ids=["escape", "override", "lines", "others", "plain"],
)
def test_unsafe_characters_are_shown_as_escape_sequences(text: str, printed: str) -> None:
    assert printable(text) == printed


def unsafe(text: str) -> bool:
    return any(character in text for character in "\x1b\x07\x9b\u202e\r")


def test_no_control_character_of_a_batch_or_of_the_service_reaches_the_terminal(project: Make) -> None:
    made = project(
        [
            {"id": f"bad{ESCAPE}", "prompt": f"gore {OVERRIDE}", **IMAGE},
            {"id": f"reject{OVERRIDE}", "prompt": "x", "model": f"none{ESCAPE}"},
            {"id": f"doubt{ESCAPE}", "prompt": "doubtful", **IMAGE},
            {"id": "[red]markup[/red]", "prompt": "x", "model": "[/]"},
        ],
        faults={
            "rules": [{"endpoint": "images", "prompt": "doubtful", "do": "drop", "when": "after_charging"}]
        },
    )
    for command in ("quote", "run", "status", "resolve", "reconcile", "collect"):
        done = callsheet(command, str(made.config))
        assert "Traceback" not in done.stderr
        assert not unsafe(done.stdout + done.stderr), command
    assert "[/]" in callsheet("quote", str(made.config)).stdout


def test_no_control_character_of_an_error_reaches_the_terminal(project: Make) -> None:
    made = project([{"id": "a", "prompt": "x", **IMAGE}])
    made.set(input={"path": f"none{ESCAPE}.csv"})
    done = callsheet("quote", str(made.config))
    assert done.returncode == 2
    assert not unsafe(done.stderr)
    assert r"\x1b[2J" in done.stderr


# ---- lines on a terminal


@pytest.mark.parametrize(
    "text, shown",
    [
        (
            "Columns    id, model, prompt, aspect_ratio; carried: shelf",
            ["Columns    id, model, prompt,", "           aspect_ratio;", "           carried: shelf"],
        ),
        (
            "File       /a/path/that/is/longer/than/the/window.png",
            ["File       /a/path/that/is/longer/than/the/window.png"],
        ),
        (
            "Prompt     \u771f\u936e\u306e\u30e9\u30f3\u30d7\u3001\u5915\u65b9\u306e\u5149\u306e\u4e2d\u3067",
            [
                "Prompt     \u771f\u936e\u306e\u30e9\u30f3\u30d7\u3001\u5915\u65b9",
                "           \u306e\u5149\u306e\u4e2d\u3067",
            ],
        ),
        (
            "Next       go on: callsheet run batch.yaml --set retry_failed=gateway --yes buys again",
            [
                "Next       go on:",
                "           callsheet run batch.yaml --set retry_failed=gateway --yes",
                "           buys again",
            ],
        ),
    ],
    ids=["words", "path", "wide", "command"],
)
def test_a_line_is_broken_between_words_and_indented_on_a_terminal_alone(text: str, shown: list[str]) -> None:
    """A path and a command stay in one piece, so that they can be copied; wide characters count twice."""
    for is_terminal, lines in ((True, shown), (False, [text])):
        file = io.StringIO()
        print_line(
            Console(file=file, width=30, soft_wrap=True, force_terminal=is_terminal, no_color=True), text, 11
        )
        assert file.getvalue().splitlines() == lines
