"""`callsheet up`, with what it prints.

with up(folder, "--port", "4300", "--backlot") as running:
    running.until(READY)
    ...  # its server, its worker and its deployments are there
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.waiting import wait_until

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
