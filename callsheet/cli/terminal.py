"""The terminal as the watcher of a run: the quote, the question, the progress and notes, all on stderr."""

from __future__ import annotations

import sys
import termios
import time

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from callsheet import signals
from callsheet.cli.output import err, safe
from callsheet.cli.show import show_quote
from callsheet.pricing.quote import Quote
from callsheet.records import dollars
from callsheet.report.summary import Summary
from callsheet.watch import Progress

PLAIN_EVERY = 5.0  # seconds between two lines of progress where stderr is not a terminal


class Terminal:
    """Shows a run to the person at the terminal; a `watch.Watcher`.

    Args:
        quiet: shows no quote and no progress; questions and notes all the same.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self.summary: Summary | None = None
        self._bar: Bar | None = None
        self._last = time.monotonic()
        self._status = err.status("Starting Prefect ...")

    def unseen(self) -> None:
        """Prints that the run is not in any UI, and how it would be."""
        if not self._quiet:
            err.print("[dim]This run is not in a Prefect UI; to see runs there, set PREFECT_API_URL.[/]")

    def start(self) -> None:
        """Prints that something slow begins."""
        if self._quiet:
            return
        if err.is_terminal:
            self._status.start()
        else:
            err.print("Starting Prefect ...")

    def quoted(self, quote: Quote) -> None:
        """Shows the quote."""
        self._status.stop()
        if not self._quiet:
            show_quote(quote, err)

    def approves(self, quote: Quote) -> bool:
        """Asks, where there is a terminal to ask on."""
        if not (sys.stdin.isatty() and err.is_terminal):
            return False
        termios.tcflush(sys.stdin, termios.TCIFLUSH)  # what was typed before the question is not an answer
        question = rf"Buy {quote.to_buy} jobs for [bold]{dollars(quote.quoted)} USD[/]? \[y/N] "
        try:
            with signals.raised():
                return err.input(question).strip().lower() in ("y", "yes")
        except EOFError:
            err.print()
            return False

    def progress(self, progress: Progress) -> None:
        """Updates a bar on a terminal, and otherwise prints a line now and then."""
        if self._quiet:
            return
        if err.is_terminal:
            self._live(progress)
        elif time.monotonic() - self._last >= PLAIN_EVERY:
            self._last = time.monotonic()
            err.print(safe(progress.line()))

    def note(self, text: str) -> None:
        """Prints an event that a person should know."""
        err.print(f"[yellow]note:[/] {safe(text)}")

    def finished(self, summary: Summary) -> None:
        """Keeps the summary; it is shown when the flow has ended."""
        self.summary = summary

    def close(self) -> None:
        """Removes the bar and the status from the terminal."""
        self._status.stop()
        if self._bar:
            self._bar.stop()

    def _live(self, progress: Progress) -> None:
        if self._bar is None:
            columns = (
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.description}"),
            )
            self._bar = Bar(*columns, console=err)
            self._bar.add_task("", total=progress.jobs)
            self._bar.start()
        description = f"{dollars(progress.spent)} USD  {progress.counts()}"
        self._bar.update(self._bar.task_ids[0], completed=progress.done, description=description)
