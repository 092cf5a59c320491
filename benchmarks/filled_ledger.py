"""Fills a project's ledger: every job of its plan becomes one that was bought and stored.

    python benchmarks/filled_ledger.py

It stands in for runs that would take hours. The first job must be stored already: its rows are the pattern,
so that this file knows only the columns in which jobs differ. A table that is derived from these would have
to be made anew here; `measuring.finished` checks what `callsheet status` counts afterwards.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from callsheet.config.load import load
from callsheet.pricing.planning import last_plan
from callsheet.records import Job

PART = 10_000  # jobs at a time


def own(job: Job) -> dict[str, str]:
    """The values that belong to this job alone, by column, whatever the table."""
    name = f"bench/{job.row_id}-{job.sample}-0.jpeg"
    return {
        "job_key": job.key,
        "row_id": job.row_id,
        "prompt": job.request["prompt"],
        "request_key": job.request_key,
        "generation_id": f"earlier-{job.row_id}",
        "name": name,
        "folded_name": name,
        "url": f"out/media/{name}",
        "source_url": f"http://127.0.0.1/v2/downloads/earlier-{job.row_id}/0?exp=4102444800&sig=0",
    }


def patterns(database: sqlite3.Connection, first: Job) -> dict[str, dict[str, Any]]:
    """By table, the row of the first job, for each table that has one."""
    found = {}
    for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
        if "job_key" in columns:
            row = database.execute(f'SELECT * FROM "{table}" WHERE job_key = ?', (first.key,)).fetchone()
            if row:
                found[table] = dict(zip(columns, row, strict=True))
    return found


def fill(database: sqlite3.Connection, jobs: Iterator[Job]) -> None:
    """Enters every job that the ledger does not know yet."""
    rows = patterns(database, next(jobs))
    while part := [own(job) for job in itertools.islice(jobs, PART)]:
        for table, pattern in rows.items():
            names = ", ".join(f'"{name}"' for name in pattern)
            places = ", ".join(f":{name}" for name in pattern)
            filled = ({name: values.get(name, pattern[name]) for name in pattern} for values in part)
            database.executemany(f'INSERT OR IGNORE INTO "{table}" ({names}) VALUES ({places})', filled)


def main() -> None:
    settings = load(Path("batch.yaml"), ())
    plan = last_plan(settings)
    assert plan
    with closing(sqlite3.connect(settings.ledger.url.removeprefix("sqlite:///"))) as database, database:
        fill(database, plan.jobs_in_order())


if __name__ == "__main__":
    main()
