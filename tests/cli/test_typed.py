"""What a person types: a config's name that is not quite right, the examples of the help, and completion."""

from __future__ import annotations

import inspect
import shlex
from pathlib import Path

import pytest
import typer.main

from callsheet.cli.main import app
from tests.cli.test_rows import printed, refusal

CONFIG_COMMANDS = """quote run collect status show failed report open review export resolve reconcile set
pause resume models balance"""
LEDGER_COMMANDS = ("backup", "move", "service-moved")
MORE_WORDS = {
    "show": ["a"],
    "export": ["--to", "x", "--as", "csv"],
    "set": ["budget.limit=1"],
    "backup": ["--to", "x.db"],
    "move": ["--to", "sqlite:///x.db"],
}


@pytest.mark.parametrize(
    "command",
    [*([each] for each in CONFIG_COMMANDS.split()), *(["ledger", each] for each in LEDGER_COMMANDS)],
)
def test_a_config_without_its_ending_is_an_error_that_names_the_file(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clips.yaml").write_text("batch: clips\n")
    error = refusal(*command, "clips", *MORE_WORDS.get(command[-1], ()))
    assert error.message == "clips: there is no such config file; did you mean clips.yaml?"


def test_the_config_that_is_proposed_is_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spring").mkdir()
    for name in (
        "clips.yaml",
        "clips.yml",
        "clips-2.yaml",
        "clicks.yaml",
        "Posters.yml",
        "spring/clips.yaml",
    ):
        (tmp_path / name).touch()
    for typed, meant in (
        ("clips", "clips.yaml"),
        ("clips.csv", "clips.yaml"),
        ("clip.yaml", "clips.yaml"),
        ("clips-3.yaml", "clips-2.yaml"),
        ("clik", "clicks.yaml"),
        ("posters.yaml", "Posters.yml"),
        ("spring/clip", "spring/clips.yaml"),
        (f"{tmp_path}/clips", f"{tmp_path}/clips.yaml"),
    ):
        assert refusal("status", typed).message.endswith(f"no such config file; did you mean {meant}?")
    assert refusal("status", "portraits.yaml").message == "portraits.yaml: there is no such config file"
    (tmp_path / "clips").mkdir()
    folder = refusal("status", "clips").message
    assert folder == "clips: cannot be read: it is a folder; did you mean clips.yaml?"


@pytest.mark.parametrize("command", ["quote", "run", "export", "set", "init"])
def test_a_help_ends_with_examples_that_the_command_takes(command: str) -> None:
    text = inspect.getdoc(typer.main.get_command(app).commands[command].callback)
    examples = [line for line in (text or "").split("\n\n") if line.startswith("callsheet ")]
    shown = [" ".join(line.split()) for line in printed(command, "--help", COLUMNS="200").splitlines()]
    options = next(number for number, line in enumerate(shown) if "Arguments" in line)
    assert [line for line in shown[:options] if line][-len(examples) :] == examples
    for example in examples:
        _, name, *words = shlex.split(example)
        assert name == command
        typer.main.get_command(app).commands[command].make_context(name, words)
