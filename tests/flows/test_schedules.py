"""Scheduled batches on a real Prefect server, and what goes wrong in a night: nothing is paid for twice."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from backlot.faults import RULES, Faults
from tests.conftest import Project
from tests.servers import http
from tests.servers.prefect import ROOT, PrefectServer, prefect_server
from tests.waiting import wait_until

Make = Callable[..., Project]
FINAL = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}


class Night:
    """A Prefect server with the deployments of prefect.yaml; it and its worker can be ended and started."""

    def __init__(self, home: Path, **environment: str) -> None:
        self._home = home
        self._environment = environment
        self._running = ExitStack()
        self._port = 0
        self.start()

    def start(self) -> None:
        self.server = self._running.enter_context(prefect_server(self._home, self._port, **self._environment))
        self._port = int(httpx.URL(self.server.api).port or 0)

    def stop(self) -> None:
        self._running.close()

    def deploy(self) -> None:
        command = [sys.executable, "-m", "flows.deployments"]
        subprocess.run(command, cwd=ROOT, env=self.server.environment, check=True)

    @contextmanager
    def worker(self) -> Iterator[psutil.Popen]:
        command = [sys.executable, "-m", "flows.own_worker", "--pool", "crew"]
        environment = self.server.environment | {"PREFECT_WORKER_QUERY_SECONDS": "1"}
        environment["CALLSHEET_API_KEY"] = "sk_backlot"
        with psutil.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL) as process:
            try:
                yield process
            finally:
                if process.is_running():
                    process.terminate()

    def run(self, deployment: str, made: Project, tag: str = "") -> str:
        """Starts a run of a deployment with a project's config; returns its id."""
        found = http.get(f"{self.server.api}/deployments/name/{deployment}").raise_for_status().json()
        run = {"parameters": {"config": str(made.config)}, "tags": [tag] if tag else []}
        return str(self.server.post(f"deployments/{found['id']}/create_flow_run", run)["id"])

    def state(self, run: str) -> dict[str, Any]:
        [found] = self.server.ask("flow_runs", flow_runs={"id": {"any_": [run]}})
        return dict(found["state"])

    def ended(self, run: str) -> str:
        """The name of the final state of a run."""
        wait_until(lambda: self.state(run)["type"] in FINAL, "the run does not end", 0.3)
        return str(self.state(run)["name"])


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    made = Night(tmp_path_factory.mktemp("night"))
    try:
        made.deploy()
        yield made
    finally:
        made.stop()


