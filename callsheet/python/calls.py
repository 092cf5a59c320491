"""`quote`, `run`, `collect` and `status` as coroutines: what a call from Python gets is what a command gets.

Nothing here decides about money. The steps and their order are in `steps/batch.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from callsheet import signals
from callsheet.config.load import load, load_without_service
from callsheet.errors import ApprovalNeeded, ConfigError, Interrupted, known_error
from callsheet.ledger.ledger import Ledger
from callsheet.pricing.quote import quote_batch
from callsheet.python.notebook import Notebook, in_notebook
from callsheet.python.results import QuotedBatch
from callsheet.python.rows import Rows, batch_file
from callsheet.report.status import Status, read_status
from callsheet.report.summary import Summary
from callsheet.steps import batch
from callsheet.steps.connect import connect
from callsheet.watch import WATCHER, ScriptWatcher

Config = str | os.PathLike[str]
Values = Mapping[str, object]


async def quote(config: Config, rows: Rows | None, settings: Values | None) -> QuotedBatch:
    """See `callsheet.quote`."""
    with _errors_of_a_command():
        async with batch_file(rows) as given:
            checked = load(Path(config), values=_together(settings, given))
            async with await connect(checked) as client:
                return QuotedBatch.of(await quote_batch(checked, client))


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
    ledger = await Ledger.open(checked.ledger.url, checked.batch)
    try:
        return await read_status(ledger)
    finally:
        await ledger.close()


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
    message = summary.stop_message or ""
    if summary.stop_reason == ApprovalNeeded.reason:
        raise ApprovalNeeded(
            message, hint="Look at callsheet.quote(...), then approve: callsheet.run(..., yes=True)."
        )
    if summary.stop_reason == Interrupted.reason:
        raise Interrupted(summary.line(), hint="The same call goes on from here.")
    return summary
