"""Runs with a journal, a database that is locked, and what a journal's folder has."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from callsheet.ledger import journal
from callsheet.ledger.ledger import Ledger
from callsheet.records import Attempt, Job, ModelType
from tests.ledger.buying import generation, intend, job, reserve

IMAGE, VIDEO = job("image"), job("video", ModelType.VIDEO)


@asynccontextmanager
async def buyer(
    url: str, spool: Path, notes: list[str] | None = None, **waits: float
) -> AsyncIterator[Ledger]:
    told = [] if notes is None else notes
    ledger = await Ledger.open(url, "b", journal=spool, note=told.append, **waits)
    await ledger.begin_run()
    try:
        yield ledger
    finally:
        await ledger.close()


@contextmanager
def locked(url: str) -> Iterator[None]:
    """Another process writes to the ledger, and does not end."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            yield
    else:
        with psycopg.connect(url.replace("+psycopg", "")) as database:
            database.execute("LOCK TABLE attempts IN EXCLUSIVE MODE")
            yield


async def submitting(ledger: Ledger, *jobs: Job) -> list[Attempt]:
    reserved, _ = await reserve(ledger, *jobs)
    for _, attempt in reserved:
        await intend(ledger, attempt)
    return [attempt for _, attempt in reserved]


async def until(true: Callable[[], Any]) -> None:
    """Waits for something that another thread or process brings about."""
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def files_in(spool: Path) -> list[Path]:
    return list(spool.iterdir())


def kept(spool: Path) -> list[str]:
    """The rows whose answers are in the journals, in order."""
    return [answer.attempt.row_id for left in journal.left_in(spool) for answer in left.answers]


def answers(ledger: Ledger, image: Attempt, video: Attempt) -> tuple[Awaitable[Any], Awaitable[Any]]:
    return (
        ledger.generated(image, generation("image", "0.0500", files=2), ["i.png", "j.png"], "out"),
        ledger.pending(video, "req-video"),
    )


IMAGE, VIDEO = job("image"), job("video", ModelType.VIDEO)