def a_batch(project: Make, jobs: int = 60, **service: Any) -> Project:
    """A batch that takes some seconds."""
    rows = [{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(jobs)]
    made = project(rows, **({"image_seconds": 1, "concurrency": 6} | service))
    made.at_absolute_paths()
    return made


def files(made: Project) -> int:
    return len(list(made.folder.glob("out/media/**/*.jpeg")))


def paid_once(made: Project, jobs: int) -> None:
    """The ledger has each job once, and the service's own books have the same sum."""
    made.run()  # nothing is left to buy; its report is of now
    costs = made.costs()
    assert dict(costs["state"].value_counts().iter_rows()) == {"stored": jobs}
    assert costs["job_key"].n_unique() == jobs
    [workspace] = made.backlot.service.workspaces.values()
    assert workspace.spent == costs["cost"].sum()


def test_schedules_are_deployed_and_only_what_buys_nothing_is_limited_to_one_run(crew: PrefectServer) -> None:
    """Prefect ends a run of a limited deployment that cannot renew its slot; see prefect.yaml."""
    deployed = {one["name"]: one for one in crew.ask("deployments")}
    limits = {name: one["concurrency_options"] for name, one in deployed.items()}
    assert limits["nightly"] is limits["by-hand"] is limits["inbox-file"] is None
    for name in ("collector", "reconcile", "inbox"):
        assert limits[name]["collision_strategy"] == "CANCEL_NEW"
        assert deployed[name]["global_concurrency_limit"]["limit"] == 1
    crons = {name: [each["schedule"]["cron"] for each in one["schedules"]] for name, one in deployed.items()}
    assert crons["nightly"] == ["0 2 * * *"]
    assert crons["collector"] == ["*/15 * * * *"]
    assert crons["reconcile"] == ["0 6 * * *"]


@pytest.mark.soak
def test_of_two_nightly_runs_of_a_batch_one_leaves_to_the_other_what_that_has_in_hand(
    night: Night, project: Make
) -> None:
    made = a_batch(project)
    service = made.backlot.service
    with night.worker():
        first = night.run("generate-batch/nightly", made)
        wait_until(lambda: files(made), "nothing is stored")
        service.settings = service.settings.model_copy(
            update={"image_seconds": 20}
        )  # the first is held at work
        second = night.run("generate-batch/nightly", made)
        wait_until(lambda: night.state(second)["name"] == "Running", "it does not start", 0.3)
        assert night.state(first)["name"] == "Running"
        service.settings = service.settings.model_copy(update={"image_seconds": 1})
        assert night.ended(first) == "Complete"
        assert night.ended(second) in ("Complete", "Partial")
    paid_once(made, 60)


@pytest.mark.soak
def test_a_second_collector_is_cancelled(night: Night, project: Make) -> None:
    made = project(
        [{"id": f"v{n}", "prompt": f"video {n}", "model": "dailies-1", "duration": 1} for n in range(3)],
        video_seconds=15,
    )
    made.at_absolute_paths()
    assert made.run("poll.timeout=0.5").pending == 3
    failing = [{"endpoint": "status", "do": "error", "status": 503}]
    made.backlot.service.faults = Faults(RULES.validate_python(failing))  # the first is held at work
    with night.worker():
        first = night.run("collect-media/collector", made)
        wait_until(lambda: night.state(first)["name"] == "Running", "it does not start", 0.3)
        second = night.run("collect-media/collector", made)
        assert night.ended(second) == "Cancelled"
        made.backlot.service.faults = Faults()
        assert night.ended(first) == "Complete"
    paid_once(made, 3)


@pytest.mark.soak
@pytest.mark.parametrize(
    "deployment, ends",
    [
        ("generate-batch/nightly", {"Complete", "Partial"}),
        ("collect-media/collector", {"Complete", "Cancelled"}),
    ],
)
def test_runs_that_were_missed_without_a_worker_buy_nothing_twice(
    night: Night, project: Make, deployment: str, ends: set[str]
) -> None:
    made = a_batch(project, jobs=12)
    if deployment.startswith("collect"):
        made.run()
    runs = [night.run(deployment, made) for _ in range(4)]
    wait_until(
        lambda: all(night.state(run)["name"] == "Late" for run in runs), "the runs are not marked as late", 1
    )
    with night.worker():
        assert "Complete" in {night.ended(run) for run in runs} <= ends
    paid_once(made, 12)


@pytest.mark.soak
def test_a_worker_and_its_run_that_are_killed_stop_nothing_but_that_run(night: Night, project: Make) -> None:
    """The dead run stays Running in the UI. The next one takes over what it left, without waiting for it."""
    made = a_batch(project)
    with night.worker() as worker:
        dead = night.run("generate-batch/nightly", made)
        wait_until(lambda: files(made), "nothing is stored")
        for process in [worker, *worker.children(recursive=True)]:
            process.kill()
    bought = files(made)
    with night.worker():
        following = night.run("generate-batch/nightly", made)
        ended = night.ended(following)
        assert night.state(dead)["name"] == "Running"
    assert 0 < bought < 60
    lost = made.costs().filter(made.costs()["state"] == "in_doubt").height  # on the wire at that moment
    assert ended == ("InDoubt" if lost else "Complete")
    [workspace] = made.backlot.service.workspaces.values()
    assert made.costs()["job_key"].n_unique() == 60
    assert workspace.spent <= made.costs()["quoted"].sum(), "no job was bought twice"


@pytest.mark.soak
def test_a_run_goes_on_while_the_server_is_started_anew(night: Night, project: Make) -> None:
    made = a_batch(project)
    with night.worker():
        run = night.run("generate-batch/nightly", made)
        wait_until(lambda: files(made), "nothing is stored")
        night.stop()
        night.start()
        assert night.ended(run) == "Complete"
    paid_once(made, 60)


@pytest.mark.soak
def test_a_cancelled_run_that_is_retried_in_the_ui_goes_on(night: Night, project: Make) -> None:
    made = a_batch(project)
    with night.worker():
        run = night.run("generate-batch/by-hand", made)
        wait_until(lambda: files(made), "nothing is stored")
        night.server.post(f"flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}})
        assert night.ended(run) == "Cancelled"
        assert 0 < files(made) < 60
        retry = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry"}, "force": True}
        night.server.post(f"flow_runs/{run}/set_state", retry)
        assert night.ended(run) == "Complete"
    paid_once(made, 60)


@pytest.mark.soak
def test_the_same_with_the_servers_data_in_postgresql(
    project: Make, new_database: Callable[[], str], tmp_path: Path
) -> None:
    """Two runs side by side, and the server started anew while they are at work."""
    url = new_database().replace("postgresql+psycopg", "postgresql+asyncpg")
    night = Night(tmp_path / "home", PREFECT_SERVER_DATABASE_CONNECTION_URL=url)
    try:
        night.deploy()
        made = a_batch(project)
        with night.worker():
            first, second = (night.run("generate-batch/nightly", made) for _ in range(2))
            wait_until(lambda: files(made), "nothing is stored")
            night.stop()
            night.start()
            assert "Complete" in {night.ended(first), night.ended(second)} <= {"Complete", "Partial"}
    finally:
        night.stop()
    paid_once(made, 60)
