"""Watching a run: the events that a person wants to see, and the one question that a run may ask.

The library calls the watcher in `WATCHER`. Unless another one is set there, events go to the log, and the
answer to the question is no. Nothing here depends on terminals or Prefect.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

from callsheet.plain_text import printable
from callsheet.pricing.quote import Quote
from callsheet.records import State, dollars
from callsheet.report.counts import ENDED
from callsheet.report.summary import Summary

logger = logging.getLogger("callsheet")
logger.setLevel(logging.INFO)  # Prefect shows the log of other libraries, but does not set their level


@dataclass(frozen=True, slots=True)
class Progress:
    """A batch while a run is under way.

    Attributes:
        jobs: jobs of the batch file.
        states: how many of them are in each state.
        spent: what the whole batch has cost so far, in dollars.
    """

    jobs: int
    states: Mapping[State, int]
    spent: Decimal

    @property
    def done(self) -> int:
        """Jobs that need nothing more."""
        return sum(self.states.get(state, 0) for state in ENDED)

    def line(self) -> str:
        """The progress in one line: `12 of 36 done: 10 stored, 2 pending; 0.4000 USD spent`."""
        return f"{self.done} of {self.jobs} done: {self.counts()}; {dollars(self.spent)} USD spent"

    def counts(self) -> str:
        """How many jobs are in each state: `10 stored, 2 pending`."""
        counts = ((state, self.states.get(state, 0)) for state in State)
        return (
            ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in counts if count)
            or "nothing yet"
        )


class Watcher(Protocol):
    """What a run calls; each method is one event."""

    def quoted(self, quote: Quote) -> None:
        """The batch is priced; nothing is bought yet."""

    def approves(self, quote: Quote) -> bool:
        """Whether to buy although the quote is above `budget.approve_above`."""

    def progress(self, progress: Progress) -> None:
        """Called about twice a second while a run is under way."""

    def note(self, text: str) -> None:
        """Something happened that a person should know; the run goes on."""

    def finished(self, summary: Summary) -> None:
        """The run is over and its report is written. Prefect may not have recorded that yet."""


class LogWatcher:
    """Writes events to the log, and answers no."""

    def quoted(self, quote: Quote) -> None:
        """Logs the quote in one line, and each rate that has changed since the previous plan."""
        logger.info("%s", printable(quote.line()))
        for change in quote.changes():
            logger.warning("rate changed: %s", printable(change))

    def approves(self, quote: Quote) -> bool:
        """No: there is nobody to ask."""
        return False

    def progress(self, progress: Progress) -> None:
        """Logs nothing: the progress artifact shows it."""

    def note(self, text: str) -> None:
        """Logs a warning."""
        logger.warning("%s", printable(text))

    def finished(self, summary: Summary) -> None:
        """Logs the summary in one line."""
        logger.info("%s", printable(summary.line()))


WATCHER: ContextVar[Watcher] = ContextVar("watcher", default=LogWatcher())  # noqa: B039 - it has no state
