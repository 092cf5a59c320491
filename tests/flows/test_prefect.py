"""Deployments of prefect.yaml, on a real Prefect server, by a real process worker, against the backlot."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.test_commands import CALLSHEET
from tests.cli.test_reconcile import STUDIO, spend
from tests.conftest import Project
from tests.servers.prefect import PrefectServer, prefect_server
from tests.waiting import LONGEST, wait_until


@pytest.fixture(scope="module")
def server(prefect: PrefectServer) -> Iterator[PrefectServer]:
    """The server with the deployments, and a worker of their pool, which has the keys of these projects."""
    with prefect.worker("crew", CALLSHEET_API_KEY="sk_backlot", STUDIO_API_KEY=STUDIO["api_key"]):
        crew = {"name": {"any_": ["crew"]}}
        wait_until(lambda: _ask(prefect, "work_pools", work_pools=crew), "the worker has not made its pool")
        prefect.command("--no-prompt", "deploy", "--all")
        yield prefect


def _start(server: PrefectServer, deployment: str, made: Project, **parameters: str) -> None:
    """Starts a run of a deployment, with the name of the project's folder as a tag."""
    found = httpx.get(f"{server.api}/deployments/name/{deployment}").raise_for_status().json()
    run = {"parameters": {"config": str(made.config)} | parameters, "tags": [made.folder.name]}
    httpx.post(f"{server.api}/deployments/{found['id']}/create_flow_run", json=run).raise_for_status()


def _ask(server: PrefectServer, path: str, **filters: Any) -> list[dict[str, Any]]:
    answer = httpx.post(f"{server.api}/{path}/filter", json=filters)
    answer.raise_for_status()
    return list(answer.json())


def test_the_nightly_deployment_waits_until_its_schedule_is_switched_on(server: PrefectServer) -> None:
    deployments = {one["name"]: one for one in _ask(server, "deployments")}
    assert set(deployments) == {"by-hand", "nightly", "collector", "quote", "reconcile"}
    [schedule] = deployments["nightly"]["schedules"]
    assert (schedule["active"], schedule["schedule"]["cron"]) == (False, "0 2 * * *")


