"""Reading, checking and pricing a batch file, next to polars doing the same columns.

`callsheet quote` reads every row, checks each cell, gives each job a key, prices it, looks into the ledger
and writes the plan. Polars reads the same columns, joins the rates, prices each row and writes the table: it
checks nothing and makes no keys. Ours is from Enter to the end, less the same for one row, so that the start
is not in it. The price must be right to the last digit. Each writes and prices in a process of its own,
which is this file, because Linux counts the size of this process for those that it starts.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks import sink
from benchmarks.measuring import CALLSHEET, Cost, Figure, measured, project

MODELS = ("still-1", "still-1", "poster-1", "reel-1")
RESOLUTIONS = {"still-1": ("1K", "2K"), "poster-1": ("1K", "2K"), "reel-1": ("720p", "1080p")}
CYCLE = 8  # rows after which models, resolutions and durations come again


def measure(*, quick: bool) -> Iterator[Figure]:
    """100,000 rows quoted, and a million next to polars; medians of turns."""
    times, some, many = (1, 800, 8_000) if quick else (3, 100_000, 1_000_000)
    with sink.running() as base_url, project(0) as folder:
        ours = partial(quote, folder, base_url)
        turns = [(ours(1, "csv").seconds, ours(some, "csv").seconds) for _ in range(times)]
        beyond_start = median(seconds - start for start, seconds in turns)
        seconds = median(seconds for _, seconds in turns)
        yield Figure("100,000 rows of CSV quoted, from Enter", f"{seconds:.2f} s", "at most 2.5 s")
        yield Figure("the same, less the quote of one row", f"{beyond_start:.2f} s", "at most 0.5 s")
        for ending in ("csv", "parquet"):
            ratios, mb = [], 0.0
            for _ in range(times):
                start, cost = ours(1, ending), ours(many, ending)
                ratios.append((cost.seconds - start.seconds) / price(folder, base_url, many, ending))
                mb = max(mb, cost.mb)
            yield Figure(
                f"a million rows of {ending} quoted, next to polars doing the same columns",
                f"{median(ratios):.1f} times",
                "at most 6 times",
            )
            yield Figure("the same: memory", f"{mb:,.0f} MB", "at most 2,000 MB")


def batch(folder: Path, base_url: str, rows: int, ending: str) -> Path:
    """The batch file of so many rows, which is written once."""
    path = folder / f"{rows}.{ending}"
    if not path.exists():
        measured([sys.executable, __file__, "write", str(path)], folder, base_url)
    return path


def quote(folder: Path, base_url: str, rows: int, ending: str) -> Cost:
    """`callsheet quote` of so many rows."""
    path = batch(folder, base_url, rows, ending)
    config = (
        f"batch: bench-{rows}-{ending}\nservice: {{base_url: {base_url}}}\ninput: {{path: {path.name}}}\n"
    )
    (folder / "batch.yaml").write_text(config)
    cost = measured([*CALLSHEET, "quote", "batch.yaml", "--json"], folder, base_url)
    quoted = json.loads(cost.printed)
    if (quoted["jobs"], Decimal(quoted["quoted"])) != (rows, total(rows)):
        raise SystemExit(f"{rows} rows cost {total(rows)}: {cost.printed}")
    return cost


def price(folder: Path, base_url: str, rows: int, ending: str) -> float:
    """The seconds that polars takes for the same columns."""
    path = batch(folder, base_url, rows, ending)
    return float(measured([sys.executable, __file__, "price", str(path)], folder, base_url).printed)


def total(rows: int) -> Decimal:
    """The price of a batch file, computed one row at a time."""
    prices = []
    for at in range(min(rows, CYCLE)):
        model, second = MODELS[at % 4], at // 4 % 2
        units = 5 + 5 * second if model == "reel-1" else 1
        prices.append(Decimal(sink.RATES[model, RESOLUTIONS[model][second]]) * units)
    return sum(prices, Decimal(0)) * max(1, rows // CYCLE)


def write_batch(path: Path) -> None:
    """A batch in which all prompts differ, and a fifth have a comma; the file's name says how many rows."""
    import polars as pl

    at = pl.int_range(int(path.stem))
    comma = pl.when(at % 5 == 0).then(pl.lit(", the first lamps lit")).otherwise(pl.lit(" in the rain"))
    table = pl.select(
        id=pl.format("row-{}", at),
        prompt=pl.format("A violin behind a market by the glacier, study number {}{}", at, comma),
        model=pl.lit(pl.Series(MODELS)).gather(at % 4),
        second=at // 4 % 2,
        sku=pl.format("K-{}", at % 977),
    )
    video, second = pl.col("model") == "reel-1", pl.col("second") == 1
    table = table.with_columns(
        resolution=pl.when(video & second)
        .then(pl.lit("1080p"))
        .when(video)
        .then(pl.lit("720p"))
        .when(second)
        .then(pl.lit("2K"))
        .otherwise(pl.lit("1K")),
        duration=pl.when(video).then(5 + 5 * pl.col("second")),
    ).drop("second")
    if path.suffix == ".csv":
        table.write_csv(path)
    else:
        table.write_parquet(path)


def price_with_polars(path: Path) -> None:
    """Scans every column, joins the rates, prices each row, writes; prints the seconds."""
    import polars as pl

    began = time.perf_counter()
    rates = pl.LazyFrame(
        [(*key, unit_price) for key, unit_price in sink.RATES.items()],
        ["model", "resolution", "unit_price"],
        orient="row",
    ).with_columns(pl.col("unit_price").cast(pl.Decimal(18, 6)))
    scanned = pl.scan_csv(path) if path.suffix == ".csv" else pl.scan_parquet(path)
    price = pl.col("unit_price") * pl.col("duration").fill_null(1)
    priced = scanned.join(rates, on=["model", "resolution"]).with_columns(price=price)
    priced.sink_parquet(path.with_suffix(".priced.parquet"), compression="lz4")
    print(time.perf_counter() - began)


if __name__ == "__main__":
    part = {"write": write_batch, "price": price_with_polars}[sys.argv[1]]
    part(Path(sys.argv[2]))
