"""What the size of a batch costs: resuming it, a row more of it, and a run of it when all is done.

    python benchmarks/bench_ledger.py [--sizes N ...] [--times N] [--enough SECONDS]

resume  all but 1,000 rows are done: the time until the first request
row     all but 4,000 rows are done: the CPU of a row, after the first quarter of them, when nothing of the
        start is left
rerun   nothing is left to do; the first of these also makes the plots and the contact sheet

The service is `sink.py`. The finished rows are put into the ledger by `filled_ledger.py`; their files do not
exist. While rows are bought no contact sheet is made: it shows the first 10,000 jobs, so that only the small
batches would have work with it. The sizes take turns. `rerun` has `--times` tries, `row` two more, as
single tries differ by as much as its goal of 10 %, and `resume` one, as its goal is far away. Where a part
would take longer than `--enough`, fewer turns are made, but at least one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import sink
from benchmarks.figures import options, save
from benchmarks.measuring import CONFIG, Cost, finished, run, write_rows

LEFT = 1_000  # rows that a resumed batch still has to buy
MORE = 4_000  # the same where the CPU of a row is measured


def in_turns(measure: Callable[[int], Any], sizes: list[int], times: int, enough: float) -> list[list[Any]]:
    """A list of figures for each turn, one for each size."""
    turns: list[list[Any]] = []
    began = time.monotonic()
    while len(turns) < times:
        turns.append([measure(size) for size in sizes])
        taken = time.monotonic() - began
        if taken + taken / len(turns) > enough:
            break
    return turns


def measure(base_url: str, sizes: list[int], times: int, enough: float) -> dict[str, Any]:
    with ExitStack() as stack:
        folders: dict[int, Path] = {}
        for size in sizes:
            began = time.monotonic()
            folders[size] = stack.enter_context(finished(size - LEFT, base_url))
            print(
                f"a ledger of {size - LEFT:,} finished rows, in {time.monotonic() - began:.0f} s", flush=True
            )
        rows = dict.fromkeys(sizes, 0)

        def buy(size: int, left: int) -> tuple[Cost, dict[str, float]]:
            """So many rows more than are done: what the run cost, and what the sink saw."""
            rows[size] = max(size, rows[size] + left)
            write_rows(folders[size], rows[size])
            (folders[size] / "batch.yaml").write_text(f"{CONFIG}report: {{contact_sheet: 0}}\n")
            sink.count(base_url)  # from here on
            return run(folders[size], base_url, rows[size]), sink.count(base_url)

        def resume(size: int) -> dict[str, float]:
            cost, seen = buy(size, LEFT)
            return {"first": seen["first"] - cost.samples[0][0], "cpu": cost.cpu, "mb": cost.mb}

        def row(size: int) -> dict[str, float]:
            cost, seen = buy(size, MORE)
            seconds = cost.cpu_at(seen["last"]) - cost.cpu_at(seen["quarter"])
            return {"ms": seconds * 1000 / (MORE * 3 / 4)}

        def rerun(size: int) -> dict[str, float]:
            (folders[size] / "batch.yaml").write_text(CONFIG)
            cost = run(folders[size], base_url, rows[size])
            return {"seconds": cost.seconds, "cpu": cost.cpu, "mb": cost.mb}

        turns = in_turns(resume, sizes, 1, enough), in_turns(row, sizes, times + 2, enough)
        resumed = shown_resumes(sizes, *turns)
        return {"resume": resumed, "rerun": shown_reruns(sizes, in_turns(rerun, sizes, times, enough))}


def shown_resumes(
    sizes: list[int], resumes: list[list[dict[str, float]]], rows: list[list[dict[str, float]]]
) -> list[dict[str, float]]:
    """Prints the figures of each size, and returns them."""
    print(f"a batch in which {LEFT:,} rows are left, and the CPU of a row where {MORE:,} are")
    head = f"{'s to the first POST':>22}{'ms a row':>10}{'ratio':>7}{'CPU s':>8}{'MB':>6}"
    print(f"{'rows':>12}{'tries':>7}{head}")
    figures = []
    for at, size in enumerate(sizes):
        medians = {name: median(turn[at][name] for turn in resumes) for name in resumes[0][at]}
        ms = median(turn[at]["ms"] for turn in rows)
        ratio = median(turn[at]["ms"] / turn[0]["ms"] for turn in rows)
        figures.append({"rows": size, "tries": len(rows), "ms": ms, "ratio": ratio, **medians})
        print(
            "{rows:12,}{tries:7}{first:22.2f}{ms:10.2f}{ratio:7.2f}{cpu:8.2f}{mb:6.0f}".format(**figures[-1])
        )
    return figures


def shown_reruns(sizes: list[int], turns: list[list[dict[str, float]]]) -> list[dict[str, float]]:
    """Prints the figures of each size, and returns them."""
    print("a batch in which everything is done")
    print(f"{'rows':>12}{'tries':>7}{'seconds':>10}{'longest':>10}{'CPU s':>8}{'MB':>6}")
    figures = []
    for at, size in enumerate(sizes):
        medians = {name: median(turn[at][name] for turn in turns) for name in turns[0][at]}
        longest = max(turn[at]["seconds"] for turn in turns)
        figures.append({"rows": size, "tries": len(turns), "longest": longest, **medians})
        print("{rows:12,}{tries:7}{seconds:10.2f}{longest:10.2f}{cpu:8.2f}{mb:6.0f}".format(**figures[-1]))
    return figures


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--times", type=int, default=3, help="tries; medians count")
    parser.add_argument("--enough", type=float, default=300, help="seconds for each part")
    chosen = parser.parse_args()
    with sink.running() as base_url:
        save(chosen, measure(base_url, chosen.sizes, chosen.times, chosen.enough))


if __name__ == "__main__":
    main()
