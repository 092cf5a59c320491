"""Time and memory from a batch file to its priced plan, as ratios to bare polars.

    python benchmarks/bench_reading.py [--rows N]

The same rows are measured as CSV (quoted prompts with commas) and as Parquet. Polars does the same columns:
it reads them all, joins the rates, prices each row and writes the table; it checks and keys nothing. Bare
polars only scans the columns that the price needs, and sums. Each measurement runs in its own process, five
times, in turns with those it is compared with; the median counts. A lower bound is measured too: reading
every column, the SHA-256 of the requests, and writing the plan, each alone; every frozen plan with keys needs
these. The memory of a batch in which every row is wrong is measured once. Last comes `callsheet quote` of
1,000 rows from the shell, start-up included, against a backlot.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl

from benchmarks.figures import options, save
from callsheet.batches.identities import sha256
from callsheet.batches.read import read_batch
from callsheet.config.settings import Settings
from callsheet.pricing import plan
from callsheet.records import Model
from callsheet.rows import write_rejects

MODELS = ("still-1", "still-1", "poster-1", "reel-1")
RESOLUTIONS = {"still-1": ("1K", "2K"), "poster-1": ("1K", "2K"), "reel-1": ("720p", "1080p")}
RATES = {
    ("still-1", "1K"): "0.0407",
    ("still-1", "2K"): "0.0833",
    ("poster-1", "1K"): "0.0311",
    ("poster-1", "2K"): "0.0622",
    ("reel-1", "720p"): "0.0513",
    ("reel-1", "1080p"): "0.1009",
}
WORDS = ["harbour", "orchard", "workshop", "desert", "lantern", "violin", "market", "glacier", "tram", "kite"]


def rows(count: int) -> pl.DataFrame:
    """A batch in which all prompts differ, and a fifth have a comma."""
    at = pl.int_range(count)
    words = pl.Series(WORDS)

    def word(step: int) -> pl.Expr:
        return pl.lit(words).gather((at * 2_654_435_761 // step) % len(WORDS))

    comma = pl.when(at % 5 == 0).then(pl.lit(", the first lamps lit")).otherwise(pl.lit(" in the rain"))
    table = pl.select(
        id=pl.format("row-{}", at),
        prompt=pl.concat_str(
            pl.lit("A "), word(1), pl.lit(" behind a "), word(7), pl.lit(" by the "), word(61),
            pl.format(", study number {}", at), comma,
        ),
        model=pl.lit(pl.Series(MODELS)).gather(at % 4),
        second=at // 4 % 2,
        sku=pl.format("K-{}", at % 977),
    )  # fmt: skip
    video = pl.col("model") == "reel-1"
    image_size = pl.when(pl.col("second") == 1).then(pl.lit("2K")).otherwise(pl.lit("1K"))
    video_size = pl.when(pl.col("second") == 1).then(pl.lit("1080p")).otherwise(pl.lit("720p"))
    return table.with_columns(
        resolution=pl.when(video).then(video_size).otherwise(image_size),
        duration=pl.when(video).then(5 + 5 * pl.col("second")),
    ).drop("second")


def total(count: int) -> Decimal:
    """The price of `rows(count)`, computed one row at a time."""
    price = Decimal(0)
    for at in range(count):
        model, second = MODELS[at % 4], at // 4 % 2
        units = 5 + 5 * second if model == "reel-1" else 1
        price += Decimal(RATES[model, RESOLUTIONS[model][second]]) * units
    return price


def priced(path: str) -> pl.LazyFrame:
    """The batch file with the price of each row."""
    rates = pl.LazyFrame(
        [(*key, price) for key, price in RATES.items()], ["model", "resolution", "unit_price"], orient="row"
    ).with_columns(pl.col("unit_price").cast(pl.Decimal(18, 6)))
    scanned = pl.scan_csv(path) if path.endswith("csv") else pl.scan_parquet(path)
    price = pl.col("unit_price") * pl.col("duration").fill_null(1)
    return scanned.join(rates, on=["model", "resolution"]).with_columns(price=price)


def bare(path: str) -> Decimal:
    """Scan, join, sum."""
    return Decimal(priced(path).select(pl.col("price").sum()).collect().item())


def same(path: str) -> Decimal:
    """Scan every column, join, price each row, write."""
    start = time.perf_counter()
    priced(path).sink_parquet(Path(path).with_suffix(".same.parquet"), compression="lz4")
    return Decimal(time.perf_counter() - start)


def planned(path: str) -> Decimal:
    """Read, check, key, price, write the plan."""
    priced = make_plan(path)
    if priced.rejected_rows:
        raise SystemExit(f"{priced.rejects}")
    return priced.quoted


def rejected(path: str) -> Decimal:
    """The same where each row is wrong, and rejects.csv."""
    priced = make_plan(path, columns={"duration": "sku"})
    write_rejects(priced.rejects, Path(path).with_suffix(".rejects.csv"))
    return Decimal(priced.rejected_rows)


def make_plan(path: str, **of_input: Any) -> plan.Plan:
    """The batch file's plan."""
    catalogue = {}
    for name, resolutions in RESOLUTIONS.items():
        video = name == "reel-1"
        unit = {"sound": "sound_off" if video else "not_applicable"}
        unit["billable_unit"] = "video_second" if video else "image"
        rates = [{"resolution": size, "unit_price": RATES[name, size], **unit} for size in resolutions]
        catalogue[name] = Model.model_validate(
            {
                "id": name,
                "type": "video" if video else "image",
                "supported_resolutions": resolutions,
                "supported_durations": (5, 10) if video else (),
                "supported_aspect_ratios": ("16:9", "1:1"),
                "pricing": {"currency": "USD", "rates": rates},
            }
        )
    service = {"base_url": "http://127.0.0.1:1"}
    settings = Settings.model_validate(
        {"batch": "bench", "service": service, "input": {"path": path, **of_input}}
    )
    target = Path(path).with_suffix(".plan.parquet")
    return plan.make_plan(read_batch(settings), catalogue, settings, target, now=datetime.now(UTC))


