"""A production: batches in their order; between two the run waits until a person has looked at the files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.production import run_production
from tests.cli.test_rows import printed
from tests.conftest import Project
from tests.flows.test_approval import answer, asked
from tests.servers.prefect import PrefectServer

Make = Callable[..., Project]
ROWS = [{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(2)]
FILM = [{"id": "f", "prompt": "a film", "model": "dailies-1", "duration": 1}]


@pytest.fixture
def production(project: Make) -> tuple[Project, list[str]]:
    """Two batches in a folder, and their configs."""
    made = project(ROWS)
    made.set(batch=f"{made.folder.name}-stills")
    made.at_absolute_paths()
    films = made.folder / "films.yaml"
    config: dict[str, Any] = yaml.safe_load(made.config.read_text())
    (made.folder / "films.csv").write_text("id,prompt,model,duration\nf,a film,dailies-1,1\n")
    config |= {"batch": f"{made.folder.name}-films"}
    config["input"]["path"] = str(made.folder / "films.csv")
    films.write_text(yaml.safe_dump(config))
    return made, [str(made.config), str(films)]


def stored(config: str) -> int:
    return int(yaml.safe_load(printed("status", config, "--json"))["stored"])


def test_a_production_waits_between_two_batches_and_goes_on_with_the_answer(
    crew: PrefectServer, production: tuple[Project, list[str]]
) -> None:
    made, configs = production
    tag = made.folder.name
    run = crew.begin(run_production, "run-production/production", tag=tag, configs=configs)
    assert run["state"]["name"] == "Suspended", run["state"]
    assert (stored(configs[0]), stored(configs[1])) == (2, 0)
    shown = asked(crew, tag)["description"].replace("\\", "")
    assert f"Buy 1 job of {tag}-films for 0.0080 USD?" in shown
    assert f"{tag}-stills is bought: 0 files kept, 0 rejected, 2 to review" in shown
    assert shown.count("data:image/jpeg") == 2, "what the first batch has made"

    printed("review", configs[0], "--keep", "s0")
    answer(crew, run, decision="approve", name="ada")
    run = crew.go_on(run_production, tag)
    assert run["state"]["name"] == "Complete", run["state"]
    assert (stored(configs[0]), stored(configs[1])) == (2, 1)
    assert len(list(made.backlot.service.store.select("1 = ?", 1))) == 3, "nothing was bought twice"


def test_a_refused_production_ends_as_a_batch_does(
    crew: PrefectServer, production: tuple[Project, list[str]]
) -> None:
    made, configs = production
    tag = made.folder.name
    run = crew.begin(run_production, "run-production/production", tag=tag, configs=configs)
    answer(crew, run, decision="refuse", name="ada")
    run = crew.go_on(run_production, tag)
    assert run["state"]["type"] == "CANCELLED"
    assert "ada has refused" in run["state"]["message"]
    assert (stored(configs[0]), stored(configs[1])) == (2, 0)


def test_with_a_yes_given_before_nobody_is_asked_and_all_is_bought(
    crew: PrefectServer, production: tuple[Project, list[str]]
) -> None:
    made, configs = production
    tag = made.folder.name
    run = crew.begin(run_production, "run-production/production", tag=tag, configs=configs, approved=True)
    assert run["state"]["name"] == "Complete", run["state"]
    assert (stored(configs[0]), stored(configs[1])) == (2, 1)
    run = crew.begin(run_production, "run-production/production", tag=f"{tag}-2", configs=configs)
    assert run["state"]["name"] == "Suspended", "two files are to review"
    printed("review", configs[0], "--keep", "s0", "--reject", "s1")
    run = crew.begin(run_production, "run-production/production", tag=f"{tag}-3", configs=configs)
    assert run["state"]["name"] == "Complete", "nothing is to look at, and nothing to buy"


def test_a_batch_that_is_not_complete_ends_the_production(
    crew: PrefectServer, production: tuple[Project, list[str]]
) -> None:
    made, configs = production
    made.set(budget={"limit": "0.0020"})
    run = crew.begin(run_production, "run-production/production", tag=made.folder.name, configs=configs)
    assert run["state"]["name"] == "StoppedAtBudget"
    assert not Path(made.folder / "films").exists()
    assert (stored(configs[0]), stored(configs[1])) == (1, 0)


def test_where_nothing_is_kept_yet_the_run_waits_and_then_buys_for_what_is_kept(
    crew: PrefectServer, production: tuple[Project, list[str]]
) -> None:
    made, configs = production
    films: dict[str, Any] = yaml.safe_load(Path(configs[1]).read_text())
    films["input"] = {"kept": configs[0], "defaults": {"model": "dailies-1", "duration": 1}}
    Path(configs[1]).write_text(yaml.safe_dump(films))
    tag = made.folder.name
    run = crew.begin(run_production, "run-production/production", tag=tag, configs=configs)
    assert run["state"]["name"] == "Suspended", run["state"]
    shown = asked(crew, tag)["description"].replace("\\", "")
    assert f"Nothing is kept yet, so {tag}-films has no price" in shown
    assert shown.count("data:image/jpeg") == 2

    printed("review", configs[0], "--keep", "s0")
    answer(crew, run, decision="approve", name="ada")
    run = crew.go_on(run_production, tag)
    assert run["state"]["name"] == "Complete", run["state"]
    assert (stored(configs[0]), stored(configs[1])) == (2, 1)

    run = crew.begin(run_production, "run-production/production", tag=f"{tag}-2", configs=configs)
    assert run["state"]["name"] == "Suspended", "a file is still to review"
    printed("review", configs[0], "--keep", "s1")
    answer(crew, run, decision="approve", name="ada")
    run = crew.go_on(run_production, f"{tag}-2")
    assert (run["state"]["name"], stored(configs[1])) == ("Complete", 2), "what is kept by then"


def test_a_production_finishes_what_another_run_has_left_before_anybody_is_asked(
    crew: PrefectServer, project: Make
) -> None:
    made = project(FILM, video_seconds=1)
    made.set(batch=f"{made.folder.name}-films")
    made.at_absolute_paths()
    stills = made.folder / "stills.yaml"
    (made.folder / "stills.csv").write_text("id,prompt,model\ns,a still,sketch-1\n")
    config: dict[str, Any] = yaml.safe_load(made.config.read_text())
    config |= {"batch": f"{made.folder.name}-stills"}
    config["input"]["path"] = str(made.folder / "stills.csv")
    stills.write_text(yaml.safe_dump(config))
    configs = [str(stills), str(made.config)]
    assert made.run("poll.timeout=0.01").pending == 1
    run = crew.begin(run_production, "run-production/production", tag=made.folder.name, configs=configs)
    assert run["state"]["name"] == "Complete", "though a still is to review"
    assert (stored(configs[0]), stored(configs[1])) == (1, 1)
