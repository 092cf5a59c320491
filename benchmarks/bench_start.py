"""From Enter to the quote, and to the first request that buys: `callsheet run` of one row, without Prefect.

    python benchmarks/bench_start.py [--times N]

The service is `sink.py`, which answers at once. The goals are under 2 s to the quote and under 3 s to the
first POST, on a machine with nothing else to do. CPU seconds are of the whole run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from benchmarks import sink
from benchmarks.figures import options, save
from benchmarks.measuring import environment, project

COMMAND = (str(Path(sys.executable).with_name("callsheet")), "run", "batch.yaml")
GOALS = {"quote shown": 2.0, "first POST": 3.0}  # seconds


def start(base_url: str) -> dict[str, float]:
    """Seconds until each thing happened, and the run's CPU seconds."""
    with project(1) as folder:
        sink.count(base_url)  # from here on
        began, env = time.time(), environment(base_url, folder)
        process = subprocess.Popen(
            COMMAND, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert process.stderr
        shown = next((time.time() for line in process.stderr if "To pay" in line), None)
        problems = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode or shown is None:
            raise SystemExit(f"ended with {process.returncode}: {problems}")
        return {
            "quote shown": shown - began,
            "first POST": sink.count(base_url)["first"] - began,
            "the end": time.time() - began,
            "CPU": usage.ru_utime + usage.ru_stime,
        }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--times", type=int, default=5)
    chosen = parser.parse_args()
    with sink.running() as base_url:
        start(base_url)  # the first one reads the files from the disk
        runs = [start(base_url) for _ in range(chosen.times)]
    print(f"callsheet run of one row, {chosen.times} times")
    print(f"{'':14}{'best, s':>8}{'median':>8}{'goal':>8}")
    for name in runs[0]:
        seconds = [run[name] for run in runs]
        goal = f"{GOALS[name]:8.0f}" if name in GOALS else ""
        print(f"{name:14}{min(seconds):8.2f}{median(seconds):8.2f}{goal}")
    save(chosen, {name: median(run[name] for run in runs) for name in runs[0]})


if __name__ == "__main__":
    main()
