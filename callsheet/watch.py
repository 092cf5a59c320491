"""How a run is watched: the few moments that a person wants to see, and the one question a run may ask.

The library tells whoever is set in `WATCHER`; unless somebody is, they go to the log, and the answer is no.
Nothing here knows terminals or Prefect.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from callsheet.pricing.quote import Quote
from callsheet.records import State, Totals, dollars
from callsheet.report.report import Summary

logger = logging.getLogger("callsheet")
logger.setLevel(logging.INFO)  # Prefect shows other people's loggers, but leaves their level alone


@dataclass(frozen=True, slots=True)
class Progress:
    """A moment of a run: the batch so far, out of `jobs` jobs."""

    jobs: int
    totals: Totals

    @property
    def done(self) -> int:
        """Jobs that need nothing more."""
        ended = (State.STORED, State.FAILED, State.LOST, State.IN_DOUBT)
        return sum(self.totals.states.get(state, 0) for state in ended)

    def line(self) -> str:
        """The moment in one line: `12 of 36 done: 10 stored, 2 pending, 0.4000 USD spent`."""
        return f"{self.done} of {self.jobs} done: {self.states()}; {dollars(self.totals.spent)} USD spent"

    def states(self) -> str:
        """How many jobs are in each state."""
        counts = ((state, self.totals.states.get(state, 0)) for state in State)
        return ", ".join(f"{count} {state}" for state, count in counts if count) or "nothing yet"


class Watcher(Protocol):
    """Somebody who watches a run."""

    def quoted(self, quote: Quote) -> None:
        """The batch is priced; nothing is bought yet."""

    def approves(self, quote: Quote) -> bool:
        """Whether to buy although the quote is above `budget.approve_above`."""

    def progress(self, progress: Progress) -> None:
        """Called about twice a second while a run is under way."""

    def note(self, text: str) -> None:
        """Something happened that a person should know, and that the run goes on from."""

    def finished(self, summary: Summary) -> None:
        """The run is over and its report is written, whatever Prefect makes of it."""


class LogWatcher:
    """Writes to the log, and to nobody's question says yes."""

    def quoted(self, quote: Quote) -> None:
        """Logs the quote in a line, and each rate that has changed since the plan before."""
        logger.info("%s", quote.line())
        for change in quote.changes():
            logger.warning("rate changed: %s", change)

    def approves(self, quote: Quote) -> bool:
        """Nobody is there to ask."""
        return False

    def progress(self, progress: Progress) -> None:
        """Silent: the progress artifact shows it."""

    def note(self, text: str) -> None:
        """Logs a warning."""
        logger.warning("%s", text)

    def finished(self, summary: Summary) -> None:
        """Logs the summary in a line."""
        logger.info("%s", summary.line())


WATCHER: ContextVar[Watcher] = ContextVar("watcher", default=LogWatcher())  # noqa: B039 - it has no state
