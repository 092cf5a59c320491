"""Files of an inbox on a real Prefect server and worker: quoted, approved, bought once, and moved."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Project
from tests.flows.test_approval import answer, asked
from tests.servers.prefect import PrefectServer
from tests.waiting import wait_until


def put(inbox: Path, name: str, *prompts: str) -> None:
    """Writes a batch file, a minute ago."""
    file = inbox / name
    file.write_text("\n".join(["prompt", *prompts]))
    os.utime(file, (time.time() - 60,) * 2)


def look(crew: PrefectServer, made: Project, tag: str) -> dict[str, Any]:
    """A run of the deployment `inbox` over the project's inbox, when it has ended."""
    values = {"config": str(made.config), "inbox": str(made.folder / "inbox")}
    crew.start("watch-inbox/inbox", tag=tag, **values)
    return crew.ended(tag)


def tagged(tag: str) -> dict[str, Any]:
    """The filter for runs with a tag."""
    return {"tags": {"all_": [tag]}}


def spent(made: Project) -> Decimal:
    [workspace] = made.backlot.service.workspaces.values()
    return workspace.spent


@pytest.mark.soak
def test_a_file_is_quoted_at_once_bought_when_approved_moved_when_done_and_never_bought_twice(
    crew: PrefectServer, project: Callable[..., Project]
) -> None:
    made = project()
    name = made.folder.name
    made.set(batch=name, input={"defaults": {"model": "sketch-1"}})
    made.at_absolute_paths()
    made.set(report={"url": str(made.folder / "out/{batch}")})
    inbox = made.folder / "inbox"
    inbox.mkdir()
    put(inbox, "shots.csv", "one", "two")
    for time_ in ("first", "second"):
        looked = look(crew, made, f"{name}-{time_}")
        assert looked["state"]["message"] == f"1 file in {inbox}"
    batch = f"{name}-shots.csv"
    wait_until(lambda: crew.ask("flow_runs", flow_runs=tagged(f"batch:{batch}")), "it is never priced", 0.3)
    question = asked(crew, f"batch:{batch}")  # which finds one run: the second look has started none
    assert question["name"] == f"{batch}: 2 jobs, 0.0030 USD"
    assert "**Buy 2 jobs of" in question["description"]
    assert spent(made) == 0
    assert answer(crew, question, decision="approve") == "ACCEPT"
    wait_until(lambda: not list(inbox.glob("*.csv")), "the file is not moved", 0.3)
    assert spent(made) == Decimal("0.0030")
    [moved] = (inbox / "done").iterdir()
    assert moved.name.endswith("-shots.csv")
    assert json.loads((made.folder / "out" / batch / "report.json").read_text())["stored"] == 2
    put(inbox, "shots.csv", "one", "two")
    look(crew, made, f"{name}-third")
    wait_until(lambda: not list(inbox.glob("*.csv")), "the same rows are not recognised", 0.3)
    assert spent(made) == Decimal("0.0030"), "nothing is bought or asked twice"


def test_an_inbox_that_is_not_there_is_named(crew: PrefectServer, project: Callable[..., Project]) -> None:
    made = project()
    looked = look(crew, made, made.folder.name)
    assert (looked["state"]["type"], looked["state"]["name"]) == ("FAILED", "Failed")
    assert "there is no such folder. mkdir -p" in looked["state"]["message"]
