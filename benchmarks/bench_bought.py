"""What commands take where all of a batch is bought: in a small batch, and next to that in large ones.

CPU of whole processes, with their imports, at `SIZES`, and next to the first of these. The batch is stored as
`bench_pages` does it: each of its files is checked, and has a thumbnail.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

from benchmarks import sink
from benchmarks.bench_pages import store
from benchmarks.measuring import CALLSHEET, Figure, measured, project

SIZES = 1_000, 20_000, 100_000
RUN = "run", "batch.yaml", "--json"
COMMANDS = {
    "`run` with nothing to buy": (RUN, "at most 2 s"),
    "`collect` with nothing to fetch": (("collect", "batch.yaml", "--json"), "at most 2 s"),
    "`status`": (("status", "batch.yaml", "--json"), ""),
    "`quote`": (("quote", "batch.yaml", "--json"), ""),
    "`review --keep` of a row": (("review", "batch.yaml", "--json", "--keep", "row-7"), "at most 2 s"),
    "`review --from` of all rows": (("review", "batch.yaml", "--json", "--from", "marks.csv"), "at most 5 s"),
    "`ledger backup`": (("ledger", "backup", "batch.yaml", "--to", "backup.db"), "at most 3 s"),
}


def measure(*, quick: bool) -> Iterator[Figure]:
    """The CPU of each command at each size, and next to that of the smallest."""
    sizes = (50, 100, 200) if quick else SIZES
    cpu = [of_rows(rows) for rows in sizes]
    for name, (_, goal) in COMMANDS.items():
        seconds = ", ".join(f"{of_size[name]:.2f}" for of_size in cpu)
        times = ", ".join(f"{of_size[name] / cpu[0][name]:.1f}" for of_size in cpu[1:])
        yield Figure(f"CPU of {name}, by rows", f"{seconds} s; {times} times", goal)


def of_rows(rows: int) -> dict[str, float]:
    """CPU seconds by command, in a batch of so many rows."""
    with sink.running() as base_url, project(rows) as folder, chdir(folder):
        os.environ["CALLSHEET_BASE_URL"] = base_url
        store(folder, base_url)
        marks = (f"row-{number},kept\n" for number in range(rows))
        Path("marks.csv").write_text("row_id,decision\n" + "".join(marks))
        measured([*CALLSHEET, *RUN], folder, base_url)  # it finds what `store` has entered
        return {
            name: measured([*CALLSHEET, *words], folder, base_url).cpu
            for name, (words, _) in COMMANDS.items()
        }
