"""A project to run, and what a process costs."""

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
from typing import Any

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
class Cost:
    """What a process took: CPU and wall seconds, and its peak memory in MB; and what it printed.

    `samples` has its Unix times, CPU seconds so far and memory in MB while it ran.
    """

    cpu: float
    seconds: float
    mb: float
    printed: str = ""
    samples: Sequence[tuple[float, float, float]] = ()

    def cpu_at(self, moment: float) -> float:
        """CPU seconds until a Unix time, between the samples before and after it."""
        at = bisect(self.samples, (moment,))
        (begin, before, _), (end, after, _) = self.samples[at - 1 : at + 1]
        return before + (after - before) * (moment - begin) / (end - begin)


@contextmanager
def project(rows: int) -> Iterator[Path]:
    """A folder with a config and a batch of so many rows; it is removed at the end."""
    with TemporaryDirectory(prefix="callsheet-") as name:
        folder = Path(name)
        (folder / "batch.yaml").write_text(CONFIG)
        write_rows(folder, rows)
        yield folder


def write_rows(folder: Path, rows: int) -> None:
    """Writes the batch file."""
    with (folder / "rows.csv").open("w") as file:
        file.write("id,prompt\n")
        file.writelines(
            f"row-{n},A lantern behind a market in the rain study number {n}\n" for n in range(rows)
        )


def environment(base_url: str, folder: Path) -> dict[str, str]:
    """Names the service, and no Prefect server."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return ours | {
        "CALLSHEET_BASE_URL": base_url,
        "CALLSHEET_API_KEY": "sk_bench",
        "PREFECT_HOME": str(folder / "no-prefect"),
    }


def measured(command: Sequence[str], folder: Path, base_url: str, ends: Sequence[int] = (0,)) -> Cost:
    """Runs a command in `folder`; it must end with one of these exit codes.

    This process stays small, because Linux counts its size for the processes that it starts.
    """
    began = time.monotonic()
    with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as err:
        env = environment(base_url, folder)
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=out, stderr=err)
        samples: list[tuple[float, float, float]] = []
        sampler = threading.Thread(target=sample, args=(process.pid, samples))
        sampler.start()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        sampler.join()
    seconds = time.monotonic() - began
    if process.returncode not in ends:
        raise SystemExit(f"{command} ended with {process.returncode}:\n{(folder / 'stderr').read_text()}")
    mb = usage.ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    cpu = usage.ru_utime + usage.ru_stime
    samples.append((time.time(), cpu, 0.0))
    return Cost(cpu, seconds, mb, (folder / "stdout").read_text(), samples)


def sample(pid: int, samples: list[tuple[float, float, float]]) -> None:
    """Adds to `samples` until the process has ended."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        while memory := process.memory_info().rss:
            cpu = process.cpu_times()
            samples.append((time.time(), cpu.user + cpu.system, memory / (1 << 20)))
            time.sleep(EVERY)


def run(folder: Path, base_url: str, rows: int, *launcher: str) -> Cost:
    """`callsheet run`, after which so many rows must be stored.

    Args:
        folder: the project.
        base_url: the service's.
        rows: how many its batch has.
        launcher: what to run in place of `python -m callsheet`.
    """
    cost = measured([*(launcher or CALLSHEET), "run", "batch.yaml", "--json"], folder, base_url)
    check(json.loads(cost.printed), rows)
    return cost


def check(totals: dict[str, Any], rows: int) -> None:
    """Raises SystemExit unless so many are stored."""
    if totals["stored"] != rows:
        raise SystemExit(f"{rows} rows should be stored: {totals}")


@contextmanager
def finished(rows: int, base_url: str) -> Iterator[Path]:
    """A project whose rows are all stored, by its ledger; there are files for a few of them only."""
    few = min(rows, 10)
    with project(few) as folder:
        if few:
            run(folder, base_url, few)
            write_rows(folder, rows)
            measured([*CALLSHEET, "quote", "batch.yaml", "--json"], folder, base_url)
            measured([sys.executable, str(HERE / "filled_ledger.py")], folder, base_url)
            status = measured([*CALLSHEET, "status", "batch.yaml", "--json"], folder, base_url)
            check(json.loads(status.printed), rows)
        yield folder
