"""The contact sheet of a run: written now and then while the run goes on, and at its end.

It is for looking. Where it cannot be written, a person is told so, and the run goes on as if there were none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from callsheet.errors import LedgerError, StorageError
from callsheet.report.contact_sheet.page import Header
from callsheet.report.contact_sheet.sheet import ContactSheet, open_sheet
from callsheet.report.summary import Summary
from callsheet.session import Run
from callsheet.watch import WATCHER

_WAITED_FOR = 500
"""Thumbnails, some ten seconds: where more are missing at its end, a run does not wait for them."""


class Sheet:
    """The contact sheet of a run. Use `sheet_of`.

    Args:
        run: the run.
        page: what is written; None where the config asks for no contact sheet.
    """

    def __init__(self, run: Run, page: ContactSheet | None) -> None:
        self._run = run
        self._page = page
        self._keeping = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        """Writes the page now and then, until the run has collected everything."""
        try:
            if self._page:
                await self._page.keep(self._header, self._run.collected)
        except (StorageError, LedgerError) as error:
            self._cannot_be_written(error)

    async def finish(self, summary: Summary, plots: Mapping[str, str]) -> Summary:
        """Writes the page at the end, with the plots. Returns the summary with the page's address."""
        await self._keeping
        if self._page is None:
            return summary
        wait_for = 0 if self._run.interrupted else _WAITED_FOR
        try:
            header = Header.of(summary, self._run.plan, plots)
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
        plan, progress = self._run.plan, self._run.progress
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
