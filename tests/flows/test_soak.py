"""The long haul: 20,000 jobs, faults of every kind on 5 % of all requests; flat memory, and equal books."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
import yaml

from backlot.server import spawn

JOBS = 20_000
PROMPTS = 400  # different pictures: what is under test is the run, not the drawing
STRUCK = 0.05
IMAGES = [
    {"do": "error", "status": 500},
    {"do": "error", "status": 502},
    {"do": "error", "status": 503},
    {"do": "rate_limit", "kind": "window"},
    {"do": "rate_limit", "kind": "concurrency"},
    {"do": "delay", "seconds": 0.2},
    {"do": "drop", "when": "before_charging"},
    {"do": "drop", "when": "after_charging"},
    {"do": "expire_url", "deleted": True},
    {"do": "surcharge", "amount": "0.0100"},
    {"do": "extra_fields"},
    {"do": "null_size"},
]
DOWNLOADS = [
    *({"do": "error", "status": status} for status in (500, 502, 503)),
    *({"do": "rate_limit", "kind": kind} for kind in ("window", "concurrency")),
    *({"do": "drop", "when": when} for when in ("before_charging", "after_charging")),
    {"do": "delay", "seconds": 0.2},
    {"do": "truncate"},
    {"do": "wrong_type"},
]
RUN = (sys.executable, "-m", "callsheet", "run", "batch.yaml", "--json")


@pytest.mark.soak
def test_20000_jobs_with_5_percent_of_all_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = [
        {"endpoint": endpoint, "probability": STRUCK / len(faults), **fault}
        for endpoint, faults in (("images", IMAGES), ("downloads", DOWNLOADS))
        for fault in faults
    ]
    (tmp_path / "faults.yaml").write_text(yaml.safe_dump({"seed": 5, "rules": rules}))
    lines = [f"s{n},prompt {n % PROMPTS},sketch-1,1:1" for n in range(JOBS)]
    (tmp_path / "prompts.csv").write_text("\n".join(["id,prompt,model,aspect_ratio", *lines]) + "\n")
    config = {
        "batch": "soak",
        "service": {"base_url": "${CALLSHEET_BASE_URL}"},
        "input": {"path": "prompts.csv"},
    }
    (tmp_path / "batch.yaml").write_text(yaml.safe_dump(config))
    flags = ["--faults", str(tmp_path / "faults.yaml"), "--state", str(tmp_path / "service"), "--window", "1"]
    flags += ["--image-rpm", "1000000", "--concurrency", "64", "--image-seconds", "0", "--media-ttl", "86400"]
    with spawn(*flags) as (base_url, server):
        environment = os.environ | {
            "CALLSHEET_BASE_URL": base_url,
            "CALLSHEET_API_KEY": "sk_backlot",
        }
        began = time.monotonic()
        with subprocess.Popen(
            RUN, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as run:
            memory = watch(run, tmp_path / "out/ledger.db")
            printed, problems = run.communicate()
        seconds = time.monotonic() - began
        server.kill()
    assert run.returncode == 3, problems
    summary = json.loads(printed)
    with capsys.disabled():
        ends = {name: summary[name] for name in ("stored", "failed", "in_doubt", "lost", "pending")}
        print(f"\n{JOBS} jobs in {seconds:.0f} s: {ends}; {summary['submissions']} submissions")  # noqa: T201
        print(f"RSS: {', '.join(f'{mb} MB at {name}' for name, mb in memory.items())}")  # noqa: T201
    assert summary["stored"] + summary["in_doubt"] + summary["lost"] + summary["failed"] == JOBS
    assert memory["100 %"] <= 1.2 * memory["25 %"]
    compare(tmp_path, summary)


def watch(run: subprocess.Popen[str], ledger: Path) -> dict[str, int]:
    """The run's resident memory in MB when so many jobs had ended, and its highest."""
    memory: dict[str, int] = {}
    while run.poll() is None:
        time.sleep(0.5)  # a sample
        done = ended(ledger)
        try:
            status = Path(f"/proc/{run.pid}/status").read_text().splitlines()
        except FileNotFoundError:
            break
        held = {line.split()[0]: int(line.split()[1]) // 1024 for line in status if line.startswith("Vm")}
        if "VmRSS:" not in held:
            break  # it has just ended
        for share in (25, 50, 75, 100):
            if done >= JOBS * share // 100:
                memory.setdefault(f"{share} %", held["VmRSS:"])
        memory["its highest, while it writes the report"] = held["VmHWM:"]
    return memory


def ended(ledger: Path) -> int:
    if not ledger.exists():
        return 0
    query = "SELECT count(*) FROM attempts WHERE state IN ('stored', 'failed', 'in_doubt', 'lost')"
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as database:
        try:
            return int(database.execute(query).fetchone()[0])
        except sqlite3.OperationalError:  # it is being made
            return 0


def compare(folder: Path, summary: dict[str, str]) -> None:
    """The ledger, the store and the service's books agree, job by job and to the cent."""
    with closing(sqlite3.connect(folder / "service/backlot.db")) as database:
        service = {
            name: units * Decimal("0.0001")
            for name, units in database.execute("SELECT id, cost FROM generations")
        }
    costs = pl.read_parquet(folder / "out/soak/report/costs.parquet")
    assert costs.height == JOBS == costs["job_key"].n_unique()
    known = {row["generation_id"]: row["cost"] for row in costs.iter_rows(named=True) if row["generation_id"]}
    assert all(service[name] == cost for name, cost in known.items())
    unknown = Counter(service[name] for name in service.keys() - known.keys())
    doubted = costs.filter(pl.col("state") == "in_doubt")
    assert unknown.total() <= doubted.height
    surplus = sum((cost * count for cost, count in unknown.items()), Decimal(0))
    assert Decimal(str(summary["spent"])) + surplus == sum(service.values())
    manifest = pl.read_parquet(folder / "out/soak/report/manifest.parquet")
    stored = {str(path.relative_to(folder)) for path in folder.glob("out/media/soak/*")}
    assert stored == set(manifest["url"])
    assert manifest.height == summary["stored"]
    assert not list(folder.glob("out/soak/report/spool/*"))
