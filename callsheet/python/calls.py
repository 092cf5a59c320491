"""`quote`, `run`, `collect` and `status`: what a call from Python gets is what a command gets.

Nothing here decides about money. The steps and their order are in `steps/batch.py`.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

from callsheet import signals
from callsheet.config.load import load, load_without_service
from callsheet.errors import ApprovalNeeded, ConfigError, Interrupted, known_error
from callsheet.ledger.ledger import Ledger
from callsheet.pricing.quote import quote_batch
from callsheet.python.batch_file import Rows, batch_file
from callsheet.python.notebook import Notebook, in_notebook
from callsheet.records import Record
from callsheet.report.summary import Status, Summary, read_status
from callsheet.steps import batch
from callsheet.steps.connect import connect
from callsheet.watch import WATCHER, ScriptWatcher

T = TypeVar("T")
Config = str | os.PathLike[str]
Values = Mapping[str, object]

_LOOK = 0.1  # seconds. A signal may wake another thread, and the main one alone runs its handler


@dataclass(frozen=True, slots=True)
class QuotedBatch(Record):
    """What the rest of a batch costs (docs/commands.md, "JSON"). Money is in US dollars.

    `budget_*` are None without such a limit, `pilot_*` without a pilot, and `first_request` where nothing
    can be bought.
    """

    batch: str
    rows: int
    rejected_rows: int
    jobs: int
    already_bought: int
    to_buy: int
    unpriced: int
    quoted: Decimal
    at_most: Decimal
    budget_limit: Decimal | None
    budget_left: Decimal | None
    budget_per_day: Decimal | None
    budget_left_today: Decimal | None
    fits: int
    pilot_to_buy: int | None
    pilot_quoted: Decimal | None
    balance: Decimal
    currency: str
    plan: str
    rejects: str
    warnings: list[str]
    notes: list[str]
    columns: dict[str, str]
    carried: list[str]
    unused: list[dict[str, str]]
    first_request: dict[str, Any] | None
    repeated: int


async def quote(config: Config, rows: Rows | None, settings: Values | None) -> QuotedBatch:
    """See `callsheet.quote`."""
    with _errors_of_a_command():
        async with batch_file(rows) as given:
            checked = load(Path(config), values=_together(settings, given))
            async with await connect(checked) as client:
                return QuotedBatch(**(await quote_batch(checked, client)).figures())


async def run(config: Config, rows: Rows | None, settings: Values | None, *, yes: bool) -> Summary:
    """See `callsheet.run`."""
    with _errors_of_a_command(), _shown():
        async with batch_file(rows) as given:
            checked = load(Path(config), values=_together(settings, given))
            summary = await batch.generate(checked, approved=yes)
    return _unless_a_person_stopped_it(summary)


async def collect(config: Config, settings: Values | None) -> Summary:
    """See `callsheet.collect`."""
    with _errors_of_a_command(), _shown():
        checked = load(Path(config), values=settings or {}, reads_batch=False)
        return _unless_a_person_stopped_it(await batch.collect(checked))


async def status(config: Config, settings: Values | None) -> Status:
    """See `callsheet.status`."""
    checked = load_without_service(Path(config), values=settings or {})
    async with await Ledger.open(checked.ledger.url, checked.batch, looks=True) as ledger:
        return await read_status(ledger)


def carry_out(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end, and returns its result.

    Where this thread has an event loop already, as in a notebook, the coroutine gets another one in a thread
    of its own, and Ctrl-C (the notebook's stop button) still reaches it.
    """
    in_a_loop = False
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        in_a_loop = True
    if not in_a_loop:  # not in a handler of that error: it would be the first cause of every other one
        return asyncio.run(work)
    with signals.passed_on(), ThreadPoolExecutor(1, "callsheet") as thread:
        future = thread.submit(contextvars.copy_context().run, asyncio.run, work)
        while not future.done():
            wait([future], timeout=_LOOK)
        return future.result()


def _together(settings: Values | None, given: Values) -> Values:
    settings = settings or {}
    if both := given.keys() & settings:
        raise ConfigError(
            f"settings[{both.pop()!r}] and rows exclude each other",
            hint="The rows are the batch: leave it out.",
        )
    return {**settings, **given}


@contextmanager
def _errors_of_a_command() -> Iterator[None]:
    """A signal stops the call as it stops a command, and of errors side by side the first one is raised."""
    try:
        with signals.cancelled_by_signals():
            yield
    except BaseExceptionGroup as group:
        if error := known_error(group):
            raise error from None
        raise


@contextmanager
def _shown() -> Iterator[None]:
    """In a notebook, what happens is shown under the cell; elsewhere it goes to the log."""
    before = WATCHER.set(Notebook() if in_notebook() else ScriptWatcher())
    try:
        yield
    finally:
        WATCHER.reset(before)


def _unless_a_person_stopped_it(summary: Summary) -> Summary:
    """The summary of a run that ended by itself; what waits for a person, or was ended by one, is raised."""
    if summary.stop_reason == ApprovalNeeded.reason:
        hint = "Look at callsheet.quote(...), then approve: callsheet.run(..., yes=True)."
        raise ApprovalNeeded(summary.stop_message or "", hint=hint)
    if summary.stop_reason == Interrupted.reason:
        raise Interrupted(summary.line(), hint="The same call goes on from here.")
    return summary
