"""However a demo ends, nothing of what it has started beside itself is left."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path

import pytest

from tests.cli.test_commands import CALLSHEET
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


class Demo:
    """A demo in a folder of its own, without a configured Prefect server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "prefect"
        self.log = folder / "demo.log"
        self.process: subprocess.Popen[bytes]

    @contextmanager
    def running(self) -> Iterator[None]:
        """While it lasts, the demo runs; afterwards all that it has started is killed."""
        environment = os.environ | {
            "PREFECT_API_URL": "",
            "PREFECT_HOME": str(self.home),
            "PREFECT_SERVER_DATABASE_TIMEOUT": "10000",  # seconds for which its server waits for its database
        }
        with (
            self.log.open("w") as log,
            subprocess.Popen(
                [*CALLSHEET, "demo"],
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            ) as self.process,
        ):
            try:
                yield
            finally:
                for pid in self.processes():
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    def processes(self, word: str = "") -> list[int]:
        """The ids of what runs in the demo's environment, with this word in its command."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended
                environment = (folder / "environ").read_bytes().split(b"\0")
                command = (folder / "cmdline").read_text()
                if f"PREFECT_HOME={self.home}".encode() in environment and word in command:
                    found.append(int(folder.name))
        return found

    def is_starting_its_server(self) -> bool:
        return bool(self.processes("own_server")) and self._is_on()

    def has_bought(self) -> bool:
        return any((self.folder / "out/demo/media").glob("**/*.jpeg")) and self._is_on()

    def _is_on(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return True

    @contextmanager
    def server_that_never_starts(self) -> Iterator[None]:
        """The database of its Prefect server is locked."""
        self.home.mkdir()
        with closing(sqlite3.connect(self.home / "prefect.db", isolation_level=None)) as database:
            database.execute("BEGIN EXCLUSIVE")
            yield


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)])
def test_a_signal_ends_a_demo_whose_prefect_server_is_starting(
    tmp_path: Path, number: signal.Signals
) -> None:
    demo = Demo(tmp_path)
    with demo.server_that_never_starts(), demo.running():
        wait_until(demo.is_starting_its_server, "no server is started", 0.3)
        os.killpg(demo.process.pid, number)  # as a terminal sends Ctrl-C
        wait_until(lambda: demo.process.poll() is not None, "the demo goes on")
        said = demo.log.read_text()
        assert demo.process.returncode == 130, said
        assert f"stopped by {number.name}" in said
        assert "Traceback" not in said
        assert demo.processes() == []


@pytest.mark.parametrize(
    "when", ["its Prefect server is starting", pytest.param("it buys", marks=pytest.mark.soak)]
)
def test_nothing_is_left_of_a_demo_that_is_killed(tmp_path: Path, when: str) -> None:
    demo = Demo(tmp_path)
    buys = when == "it buys"
    with nullcontext() if buys else demo.server_that_never_starts(), demo.running():
        wait_until(demo.has_bought if buys else demo.is_starting_its_server, f"not: {when}", 0.3)
        demo.process.kill()
        wait_until(lambda: not demo.processes(), "something is left", 0.3)
