"""Runs the benchmarks, and writes docs/benchmarks.md with its plots, and docs/many_machines.md.

    python -m benchmarks.write_page [--long | --only NAME ...] [--quick] [--only-write]

Each benchmark is a process of its own, one after the other. Their figures go to docs/benchmarks/figures.json,
from which the page and the plots are made. `--long` runs only the long one, and `--only` those that are
named: the other figures stay as they are. `--quick` takes small sizes, to try this file; its page is not
worth reading.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from benchmarks import night_page, page, plots

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"

BENCHES = {
    "start": ("bench_start.py",),
    "run": ("bench_run.py",),
    "ledger": ("bench_ledger.py",),
    "writers": ("bench_writers.py",),
    "crew": ("bench_crew.py",),
    "constants": ("bench_constants.py",),
    "reading": ("bench_reading.py",),
    "limits": ("bench_limits.py",),
    "backlot": ("bench_backlot.py",),
}
LONG = {"long": ("bench_run.py", "--only", "whole", "--whole", "1000000", "--bytes", "2000")}
QUICK = {
    "start": ("--times", "1"),
    "run": ("--rows", "300", "--whole", "1000", "--times", "1"),
    "ledger": ("--sizes", "2000", "4000", "8000", "--times", "1"),
    "writers": ("--jobs", "800", "--times", "1"),
    "crew": ("--rows", "200", "--times", "1"),
    "constants": ("--rows", "400"),
    "reading": ("--rows", "20000"),
    "limits": (),
    "backlot": ("--requests", "200"),
    "long": ("--whole", "2000"),
}


def machine() -> dict[str, str]:
    """What the figures were measured on; nothing that names it."""
    try:
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        system = f"{platform.system()} {platform.release()}"
    return {
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / (1 << 30):.0f} GiB",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "OS": f"{system}, {platform.machine()}",
        "file system": file_system(),
        "load before": f"{psutil.getloadavg()[0]:.1f} (average of a minute)",
        "Callsheet": version("callsheet"),
        "day": f"{datetime.now(UTC):%Y-%m-%d}",
    }


def file_system() -> str:
    """The type of the one with the temporary files, such as `ext4`: what syncing costs depends on it."""
    folder = Path(tempfile.gettempdir()).resolve()
    parts = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    return next(parts[parent] for parent in (folder, *folder.parents) if parent in parts)


def measure(benches: dict[str, tuple[str, ...]], *, quick: bool) -> dict[str, Any]:
    """The figures of each benchmark, which prints its own as they come."""
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (script, *arguments) in benches.items():
            file = Path(folder) / name
            print(f"== {script}", flush=True)
            options = [*arguments, *(QUICK[name] if quick else ()), "--json", str(file)]
            subprocess.run([sys.executable, str(HERE / script), *options], check=True)
            figures[name] = json.loads(file.read_text())
    return figures


def write(figures: dict[str, Any]) -> None:
    """Writes the pages and the plots."""
    folder = DOCS / "benchmarks"
    plots.cost_per_row(figures["run"]["ways"], folder / "cost-per-row.png")
    plots.submissions(figures["limits"]["limits"], folder / "submissions.png")
    runs = [figures["run"]["whole"], *(figures[name]["whole"] for name in ("long",) if name in figures)]
    plots.memory({f"{run['rows']:,} rows": run for run in runs}, folder / "memory.png")
    (DOCS / "benchmarks.md").write_text(page.text(figures), "utf-8")
    (DOCS / "many_machines.md").write_text(night_page.text(figures), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--only", nargs="+", choices=BENCHES, help="only these")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only-write", action="store_true", help="from the figures that are there")
    chosen = parser.parse_args()
    kept = DOCS / "benchmarks" / "figures.json"
    kept.parent.mkdir(exist_ok=True)
    figures: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    if not figures and (chosen.long or chosen.only or chosen.only_write):
        raise SystemExit("there are no figures yet: run `make bench` first")
    if not chosen.only_write:
        measured_on, began = machine(), time.monotonic()
        some = LONG if chosen.long else {name: BENCHES[name] for name in chosen.only or ()}
        new = measure(some or BENCHES, quick=chosen.quick)
        measured_on["took"] = f"{(time.monotonic() - began) / 60:.0f} minutes"
        if some:
            new = {name: {**each, "machine": measured_on} for name, each in new.items()}
        else:
            new["machine"] = measured_on
        figures |= new
        kept.write_text(json.dumps(figures) + "\n")
    write(figures)


if __name__ == "__main__":
    main()
