"""What `import callsheet` offers, behind the functions of `callsheet/__init__.py`.

`quote`, `run`, `collect` and `status` hand what they get to the same steps as the commands. A table in memory
becomes a batch file, so that everything after it is the same as for a file. Besides: tables of a batch as
DataFrames with exact decimals, marks from a DataFrame, and the progress of a run in a notebook. Nothing here
decides about money.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, asynccontextmanager, suppress
from datetime import date
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import polars as pl
import pyarrow as pa
from pyarrow import parquet

from callsheet import signals
from callsheet.batches.formats import local_copy
from callsheet.config.load import load, load_without_service
from callsheet.config.settings import BatchSettings, Settings
from callsheet.errors import (
    ApprovalNeeded,
    CallsheetError,
    ConfigError,
    InputError,
    Interrupted,
    LedgerError,
    StorageError,
    known_error,
)
from callsheet.files import temporary_file_errors
from callsheet.ledger.databases import check_exists, exists
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.words import Place
from callsheet.plain_text import printable
from callsheet.present import priced, results, under_way
from callsheet.present.priced import QuotedBatch
from callsheet.pricing.from_rows import quote_batch
from callsheet.pricing.plan import QUOTE, last_priced
from callsheet.pricing.quote import Quote
from callsheet.records import Progress
from callsheet.report.contact_sheet.cards import local_path
from callsheet.report.month import LedgerCosts, read_costs
from callsheet.report.report import MANIFEST, update_manifest
from callsheet.report.summary import ReviewResult, Status, Summary, read_status
from callsheet.reviewing.written_marks import enter_marks, from_table
from callsheet.standing import read_standing
from callsheet.steps import batch
from callsheet.steps.connect import connect
from callsheet.storage.spool import work_folder
from callsheet.storage.store import Store
from callsheet.watch import WATCHER, LogWatcher, Watcher

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
logger = logging.getLogger("callsheet")
Config = str | os.PathLike[str]
Values = Mapping[str, object]

_INDEX = r"^__index_level_\d+__$"  # pandas' row labels, where they have no name
_NAME = "rows"  # in messages, in place of the temporary file's
_LOOK = 0.1  # seconds. A signal may wake another thread, and the main one alone runs its handler
_REVIEWS = ["row_id", "sample", "file_number", "index", "decision", "note", "decided_by", "decided_at"]
_REVIEWS += ["flags", "score", "model", "prompt", "cost", "url", "job_key"]


class Rows(Protocol):
    """A table that any library can read: a pandas or polars DataFrame, a pyarrow Table, a DuckDB result.

    This is the Arrow PyCapsule interface.
    """

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A capsule with the stream."""


def _in_memory(rows: Any, name: str) -> pl.DataFrame:
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
        if twice := sorted({column for column in names if names.count(column) > 1}):
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


@asynccontextmanager
async def _batch(
    config: Config, rows: Rows | None, settings: Values | None, *, reads_batch: bool = True
) -> AsyncIterator[Settings]:
    """The settings of a batch; rows in memory are the batch file, and a temporary file.

    A signal stops what is inside as it stops a command, and of errors side by side the first one is raised.
    """
    settings, path = {**(settings or {})}, ""
    try:
        with signals.cancelled_by_signals(), ExitStack() as stack:
            if rows is not None:
                if "input.path" in settings:
                    hint = "The rows are the batch: leave it out."
                    raise ConfigError("settings['input.path'] and rows exclude each other", hint=hint)
                table = await asyncio.to_thread(_in_memory, rows, _NAME)
                with temporary_file_errors():
                    folder = stack.enter_context(TemporaryDirectory(prefix="callsheet-"))
                    settings["input.path"] = path = str(Path(folder, f"{_NAME}.parquet"))
                    await asyncio.to_thread(table.write_parquet, path)
            yield load(Path(config), values=settings, reads_batch=reads_batch)
    except (CallsheetError, BaseExceptionGroup) as raised:
        error = known_error(raised)
        if error is None:
            raise
        if path:
            error.message = error.message.replace(path, _NAME)
            error.args = (error.message,)
        raise error from None


async def quote(config: Config, rows: Rows | None, settings: Values | None) -> QuotedBatch:
    """See `callsheet.quote`."""
    async with _batch(config, rows, settings) as checked, await connect(checked) as client:
        return priced.figures(await quote_batch(checked, client))


async def run(
    config: Config, rows: Rows | None, settings: Values | None, *, yes: bool, purse: str | None
) -> Summary:
    """See `callsheet.run`."""
    if yes and purse is not None:
        hint = "Who buys by a purse answers no question."
        raise ConfigError("purse and yes exclude each other", hint=hint)
    async with _batch(config, rows, settings) as checked:
        return await _watched(batch.generate(checked, approved=yes, purse=purse))


async def collect(config: Config, settings: Values | None) -> Summary:
    """See `callsheet.collect`."""
    async with _batch(config, None, settings, reads_batch=False) as checked:
        return await _watched(batch.collect(checked))


async def _watched(work: Coroutine[Any, Any, Summary]) -> Summary:
    """Carries out a run, shown under the cell of a notebook or in the log; what waits for a person, or was
    ended by one, is raised.
    """
    watcher = Notebook() if _in_notebook() else LogWatcher()
    watcher.yes = Place.PYTHON
    token = WATCHER.set(watcher)
    try:
        summary = await work
    finally:
        WATCHER.reset(token)
    if summary.stop_reason == ApprovalNeeded.reason:
        hint = "A person looks at callsheet.quote(...), then approves: callsheet.run(..., yes=True)."
        raise ApprovalNeeded(summary.stop_message or "", hint=hint)
    if summary.stop_reason == Interrupted.reason:
        raise Interrupted(results.line(summary), hint="The same call goes on from here.")
    return summary


