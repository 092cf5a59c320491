"""A figure, a project to run, and what a process costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from bisect import bisect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from benchmarks import sink

CONFIG = f"""\
batch: bench
service: {{base_url: "${{CALLSHEET_BASE_URL}}"}}
input: {{path: rows.csv, defaults: {{model: {sink.MODEL}}}}}
limits: {{concurrency: 32}}
"""
CALLSHEET = (sys.executable, "-m", "callsheet")
HERE = Path(__file__).parent
EVERY = 0.05  # seconds between two samples of a process


@dataclass(frozen=True)
class Figure:
    """A line of the table: what is measured, its value with its unit, and what that should be."""

    what: str
    value: str
    goal: str = ""


@dataclass(frozen=True)
class Cost:
    """What a process took: CPU and wall seconds, and its peak memory in MB; and what it printed.

    `samples` has its Unix times, and its CPU seconds so far.
    """

    cpu: float
    seconds: float
    mb: float
    printed: str
    samples: Sequence[tuple[float, float]]

    def cpu_at(self, moment: float) -> float:
        """CPU seconds until a Unix time, between the samples before and after it."""
        at = bisect(self.samples, (moment,))
        (begin, before), (end, after) = self.samples[at - 1 : at + 1]
        return before + (after - before) * (moment - begin) / (end - begin)


@contextmanager
def project(rows: int, config: str = CONFIG) -> Iterator[Path]:
    """A folder with a config and a batch of so many rows; it is removed at the end."""
    with TemporaryDirectory(prefix="callsheet-") as name:
        folder = Path(name)
        (folder / "batch.yaml").write_text(config)
        with (folder / "rows.csv").open("w") as file:
            file.write("id,prompt\n")
            file.writelines(
                f"row-{n},A lantern behind a market in the rain study number {n}\n" for n in range(rows)
            )
        yield folder


def environment(base_url: str, folder: Path) -> dict[str, str]:
    """Names the service, and no Prefect server."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return ours | {
        "CALLSHEET_BASE_URL": base_url,
        "CALLSHEET_API_KEY": "sk_bench",
        "PREFECT_HOME": str(folder / "no-prefect"),
    }


def measured(command: Sequence[str], folder: Path, base_url: str) -> Cost:
    """Runs a command in `folder`; it must end with 0.

    This process stays small, because Linux counts its size for the processes that it starts.
    """
    began = time.monotonic()
    with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as err:
        env = environment(base_url, folder)
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=out, stderr=err)
        samples: list[tuple[float, float]] = []
        sampler = threading.Thread(target=sample, args=(process.pid, samples))
        sampler.start()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        sampler.join()
    seconds = time.monotonic() - began
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}:\n{(folder / 'stderr').read_text()}")
    mb = usage.ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    cpu = usage.ru_utime + usage.ru_stime
    samples.append((time.time(), cpu))
    return Cost(cpu, seconds, mb, (folder / "stdout").read_text(), samples)


def sample(pid: int, samples: list[tuple[float, float]]) -> None:
    """Adds to `samples` until the process has ended."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        while process.status() != psutil.STATUS_ZOMBIE:
            cpu = process.cpu_times()
            samples.append((time.time(), cpu.user + cpu.system))
            time.sleep(EVERY)


def run(folder: Path, base_url: str, rows: int) -> Cost:
    """`callsheet run`, after which so many rows must be stored."""
    cost = measured([*CALLSHEET, "run", "batch.yaml", "--json"], folder, base_url)
    if (totals := json.loads(cost.printed))["stored"] != rows:
        raise SystemExit(f"{rows} rows should be stored: {totals}")
    return cost
