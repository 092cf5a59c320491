"""The processes that `bench_reading.py` times; each prints its seconds, without its imports.

    python benchmarks/price_rows.py write|price|plan FILE

`write` makes the batch file, `price` has polars price it, and `plan` makes a plan of it.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from benchmarks import sink
from benchmarks.bench_reading import MODELS, check
from callsheet.batches.read import read_batch
from callsheet.config.settings import Settings
from callsheet.pricing.plan import make_plan, write_plan
from callsheet.service.models import Model


def write_batch(path: Path) -> None:
    """A batch in which all prompts differ, and a fifth have a comma; the file's name says how many rows."""
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
    """Scans every column, joins the rates, prices each row, writes."""
    rates = pl.LazyFrame(
        [(*key, unit_price) for key, unit_price in sink.RATES.items()],
        ["model", "resolution", "unit_price"],
        orient="row",
    ).with_columns(pl.col("unit_price").cast(pl.Decimal(18, 6)))
    scanned = pl.scan_csv(path) if path.suffix == ".csv" else pl.scan_parquet(path)
    price = pl.col("unit_price") * pl.col("duration").fill_null(1)
    priced = scanned.join(rates, on=["model", "resolution"]).with_columns(price=price)
    priced.sink_parquet(path.with_suffix(".priced.parquet"), compression="lz4")


def plan(path: Path) -> None:
    """Reads, checks, prices, writes the plan."""
    settings = Settings.model_validate(
        {"batch": "bench", "service": {"base_url": "http://127.0.0.1:1"}, "input": {"path": str(path)}}
    )
    catalogue = {each["id"]: Model.model_validate(each) for each in sink.MODELS}
    target = path.with_suffix(".plan.parquet")
    made = make_plan(read_batch(settings), catalogue, settings, target, now=datetime.now(UTC))
    write_plan(made)
    check(int(path.stem), made.table["price"].sum())


PARTS = {"write": write_batch, "price": price_with_polars, "plan": plan}

if __name__ == "__main__":
    began = time.perf_counter()
    PARTS[sys.argv[1]](Path(sys.argv[2]))
    print(time.perf_counter() - began)
