"""The contact sheet of a run: written now and then while the run goes on, and at its end.

It is for looking. Where it cannot be written, a person is told so, and the run goes on as if there were none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from decimal import Decimal

from callsheet.config.settings import BatchSettings
from callsheet.errors import LedgerError, StorageError
from callsheet.ledger.ledger import Ledger
from callsheet.pricing.plan import Plan
from callsheet.records import State
from callsheet.report.contact_sheet.page import Header
from callsheet.report.contact_sheet.sheet import ContactSheet, open_sheet
from callsheet.report.plots.plots import Plot
from callsheet.report.summary import Summary
from callsheet.session import Run
from callsheet.watch import WATCHER, Progress

_WAITED_FOR = (
    500  # thumbnails, some ten seconds: if more are missing at its end, a run does not wait for them
)


class Sheet:
    """The contact sheet of a run. Use `sheet_of`.

    Args:
        run: the run.
        page: what is written; None where the config asks for no contact sheet.
    """

    def __init__(self, run: Run, page: ContactSheet | None) -> None:
        self._run = run
        self._page = page
        self._progress = Progress(0, {}, Decimal(0))
        self._keeping = asyncio.create_task(self._keep())

    def seen(self, progress: Progress) -> None:
        """The run stands so."""
        self._progress = progress

    async def _keep(self) -> None:
        """Writes the page now and then, until the run has collected everything."""
        try:
            if self._page:
                await self._page.keep(self._header, self._run.collected)
        except (StorageError, LedgerError) as error:
            self._cannot_be_written(error)

    async def finish(self, summary: Summary, plots: Sequence[Plot]) -> Summary:
        """Writes the page at the end, with the plots. Returns the summary with the page's address."""
        await self._keeping
        if self._page is None:
            return summary
        wait_for = 0 if self._run.interrupted else _WAITED_FOR
        try:
            header = _header(summary, self._run.plan, plots)
            await self._page.finish(header, WATCHER.get().note, wait_for=wait_for)
        except (StorageError, LedgerError) as error:
            self._cannot_be_written(error)
            return summary
        return replace(summary, details=replace(summary.details, contact_sheet=self._page.url))

    async def leave(self) -> None:
        """Ends what is done in the background."""
        self._keeping.cancel()
        await asyncio.wait([self._keeping])

    def _header(self) -> Header:
        plan, progress = self._run.plan, self._progress
        return Header(
            outcome=None,
            stop=None,
            jobs=progress.jobs,
            states=progress.states,
            spent=progress.spent,
            quoted=plan.quoted if plan else None,
            rejected_rows=plan.rejected_rows if plan else 0,
        )

    def _cannot_be_written(self, error: StorageError | LedgerError) -> None:
        self._page = None
        WATCHER.get().note(f"the contact sheet is not written: {error}. {error.hint}".strip())


@asynccontextmanager
async def sheet_of(run: Run) -> AsyncIterator[Sheet]:
    """The contact sheet of a run, which is written in the background while the context is open."""
    async with AsyncExitStack() as stack:
        page = None
        if run.settings.report.contact_sheet:
            page = await stack.enter_async_context(open_sheet(run.ledger, run.settings, run.plan))
        sheet = Sheet(run, page)
        stack.push_async_callback(sheet.leave)
        yield sheet


async def write_sheet(
    ledger: Ledger,
    settings: BatchSettings,
    plan: Plan | None,
    summary: Summary,
    *,
    plots: Sequence[Plot],
    note: Callable[[str], None],
) -> None:
    """Writes the contact sheet of a batch that no run is at work on, with every thumbnail.

    Args:
        ledger: the ledger, opened for the batch.
        settings: the config.
        plan: the batch's last plan; None where there is none.
        summary: how the batch stands.
        plots: those that are drawn.
        note: called with what a person should know.

    Raises:
        StorageError: the page cannot be written.
        LedgerError: the ledger cannot be read.
    """
    async with open_sheet(ledger, settings, plan) as page:
        await page.finish(_header(summary, plan, plots), note, wait_for=None)


def _header(summary: Summary, plan: Plan | None, plots: Sequence[Plot]) -> Header:
    return Header(
        outcome=summary.outcome,
        stop=summary.stop_message,
        jobs=summary.jobs,
        states={
            State.STORED: summary.stored,
            State.FAILED: summary.failed,
            State.IN_DOUBT: summary.in_doubt,
            State.LOST: summary.lost,
            State.PENDING: summary.pending,
        },
        spent=summary.spent,
        quoted=plan.quoted if plan else None,
        rejected_rows=summary.rejected_rows,
        in_doubt=summary.in_doubt_exposure,
        removed=summary.details.removed.jobs,
        plots=plots,
    )
