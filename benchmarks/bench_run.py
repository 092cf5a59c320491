"""What an image row costs the machine, next to a bare loop of requests against the same service.

    python benchmarks/bench_run.py [--only ways|whole|loop] [--rows N] [--times N]

ways   a bare loop on httpx, `callsheet run`, and the script that most people would write (1,000 rows at
       most), for some sizes of the batch up to `--rows`
whole  one run of `--whole` rows from its start to its end: its time, and its memory as it goes on
loop   for how long the run's event loop was blocked

The service is `sink.py`: it answers at once, and its limits never bind. The files have 20 kB, and 32 requests
are in flight. CPU is user and system time of the whole process. A row's CPU is the slope between a run of ten
rows and the largest, so that it has nothing of the start. Those that are compared take turns, so that
what else the machine does is the same for each; a ratio is the median of the ratios of each turn. Ratios are
what to compare: the milliseconds depend on the machine.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import sink
from benchmarks.figures import options, save
from benchmarks.measuring import HERE, Cost, measured, project, run

FEW = 10  # rows of the run that is subtracted
POINTS = 200  # samples of a run's memory that are kept, about
SCRIPT = "requests, threads and pandas"
OF_SCRIPT = 1_000  # rows at most: its time is the longest, and no goal depends on it
WAYS = {
    "bare loop, httpx": ("bare_loop.py",),
    "callsheet run": (),
    SCRIPT: ("naive_script.py",),
}


def buy(way: tuple[str, ...], base_url: str, rows: int, folder: Path) -> Cost:
    """Buys a batch of so many rows in one of the `WAYS`."""
    if not way:
        return run(folder, base_url, rows)
    command = [sys.executable, str(HERE / way[0]), base_url, "rows.csv", "files"]
    return measured(command, folder, base_url)


def measure_ways(base_url: str, rows: int, times: int) -> dict[str, Any]:
    """What a row costs in each way to buy it."""
    sizes = [FEW, *(size for size in (100, 1_000) if size < rows), rows]
    costs: dict[tuple[str, int], list[Cost]] = {
        (name, size): [] for name in WAYS for size in sizes if name != SCRIPT or size <= OF_SCRIPT
    }
    # All files stay until the end: where many were removed, ext4 makes new ones at twice the CPU for minutes.
    with ExitStack() as kept:
        for _ in range(times):
            for (name, size), tried in costs.items():
                tried.append(buy(WAYS[name], base_url, size, kept.enter_context(project(size))))
    print(f"{rows:,} images of {sink.SIZE // 1000} kB, {times} times")
    head = f"{'ms of CPU a row':>16}{'ratio':>8}{'rows/s':>8}{'MB':>6}"
    print(f"{'':32}{head}  CPU s of {', '.join(f'{size:,}' for size in sizes)}")
    figures: dict[str, Any] = {}
    floor: list[float] = []
    for name in WAYS:
        tries = {size: costs[name, size] for size in sizes if (name, size) in costs}
        largest = max(tries)
        both = list(zip(tries[FEW], tries[largest], strict=True))
        ms = [(more.cpu - less.cpu) * 1000 / (largest - FEW) for less, more in both]
        floor = floor or ms
        figures[name] = {
            "ms": median(ms),
            "ratio": median(mine / bare for mine, bare in zip(ms, floor, strict=True)),
            "rows a second": median((largest - FEW) / (more.seconds - less.seconds) for less, more in both),
            "mb": median(cost.mb for cost in tries[largest]),
            "cpu": {size: median(cost.cpu for cost in each) for size, each in tries.items()},
        }
        cpu = "".join(f"{seconds:8.2f}" for seconds in figures[name]["cpu"].values())
        line = "{ms:16.2f}{ratio:8.1f}{rows a second:8.0f}{mb:6.0f}".format(**figures[name])
        print(f"{name:32}{line}  {cpu}", flush=True)
    return {"rows": rows, "times": times, "ways": figures}


def measure_whole(base_url: str, rows: int, size: int) -> dict[str, Any]:
    """One run, and its memory as it goes on."""
    needed = rows * (size + 6_000)  # blocks of the disk, and the ledger
    if shutil.disk_usage(tempfile.gettempdir()).free < needed:
        raise SystemExit(f"{rows:,} rows need {needed / 1e9:.0f} GB free where TMPDIR is")
    sink.count(base_url)  # from here on
    with project(rows) as folder:
        cost = run(folder, base_url, rows)
    seen = sink.count(base_url)
    began = cost.samples[0][0]
    samples = [(round(at - began, 2), round(mb, 1)) for at, _, mb in cost.samples[:-1]]
    figures = {
        "rows": rows,
        "bytes": size,
        "seconds": cost.seconds,
        "cpu": cost.cpu,
        "mb": cost.mb,
        "first": seen["first"] - began,
        "last": seen["last"] - began,
        "samples": samples[:: max(1, len(samples) // POINTS)],
    }
    print(f"a run of {rows:,} rows, images of {size / 1000:g} kB")
    print("  {seconds:.0f} s, CPU {cpu:.0f} s, at most {mb:.0f} MB".format(**figures))
    print("  first request after {first:.1f} s, last after {last:.0f} s".format(**figures))
    for quarter in (0.25, 0.5, 0.75, 1):
        moment = figures["first"] + quarter * (figures["last"] - figures["first"])
        mb = next((mb for at, mb in samples if at >= moment), samples[-1][1])
        print(f"  {quarter:4.0%} of the buying: {mb:5.0f} MB", flush=True)
    return figures


def measure_loop(base_url: str, rows: int, times: int) -> dict[str, Any]:
    """For how long a run's event loop was blocked."""
    print(f"the event loop of a run of {rows:,} rows; on a busy machine it also waits for a core")
    print(f"{'blocked, ms: longest':>20}{'99.9 %':>8}{'99 %':>8}  {'GC, CPU ms':>10}  the longest callback")
    runs = []
    for _ in range(times):
        with project(rows) as folder:
            run(folder, base_url, rows, sys.executable, str(HERE / "watched_loop.py"))
            seen = json.loads((folder / "loop.json").read_text())
        late, (seconds, cpu, name) = seen["late"], seen["callback"]
        longest, thousandth, hundredth = (
            1000 * late[min(int(len(late) * n), len(late) - 1)] for n in (1, 0.999, 0.99)
        )
        runs.append({"longest": longest, "thousandth": thousandth, "callback cpu": cpu * 1000})
        figures = f"{longest:20.1f}{thousandth:8.1f}{hundredth:8.1f}  {1000 * seen['collection']:10.1f}"
        print(f"{figures}  {seconds * 1000:.1f} ms, of CPU {cpu * 1000:.1f}: {name}", flush=True)
    return {"rows": rows, "runs": runs}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--only", choices=("ways", "whole", "loop"))
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--whole", type=int, default=20_000, help="rows of the whole run")
    parser.add_argument("--bytes", type=int, default=sink.SIZE, help="of an image of the whole run")
    parser.add_argument("--times", type=int, default=3, help="tries; medians count")
    chosen = parser.parse_args()
    with sink.running() as base_url, sink.running(chosen.bytes) as other_url:
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "ways": partial(measure_ways, base_url, chosen.rows, chosen.times),
            "whole": partial(measure_whole, other_url, chosen.whole, chosen.bytes),
            "loop": partial(measure_loop, base_url, chosen.rows, chosen.times),
        }
        wanted = [chosen.only] if chosen.only else list(parts)
        save(chosen, {part: parts[part]() for part in wanted})


if __name__ == "__main__":
    main()
