"""A ledger that is opened for buying, and jobs, reservations and answers for it."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from callsheet.ledger import marks, states
from callsheet.ledger.budget import SpendingLimit, Wall
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.marks import FileKey, Mark, MediaDecision
from callsheet.ledger.queries import Policy
from callsheet.ledger.states import FileEnd
from callsheet.ledger.tables import attempts, media
from callsheet.records import Attempt, Generation, Job, Media, ModelType, Price, State, StoredFile, Usage
from tests.ledger import reading

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STORED = StoredFile("out/x", "ab" * 32, 7, NOW, "image/png")


def job(name: str, model_type: ModelType = ModelType.IMAGE, price: str = "0.0400") -> Job:
    return Job(
        key=hashlib.sha256(name.encode()).hexdigest(),
        row_id=name,
        sample=1,
        type=model_type,
        model="m",
        request={"model": "m", "prompt": f"a {name}"},
        price=Price("image", Decimal(price), 1, "USD"),
        request_key=hashlib.sha256(f"request {name}".encode()).hexdigest(),
    )


def generation(name: str, cost: str = "0.0400", files: int = 1) -> Generation:
    item = Media(url="http://x/1", mime_type="image/png", deletes_at=NOW)
    usage = Usage(
        total_cost=Decimal(cost), billable_unit="image", unit_price=Decimal(cost), quantity=Decimal(1)
    )
    return Generation(f"req-{name}", (item,) * files, usage)


@asynccontextmanager
async def buyer(
    url: str, batch: str = "b", balance: str | None = None, notes: list[str] | None = None, **options: Any
) -> AsyncIterator[Ledger]:
    """A run at work, which dies at the end; `options` are those of `Ledger.open`."""
    told = [] if notes is None else notes
    ledger = await Ledger.open(url, batch, note=told.append, **options)
    await ledger.begin_run(None if balance is None else Decimal(balance))
    try:
        yield ledger
    finally:
        await ledger.close()


async def reserve(ledger: Ledger, *jobs: Job, limit: str = "100", **policy: Any):  # type: ignore[no-untyped-def]
    """What was reserved, and how many jobs were considered."""
    budget = SpendingLimit(ledger.batch, Decimal(limit))
    result = await ledger.reserve(jobs, Policy(**policy), budget)
    return result.reserved, len(jobs) - len(result.left)


async def intend(
    ledger: Ledger,
    attempt: Attempt,
    limit: str = "100",
    per_day: str | None = None,
    of_ledger: str | None = None,
) -> Wall | None:
    """Says that the POST is about to leave; returns the wall that it does not fit."""
    day, ever = (None if each is None else Decimal(each) for each in (per_day, of_ledger))
    budget = SpendingLimit(ledger.batch, Decimal(limit), day, of_ledger=ever)
    return await ledger.intend(attempt, budget, {})


async def submitting(ledger: Ledger, *jobs: Job, **policy: Any) -> list[Attempt]:
    """Reserves jobs, and says that their POSTs are about to leave."""
    reserved, _ = await reserve(ledger, *jobs, **policy)
    for _, attempt in reserved:
        await intend(ledger, attempt)
    return [attempt for _, attempt in reserved]


async def state_of(ledger: Ledger, one: Job) -> State | None:
    return (await ledger.read(reading.states)).get(one.key)


async def fill_with_marked_files(ledger: Ledger, count: int) -> None:
    """Fills a new ledger with stored files `file_key(0)` and so on, each of which is marked as kept."""
    [attempt] = await submitting(ledger, job("row"))
    [file] = await ledger.generated(attempt, generation("row"), ["row.png"], "out")
    await ledger.transition(states.stored, FileEnd(file, STORED))

    def fill(connection: sa.Connection, batch: str) -> None:
        for table, name in ((attempts, "row_id"), (media, "folded_name")):
            row = dict(connection.execute(sa.select(table)).mappings().one())
            rows = [row | {"job_key": file_key(n).job_key, name: f"row-{n}"} for n in range(count)]
            connection.execute(table.insert(), rows)
        kept = [Mark(file_key(n), MediaDecision.KEPT) for n in range(count)]
        marks.mark(connection, batch, kept, "a person")

    await ledger.write(fill)


def file_key(number: int) -> FileKey:
    """One of the files of `fill_with_marked_files`."""
    return FileKey(f"{number:064}", 1, 0)


def mark(connection: sa.Connection, batch: str, number: int, note: str) -> int:
    """What a key in the review does, in one transaction: its file is looked up and marked; how many were."""
    key = file_key(number)
    assert key in marks.stored(connection, batch, [key.job_key])
    return marks.mark(connection, batch, [Mark(key, MediaDecision.REJECTED, note)], "a person")
