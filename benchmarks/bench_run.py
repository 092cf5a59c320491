"""What an image row costs the machine, next to a bare loop of requests against the same service.

    python benchmarks/bench_run.py [--rows N] [--times N]

The service is `sink.py`: it answers at once, and its limits never bind. The files have 20 kB, and 32 requests
are in flight. CPU is user and system time of the whole process, the least of some tries. A row's CPU is the
slope between a run of ten rows and one of `--rows`, so that it has nothing of the start.
Ratios are what to compare: the milliseconds depend on the machine, and on what else it does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import sink

FEW = 10  # rows of the run that is subtracted
HERE = Path(__file__).parent
CONFIG = f"""\
batch: bench
service: {{base_url: "${{CALLSHEET_BASE_URL}}"}}
input: {{path: rows.csv, defaults: {{model: {sink.MODEL}}}}}
limits: {{concurrency: 32}}
"""
RUN = (sys.executable, "-m", "callsheet", "run", "batch.yaml", "--json")


@dataclass(frozen=True)
class Cost:
    """What a process took: CPU and wall seconds, and its peak memory in MB."""

    cpu: float
    seconds: float
    mb: float
    printed: str = ""


def project(folder: Path, rows: int) -> Path:
    """A new folder with a config and a batch of so many rows."""
    folder.mkdir()
    (folder / "batch.yaml").write_text(CONFIG)
    write_rows(folder, rows)
    return folder


def write_rows(folder: Path, rows: int) -> None:
    """Writes the batch file."""
    with (folder / "rows.csv").open("w") as file:
        file.write("id,prompt\n")
        file.writelines(
            f"row-{n},A lantern behind a market in the rain study number {n}\n" for n in range(rows)
        )


def measured(command: tuple[str, ...], folder: Path, base_url: str) -> Cost:
    """Runs a command, which must end with 0, in `folder`.

    This process stays small, because Linux counts its size for the processes that it starts.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")} | {
        "CALLSHEET_BASE_URL": base_url,
        "CALLSHEET_API_KEY": "sk_bench",
        "PREFECT_HOME": str(folder / "no-prefect"),
    }
    began = time.monotonic()
    with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as err:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - began
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}:\n{(folder / 'stderr').read_text()}")
    mb = usage.ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    return Cost(usage.ru_utime + usage.ru_stime, seconds, mb, (folder / "stdout").read_text())


def script(name: str, base_url: str) -> tuple[str, ...]:
    """The command for one of the scripts beside this one."""
    return (sys.executable, str(HERE / name), base_url, "rows.csv", "files")


def callsheet(folder: Path, base_url: str, rows: int) -> Cost:
    """`callsheet run`, which must store so many rows."""
    cost = measured(RUN, folder, base_url)
    if json.loads(cost.printed)["stored"] != rows:
        raise SystemExit(f"{rows} rows should be stored: {cost.printed}")
    return cost


def slope(measure: Callable[[int], Cost], rows: int, times: int) -> tuple[float, Cost, Cost]:
    """CPU milliseconds of one row more, and the costs of few rows and of all; the cheapest of some tries."""
    few, all_ = (min((measure(n) for _ in range(times)), key=lambda cost: cost.cpu) for n in (FEW, rows))
    return (all_.cpu - few.cpu) * 1000 / (rows - FEW), few, all_


def rows_cost(base_url: str, rows: int, times: int) -> None:
    """Prints what a row costs in each way to buy it."""

    def bare(count: int) -> Cost:
        with tempfile.TemporaryDirectory(prefix="callsheet-") as name:
            return measured(script("bare_loop.py", base_url), project(Path(name, "p"), count), base_url)

    def run(count: int) -> Cost:
        with tempfile.TemporaryDirectory(prefix="callsheet-") as name:
            return callsheet(project(Path(name, "p"), count), base_url, count)

    print(f"{rows:,} images of {sink.SIZE // 1000} kB; CPU in one process, the least of {times}")
    print(f"{'':16}{'ms a row':>10}{'ratio':>8}{f's for {FEW}':>11}{'s for all':>11}{'rows/s':>8}{'MB':>6}")
    first = 0.0
    for name, measure in (("bare loop", bare), ("callsheet run", run)):
        ms, few, all_ = slope(measure, rows, times)
        first = first or ms
        rate = (rows - FEW) / (all_.seconds - few.seconds)
        figures = f"{ms:10.2f}{ms / first:8.1f}{few.cpu:11.2f}{all_.cpu:11.2f}{rate:8.0f}{all_.mb:6.0f}"
        print(f"{name:16}{figures}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--times", type=int, default=3)
    arguments = parser.parse_args()
    with sink.running() as base_url:
        rows_cost(base_url, arguments.rows, arguments.times)


if __name__ == "__main__":
    main()
