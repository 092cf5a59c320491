"""What an image row costs the machine, next to a bare loop of requests, and in a large batch.

The service is `sink.py`: it answers at once, and its limits never bind. 32 requests are in flight. CPU is
user and system time of the whole process.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks import sink
from benchmarks.bare_loop import IN_FLIGHT
from benchmarks.measuring import CONFIG, HERE, Cost, Figure, measured, project, run

FEW = 10  # rows of the run that is subtracted
SMALL = 2_000  # bytes of an image of the large batch, so that it fits on a disk


def measure(*, quick: bool) -> Iterator[Figure]:
    """A row's CPU, and how it grows with the batch."""
    with sink.running() as base_url:
        yield from next_to_a_bare_loop(base_url, 300 if quick else 5_000, 1 if quick else 3)
    with sink.running(SMALL) as base_url:
        yield from in_a_large_batch(base_url, 2_000 if quick else 100_000)


def bare_loop(clients: int, folder: Path, base_url: str, _: int) -> Cost:
    """The batch without any promise."""
    loop = [str(HERE / "bare_loop.py"), base_url, "rows.csv", "files", str(clients)]
    return measured([sys.executable, *loop], folder, base_url)


def next_to_a_bare_loop(base_url: str, rows: int, times: int) -> Iterator[Figure]:
    """A row's CPU is the slope between a run of ten rows and one of many, so that no start is in it.

    All ways take turns, so that what else the machine does is the same for all; a ratio is the median of the
    ratios of each turn.
    """
    ways = {"bare": partial(bare_loop, IN_FLIGHT), "one client": partial(bare_loop, 1), "ours": run}
    turns: list[dict[str, tuple[Cost, Cost]]] = []
    # All files stay until the end: where many were removed, ext4 makes new ones at twice the CPU for minutes.
    with ExitStack() as kept:
        for _ in range(times):
            turns.append({})
            for name, buy in ways.items():
                few, many = (buy(kept.enter_context(project(size)), base_url, size) for size in (FEW, rows))
                turns[-1][name] = few, many

    def of_a_row(name: str) -> list[float]:
        return [1000 * (many.cpu - few.cpu) / (rows - FEW) for few, many in (turn[name] for turn in turns)]

    ours, bare, one = of_a_row("ours"), of_a_row("bare"), of_a_row("one client")

    def ratio(others: list[float]) -> str:
        return f"{median(mine / other for mine, other in zip(ours, others, strict=True)):.2f} times"

    speed = median(
        (rows - FEW) / (many.seconds - few.seconds) for few, many in (turn["ours"] for turn in turns)
    )
    yield Figure(
        "CPU of an image row, next to a loop with an httpx client for each request in flight",
        ratio(bare),
    )
    yield Figure("the same, next to a loop with one httpx client", ratio(one))
    each = ", ".join(f"{median(found):.2f}" for found in (ours, bare, one))
    yield Figure("CPU of an image row, and of one of each loop", f"{each} ms")
    yield Figure("rows a second of one run, from a service without limits", f"{speed:,.0f}")


def in_a_large_batch(base_url: str, rows: int) -> Iterator[Figure]:
    """The CPU of the last tenth of a run's rows, next to that of a tenth near its beginning.

    It has no contact sheet: that shows the first 10,000 jobs, so only the early rows would have work with it.
    """
    with project(rows, f"{CONFIG}report: {{contact_sheet: 0}}\n") as folder:
        sink.moments(base_url)  # from here on
        cost = run(folder, base_url, rows)
    sent, tenth = sink.moments(base_url), rows // 10

    def of_a_tenth(first: int) -> float:
        return cost.cpu_at(sent[first + tenth - 1]) - cost.cpu_at(sent[first])

    ratio = of_a_tenth(rows - tenth) / of_a_tenth(tenth // 2)
    yield Figure(
        "CPU of rows 90,000 to 100,000 of a batch, next to rows 5,000 to 15,000",
        f"{ratio:.2f} times",
        "at most 1.15 times",
    )
    yield Figure("memory of a run of 100,000 rows", f"{cost.mb:,.0f} MB")
