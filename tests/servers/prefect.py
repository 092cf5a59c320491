"""A real Prefect server on a free port of this machine, with a home folder of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.waiting import LONGEST

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
    def worker(self, pool: str, **environment: str) -> Iterator[None]:
        """A worker of a process pool, which it makes where there is none; it looks for runs every second."""
        command = [*PREFECT, "worker", "start", "--type", "process", "--pool", pool]
        with _process(command, self.environment | {"PREFECT_WORKER_QUERY_SECONDS": "1"} | environment):
            yield


@contextmanager
def prefect_server(home: Path) -> Iterator[PrefectServer]:
    """Starts the server, waits until it is healthy, and stops it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    api = f"http://127.0.0.1:{port}/api"
    environment = os.environ | {
        "PREFECT_HOME": str(home),
        "PREFECT_API_URL": api,
        "PREFECT_SERVER_UI_API_URL": api,
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_LOGGING_LEVEL": "WARNING",
        "PREFECT_CLI_COLORS": "false",
    }
    command = [*PREFECT, "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with _process(command, environment) as process:
        deadline = time.monotonic() + LONGEST
        while True:
            assert process.poll() is None, "the Prefect server ended before it was healthy"
            assert time.monotonic() < deadline, f"the Prefect server is not healthy after {LONGEST:.0f} s"
            try:
                if httpx.get(f"{api}/health").is_success:
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
