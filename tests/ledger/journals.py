"""Answers, a database that is locked, and what a journal's folder has."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg

from callsheet.ledger import journal
from callsheet.ledger.journal import PaidAnswer
from callsheet.ledger.ledger import Ledger
from callsheet.records import Attempt, ModelType
from tests.ledger.buying import generation, job

IMAGE, VIDEO = job("image"), job("video", ModelType.VIDEO)


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


async def until(true: Callable[[], Any]) -> None:
    """Waits for something that another thread or process brings about."""
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def files_in(spool: Path) -> list[Path]:
    return list(spool.iterdir())


def kept(spool: Path) -> list[str]:
    """The rows whose answers are in the journals, in order."""
    return [answer.attempt.row_id for left in journal.left_in(spool) for answer in left.answers]


def answer(attempt: Attempt, name: str = "image", **changes: Any) -> PaidAnswer:
    """An attempt is answered with a finished generation."""
    made = generation(name)
    paid = PaidAnswer(attempt, made.id, made.usage, made.media, (f"{name}.png",), "out", batch="b")
    return replace(paid, **changes)


ACCEPTED: dict[str, Any] = {"usage": None, "media": (), "names": (), "storage": ""}
"""Changes that make it the answer to a video that is not finished."""


def answers(ledger: Ledger, image: Attempt, video: Attempt) -> tuple[Awaitable[Any], Awaitable[Any]]:
    return (
        ledger.generated(image, generation("image", "0.0500", files=2), ["i.png", "j.png"], "out"),
        ledger.pending(video, "req-video"),
    )
