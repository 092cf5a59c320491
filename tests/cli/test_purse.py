"""`purse` and `run --purse`: the wall, the question, and a person who goes on."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

import callsheet
from callsheet.cli.main import app
from callsheet.errors import ApprovalNeeded, ConfigError
from callsheet.processes import user_name
from tests.cli.test_rows import printed, refusal
from tests.conftest import Project, images

Make = Callable[..., Project]
PRICE = Decimal("0.0015")
PURSE = "0.0060"  # 4 images


def given(project: Make, count: int = 10, amount: str = PURSE, **service: Any) -> Project:
    """A batch of images, with a purse for some of them."""
    made = project(images(count), **service)
    printed("purse", str(made.config), amount)
    return made


def run(made: Project, *options: str, code: int) -> dict[str, Any]:
    """What a run by the agent's purse answers."""
    words = ("run", str(made.config), "--purse", "agent", "--quiet", "--json", *options)
    answer: dict[str, Any] = json.loads(printed(*words, code=code))
    return answer


def test_a_run_by_a_purse_stops_at_the_wall_and_a_person_goes_on(project: Make) -> None:
    made = given(project)
    made.set(budget={"approve_above": "0.0010"})
    stopped = run(made, code=4)
    assert (stopped["stop_reason"], stopped["stored"], stopped["spent"]) == ("approval", 4, PURSE)
    [asked] = stopped["approvals"]
    assert (asked["decision"], asked["jobs"], asked["quoted"]) == (None, 6, "0.0090")
    assert run(made, code=4)["spent"] == PURSE, "the same command asks again, and buys nothing"
    assert made.charged == 4 * PRICE
    printed("purse", str(made.config), "0.0030")
    assert run(made, code=4)["stored"] == 6, "another purse"
    assert json.loads(printed("run", str(made.config), "--yes", "--json"))["stored"] == 10, (
        "or a run of a person"
    )
    assert run(made, code=0)["stored"] == 10
    assert made.charged == 10 * PRICE
    [*_, last] = json.loads(printed("purse", str(made.config), "--list", "--json"))["purses"]
    assert (last["name"], last["spent"], last["left"]) == ("agent", "0.0030", "0.0000")
    assert last["given_by"] == user_name()


@pytest.mark.parametrize(
    "options",
    [
        ("budget.approve_above=null",),
        ("budget.limit=1000.00", "budget.on_exceed=skip"),
        ("batch=renamed", "report.url=out/renamed"),
        ("ledger.url=sqlite:///out/other.db", "report.url=out/other", "storage.url=out/others"),
        ("input.matrix.aspect_ratio=[1:1, 16:9]",),
        ("input.defaults.samples=9",),
        ("review.buy_again=true", "review.samples=9", "on_doubt=retry", "attempts=9"),
        ("budget.pilot=1", "budget.repeats=buy"),
    ],
)
def test_no_setting_makes_a_purse_larger(project: Make, options: tuple[str, ...]) -> None:
    made = given(project)
    run(made, *(word for option in options for word in ("--set", option)), code=4)
    assert made.charged <= Decimal(PURSE)
    run(made, code=4)
    assert made.charged == Decimal(PURSE)


def test_an_edited_config_and_a_config_that_is_made_anew_make_it_no_larger(project: Make) -> None:
    made = given(project)
    run(made, code=4)
    made.set(budget={"limit": "99.00", "approve_above": None}, input={"matrix": {"aspect_ratio": ["16:9"]}})
    made.rows(*images(30, "new"))
    run(made, code=4)
    made.config.rename(made.config.with_name("old.yaml"))
    printed("init", "prompts.csv", "batch.yaml", "--json")
    run(made, "--set", "input.guessed={}", "--set", "batch=test", "--set", "report.url=out/report", code=4)
    assert made.charged == Decimal(PURSE)


