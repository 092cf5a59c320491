"""Fills a project's ledger: every job of its plan becomes one that was bought and stored.

    python benchmarks/filled_ledger.py

It stands in for runs that would take hours. The first job must be stored already: its rows are the pattern,
so that this file knows only the columns in which jobs differ, and what they come to is that of the first one,
so many times. The totals are checked at the end; `measuring.finished` checks what `callsheet status` counts
afterwards.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa

from callsheet.config.load import load
from callsheet.ledger import running_totals
from callsheet.pricing.planning import last_plan
from callsheet.records import Job, canonical

CACHE = 1 << 19  # kB of the database that stay in memory: keys come in no order, and each has its place


def own(job: Job) -> dict[str, str]:
    """The values that belong to this job alone, by column, whatever the table."""
    name = f"bench/{job.row_id}-{job.sample}-0.jpeg"
    return {
        "job_key": job.key,
        "row_id": job.row_id,
        "prompt": job.request["prompt"],
        "request": canonical(dict(job.request)),
        "carried": json.dumps(dict(job.carried)),
        "request_key": job.request_key,
        "generation_id": f"earlier-{job.row_id}",
        "name": name,
        "folded_name": name,
        "url": f"out/media/{name}",
        "source_url": f"http://127.0.0.1/v2/downloads/earlier-{job.row_id}/0?exp=4102444800&sig=0",
    }


def fill(database: sqlite3.Connection, jobs: Iterator[Job]) -> None:
    """Enters every job that the ledger does not know yet."""
    first = own(next(jobs))
    database.execute(f"PRAGMA cache_size = -{CACHE}")
    database.execute(f"CREATE TEMP TABLE jobs ({', '.join(first)})")
    values = (tuple(own(job).values()) for job in jobs)
    database.executemany(f"INSERT INTO jobs VALUES ({', '.join('?' * len(first))})", values)
    tables = database.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'").fetchall()
    for (table,) in tables:
        columns = [row[1] for row in database.execute(f'PRAGMA main.table_info("{table}")')]
        if "job_key" in columns:
            names = ", ".join(f'"{name}"' for name in columns)
            of_job = ", ".join(f'{"jobs" if name in first else "pattern"}."{name}"' for name in columns)
            database.execute(
                f'INSERT OR IGNORE INTO "{table}" ({names}) SELECT {of_job} '
                f'FROM jobs, (SELECT * FROM "{table}" WHERE job_key = ?) AS pattern ORDER BY jobs.job_key',
                (first["job_key"],),
            )
    [(jobs_now,)] = database.execute("SELECT COUNT(*) FROM attempts").fetchall()
    database.execute("UPDATE totals SET quoted = quoted * ?1, spent = spent * ?1", (jobs_now,))


def main() -> None:
    settings = load(Path("batch.yaml"), ())
    plan = last_plan(settings)
    assert plan
    with closing(sqlite3.connect(settings.ledger.url.removeprefix("sqlite:///"))) as database, database:
        fill(database, plan.jobs_in_order())
    with sa.create_engine(settings.ledger.url).connect() as connection:
        if wrong := running_totals.differences(connection):
            raise SystemExit(f"the running totals are not the sums of the attempts: {wrong}")


if __name__ == "__main__":
    main()
