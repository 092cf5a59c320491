"""What an image row costs the machine, next to a bare loop of requests against the same service.

    python benchmarks/bench_run.py [--only run|growth|rerun|resume|loop] [--rows N] [--times N] [--long]

run     the bare loop, `callsheet run`, and the script that most people would write
growth  a new row of a batch that has many finished rows
rerun   a batch in which nothing is left to do
resume  a batch in which all but 1,000 rows are done, until the first request
loop    for how long the run's event loop was blocked

The service is `sink.py`: it answers at once, and its limits never bind. The files have 20 kB, and 32 requests
are in flight. CPU is user and system time of the whole process, the least of some tries. A row's CPU is the
slope between a run of ten rows and one of `--rows`, so that it has nothing of the start.
Ratios are what to compare: the milliseconds depend on the machine, and on what else it does.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

from benchmarks import sink
from benchmarks.measuring import HERE, Cost, finished, measured, project, run, write_rows

T = TypeVar("T")
FEW = 10  # rows of the run that is subtracted
RESUMED = 1_000  # rows that a resumed batch still has to buy


def slopes(
    measures: Mapping[T, Callable[[int], Cost]], rows: int, times: int
) -> Iterator[tuple[T, float, Cost, Cost]]:
    """For each: its name, CPU milliseconds of one row more, and the costs of few rows and of all.

    They take turns, so that what else the machine does is the same for each. The cheapest tries count.
    """
    costs: dict[tuple[T, int], list[Cost]] = defaultdict(list)
    for _ in range(times):
        for name, measure in measures.items():
            for count in (FEW, rows):
                costs[name, count].append(measure(count))
    for name in measures:
        few, all_ = (min(costs[name, count], key=lambda cost: cost.cpu) for count in (FEW, rows))
        yield name, (all_.cpu - few.cpu) * 1000 / (rows - FEW), few, all_


def run_part(base_url: str, rows: int, times: int) -> None:
    """Prints what a row costs in each way to buy it."""

    def script(name: str, count: int) -> Cost:
        with project(count) as folder:
            command = [sys.executable, str(HERE / name), base_url, "rows.csv", "files"]
            return measured(command, folder, base_url)

    def callsheet(count: int) -> Cost:
        with project(count) as folder:
            return run(folder, base_url, count)

    measures = {
        "bare loop": partial(script, "bare_loop.py"),
        "callsheet run": callsheet,
        "requests and threads": partial(script, "naive_script.py"),
    }
    print(f"{rows:,} images of {sink.SIZE // 1000} kB")
    print(f"{'':24}{'ms a row':>10}{'ratio':>8}{f's for {FEW}':>11}{'s for all':>11}{'rows/s':>8}{'MB':>6}")
    first = 0.0
    for name, ms, few, all_ in slopes(measures, rows, times):
        first = first or ms
        rate = (rows - FEW) / (all_.seconds - few.seconds)
        figures = f"{ms:10.2f}{ms / first:8.1f}{few.cpu:11.2f}{all_.cpu:11.2f}{rate:8.0f}{all_.mb:6.0f}"
        print(f"{name:24}{figures}")


def growth_part(base_url: str, rows: int, times: int, sizes: list[int]) -> None:
    """Prints what a new row costs, by the number of finished ones."""

    def more(folder: Path, done: list[int], count: int) -> Cost:
        done[0] += count
        write_rows(folder, done[0])
        return run(folder, base_url, done[0])

    with ExitStack() as stack:
        folders = {size: stack.enter_context(finished(size, base_url)) for size in (0, *sizes)}
        measures = {size: partial(more, folder, [size]) for size, folder in folders.items()}
        print(f"{rows:,} new rows in a batch with finished ones")
        print(f"{'finished':>12}{'ms a row':>10}{'ratio':>8}{f's for {FEW}':>11}{'s for all':>11}{'MB':>6}")
        first = 0.0
        for size, ms, few, all_ in slopes(measures, rows, times):
            first = first or ms
            figures = f"{ms:10.2f}{ms / first:8.2f}{few.cpu:11.2f}{all_.cpu:11.2f}{all_.mb:6.0f}"
            print(f"{size:12,}{figures}")


def rerun_part(base_url: str, times: int, sizes: list[int]) -> None:
    """Prints what a run costs that finds everything done."""
    print("the run of a batch in which everything is done")
    print(f"{'rows':>12}{'seconds':>10}{'CPU s':>8}{'MB':>6}")
    for size in sizes:
        with finished(size, base_url) as folder:
            costs = [run(folder, base_url, size) for _ in range(times)]
        best = min(costs, key=lambda cost: cost.seconds)
        mb = max(cost.mb for cost in costs)
        print(f"{size:12,}{best.seconds:10.2f}{best.cpu:8.2f}{mb:6.0f}", flush=True)


def resume_part(base_url: str, times: int, sizes: list[int]) -> None:
    """Prints how long a run needs until it buys again, when most of its batch is done."""
    print(f"the run of a batch in which {RESUMED:,} rows are left")
    print(f"{'rows':>12}{'s to the first POST':>22}{'CPU s':>8}{'MB':>6}")
    for size in sizes:
        with finished(size - RESUMED, base_url) as folder:
            figures = []
            for step in range(times):
                write_rows(folder, size + step * RESUMED)
                sink.count(base_url)  # from here on
                began = time.time()
                cost = run(folder, base_url, size + step * RESUMED)
                figures.append((sink.count(base_url)["first"] - began, cost.cpu, cost.mb))
        seconds, cpu, mb = min(figures)
        print(f"{size:12,}{seconds:22.2f}{cpu:8.2f}{mb:6.0f}", flush=True)


def loop_part(base_url: str, rows: int, times: int) -> None:
    """Prints for how long a run's event loop was blocked."""
    print(f"the event loop of a run of {rows:,} rows; on a busy machine it also waits for a core")
    print(f"{'blocked, ms: longest':>20}{'99.9 %':>8}{'99 %':>8}  {'GC, CPU ms':>10}  the longest callback")
    for _ in range(times):
        with project(rows) as folder:
            run(folder, base_url, rows, sys.executable, str(HERE / "watched_loop.py"))
            seen = json.loads((folder / "loop.json").read_text())
        late, (seconds, cpu, name) = seen["late"], seen["callback"]
        longest, thousandth, hundredth = (
            1000 * late[min(int(len(late) * n), len(late) - 1)] for n in (1, 0.999, 0.99)
        )
        figures = f"{longest:20.1f}{thousandth:8.1f}{hundredth:8.1f}  {1000 * seen['collection']:10.1f}"
        print(f"{figures}  {seconds * 1000:.1f} ms, of CPU {cpu * 1000:.1f}: {name}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", choices=("run", "growth", "rerun", "resume", "loop"))
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--times", type=int, default=3, help="tries; the cheapest counts")
    parser.add_argument("--long", action="store_true", help="with 1,000,000 finished rows too")
    chosen = parser.parse_args()
    rows, times = chosen.rows, chosen.times
    sizes = [10_000, 100_000, *([1_000_000] if chosen.long else [])]
    with sink.running() as base_url:
        parts: dict[str, Callable[[], None]] = {
            "run": lambda: run_part(base_url, rows, times),
            "growth": lambda: growth_part(base_url, rows, times, sizes),
            "rerun": lambda: rerun_part(base_url, times, sizes),
            "resume": lambda: resume_part(base_url, times, sizes),
            "loop": lambda: loop_part(base_url, rows, times),
        }
        for part in [chosen.only] if chosen.only else parts:
            parts[part]()


if __name__ == "__main__":
    main()