def columns(path: str) -> Decimal:
    """Every column of the batch file, and nothing else."""
    start = time.perf_counter()
    _ = pl.read_csv(path) if path.endswith("csv") else pl.read_parquet(path)
    return Decimal(time.perf_counter() - start)


def hashed(path: str) -> Decimal:
    """The SHA-256 of each request of the plan, and nothing else."""
    requests = pl.read_parquet(Path(path).with_suffix(".plan.parquet"), columns=["request"])
    start = time.perf_counter()
    requests.select(sha256(pl.col("request")))
    return Decimal(time.perf_counter() - start)


def written(path: str) -> Decimal:
    """A plan written again, and nothing else."""
    table = pl.read_parquet(Path(path).with_suffix(".plan.parquet"))
    start = time.perf_counter()
    table.write_parquet(Path(path).with_suffix(".again.parquet"), compression="lz4")
    return Decimal(time.perf_counter() - start)


def generated(path: str) -> Decimal:
    """Writes the batch file, with the number of rows that its name has."""
    table = rows(int(Path(path).stem))
    if path.endswith("csv"):
        table.write_csv(path)
    else:
        table.write_parquet(path)
    return Decimal(table.height)


PARTS = {
    function.__name__: function
    for function in (generated, bare, same, planned, columns, hashed, written, rejected)
}
BOUNDS = ("columns", "hashed", "written")


def part(name: str, path: str) -> None:
    """Measures one part in this process, and prints it as JSON."""
    start = time.perf_counter()
    answer = PARTS[name](path)
    seconds = time.perf_counter() - start
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    megabytes = rss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    print(json.dumps({"answer": str(answer), "seconds": seconds, "mb": megabytes}))


@dataclass
class Measured:
    """The median seconds, the most megabytes, and the answers of some processes."""

    seconds: float
    mb: float
    answers: list[Decimal]


def measured(*names: str, path: Path, times: int = 5) -> list[Measured]:
    """Measures some parts in turns.

    This process stays small, because Linux counts its size for the processes that it starts.
    """
    runs: list[list[dict[str, Any]]] = [[] for _ in names]
    for _ in range(times):
        for name, tries in zip(names, runs, strict=True):
            command = [sys.executable, __file__, "--part", name, str(path)]
            tries.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
    return [
        Measured(
            seconds=median(run["seconds"] for run in tries),
            mb=max(run["mb"] for run in tries),
            answers=[Decimal(run["answer"]) for run in tries],
        )
        for tries in runs
    ]