async def status(config: Config, settings: Values | None) -> Status:
    """See `callsheet.status`."""
    checked = load_without_service(Path(config), values=settings or {})
    async with await Ledger.open(checked.ledger.url, checked.batch, looks=True) as ledger:
        return await read_status(ledger, checked)


async def spending(config: Config, by: str, since: date | None, settings: Values | None) -> LedgerCosts:
    """See `callsheet.spending`."""
    checked = load_without_service(Path(config), values=settings or {})
    async with await Ledger.open(checked.ledger.url, checked.batch, looks=True) as ledger:
        return await read_costs(ledger, by, since)


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


# ---- tables of a batch, and marks


def read(name: str, config: Config, settings: Values | None, *, as_arrow: bool) -> pd.DataFrame | pa.Table:
    """A Parquet file of the report, by its name: see `callsheet.manifest`, `costs` and `plan`."""
    checked = load_without_service(Path(config), values=settings or {})
    if name == MANIFEST:
        carry_out(_with_the_last_marks(checked))
    endpoint_url, writers = checked.storage.endpoint_url, "callsheet.run or `callsheet report`"
    url = Store(checked.report.url, endpoint_url=endpoint_url).url_of(name)
    if name == QUOTE:  # which is always on this machine
        plan, writers = last_priced(checked), "callsheet.quote or callsheet.run"
        url = str(plan.path if plan else work_folder(checked, make=False) / QUOTE)
    try:
        with local_copy(str(local_path(url) or url), endpoint_url) as path, parquet.ParquetFile(path) as file:
            return _converted(file.read(), as_arrow)
    except FileNotFoundError:
        raise InputError(f"{url}: there is no such file yet", hint=f"{writers} writes it.") from None
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{url}: cannot be read as Parquet: {error}") from None


async def _with_the_last_marks(settings: BatchSettings) -> None:
    """Brings the manifest up to date, where the ledger is there; otherwise the file is as it is."""
    try:
        if exists(settings.ledger.url):
            async with await Ledger.open(settings.ledger.url, settings.batch, looks=True) as ledger:
                await update_manifest(settings, ledger)
    except (LedgerError, StorageError) as error:
        logger.warning("the manifest may lack the last marks: %s", printable(str(error)))


def review(config: Config, marks: Any, settings: Values | None) -> ReviewResult:
    """See `callsheet.review`."""
    checked = load_without_service(Path(config), values=settings or {})
    table = _in_memory(marks, "marks")
    parsed = from_table(table, [f"marks, row {number}" for number in range(1, table.height + 1)], "marks")
    return carry_out(enter_marks(checked, parsed))[1]


def reviews(config: Config, settings: Values | None, *, as_arrow: bool) -> pd.DataFrame | pa.Table:
    """See `callsheet.reviews`."""
    checked = load_without_service(Path(config), values=settings or {})

    async def work() -> pl.DataFrame:
        check_exists(checked.ledger.url)
        async with await Ledger.open(checked.ledger.url, checked.batch, looks=True) as ledger:
            return (await ledger.read(read_standing, of_files=["prompt", "cost", "url"])).files

    return _converted(carry_out(work()).select(_REVIEWS).to_arrow(), as_arrow)


def _converted(table: pa.Table, as_arrow: bool) -> pd.DataFrame | pa.Table:
    import pandas as pd

    return table if as_arrow else table.to_pandas(types_mapper=pd.ArrowDtype)


# ---- a notebook


def _in_notebook() -> bool:
    """Whether this program is the kernel of a notebook."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class Notebook(Watcher):
    """One line of output that follows the run. Notes get lines of their own.

    It asks nobody, because a cell that waits for an answer would keep the whole notebook waiting; and a line
    for each job would fill the page.
    """

    def __init__(self) -> None:
        self._line: Any = None  # IPython's handle of the output
        self._shown = ""

    def quoted(self, quote: Quote) -> None:
        """Shows the quote in one line."""
        self._show(priced.line(quote))

    def progress(self, progress: Progress) -> None:
        """Shows a bar, and how many jobs are in each state."""
        bar = f'<progress max="{progress.jobs}" value="{progress.done}"></progress> '
        self._show(under_way.line(progress), bar)

    def note(self, text: str) -> None:
        """Shows an event that a person should know."""
        self._display(f"note: {printable(text)}")

    def finished(self, summary: Summary) -> None:
        """Shows the result in one line, in place of the progress."""
        self._show(results.line(summary))

    def _show(self, text: str, bar: str = "") -> None:
        text = printable(text)
        if self._line is None:
            self._line = self._display(text, bar, display_id=True)
        elif text != self._shown:
            self._line.update(_formats(text, bar), raw=True)
        self._shown = text

    def _display(self, text: str, bar: str = "", **options: Any) -> Any:
        from IPython.display import display

        show: Any = display
        return show(_formats(text, bar), raw=True, **options)


def _formats(text: str, bar: str) -> dict[str, str]:
    return {"text/plain": text, "text/html": f"{bar}{escape(text)}"}
