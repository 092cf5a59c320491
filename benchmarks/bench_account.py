"""Whether a run uses an account's limits up, over HTTP: what the service accepted, and what it refused.

The account takes 600 images a minute of the clock and 50 at a time, and is the backlot's, with real images
over HTTP. The first run knows nothing of the limits; the next one has what the ledger remembers of them. The
ideal uses every window up. `bench_limits.py` has other accounts, in
virtual time.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from backlot.server import spawn
from benchmarks.measuring import CALLSHEET, Figure, measured, project

RPM, CONCURRENCY = 600, 50
ENOUGH = 20  # seconds in which a run uses a window up: 50 at a time, each for a second
LIMITS = f"--image-rpm {RPM} --concurrency {CONCURRENCY} --image-seconds 1"
CONFIG = """\
batch: {batch}
service: {{base_url: "${{CALLSHEET_BASE_URL}}"}}
input: {{path: rows.csv, defaults: {{model: sketch-1}}}}
report: {{contact_sheet: 0}}
"""


def measure(*, quick: bool) -> Iterator[Figure]:
    """A first run, and the next one, of another batch on the same ledger."""
    rows = 100 if quick else 2 * RPM + CONCURRENCY  # it meets the end of a window twice
    before: Counter[int] = Counter()
    with spawn(*LIMITS.split(), "--api-key", "sk_bench") as (base_url, _), project(rows) as folder:
        for name, batch in (("a first run", "first"), ("the next run", "next")):
            (folder / "batch.yaml").write_text(CONFIG.format(batch=batch))
            wait_for_time()
            totals = json.loads(
                measured([*CALLSHEET, "run", "batch.yaml", "--json"], folder, base_url).printed
            )
            sent = minutes(folder / totals["costs"])
            full = sorted(sent)[:2]
            share = sum(sent[minute] for minute in full) / sum(RPM - before[minute] for minute in full)
            before += sent
            refused = totals["rate_limited"] / totals["submissions"]
            yield Figure(
                f"an account of {RPM} a minute, {name}: accepted of the ideal; refused",
                f"{100 * share:.1f} %; {100 * refused:.1f} %",
                "at least 97 %; under 0.5 %",
            )


def wait_for_time() -> None:
    """Waits for the next minute, where too little is left of this one to use its window up."""
    left = 60 - time.time() % 60
    if left < ENOUGH:
        time.sleep(left)


def minutes(costs: Path) -> Counter[int]:
    """How many submissions of a run left in each minute of the clock."""
    import polars as pl

    sent = pl.read_parquet(costs, columns=["submitted_at"])["submitted_at"].dt.epoch("s")
    return Counter(at // 60 for at in sent)
