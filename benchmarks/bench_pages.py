"""The served review of a large batch, next to that of a small one: its first cards, and a key. And `report`.

A batch of so many rows is stored as a run leaves it: one job is bought, and the others are entered into the
ledger as it was, each with a file of its own, which is a link to the same image. So no service and no decoder
takes part.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Coroutine, Iterator
from contextlib import chdir
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest.mock import AsyncMock, patch

import httpx
import polars as pl

from benchmarks import sink
from benchmarks.measuring import CALLSHEET, Figure, measured, project
from callsheet.config.load import load_without_service
from callsheet.config.settings import BatchSettings
from callsheet.ledger import marks
from callsheet.pricing.bought import request_key
from callsheet.report.contact_sheet import sheet
from callsheet.reviewing import server
from callsheet.steps.record import report_anew

KEYS = 50
LINKS = 10_000  # to one file: a file system takes so many, not any number


class Review(NamedTuple):
    """CPU seconds until the first cards are there, those of a key, and of `report` with nothing new to show,
    before and after the page has these cards.
    """

    first: float
    key: float
    report: float
    unchanged: float


def measure(*, quick: bool) -> Iterator[Figure]:
    """The CPU of the first cards and of a key, in a large batch next to a small one."""
    few, many = (50, 200) if quick else (1_000, 100_000)
    small, large = of_rows(few), of_rows(many)
    what = f"CPU of the served review of {many:,} files until its first cards, next to one of {few:,}"
    yield Figure(what, f"{large.first / small.first:.1f} times")
    yield Figure("the same of the large one", f"{large.first:.2f} s")
    what = f"CPU of a key in the served review of {many:,} files, next to one of {few:,}"
    yield Figure(what, f"{large.key / small.key:.2f} times", "at most 1.5 times")
    what = f"CPU of `report` that leaves a page of {many:,} cards as it is, next to one that makes it"
    yield Figure(what, f"{large.unchanged / large.report:.2f} times")


def of_rows(rows: int) -> Review:
    """A batch with so many files, which is stored and reviewed."""
    with sink.running() as base_url, project(rows) as folder, chdir(folder):
        os.environ["CALLSHEET_BASE_URL"] = base_url
        store(folder, base_url)
        settings = load_without_service(Path("batch.yaml"), [f"report.contact_sheet={rows}"])
        asyncio.run(report_anew(settings, print))  # plots, and what is loaded once
        shutil.rmtree(Path(settings.report.url, sheet.INDEX).with_name("data"))
        made, unchanged = [cpu_of(report_anew(settings, print)) for _ in range(2)]
        with patch.object(server, "update_manifest", AsyncMock()):
            return Review(*asyncio.run(reviewed(settings)), made, unchanged)


def cpu_of(work: Coroutine[Any, Any, object]) -> float:
    """The CPU seconds that it takes."""
    began = time.process_time()
    asyncio.run(work)
    return time.process_time() - began


async def reviewed(settings: BatchSettings) -> tuple[float, float]:
    """The page is opened as a browser does it; then keys are pressed, each a mark and a look for news.

    Without the manifest, which is written in the background for a part of the time, whatever the keys are.
    """
    began = time.process_time()
    async with server.opened(settings, "batch.yaml") as (app, ledger):
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://review") as client:
            for name in ("", sheet.SUMMARY, sheet.part_name(0)):
                (await client.get(f"/{name}")).raise_for_status()
            first = time.process_time() - began
            files = (await ledger.read(marks.files)).head(KEYS).select(*marks.FILE).to_dicts()
            number = (await client.get("/marks")).json()["number"]
            keys = []
            for file in files:
                began = time.process_time()
                said = {"marks": [file | {"decision": "kept", "note": None}]}
                (await client.post("/marks", json=said)).raise_for_status()
                number = (await client.get("/marks", params={"since": number})).json()["number"]
                keys.append(time.process_time() - began)
    return first, median(keys)


def store(folder: Path, base_url: str) -> None:
    """Stores every row of the project, of which one is bought."""
    measured([*CALLSHEET, "run", "batch.yaml", "--first", "1", "--yes", "--json"], folder, base_url)
    [plan] = folder.glob("out/**/plan.parquet")
    jobs = pl.read_parquet(plan, columns=["key", "row_id", "sample", "request"]).with_columns(request_key())
    with sqlite3.connect(folder / "out" / "ledger.db") as ledger:
        ledger.row_factory = sqlite3.Row
        bought, file, checked = (
            dict(ledger.execute(f"SELECT * FROM {table}").fetchone())
            for table in ("attempts", "media", "checks")
        )
        image = folder / file["url"]
        thumbnail = folder / "out" / "bench" / "report" / "contact-sheet" / "thumbs" / f"{file['sha256']}.jpg"
        rows: dict[str, list[dict[str, Any]]] = {"attempts": [], "media": [], "checks": []}
        for number, (key, row_id, sample, request, request_sha256) in enumerate(jobs.iter_rows()):
            if key == bought["job_key"]:
                continue
            name = f"{file['name']}-{number}{image.suffix}"
            sha256 = hashlib.sha256(name.encode()).hexdigest()
            prompt = json.loads(request)["prompt"]
            rows["attempts"].append(
                bought
                | {"job_key": key, "row_id": row_id, "sample": sample, "request": request, "prompt": prompt}
                | {"request_key": request_sha256, "generation_id": f"req-{number}"}
            )
            url = f"{file['url']}-{number}{image.suffix}"
            rows["media"].append(
                file | {"job_key": key, "url": url, "name": name, "folded_name": name, "sha256": sha256}
            )
            rows["checks"].append(checked | {"job_key": key, "hash": sha256[:16]})
            add = os.link if number % LINKS else shutil.copy
            originals = image, thumbnail
            image, thumbnail = folder / url, thumbnail.with_name(f"{sha256}.jpg")
            for original, copy in zip(originals, (image, thumbnail), strict=True):
                add(original, copy)
        for table, entered in rows.items():
            names = ", ".join(f'"{name}"' for name in entered[0])
            values = ", ".join(f":{name}" for name in entered[0])
            ledger.executemany(f"INSERT INTO {table} ({names}) VALUES ({values})", entered)
        ledger.execute("UPDATE totals SET quoted = quoted * ?, spent = spent * ?", [jobs.height] * 2)
