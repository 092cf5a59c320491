"""How much faster two runs buy one batch than one does, where CPU is what bounds them.

    python benchmarks/bench_crew.py [--rows N] [--times N] [--share OF_A_CORE]

The ledger is in PostgreSQL. It and the service (`sink.py`) are on the same machine as the runs, so on two
cores a second run takes time from what serves it. Each run therefore gets a share of a core, and the rest is
left to the servers. That needs Linux with control groups, and the right to make one; without them the runs
have all the cores, and the figures say so. One run and two take turns in going first.

A run's first seconds cost it CPU for other things than rows, and two runs have them twice. So a batch is
long: of 4,000 images two runs bought 1.8 times as many a second as one, and of 8,000 2.0 times.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks import sink
from benchmarks.figures import options, save
from benchmarks.measuring import CALLSHEET, measured, project
from tests.servers.postgres import postgres

GROUPS = Path("/sys/fs/cgroup/cpu")  # control groups, version 1
RUNS = (1, 2)
PERIOD = 100_000  # microseconds; a group has its share in each. Shorter ones leave parts of it unused
PARTIAL = 3  # a run's exit code when another one still has jobs in hand


@contextmanager
def launcher(name: str, share: float | None) -> Iterator[tuple[str, ...]]:
    """What to put before a command, so that it has that share of a core, in a group of that name."""
    if share is None:
        yield ()
        return
    group = GROUPS / name
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text(str(PERIOD))
        (group / "cpu.cfs_quota_us").write_text(str(int(PERIOD * share)))
        yield ("sh", "-c", f'echo $$ > {group}/tasks && exec "$@"', "sh")
    finally:
        group.rmdir()


def measure(ledger: str, base_url: str, rows: int, runs: int, share: float | None) -> dict[str, float]:
    """Figures of so many runs of one batch, with one ledger and one storage."""
    before = sink.count(base_url)["posts"]
    with ExitStack() as stack:
        folders = [stack.enter_context(project(rows)) for _ in range(runs)]
        out = f"{folders[0]}/out"
        settings = (
            f"ledger.url={ledger}",
            f"storage.url={out}",
            f"report.url={out}/report",
            "report.plots=false",
        )
        run = [
            *CALLSHEET,
            "run",
            "batch.yaml",
            "--json",
            *(word for each in settings for word in ("--set", each)),
        ]
        commands = [[*stack.enter_context(launcher(folder.name, share)), *run] for folder in folders]
        with ThreadPoolExecutor(runs) as threads:
            costs = list(
                threads.map(partial(measured, base_url=base_url, ends=(0, PARTIAL)), commands, folders)
            )
    seen = sink.count(base_url)
    if seen["posts"] != before + rows:
        raise SystemExit(f"{rows} rows should be bought, each once: {seen['posts'] - before} requests")
    seconds = seen["last"] - seen["first"]
    cpu = sum(cost.cpu for cost in costs)
    return {"rows a second": rows / seconds, "ms": cpu * 1000 / rows, "mb": max(cost.mb for cost in costs)}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--times", type=int, default=3, help="tries; medians count")
    parser.add_argument("--share", type=float, default=0.4, help="of a core, that each run has")
    chosen = parser.parse_args()
    figures = []
    with sink.running() as base_url, postgres() as server:
        for share in (chosen.share, None) if os.access(GROUPS, os.W_OK) else (None,):
            turns = [
                {
                    runs: measure(server.new_database(), base_url, chosen.rows, runs, share)
                    for runs in (RUNS[::-1] if turn % 2 else RUNS)
                }
                for turn in range(chosen.times)
            ]
            for runs in RUNS:
                medians = {name: median(turn[runs][name] for turn in turns) for name in turns[0][runs]}
                ratios = [turn[runs]["rows a second"] / turn[1]["rows a second"] for turn in turns]
                figures.append({"share": share, "runs": runs, "ratios": sorted(ratios), **medians})
                print(figures[-1], flush=True)
    save(chosen, {"rows": chosen.rows, "times": chosen.times, "runs": figures})


if __name__ == "__main__":
    main()
