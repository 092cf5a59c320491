"""`quote`, `run`, `collect` and `status`: what a call from Python gets is what a command gets.

A table in memory becomes a batch file, so that everything after it is the same as for a file. Nothing here
decides about money. The steps and their order are in `steps/batch.py`.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeVar

import polars as pl
import pyarrow as pa

from callsheet import signals
from callsheet.config.load import load, load_without_service
from callsheet.errors import ApprovalNeeded, CallsheetError, ConfigError, InputError, Interrupted, known_error
from callsheet.files import temporary_file_errors
from callsheet.ledger.approvals import Place
from callsheet.ledger.ledger import Ledger
from callsheet.pricing.quote import quote_batch
from callsheet.python.notebook import Notebook, in_notebook
from callsheet.records import Record
from callsheet.report.summary import Status, Summary, read_status
from callsheet.steps import batch
from callsheet.steps.connect import connect
from callsheet.watch import WATCHER, LogWatcher

_INDEX = r"^__index_level_\d+__$"  # pandas' row labels, where they have no name
_NAME = "rows"  # in messages, in place of the temporary file's


class Rows(Protocol):
    """A table that any library can read: a pandas or polars DataFrame, a pyarrow Table, a DuckDB result.

    This is the Arrow PyCapsule interface.
    """

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A capsule with the stream."""


@asynccontextmanager
async def batch_file(rows: Rows | None) -> AsyncIterator[Mapping[str, object]]:
    """The setting that puts rows in the place of the batch file; nothing where there are none.

    Raises:
        InputError: they are not a table, or a column cannot be read.
        StorageError: the temporary file cannot be written.
    """
    if rows is None:
        yield {}
        return
    table = await asyncio.to_thread(in_memory, rows, _NAME)
    with temporary_file_errors():
        folder = TemporaryDirectory(prefix="callsheet-")
    with folder:
        path = Path(folder.name, f"{_NAME}.parquet")
        with temporary_file_errors():
            await asyncio.to_thread(table.write_parquet, path)
        try:
            yield {"input.path": str(path)}
        except CallsheetError as error:
            error.message = error.message.replace(str(path), _NAME)
            error.args = (error.message,)
            raise


def in_memory(rows: Any, name: str) -> pl.DataFrame:
    """The table that a caller has given, with `name` for messages; only an index with a name is a column.

    Raises:
        InputError: it is no table, or a column cannot be read.
    """
    if not hasattr(rows, "__arrow_c_stream__"):
        hint = "Give a pandas or polars DataFrame, a pyarrow Table, or anything with __arrow_c_stream__"
        example = f"; pandas.DataFrame({name}) makes one." if isinstance(rows, list | dict) else "."
        raise InputError(f"{name}: {type(rows).__name__} is not a table", hint=hint + example)
    try:
        arrow = pa.table(rows)  # of pandas with its index, which may be a column of the batch
        names = arrow.column_names
        if twice := sorted({each for each in names if names.count(each) > 1}):
            raise InputError(f"{name}: there are two columns named {twice[0]!r}", hint="Rename one of them.")
        table = pl.DataFrame(arrow).select(pl.exclude(_INDEX))
        return table.cast({pl.Categorical: pl.String, pl.Enum: pl.String})
    except (
        pa.ArrowException,
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
        TypeError,
        ValueError,
    ) as error:
        reason = ": ".join(str(part).strip() for part in error.args) or type(error).__name__
        hint = "Give each column one type: text, numbers, booleans, dates, or lists and structs of these."
        raise InputError(f"{name}: cannot be read: {reason}", hint=hint) from None


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
    budget_ledger: Decimal | None
    budget_left_ledger: Decimal | None
    fits: int
    pilot_to_buy: int | None
    pilot_quoted: Decimal | None
    balance: Decimal
    currency: str
    plan: str
    rejects: str
    warnings: list[str]
    notes: list[str]
    media: dict[str, int]
    guessed: dict[str, dict[str, Any]]
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
    watcher = Notebook() if in_notebook() else LogWatcher()
    watcher.yes = Place.PYTHON
    before = WATCHER.set(watcher)
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