def test_another_folder_with_a_copy_of_everything_has_nothing_to_spend(
    project: Make, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = given(project)
    run(made, code=4)
    there = tmp_path_factory.mktemp("copied") / "project"
    shutil.copytree(made.folder, there)
    monkeypatch.chdir(there)
    words = ("run", "batch.yaml", "--purse", "agent", "--json")
    printed(*words, code=4)
    assert made.charged == Decimal(PURSE)
    shutil.rmtree(there / "out")
    printed(*words, code=4)
    assert made.charged == Decimal(PURSE)


def test_an_older_copy_of_the_ledger_in_its_place_has_no_more_to_spend(project: Make) -> None:
    """Not even where a run may buy by it: a person says that, not who buys by a purse."""
    made = given(project)
    printed("ledger", "backup", str(made.config), "--to", "older.db")
    run(made, code=4)
    for end in ("", "-wal", "-shm"):
        (made.folder / f"out/ledger.db{end}").unlink(missing_ok=True)
    shutil.copy(made.folder / "older.db", made.folder / "out/ledger.db")
    for option in ((), ("--new-ledger",), ("--set", "ledger.new=true")):
        refusal("run", str(made.config), "--purse", "agent", *option)
    assert made.charged == Decimal(PURSE)


def test_who_buys_by_a_purse_answers_no_question(project: Make) -> None:
    made = given(project)
    words = ("run", str(made.config), "--purse", "agent", "--yes")
    assert "exclude each other" in refusal(*words).message
    with pytest.raises(ConfigError, match="exclude each other"):
        callsheet.run(made.config, yes=True, purse="agent")
    with pytest.raises(ApprovalNeeded, match=r"the purse of agent has 0\.0000 of 0\.0060 USD left"):
        callsheet.run(made.config, purse="agent")
    with pytest.raises(ApprovalNeeded, match="nobody has given other a purse"):
        callsheet.run(made.config, purse="other")
    assert made.charged == Decimal(PURSE)


def test_a_closed_purse_and_one_for_other_models_buy_nothing(project: Make) -> None:
    made = given(project)
    closed = printed("purse", str(made.config), "--close")
    assert f"closed by {user_name()}" in closed
    [shut] = json.loads(printed("purse", str(made.config), "--list", "--json"))["purses"]
    assert shut["why_not"].startswith(f"closed by {user_name()}, ")
    assert [*shut][-4:] == ["closed_by", "closed_at", "why_not", "left"]
    assert run(made, code=4)["stored"] == 0
    printed("purse", str(made.config), PURSE, "--models", "reel-1")
    asked = run(made, code=4)["approvals"][-1]
    assert asked["why"] == "the purse of agent is not for sketch-1, but for reel-1"
    assert made.charged == 0
    assert (
        "no open purse named other" in refusal("purse", str(made.config), "--close", "--to", "other").message
    )


@pytest.mark.parametrize("amount", ["0", "nan", "inf", "1e30", "five", "0.0000001"])
def test_an_amount_is_in_dollars(project: Make, amount: str) -> None:
    made = project(images(1))
    assert "is no amount of US dollars" in refusal("purse", str(made.config), amount).message


@pytest.mark.parametrize("time", ["0d", "7", "9999d", "-1h", "a week"])
def test_a_time_is_one_of_up_to_a_year(project: Make, time: str) -> None:
    made = project(images(1))
    assert "is no time" in refusal("purse", str(made.config), "1.00", f"--for={time}").message


def test_without_an_amount_a_purse_is_listed_or_closed(project: Make) -> None:
    made = project(images(1))
    assert "what about the purse?" in refusal("purse", str(made.config)).message


def test_what_an_agent_is_told_works_when_it_is_typed(project: Make) -> None:
    """`callsheet docs skill`, which is the AGENTS.md of a project, too."""
    made = project()
    (made.folder / "shots.csv").write_text("id,prompt,model\nlamp,a lamp,sketch-1\n" + "cup,a cup,sketch-1\n")
    skill = printed("docs", "skill")
    [typed] = re.findall(r"^```sh\n(.*?)^```$", skill, re.DOTALL | re.MULTILINE)
    init, *others, export = [shlex.split(line, comments=True)[1:] for line in typed.splitlines()]
    printed(*init)
    assert json.loads(printed("purse", "shots.yaml", "--list", "--json"))["purses"] == []
    printed("purse", "shots.yaml", "1.00")
    for words in others:
        printed(*words)
    printed("review", "shots.yaml", "--keep", "lamp")
    printed(*export)
    assert made.charged == 2 * PRICE
    listed = re.findall(r"^\| `callsheet ([a-z]+)", skill, re.MULTILINE)
    assert len({*listed}) == 10
    assert {*listed} <= {command.name or command.callback.__name__ for command in app.registered_commands}
    printed("init", "--project", "project")
    assert (made.folder / "project/AGENTS.md").read_text() == skill