def from_the_shell(folder: Path) -> float:
    """The median seconds of `callsheet quote` for 1,000 rows, of five tries."""
    from backlot.server import spawn

    rows(1_000).write_csv(folder / "thousand.csv")
    (folder / "thousand.yaml").write_text(
        "batch: thousand\nservice: {base_url: '${CALLSHEET_BASE_URL}'}\ninput: {path: thousand.csv}\n"
    )
    main = "from callsheet.cli.main import main; main()"
    command = [sys.executable, "-c", main, "quote", "thousand.yaml", "--json"]
    tries = []
    with spawn("--api-key", "sk_bench") as (base_url, _):
        environment = os.environ | {"CALLSHEET_BASE_URL": base_url, "CALLSHEET_API_KEY": "sk_bench"}
        for _ in range(5):
            start = time.perf_counter()
            done = subprocess.run(command, check=True, capture_output=True, cwd=folder, env=environment)
            tries.append(time.perf_counter() - start)
            if json.loads(done.stdout)["jobs"] != 1_000:
                raise SystemExit(done.stdout)
    return median(tries)


def report(folder: Path, count: int, ending: str, right: Decimal) -> dict[str, float]:
    """Measures one file format; prints the figures, and returns them."""
    path, tenth = folder / f"{count}.{ending}", folder / f"{count // 10}.{ending}"
    for file in (path, tenth):
        measured("generated", path=file, times=1)
    bare, same, planned = measured("bare", "same", "planned", path=path)
    [planned_tenth] = measured("planned", path=tenth, times=3)
    if {*planned.answers, *bare.answers} != {right}:
        raise SystemExit(f"quoted {planned.answers}, polars has {bare.answers}, and the price is {right}")
    ratio = planned.seconds / same.seconds
    print(f"{count:,} rows of {ending}, {path.stat().st_size / 1e6:.0f} MB; quoted {right} USD, exactly")
    print(f"  bare polars scan, join, sum    {bare.seconds:6.2f} s {bare.mb:6.0f} MB")
    print(f"  polars, the same columns       {same.seconds:6.2f} s {same.mb:6.0f} MB")
    print(
        f"  read, check, key, price, write {planned.seconds:6.2f} s {planned.mb:6.0f} MB {ratio:7.1f} x,"
        f" {planned.seconds / bare.seconds:.1f} x bare"
    )
    bounds = zip(BOUNDS, measured(*BOUNDS, path=path, times=3), strict=True)
    alone = {name: median(bound.answers) for name, bound in bounds}
    floor = float(sum(alone.values())) / same.seconds
    parts = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in alone.items())
    print(f"  lower bound: {parts} {floor:14.1f} x")
    growth = planned.mb / planned_tenth.mb
    print(f"  ten times the rows take        {growth:6.2f} x the memory of {planned_tenth.mb:.0f} MB")
    [wrong] = measured("rejected", path=path, times=1)
    if wrong.answers != [count]:
        raise SystemExit(f"{wrong.answers} of {count} rows are rejected")
    print(f"  every row wrong                {wrong.seconds:6.2f} s {wrong.mb:6.0f} MB")
    return {
        "bare": bare.seconds,
        "planned": planned.seconds,
        "same": same.seconds,
        "ratio": ratio,
        "lower bound": floor,
        "mb": planned.mb,
        "same mb": same.mb,
        "tenth mb": planned_tenth.mb,
        "rejected mb": wrong.mb,
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--part", nargs=2, metavar=("PART", "FILE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        part(*arguments.part)
        return
    with tempfile.TemporaryDirectory(prefix="callsheet-") as name:
        folder, right = Path(name), total(arguments.rows)
        formats = {ending: report(folder, arguments.rows, ending, right) for ending in ("csv", "parquet")}
        quote = from_the_shell(folder)
        print(f"callsheet quote of 1,000 rows, from the shell: {quote:.2f} s")
        save(arguments, {"rows": arguments.rows, "formats": formats, "quote of 1,000 rows": quote})


if __name__ == "__main__":
    main()
