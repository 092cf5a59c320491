"""Watching a run: the events that a person wants to see, and the one question that a run may ask.

The library calls the watcher in `WATCHER`. Unless another one is set there, events go to the log, and the
answer to the question is no. Nothing here depends on terminals or Prefect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from callsheet.cells import rejects_in_words
from callsheet.ledger.walls import Wall
from callsheet.ledger.words import Place, Word
from callsheet.plain_text import counted, printable
from callsheet.present import allowances, priced, results
from callsheet.pricing.quote import Quote
from callsheet.records import Change, Progress, RejectedFile, State
from callsheet.report.summary import Summary

if TYPE_CHECKING:
    from callsheet.report.pilot import PilotJob

logger = logging.getLogger("callsheet")
logger.setLevel(logging.INFO)  # Prefect shows the log of other libraries, but does not set their level


_REASONS = 20  # of rejected rows that are logged


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to a person, with what it is about.

    Attributes:
        word: the question, and why it is asked.
        quote: what would be bought; None where that has no price yet.
        pilot: the jobs to look at, where it is about what comes after them.
        contact_sheet: where the page with all jobs is; None where there is none.
    """

    word: Word
    quote: Quote | None
    pilot: Sequence[PilotJob] = ()
    contact_sheet: str | None = None


class Watcher:
    """What a run calls; each method is one event. This one shows nothing, and has nobody to ask."""

    yes = Place.PARAMETER
    """Where somebody has said yes before the run began; of a call from Python that is `Place.PYTHON`."""

    def quoted(self, quote: Quote) -> None:
        """The batch is priced; nothing is bought yet."""

    def begun(self, left: Mapping[str, State]) -> None:
        """A flow run has opened the ledger. `left`: what it left in doubt or lost before it was suspended, by
        job key.
        """

    async def approves(self, asked: Asked) -> bool | None:
        """Whether to buy what a person must approve first; None where there is nobody to ask."""
        return None

    def sheet(self, url: str) -> None:
        """The contact sheet is there within seconds, and follows the run."""

    def progress(self, progress: Progress) -> None:
        """Called about twice a second while a run is under way."""

    def changed(self, change: Change) -> None:
        """A job has come into another state; called once it is in the ledger."""

    def rejected(self, file: RejectedFile) -> None:
        """A check has rejected a stored file; called once it is in the ledger."""

    def note(self, text: str) -> None:
        """Something happened that a person should know; the run goes on."""

    def nears(self, wall: Wall) -> None:
        """A limit is nearly used up; called once for its amount, over all runs."""
        self.note(allowances.of_wall(wall))

    async def waits(self, text: str) -> None:
        """The run waits for a service that is down, or goes on: then that answers again."""
        self.note(text)

    async def pause(self, seconds: float) -> None:
        """Passes the time until that service is asked again."""
        await asyncio.sleep(seconds)

    def finished(self, summary: Summary) -> None:
        """The run is over and its report is written."""


class LogWatcher(Watcher):
    """Writes events to the log: not the progress, which the progress artifact shows, nor each job."""

    def quoted(self, quote: Quote) -> None:
        """Logs the quote in one line, what is rejected and why, each rate that has changed, and warnings."""
        logger.info("%s", printable(priced.line(quote)))
        for reject in rejects_in_words(quote.plan.rejects)[:_REASONS]:
            logger.warning("rejected: %s", printable(reject))
        if quote.plan.rejected_rows:
            logger.warning("%s rejected: see %s", counted(quote.plan.rejected_rows, "row"), quote.rejects)
        for change in quote.changes():
            logger.warning("rate changed: %s", printable(change))
        for warning in priced.warnings(quote):
            logger.warning("%s", printable(warning))

    def note(self, text: str) -> None:
        """Logs a warning."""
        logger.warning("%s", printable(text))

    def finished(self, summary: Summary) -> None:
        """Logs the summary in one line, each reason why jobs failed, are in doubt or lost, and what is not as
        it was ordered.
        """
        for problem in summary.details.problems:
            logger.warning("%s", printable(results.problem(problem)))
        for difference in results.differences(summary):
            logger.warning("%s", printable(difference))
        logger.info("%s", printable(results.line(summary)))


WATCHER: ContextVar[Watcher] = ContextVar("watcher", default=LogWatcher())  # noqa: B039 - it has no state
