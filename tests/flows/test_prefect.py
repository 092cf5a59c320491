"""Deployments of prefect.yaml, on a real Prefect server, by a real process worker, against the backlot."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_reconcile import STUDIO, spend
from tests.conftest import Project
from tests.servers import http
from tests.servers.prefect import ROOT, PrefectServer, prefect_server
from tests.waiting import LONGEST, wait_until


def test_the_nightly_deployment_waits_until_its_schedule_is_switched_on(crew: PrefectServer) -> None:
    deployments = {one["name"]: one for one in crew.ask("deployments")}
    assert {"by-hand", "nightly", "collector", "quote", "reconcile", "inbox", "inbox-file"} == set(
        deployments
    )
    [schedule] = deployments["nightly"]["schedules"]
    assert (schedule["active"], schedule["schedule"]["cron"]) == (False, "0 2 * * *")


def test_a_deployed_run_buys_a_batch_and_shows_it(
    crew: PrefectServer, project: Callable[..., Project]
) -> None:
    rows = [{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(3)]
    made = project([*rows, {"id": "video", "prompt": "a video", "model": "dailies-1", "duration": 1}])
    made.at_absolute_paths()
    crew.command(
        *("deployment", "run", "generate-batch/by-hand", "--param", f"config={made.config}"),
        *("--tag", made.folder.name),
    )
    run = crew.ended(made.folder.name)
    logs = crew.log(run, until="4 jobs: 4 stored")
    assert (run["state"]["type"], run["state"]["name"]) == ("COMPLETED", "Complete"), run["state"]["message"]
    assert run["name"] == f"test: 4 jobs, {made.costs()['quoted'].sum():.4f} USD"
    assert {"callsheet", "batch:test"} <= set(run["tags"])
    assert made.manifest().height == 4
    tasks = crew.ask("task_runs", flow_runs={"id": {"any_": [run["id"]]}})
    assert sorted(one["name"] for one in tasks) == ["download", "poll", "price", "read", "record", "submit"]
    artifacts = crew.artifacts(run)
    assert artifacts["progress-test"] == 100.0
    assert "test: complete" in artifacts["costs-test"]
    assert "| sketch-1 | 3 | 3 | 0.0045 | 0.0045 |" in artifacts["costs-test"]
    assert "| video | dailies-1 | " in artifacts["costs-test"]
    assert "dailies-1" in artifacts["quote-test"]
    assert "4 to buy" in logs


@pytest.mark.soak
def test_a_deployed_reconciliation_over_the_threshold_ends_as_failed_with_its_table(
    crew: PrefectServer, project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = project([{"id": "s", "prompt": "an image", "model": "sketch-1"}], **STUDIO)
    made.set(service={"api_key_env": "STUDIO_API_KEY"})
    monkeypatch.setenv("STUDIO_API_KEY", made.backlot.api_key)
    made.at_absolute_paths()
    made.run()
    spend(made, "sk_second")
    crew.start("reconcile-costs/reconcile", tag=made.folder.name, config=str(made.config), start="2026-01-01")
    run = crew.ended(made.folder.name)
    assert run["state"]["type"] == "FAILED"
    assert run["state"]["message"].startswith("2026-01-01 to ")
    assert "0.0400 USD unexplained" in run["state"]["message"]
    [shown] = crew.ask("artifacts", flow_runs={"id": {"any_": [run["id"]]}})
    assert (shown["key"], shown["type"]) == ("reconcile-test", "table")
    assert "unexplained 0.0400" in shown["data"]


@pytest.mark.soak
def test_a_cancel_in_the_ui_stops_politely(crew: PrefectServer, project: Callable[..., Project]) -> None:
    """What was on the wire is answered and stored; nothing is in doubt."""
    rows = [{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(300)]
    made = project(rows, image_seconds=0.5, concurrency=6)
    made.at_absolute_paths()
    crew.start("generate-batch/by-hand", tag=made.folder.name, config=str(made.config))
    wait_until(lambda: list(made.folder.glob("out/media/**/*.jpeg")), "nothing is stored")
    run = crew.run(made.folder.name)
    cancelling = {"state": {"type": "CANCELLING"}}
    http.post(f"{crew.api}/flow_runs/{run['id']}/set_state", json=cancelling).raise_for_status()
    ended = crew.ended(made.folder.name)
    assert ended["state"]["type"] == "CANCELLED"
    states = made.costs()["state"].value_counts()
    assert dict(states.iter_rows()) == {"stored": made.manifest().height}
    assert 0 < made.manifest().height < 300


@pytest.mark.soak
def test_a_run_goes_on_without_the_server(project: Callable[..., Project], tmp_path: Path) -> None:
    """Prefect is how people watch a run, not what the money rests on."""
    rows = [{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(60)]
    made = project(rows, image_seconds=1, concurrency=6)
    made.at_absolute_paths()
    with prefect_server(tmp_path / "prefect") as lost:
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.generate", str(made.config)],
            cwd=ROOT,
            env=os.environ | {"PREFECT_API_URL": lost.api},
            stderr=subprocess.PIPE,
            text=True,
        )
        while not list(made.folder.glob("out/media/**/*.jpeg")):
            time.sleep(0.1)
    _, err = process.communicate(timeout=LONGEST)
    assert process.returncode == 0, err
    assert "goes on without it" in err
    assert "Traceback" not in err
    assert made.manifest().height == 60
    [workspace] = made.backlot.service.workspaces.values()
    assert workspace.spent == made.costs()["cost"].sum(), "and nothing was bought twice"
