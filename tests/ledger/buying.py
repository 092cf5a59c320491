"""A ledger that is opened for buying, and jobs, reservations and answers for it."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

import sqlalchemy as sa

from callsheet.config.settings import Budget
from callsheet.ledger import marks, states, words
from callsheet.ledger.gate import Obstacle
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.marks import FileKey, Mark, MediaDecision
from callsheet.ledger.policy import Policy
from callsheet.ledger.states import FileEnd
from callsheet.ledger.tables import attempts, media
from callsheet.ledger.words import Decision, Place, Shown, Word
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


def word(ledger: Ledger, at_most: str, **answer: Any) -> Word:
    """A word by which the ledger's run may buy; a question where its `decision` is None."""
    said = {
        "decision": Decision.NOT_ASKED,
        "decided_at": NOW,
        "decided_by": "x",
        "place": Place.CONFIG,
    } | answer
    shown = said.pop("shown", Shown(plan="p", at_most=Decimal(at_most)))
    about = said.pop("about", ())
    return Word(uuid4().hex, ledger.asker, shown, about, "", NOW, ledger.flow_run, **said)


@asynccontextmanager
async def buyer(
    url: str, batch: str = "b", balance: str | None = None, notes: list[str] | None = None, **options: Any
) -> AsyncIterator[Ledger]:
    """A run at work, which dies at the end; `options` are those of `Ledger.open`."""
    told = [] if notes is None else notes
    ledger = await Ledger.open(url, batch, note=told.append, **options)
    await ledger.begin_run(None if balance is None else Decimal(balance))
    await ledger.write(words.enter_word, word(ledger, "1000000"))
    try:
        yield ledger
    finally:
        await ledger.close()


async def reserve(ledger: Ledger, *jobs: Job, limit: str = "100", **policy: Any):  # type: ignore[no-untyped-def]
    """What was reserved, and how many jobs were considered."""
    result = await ledger.reserve(
        jobs, Policy(**policy, run_id=ledger.run_id), ledger.buyer(Budget(), Decimal(limit))
    )
    return result.reserved, len(jobs) - len(result.left)


async def intend(
    ledger: Ledger,
    attempt: Attempt,
    limit: str = "100",
    per_day: str | None = None,
    of_ledger: str | None = None,
) -> Obstacle | None:
    """Says that the POST is about to leave; returns why it may not."""
    day, ever = (None if amount is None else Decimal(amount) for amount in (per_day, of_ledger))
    budget = Budget(per_day=day, ledger=ever)
    return await ledger.intend(attempt, ledger.buyer(budget, Decimal(limit)), {})


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
