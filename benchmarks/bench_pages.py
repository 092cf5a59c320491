"""Contact sheets of large batches: what is made again, and how soon the served page answers.

A batch of so many rows is stored as a run leaves it: one job is bought, and the others are entered into the
ledger as it was, each with a file of its own, which is a link to the same image. So no service and no decoder
takes part.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.measuring import CALLSHEET, measured


def store(folder: Path, base_url: str) -> None:
    """Stores every row of the project, of which one is bought."""
    measured([*CALLSHEET, "run", "batch.yaml", "--first", "1", "--yes", "--json"], folder, base_url)
    [plan] = folder.glob("out/**/plan.parquet")
    jobs = pl.read_parquet(plan, columns=["key", "row_id", "sample", "request"])
    with sqlite3.connect(folder / "out" / "ledger.db") as ledger:
        ledger.row_factory = sqlite3.Row
        bought, file, checked = (
            dict(ledger.execute(f"SELECT * FROM {table}").fetchone())
            for table in ("attempts", "media", "checks")
        )
        image = folder / file["url"]
        thumbnail = folder / "out" / "bench" / "report" / "contact-sheet" / "thumbs" / f"{file['sha256']}.jpg"
        rows: dict[str, list[dict[str, Any]]] = {"attempts": [], "media": [], "checks": []}
        for number, (key, row_id, sample, request) in enumerate(jobs.iter_rows()):
            if key == bought["job_key"]:
                continue
            name = f"{file['name']}-{number}{image.suffix}"
            sha256 = hashlib.sha256(name.encode()).hexdigest()
            prompt = json.loads(request)["prompt"]
            rows["attempts"].append(
                bought
                | {"job_key": key, "row_id": row_id, "sample": sample, "request": request, "prompt": prompt}
                | {"request_key": sha256, "generation_id": f"req-{number}"}
            )
            url = f"{file['url']}-{number}{image.suffix}"
            rows["media"].append(
                file | {"job_key": key, "url": url, "name": name, "folded_name": name, "sha256": sha256}
            )
            rows["checks"].append(checked | {"job_key": key, "hash": sha256[:16]})
            os.link(image, folder / url)
            os.link(thumbnail, thumbnail.with_name(f"{sha256}.jpg"))
        for table, entered in rows.items():
            names = ", ".join(f'"{name}"' for name in entered[0])
            values = ", ".join(f":{name}" for name in entered[0])
            ledger.executemany(f"INSERT INTO {table} ({names}) VALUES ({values})", entered)
        ledger.execute("UPDATE totals SET quoted = quoted * ?, spent = spent * ?", [jobs.height] * 2)
