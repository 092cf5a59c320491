"""Scheduled batches on a real Prefect server, and what goes wrong in a night: nothing is paid for twice."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from backlot.faults import RULES, Faults
from tests.conftest import Project
from tests.servers.prefect import ROOT, PrefectServer, prefect_server
from tests.waiting import wait_until

pytestmark = pytest.mark.soak
Make = Callable[..., Project]
NIGHTLY = "generate-batch/nightly"


class Night:
    """A Prefect server with the deployments of prefect.yaml; it and its worker can be ended and started.

    Args:
        stack: ends the server.
        home: the server's folder.
        environment: more variables of the server.
    """

    def __init__(self, stack: ExitStack, home: Path, **environment: str) -> None:
        self._stack, self._home, self._environment = stack, home, environment
        self.server = self._start()
        command = [sys.executable, "-m", "flows.deployments"]
        subprocess.run(command, cwd=ROOT, env=self.server.environment, check=True)

    def _start(self, port: int = 0) -> PrefectServer:
        return self._stack.enter_context(prefect_server(self._home, port, **self._environment))

    def start_anew(self) -> None:
        """Ends the server, and starts another one in its place."""
        self._stack.pop_all().close()
        self.server = self._start(httpx.URL(self.server.api).port or 0)

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

    def run(self, deployment: str, made: Project, number: int = 1) -> str:
        """Starts a run of a deployment with a project's config; returns the tag by which it is found."""
        tag = f"{made.folder.name}-{number}"
        self.server.start(deployment, tag=tag, config=str(made.config))
        return tag

    def state(self, run: str) -> str:
        """The name of a run's state."""
        return str(self.server.run(run)["state"]["name"])

    def ended(self, run: str) -> str:
        """The name of a run's final state."""
        return str(self.server.ended(run)["state"]["name"])

    def is_running(self, run: str) -> None:
        """Waits until a run is at work."""
        wait_until(lambda: self.state(run) == "Running", "it does not start", 0.3)


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    with ExitStack() as stack:
        yield Night(stack, tmp_path_factory.mktemp("night"))


def a_batch(project: Make, jobs: int = 60) -> Project:
    """A batch that takes some seconds."""
    rows = [{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(jobs)]
    made = project(rows, image_seconds=1, concurrency=6)
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
    assert made.charged == costs["cost"].sum()


def test_of_two_nightly_runs_of_a_batch_one_leaves_to_the_other_what_that_has_in_hand(
    night: Night, project: Make
) -> None:
    made = a_batch(project)
    service = made.backlot.service
    with night.worker():
        first = night.run(NIGHTLY, made)
        wait_until(lambda: files(made), "nothing is stored")
        slow = service.settings.model_copy(update={"image_seconds": 20})  # the first is held at work
        quick, service.settings = service.settings, slow
        second = night.run(NIGHTLY, made, 2)
        night.is_running(second)
        assert night.state(first) == "Running"
        service.settings = quick
        assert night.ended(first) == "Complete"
        assert night.ended(second) in ("Complete", "Partial")
    paid_once(made, 60)


def test_a_second_collector_is_cancelled(night: Night, project: Make) -> None:
    video = {"model": "dailies-1", "duration": 1}
    made = project([{"id": f"v{n}", "prompt": f"video {n}", **video} for n in range(3)], video_seconds=15)
    made.at_absolute_paths()
    assert made.run("poll.timeout=0.5").pending == 3
    failing = [{"endpoint": "status", "do": "error", "status": 503}]
    made.backlot.service.faults = Faults(RULES.validate_python(failing))  # the first is held at work
    with night.worker():
        first = night.run("collect-media/collector", made)
        night.is_running(first)
        assert night.ended(night.run("collect-media/collector", made, 2)) == "Cancelled"
        made.backlot.service.faults = Faults()
        assert night.ended(first) == "Complete"
    paid_once(made, 3)


@pytest.mark.parametrize(
    "deployment, ends",
    [(NIGHTLY, {"Complete", "Partial"}), ("collect-media/collector", {"Complete", "Cancelled"})],
)
def test_runs_that_were_missed_without_a_worker_buy_nothing_twice(
    night: Night, project: Make, deployment: str, ends: set[str]
) -> None:
    made = a_batch(project, jobs=12)
    if deployment.startswith("collect"):
        made.run()
    runs = [night.run(deployment, made, number) for number in range(4)]
    late = lambda: all(night.state(run) == "Late" for run in runs)  # noqa: E731
    wait_until(late, "the runs are not marked as late", 1)
    with night.worker():
        assert "Complete" in {night.ended(run) for run in runs} <= ends
    paid_once(made, 12)


def test_a_worker_and_its_run_that_are_killed_stop_nothing_but_that_run(night: Night, project: Make) -> None:
    """The dead run stays Running in the UI. The next one takes over what it left, without waiting for it."""
    made = a_batch(project)
    with night.worker() as worker:
        dead = night.run(NIGHTLY, made)
        wait_until(lambda: files(made), "nothing is stored")
        for process in [worker, *worker.children(recursive=True)]:
            process.kill()
    bought = files(made)
    with night.worker():
        ended = night.ended(night.run(NIGHTLY, made, 2))
        assert night.state(dead) == "Running"
    assert 0 < bought < 60
    lost = made.costs().filter(made.costs()["state"] == "in_doubt").height  # on the wire at that moment
    assert ended == ("InDoubt" if lost else "Complete")
    assert made.costs()["job_key"].n_unique() == 60
    assert made.charged <= made.costs()["quoted"].sum(), "no job was bought twice"


def test_a_run_goes_on_while_the_server_is_started_anew(night: Night, project: Make) -> None:
    made = a_batch(project)
    with night.worker():
        run = night.run(NIGHTLY, made)
        wait_until(lambda: files(made), "nothing is stored")
        night.start_anew()
        assert night.ended(run) == "Complete"
    paid_once(made, 60)


def test_a_cancelled_run_that_is_retried_in_the_ui_goes_on(night: Night, project: Make) -> None:
    made = a_batch(project)
    with night.worker():
        run = night.run("generate-batch/by-hand", made)
        wait_until(lambda: files(made), "nothing is stored")
        path = f"flow_runs/{night.server.run(run)['id']}/set_state"
        night.server.post(path, {"state": {"type": "CANCELLING"}})
        assert night.ended(run) == "Cancelled"
        assert 0 < files(made) < 60
        night.server.post(path, {"state": {"type": "SCHEDULED", "name": "AwaitingRetry"}, "force": True})
        wait_until(lambda: night.state(run) != "Cancelled", "it is not retried", 0.3)
        assert night.ended(run) == "Complete"
    paid_once(made, 60)


def test_the_same_with_the_servers_data_in_postgresql(
    project: Make, new_database: Callable[[], str], tmp_path: Path
) -> None:
    """Two runs side by side, and the server started anew while they are at work."""
    url = new_database().replace("postgresql+psycopg", "postgresql+asyncpg")
    made = a_batch(project)
    with ExitStack() as stack:
        night = Night(stack, tmp_path / "home", PREFECT_SERVER_DATABASE_CONNECTION_URL=url)
        with night.worker():
            runs = [night.run(NIGHTLY, made, number) for number in range(2)]
            wait_until(lambda: files(made), "nothing is stored")
            night.start_anew()
            assert "Complete" in {night.ended(run) for run in runs} <= {"Complete", "Partial"}
    paid_once(made, 60)
