"""Deployments of prefect.yaml, on a real Prefect server, by a real process worker, against the backlot."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.conftest import Project
from tests.servers.prefect import PrefectServer


@pytest.fixture(scope="module")
def server(prefect: PrefectServer) -> PrefectServer:
    prefect.command("work-pool", "create", "crew", "--type", "process")
    prefect.command("--no-prompt", "deploy", "--all")
    return prefect


def _ask(server: PrefectServer, path: str, **filters: Any) -> list[dict[str, Any]]:
    answer = httpx.post(f"{server.api}/{path}/filter", json=filters)
    answer.raise_for_status()
    return list(answer.json())


def test_the_nightly_deployment_waits_until_its_schedule_is_switched_on(server: PrefectServer) -> None:
    deployments = {one["name"]: one for one in _ask(server, "deployments")}
    assert set(deployments) == {"by-hand", "nightly", "collector", "quote"}
    [schedule] = deployments["nightly"]["schedules"]
    assert (schedule["active"], schedule["schedule"]["cron"]) == (False, "0 2 * * *")


def test_a_deployed_run_buys_a_batch_and_shows_it(
    server: PrefectServer, project: Callable[..., Project]
) -> None:
    rows = [{"id": f"s{n}", "prompt": f"still {n}", "model": "sketch-1"} for n in range(3)]
    made = project([*rows, {"id": "film", "prompt": "a film", "model": "dailies-1", "duration": 1}])
    made.set(
        input={"path": str(made.folder / "prompts.csv")},
        storage={"url": str(made.folder / "out/media")},
        ledger={"url": f"sqlite:///{made.folder}/out/ledger.db"},
        report={"url": str(made.folder / "out/report")},
    )
    keyed = replace(server, environment=server.environment | {"CALLSHEET_API_KEY": made.backlot.api_key})
    with keyed.worker("crew"):
        server.command(
            *("deployment", "run", "generate-batch/by-hand", "--param", f"config={made.config}"),
            *("--tag", made.folder.name),
        )
        run = _wait(server, made.folder.name)
    assert (run["state"]["type"], run["state"]["name"]) == ("COMPLETED", "Complete"), run["state"]["message"]
    assert run["name"] == "batch"
    assert "callsheet" in run["tags"]
    assert made.manifest().height == 4
    tasks = _ask(server, "task_runs", flow_runs={"id": {"any_": [run["id"]]}})
    assert sorted(one["name"] for one in tasks) == ["download", "poll", "price", "read", "record", "submit"]
    artifacts = {
        one["key"]: one["data"] for one in _ask(server, "artifacts", flow_runs={"id": {"any_": [run["id"]]}})
    }
    assert artifacts["progress"] == 100.0
    assert "test: complete" in artifacts["costs"]
    assert "dailies-1" in artifacts["quote"]


def _wait(server: PrefectServer, tag: str) -> dict[str, Any]:
    deadline = time.monotonic() + 120
    while True:
        [run] = _ask(server, "flow_runs", flow_runs={"tags": {"all_": [tag]}})
        if run["state"]["type"] in ("COMPLETED", "FAILED", "CRASHED"):
            return run
        assert time.monotonic() < deadline, f"the run is still {run['state']}"
        time.sleep(0.3)