def test_a_deployed_run_buys_a_batch_and_shows_it(
    server: PrefectServer, project: Callable[..., Project]
) -> None:
    rows = [{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(3)]
    made = project([*rows, {"id": "video", "prompt": "a video", "model": "dailies-1", "duration": 1}])
    made.at_absolute_paths()
    server.command(
        *("deployment", "run", "generate-batch/by-hand", "--param", f"config={made.config}"),
        *("--tag", made.folder.name),
    )
    run = _wait(server, made.folder.name)
    logs = _log(server, run["id"], until="4 jobs: 4 stored")
    assert (run["state"]["type"], run["state"]["name"]) == ("COMPLETED", "Complete"), run["state"]["message"]
    assert run["name"] == f"test: 4 jobs, {made.costs()['quoted'].sum():.4f} USD"
    assert {"callsheet", "batch:test"} <= set(run["tags"])
    assert made.manifest().height == 4
    tasks = _ask(server, "task_runs", flow_runs={"id": {"any_": [run["id"]]}})
    assert sorted(one["name"] for one in tasks) == ["download", "poll", "price", "read", "record", "submit"]
    artifacts = {
        one["key"]: one["data"] for one in _ask(server, "artifacts", flow_runs={"id": {"any_": [run["id"]]}})
    }
    assert artifacts["progress-test"] == 100.0
    assert "test: complete" in artifacts["costs-test"]
    assert "| sketch-1 | 3 | 3 | 0.0045 | 0.0045 |" in artifacts["costs-test"]
    assert "| video | dailies-1 | " in artifacts["costs-test"]
    assert "dailies-1" in artifacts["quote-test"]
    assert "4 to buy" in logs


def test_a_deployed_reconciliation_over_the_threshold_ends_as_failed_with_its_table(
    server: PrefectServer, project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = project([{"id": "s", "prompt": "an image", "model": "sketch-1"}], **STUDIO)
    made.set(service={"api_key_env": "STUDIO_API_KEY"})
    monkeypatch.setenv("STUDIO_API_KEY", made.backlot.api_key)
    made.at_absolute_paths()
    made.run()
    spend(made, "sk_second")
    _start(server, "reconcile-costs/reconcile", made, start="2026-01-01")
    run = _wait(server, made.folder.name)
    assert run["state"]["type"] == "FAILED"
    assert run["state"]["message"].startswith("2026-01-01 to ")
    assert "0.0400 USD unexplained" in run["state"]["message"]
    [shown] = _ask(server, "artifacts", flow_runs={"id": {"any_": [run["id"]]}})
    assert (shown["key"], shown["type"]) == ("reconcile-test", "table")
    assert "another key's spending 0.0400" in shown["data"]


def test_a_night_in_doubt_is_red_and_says_why(server: PrefectServer, project: Callable[..., Project]) -> None:
    cut_off = {"endpoint": "images", "prompt": "cut off", "do": "drop", "when": "after_charging"}
    rows = [{"id": name, "prompt": name, "model": "sketch-1"} for name in ("fine", "cut off")]
    made = project(rows, faults={"rules": [cut_off]})
    made.at_absolute_paths()
    _start(server, "generate-batch/nightly", made)
    run = _wait(server, made.folder.name)
    assert (run["state"]["type"], run["state"]["name"]) == ("FAILED", "InDoubt")
    assert "1 stored, 1 in doubt" in run["state"]["message"]
    assert "row cut off in doubt: " in _log(server, run["id"], until="2 jobs: 1 stored, 1 in doubt")
    assert run["run_count"] == 1
    assert made.manifest().height == 1


def _log(server: PrefectServer, run_id: str, until: str) -> str:
    """What the library itself has logged; Prefect sends it a little later."""
    deadline = time.monotonic() + LONGEST
    while True:
        lines = _ask(server, "logs", logs={"flow_run_id": {"any_": [run_id]}})
        text = "\n".join(one["message"] for one in lines if one["name"] == "callsheet")
        if until in text:
            return text
        assert time.monotonic() < deadline, text
        time.sleep(0.3)


def _wait(server: PrefectServer, tag: str) -> dict[str, Any]:
    deadline = time.monotonic() + LONGEST
    while True:
        [run] = _ask(server, "flow_runs", flow_runs={"tags": {"all_": [tag]}})
        if run["state"]["type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"):
            return run
        assert time.monotonic() < deadline, f"the run is still {run['state']}"
        time.sleep(0.3)


def test_a_cancel_in_the_ui_stops_politely(server: PrefectServer, project: Callable[..., Project]) -> None:
    """What was on the wire is answered and stored; nothing is in doubt."""
    rows = [{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(300)]
    made = project(rows, image_seconds=0.5, concurrency=6)
    made.at_absolute_paths()
    _start(server, "generate-batch/by-hand", made)
    wait_until(lambda: list(made.folder.glob("out/media/**/*.jpeg")), "nothing is stored")
    [run] = _ask(server, "flow_runs", flow_runs={"tags": {"all_": [made.folder.name]}})
    cancelling = {"state": {"type": "CANCELLING"}}
    httpx.post(f"{server.api}/flow_runs/{run['id']}/set_state", json=cancelling).raise_for_status()
    ended = _wait(server, made.folder.name)
    assert ended["state"]["type"] == "CANCELLED"
    states = made.costs()["state"].value_counts()
    assert dict(states.iter_rows()) == {"stored": made.manifest().height}
    assert 0 < made.manifest().height < 300


@pytest.mark.soak
def test_a_run_goes_on_without_the_server(project: Callable[..., Project], tmp_path: Path) -> None:
    """Prefect is how people watch a run, not what the money rests on."""
    rows = [{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(60)]
    made = project(rows, image_seconds=1, concurrency=6)
    with prefect_server(tmp_path / "prefect") as lost:
        process = subprocess.Popen(
            [*CALLSHEET, "run", str(made.config)],
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
