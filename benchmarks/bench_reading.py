"""Quoting a batch of 100,000 rows, and reading and pricing a million, next to polars doing the same columns.

Ours reads every row, checks each cell, gives each job a key, prices it, and writes the plan. Polars reads the
same columns, joins the rates, prices each row and writes the table: it checks nothing and makes no keys. Each
is timed in a process of its own (`price_rows.py`), without its start. The price must be right to the last
digit.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from statistics import median

from benchmarks import sink
from benchmarks.measuring import CALLSHEET, HERE, Cost, Figure, measured, project

MODELS = ("still-1", "still-1", "poster-1", "reel-1")
RESOLUTIONS = {"still-1": ("1K", "2K"), "poster-1": ("1K", "2K"), "reel-1": ("720p", "1080p")}
CYCLE = 8  # rows after which models, resolutions and durations come again


def measure(*, quick: bool) -> Iterator[Figure]:
    """100,000 rows quoted, and a million next to polars; medians of turns."""
    times, some, many = (1, 800, 8_000) if quick else (3, 100_000, 1_000_000)
    with sink.running() as base_url, project(0) as folder:
        turns = [(quote(folder, base_url, 1), quote(folder, base_url, some)) for _ in range(times)]
        seconds = median(seconds for _, seconds in turns)
        beyond_start = median(seconds - start for start, seconds in turns)
        yield Figure("100,000 rows of CSV quoted, from Enter", f"{seconds:.2f} s", "at most 2.5 s")
        yield Figure("the same, less the quote of one row", f"{beyond_start:.2f} s", "at most 0.5 s")
        for ending in ("csv", "parquet"):
            path = batch(folder, many, ending)
            both = [(part("plan", path), part("price", path)) for _ in range(times)]
            ratio = median(float(ours.printed) / float(polars.printed) for ours, polars in both)
            yield Figure(
                f"a million rows of {ending} read and priced, next to polars doing the same columns",
                f"{ratio:.1f} times",
            )
            most = max(ours.mb for ours, _ in both)
            yield Figure("the same: memory", f"{most:,.0f} MB", "at most 2,000 MB")


def quote(folder: Path, base_url: str, rows: int) -> float:
    """The seconds of `callsheet quote` of so many rows of CSV, from Enter to its end."""
    path = batch(folder, rows, "csv")
    text = f"batch: rows-{rows}\nservice: {{base_url: {base_url}}}\ninput: {{path: {path.name}}}\n"
    (folder / "batch.yaml").write_text(text)
    cost = measured([*CALLSHEET, "quote", "batch.yaml", "--json"], folder, base_url)
    check(rows, Decimal(json.loads(cost.printed)["quoted"]))
    return cost.seconds


def batch(folder: Path, rows: int, ending: str) -> Path:
    """The batch file of so many rows, which is written once."""
    path = folder / f"{rows}.{ending}"
    if not path.exists():
        part("write", path)
    return path


def part(name: str, path: Path) -> Cost:
    """One of the parts of `price_rows.py`, in a process of its own; it prints its seconds."""
    return measured([sys.executable, str(HERE / "price_rows.py"), name, str(path)], path.parent, "")


def check(rows: int, quoted: Decimal) -> None:
    """Raises SystemExit unless it is the price of so many rows."""
    if quoted != total(rows):
        raise SystemExit(f"{rows} rows cost {total(rows)}, not {quoted}")


def total(rows: int) -> Decimal:
    """The price of a batch file, computed one row at a time."""
    prices = []
    for at in range(min(rows, CYCLE)):
        model, second = MODELS[at % 4], at // 4 % 2
        units = 5 + 5 * second if model == "reel-1" else 1
        prices.append(Decimal(sink.RATES[model, RESOLUTIONS[model][second]]) * units)
    return sum(prices, Decimal(0)) * max(1, rows // CYCLE)
