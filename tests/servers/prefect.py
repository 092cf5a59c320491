"""A real Prefect server on a free port of this machine, with a home folder of its own; and `callsheet up`."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import certifi
import httpx
import psutil

from tests.servers import http
from tests.waiting import LONGEST, wait_until

PREFECT = (sys.executable, "-m", "prefect")
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class PrefectServer:
    """Its API's address, and the environment in which `prefect` commands talk to it."""

    api: str
    environment: dict[str, str]

    def command(self, *words: str) -> str:
        """Runs `prefect <words>` from the project's root; returns what it printed."""
        done = subprocess.run(
            [*PREFECT, *words], cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"prefect {' '.join(words)}:\n{done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def worker(self, pool: str, *options: str, **environment: str) -> Iterator[None]:
        """A worker of a process pool, which it makes where there is none; it looks for runs every second."""
        command = [*PREFECT, "worker", "start", "--type", "process", "--pool", pool, *options]
        with _process(command, self.environment | {"PREFECT_WORKER_QUERY_SECONDS": "1"} | environment):
            yield

    def request(self, method: str, path: str, content: Any = None) -> httpx.Response:
        """What the server answers, if it is no error; asked again where it says 503: its database is busy."""
        answers: list[httpx.Response] = []

        def answered() -> bool:
            answers.append(http.request(method, f"{self.api}/{path}", json=content, timeout=LONGEST))
            return answers[-1].status_code != httpx.codes.SERVICE_UNAVAILABLE

        wait_until(answered, f"{method} {path} is never answered", 0.3)
        return answers[-1].raise_for_status()

    def get(self, path: str) -> Any:
        """The content of the server's answer to a GET."""
        return self.request("GET", path).json()

    def post(self, path: str, content: Any) -> Any:
        """The content of the server's answer to a POST."""
        return self.request("POST", path, content).json()

    def ask(self, path: str, **filters: Any) -> list[dict[str, Any]]:
        """The server's objects of a kind, such as `flow_runs`, that fit the filters of its API."""
        return list(self.post(f"{path}/filter", filters))

    def deployment(self, name: str) -> dict[str, Any]:
        """A deployment by its flow's name and its own, `generate-batch/by-hand`."""
        return dict(self.get(f"deployments/name/{name}"))

    def start(self, deployment: str, *, tag: str, **parameters: Any) -> None:
        """Starts a run of a deployment, as the UI does, with a tag by which it is found again."""
        run = {"parameters": parameters, "tags": [tag]}
        self.post(f"deployments/{self.deployment(deployment)['id']}/create_flow_run", run)

    def begin(self, flow: Any, deployment: str, *, tag: str, **parameters: Any) -> dict[str, Any]:
        """A run of a deployment that this process carries out, until it ends or waits for a person.

        It is in no work pool, so no worker takes it.
        """
        found = self.deployment(deployment)
        of = {"flow_id": found["flow_id"], "deployment_id": found["id"]}
        self.post("flow_runs/", of | {"parameters": parameters, "tags": [tag]})
        return self.go_on(flow, tag)

    def go_on(self, flow: Any, tag: str) -> dict[str, Any]:
        """The run with this tag, when this process has carried it on."""
        from prefect.client.schemas.objects import FlowRun
        from prefect.exceptions import Pause
        from prefect.flow_engine import run_flow

        run = FlowRun.model_validate(self.run(tag))
        with suppress(Pause):
            asyncio.run(run_flow(flow, flow_run=run, parameters=run.parameters, return_type="state"))
        return self.run(tag)

    def run(self, tag: str) -> dict[str, Any]:
        """The one flow run with this tag."""
        [run] = self.ask("flow_runs", flow_runs={"tags": {"all_": [tag]}})
        return run

    def now(self, run: dict[str, Any]) -> dict[str, Any]:
        """A flow run as it is now."""
        return dict(self.get(f"flow_runs/{run['id']}"))

    def ended(self, tag: str, *states: str) -> dict[str, Any]:
        """Waits until the run with this tag is in one of these types of state, by default a final one.

        It asks once a second only: each answer takes CPU from the runs.
        """
        wanted = states or ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
        wait_until(lambda: self.run(tag)["state"]["type"] in wanted, f"the run of {tag} does not end", 1)
        return self.run(tag)

    def artifacts(self, run: dict[str, Any]) -> dict[str, Any]:
        """What a run's artifacts show, by their keys; of several with one key, the newest."""
        newest_first = self.ask("artifacts", flow_runs={"id": {"any_": [run["id"]]}}, sort="CREATED_DESC")
        return {one["key"]: one["data"] for one in reversed(newest_first)}

    def log(self, run: dict[str, Any], until: str) -> str:
        """What the library has logged in a run, once it has this text: Prefect sends it a little later."""

        def text() -> str:
            lines = self.ask("logs", logs={"flow_run_id": {"any_": [run["id"]]}})
            return "\n".join(one["message"] for one in lines if one["name"] == "callsheet")

        wait_until(lambda: until in text(), f"the log never says {until!r}", 1)
        return text()


BEHIND_A_PROXY = {
    "HTTP_PROXY": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "NO_PROXY": "fd07::/64,*.test",
}
"""A company's network. Nothing answers at the proxy, and httpx alone cannot read such a `NO_PROXY`."""


def free_port() -> int:
    """A port that nothing listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def prefect_environment(home: Path, port: int) -> dict[str, str]:
    """What a server on this port needs, and what talks to it: variables beside those of this process."""
    api = f"http://127.0.0.1:{port}/api"
    home.mkdir(parents=True, exist_ok=True)
    # Each client of Prefect reads all authorities that it would trust, 20 ms, though nobody here speaks TLS.
    authorities = home / "authority.pem"
    first, end, _ = Path(certifi.where()).read_text("utf-8").partition("-----END CERTIFICATE-----")
    authorities.write_text(f"{first}{end}\n", "utf-8")
    return {
        "PREFECT_HOME": str(home),
        "PREFECT_API_URL": api,
        "PREFECT_API_SSL_CERT_FILE": str(authorities),
        "PREFECT_SERVER_UI_API_URL": api,
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_LOGGING_LEVEL": "WARNING",
        "PREFECT_CLI_COLORS": "false",
    }


@contextmanager
def prefect_server(home: Path, port: int = 0, **more: str) -> Iterator[PrefectServer]:
    """Starts the server, on a free port or on a given one, waits until it is healthy, and stops it."""
    port = port or free_port()
    environment = os.environ | prefect_environment(home, port) | more
    api = environment["PREFECT_API_URL"]
    command = [*PREFECT, "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with _process(command, environment) as process:
        deadline = time.monotonic() + LONGEST
        while True:
            assert process.poll() is None, "the Prefect server ended before it was healthy"
            assert time.monotonic() < deadline, f"the Prefect server is not healthy after {LONGEST:.0f} s"
            try:
                if http.get(f"{api}/health").is_success:
                    break
            except httpx.TransportError:
                time.sleep(0.2)  # it has no other way of saying that it is there
        yield PrefectServer(api, environment)


@contextmanager
def _process(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


# ---- `callsheet up`, with what it prints


READY = "Ctrl-C ends it all."


class Up:
    """A running `callsheet up`, with what it has printed so far, and the environment that it was given."""

    def __init__(self, folder: Path, *options: str, python: Path, **environment: str) -> None:
        self.environment = environment
        self.process = subprocess.Popen(
            [python, "-m", "callsheet", "up", *options],
            cwd=folder,
            env=os.environ | {"COLUMNS": "200"} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.text = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.text += line

    def until(self, words: str) -> None:
        wait_until(lambda: words in self.text or self.process.poll() is not None, self.text)
        assert words in self.text, self.text

    def family(self) -> list[psutil.Process]:
        """All that it has started, runs too."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def ended(self) -> int:
        code = self.process.wait()
        self._reader.join()
        return code


@contextmanager
def up(folder: Path, *options: str, python: Path = Path(sys.executable), **environment: str) -> Iterator[Up]:
    """Runs it in a project's folder; it is ended in any case."""
    running = Up(folder, *options, python=python, **environment)
    try:
        yield running
    finally:
        for each in (signal.SIGTERM, signal.SIGTERM):
            if running.process.poll() is None:
                running.process.send_signal(each)
        running.ended()


# ---- Callsheet as people install it: an environment that has the wheel, and nothing of this repository


def build_wheel(folder: Path) -> Path:
    """A wheel of this repository, built without network."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def installed(folder: Path, wheel: Path) -> Path:
    """The Python of a new environment in a folder, which has the wheel, and else what this one has."""
    venv.create(folder / "venv", with_pip=False)
    [packages] = (folder / "venv").glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(packages)
    # The .pth files of a folder that is named here are not read, and this repository is found by such a file.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "venv/bin/python"
