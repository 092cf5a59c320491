"""Runs the benchmarks, and prints their figures as the table of benchmarks/README.md.

    python -m benchmarks [NAME ...] [--quick]

Without a name all of them run, one after the other. `--quick` takes small sizes: it shows that the benchmarks
work, and its figures mean nothing.
"""

from __future__ import annotations

import argparse
import os
import platform
from datetime import UTC, datetime

import psutil

from benchmarks import (
    bench_account,
    bench_backlot,
    bench_bought,
    bench_browser,
    bench_ledger,
    bench_limits,
    bench_pages,
    bench_reading,
    bench_run,
    bench_start,
)

BENCHMARKS = {
    "start": bench_start.measure,
    "run": bench_run.measure,
    "reading": bench_reading.measure,
    "account": bench_account.measure,
    "ledger": bench_ledger.measure,
    "bought": bench_bought.measure,
    "pages": bench_pages.measure,
    "browser": bench_browser.measure,
    "backlot": bench_backlot.measure,
    "limits": bench_limits.measure,
}


def machine() -> str:
    """What the figures are measured on, and how busy it is; nothing that names it."""
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, "
        f"{psutil.virtual_memory().total / (1 << 30):.0f} GiB, {platform.system()}, "
        f"{platform.python_implementation()} {platform.python_version()}, "
        f"load of the last minute {psutil.getloadavg()[0]:.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    if unknown := [name for name in chosen.names if name not in BENCHMARKS]:
        parser.error(f"there is no benchmark {unknown[0]}; there are {', '.join(BENCHMARKS)}")
    if chosen.quick:
        print("Small sizes, whatever the lines say: these figures mean nothing.\n")
    print(f"Measured: {machine()}\n\n|  | measured | goal |\n| --- | --: | --: |", flush=True)
    for name in chosen.names or BENCHMARKS:
        for figure in BENCHMARKS[name](quick=chosen.quick):
            print(f"| {figure.what} | {figure.value} | {figure.goal} |", flush=True)


if __name__ == "__main__":
    main()
