"""What a person types: a config's name that is not quite right, the examples of the help, and completion."""

from __future__ import annotations

import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from callsheet.cli.main import app
from tests.cli.test_rows import printed, refusal

DOCS = Path(__file__).parents[2] / "docs"

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


def completed(words: str, shell: str = "bash") -> list[str]:
    """The lines that a shell is answered that asks for the completions of these words."""
    environment = {
        "_CALLSHEET_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": words,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "COLUMNS": "80",
    }
    return CliRunner().invoke(app, [], env=environment, prog_name="callsheet").stdout.splitlines()


def test_the_shell_completes_settings_each_with_its_meaning() -> None:
    assert completed("callsheet run batch.yaml --set budget.p") == ["budget.per_day=", "budget.pilot="]
    assert completed("callsheet quote batch.yaml --set input.defaults.m") == ["input.defaults.model="]
    [said] = completed("callsheet quote batch.yaml --set input.id", "zsh")
    assert said == """_arguments '*: :(("input.id=":"An id made from columns"))'"""


def test_every_setting_is_completed_on_a_line_of_its_own() -> None:
    lines = completed("callsheet status batch.yaml --set ", "fish")
    found = dict(line.split("=\t") for line in lines)
    keys = re.findall(r"^\| `([a-z_.]+)` \|", (DOCS / "configuration.md").read_text(), re.MULTILINE)
    assert sorted(found) == sorted(keys)
    assert all(found.values())


def test_set_completes_what_a_run_at_work_can_be_given() -> None:
    found = completed("callsheet set batch.yaml budget.")
    assert found == ["budget.limit=", "budget.per_day=", "budget.ledger="]


def test_a_shell_that_completes_waits_for_no_large_import() -> None:
    asked = "from callsheet.cli.output import changeable_like; assert changeable_like('budget.limit')"
    imported = f"import sys; {asked}; sys.exit('polars' in sys.modules or 'prefect' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", imported], check=False).returncode == 0
