"""What commands print: no control characters from outside, and streams that cannot be written."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import IO

from rich.console import Console

from callsheet.plain_text import printable
from callsheet.present.console import print_line, print_page
from callsheet.present.page import Table
from tests.cli.test_commands import callsheet, refused
from tests.conftest import Project
from tests.servers.forks import forks

Make = Callable[..., Project]
IMAGE = {"model": "sketch-1", "aspect_ratio": "1:1"}
ESCAPE = "\x1b[2J\x1b]0;owned\x07"
OVERRIDE = "\u202egnp.exe"


def unread(*words: str, cwd: Path, **streams: IO[str]) -> int:
    """The exit code of a command whose other streams go to a pipe that nobody reads any more."""
    read, write = os.pipe()
    os.close(read)
    with forks().start(
        "-m", "callsheet", *words, cwd=cwd, **{"stdout": write, "stderr": write} | streams
    ) as done:
        os.close(write)
    return done.wait()


# ---- streams that cannot be written


def test_a_full_disk_behind_stdout_is_an_error_in_words(project: Make) -> None:
    """An error keeps its exit code."""
    made = project()
    with Path("/dev/full").open("w") as full:
        for command in (["models", "--json"], ["--help"]):
            done = callsheet(*command, stdout=full, cwd=made.folder)
            refused(done, "stdout", "No space left on device", code=3)
        refused(callsheet("status", "no-such.yaml", "--json", stdout=full, cwd=made.folder), "no-such.yaml")


def test_a_reader_that_stops_reading_ends_the_command_quietly(project: Make, tmp_path: Path) -> None:
    with (tmp_path / "stderr").open("w+") as stderr:
        assert unread("models", cwd=project().folder, stderr=stderr) == 141, "as SIGPIPE ends a program"
    assert (tmp_path / "stderr").read_text() == ""


def test_a_run_goes_on_when_nobody_reads_its_progress(project: Make) -> None:
    rows = [{"id": f"i{number}", "prompt": "x", **IMAGE} for number in range(4)]
    made = project(rows, image_seconds=0.2)
    with (made.folder / "answer.json").open("w") as stdout:
        assert unread("run", str(made.config), "--json", cwd=made.folder, stdout=stdout) == 0
    answer = json.loads((made.folder / "answer.json").read_text())
    assert (answer["outcome"], answer["stored"]) == ("complete", 4)


# ---- control characters


def test_unsafe_characters_are_shown_as_escape_sequences() -> None:
    for text, printed in (
        (ESCAPE, r"\x1b[2J\x1b]0;owned\x07"),
        (OVERRIDE, r"\u202egnp.exe"),
        ("two\nlines\r\x00", r"two\nlines\r\x00"),
        ("\x9b31m\x85\u2028\u2067\ufeff\ud83d", r"\x9b31m\x85\u2028\u2067\ufeff\ud83d"),
        (plain := "caf\u00e9 \U0001f469\u200d\U0001f680 \u4e2d\u6587", plain),
    ):
        assert printable(text) == printed


def unsafe(text: str) -> bool:
    return any(character in text for character in "\x1b\x07\x9b\u202e\r")


def test_no_control_character_of_a_batch_the_service_or_an_error_reaches_the_terminal(project: Make) -> None:
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
    made.set(input={"path": f"none{ESCAPE}.csv"})
    done = callsheet("quote", str(made.config))
    refused(done, r"\x1b[2J")
    assert not unsafe(done.stderr)


# ---- lines on a terminal


def test_where_there_is_no_terminal_a_name_in_a_table_stays_in_one_piece(project: Make) -> None:
    """A program or a mail that gets the output of a night looks for it."""
    row = "a-row-of-the-autumn-catalogue-with-a-name-of-eighty-characters-and-some-more-of-it"
    drop = {"endpoint": "images", "do": "drop", "when": "after_charging"}
    made = project([{"id": row, "prompt": "x", **IMAGE}], faults={"rules": [drop]})
    assert made.run().in_doubt == 1
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    for words in (("status", "--verbose"), ("resolve",)):
        done = forks().run("-m", "callsheet", *words, str(made.config), env=environment)
        [shown] = [line for line in done.stdout.splitlines() if "sketch-1" in line]
        assert row in shown


def test_in_a_table_that_is_too_wide_heads_and_sentences_give_way_and_names_stay_whole() -> None:
    """Where it is not, nothing is broken; where names alone are too long, they are, and no number is."""
    row, shot = "a-lamp-of-the-autumn-catalogue", {"jobs": "12", "USD again": "0.0500"}
    prompts = Table([{"row": row, "prompt": "a lamp on a walnut table", **shot}], ("row", "prompt"))
    names = Table([{"batch": row, "config": f"{row}.yaml", **shot}], ("batch", "config"))
    for table, width, shown in (
        (prompts, 100, [row, "a lamp on a walnut table", "USD again", "0.0500"]),
        (prompts, 60, [row, "a lamp", "USD ", " again", "0.0500"]),
        (names, 60, ["-catalogue ", "-catalogue.yaml", "12", "0.0500"]),
    ):
        file = io.StringIO()
        print_page(Console(file=file, width=width, force_terminal=True, no_color=True), [table])
        printed = re.sub(r"\x1b\[\d*m", "", file.getvalue())
        assert [each for each in shown if each not in printed] == [], printed
        assert max(map(len, printed.splitlines())) <= width


def test_a_line_is_broken_between_words_and_indented_on_a_terminal_alone() -> None:
    """A path and a command stay in one piece, so that they can be copied; wide characters count twice."""
    japanese = "\u771f\u936e\u306e\u30e9\u30f3\u30d7\u3001\u5915\u65b9\u306e\u5149\u306e\u4e2d\u3067"
    command = "callsheet run batch.yaml --set retry_failed=gateway --yes"
    for name, words, shown in (
        (
            "Columns",
            "id, model, prompt, aspect_ratio; carried: shelf",
            ["id, model, prompt,", "aspect_ratio;", "carried: shelf"],
        ),
        ("File", path := "/a/path/that/is/longer/than/the/window.png", [path]),
        ("Prompt", japanese, [japanese[:9], japanese[9:]]),
        ("Next", f"go on: {command} buys again", ["go on:", command, "buys again"]),
        ("Next", "without: callsheet backlot", ["without:", "callsheet backlot"]),
    ):
        text, on_a_terminal = (
            f"{name:<11}{words}",
            [f"{name:<11}{shown[0]}", *(" " * 11 + each for each in shown[1:])],
        )
        for is_terminal, lines in ((True, on_a_terminal), (False, [text])):
            file = io.StringIO()
            console = Console(file=file, width=30, soft_wrap=True, force_terminal=is_terminal, no_color=True)
            print_line(console, text, 11)
            assert file.getvalue().splitlines() == lines
