"""The long haul: 20,000 jobs, faults of every kind on 5 % of all requests; flat memory, and equal books."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import polars as pl
import psutil
import pytest

from tests.cli.test_commands import CALLSHEET
from tests.conftest import Project
from tests.steps.test_stopping import attempts

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


@pytest.mark.soak
def test_20000_jobs_with_5_percent_of_all_faults(project: Callable[..., Project]) -> None:
    rules = [
        {"endpoint": endpoint, "probability": STRUCK / len(faults), **fault}
        for endpoint, faults in (("images", IMAGES), ("downloads", DOWNLOADS))
        for fault in faults
    ]
    rows = [
        {"id": f"s{n}", "prompt": f"prompt {n % PROMPTS}", "model": "sketch-1", "aspect_ratio": "1:1"}
        for n in range(JOBS)
    ]
    limits = {"window": 1, "image_rpm": 10**6, "concurrency": 64}
    made = project(rows, faults={"seed": 5, "rules": rules}, media_ttl=86_400, **limits)
    made.set(budget={"limit": "50.00"})  # otherwise the surcharges stop it at what was quoted
    command = [*CALLSHEET, "run", str(made.config), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
        # Near the end, and not at it: what the report and its plots take is no growth.
        quarter, end = memory_at(run, made, JOBS // 4), memory_at(run, made, JOBS * 9 // 10)
        printed, _ = run.communicate()
    assert run.returncode == 3
    assert end <= 1.2 * quarter
    compare(made, json.loads(printed))


def memory_at(run: subprocess.Popen[bytes], made: Project, jobs: int) -> int:
    """The run's resident bytes when so many jobs have ended."""
    while attempts(made, "stored", "failed", "in_doubt", "lost") < jobs:
        assert run.poll() is None, "it has ended before"
        time.sleep(0.5)  # a sample
    return int(psutil.Process(run.pid).memory_info().rss)


def compare(made: Project, summary: dict[str, Any]) -> None:
    """The ledger, the store and the service's books agree, job by job and to the cent."""
    assert sum(summary[name] for name in ("stored", "in_doubt", "lost", "failed")) == JOBS
    service = {one.id: one.cost for one in made.sold}
    costs = made.costs()
    assert costs.height == JOBS == costs["job_key"].n_unique()
    known = {row["generation_id"]: row["cost"] for row in costs.iter_rows(named=True) if row["generation_id"]}
    assert all(service[name] == cost for name, cost in known.items())
    unknown = Counter(service[name] for name in service.keys() - known.keys())
    assert unknown.total() <= costs.filter(pl.col("state") == "in_doubt").height
    surplus = sum((cost * count for cost, count in unknown.items()), Decimal(0))
    assert Decimal(str(summary["spent"])) + surplus == made.charged == sum(service.values())
    manifest = made.manifest()
    stored = {str(path.relative_to(made.folder)) for path in made.folder.glob("out/media/test/*")}
    assert stored == set(manifest["url"])
    assert manifest.height == summary["stored"]
    assert not list(made.folder.glob("out/report/spool/*"))
