"""The terminal as the watcher of a run: the quote, the question, the progress and notes, all on stderr."""

from __future__ import annotations

import sys
import termios
import time
from collections.abc import Callable

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bars
from rich.text import Text

from callsheet import signals
from callsheet.cli.output import err, safe
from callsheet.cli.show import show_pilot, show_quote
from callsheet.ledger.approvals import Place, Question
from callsheet.plain_text import counted, row_in_words
from callsheet.pricing.quote import Quote
from callsheet.records import State, dollars
from callsheet.report.summary import Summary
from callsheet.watch import Asked, Change, Progress

PLAIN_EVERY = 5.0  # seconds between two lines of progress where stderr is not a terminal
UNCHANGED_EVERY = 60.0  # the same while no job changes
_COLOURS = {State.STORED: "green", State.FAILED: "red", State.IN_DOUBT: "yellow", State.LOST: "red"}


class Terminal:
    """Shows a run to the person at the terminal; a `watch.Watcher`.

    Args:
        quiet: shows no quote and no progress; questions and notes all the same.
        verbose: prints a line for each job that comes into another state.
        clock: seconds that pass, from any moment on.
    """

    yes = Place.YES

    def __init__(
        self, *, quiet: bool = False, verbose: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._quiet = quiet
        self._verbose = verbose
        self._clock = clock
        self.summary: Summary | None = None
        self._lines: dict[str, int] = {}  # by job, where there is no row id to name it by
        self._live: Live | None = None
        self._last, self._counts = clock(), ""  # of the last line of progress

    def quoted(self, quote: Quote) -> None:
        """Shows the quote."""
        self.close()  # the bars of a pilot stay as they are
        if not self._quiet:
            show_quote(quote, err)
        if self._verbose:
            self._lines = quote.plan.lines()

    def approves(self, asked: Asked) -> bool | None:
        """Asks, where there is a terminal to ask on."""
        if not (sys.stdin.isatty() and err.is_terminal):
            return None
        quote = asked.quote
        other = ""
        if asked.question is Question.PILOT:
            self.close()
            show_pilot(asked, err)
            other = "the other "
        termios.tcflush(sys.stdin, termios.TCIFLUSH)  # what was typed before the question is not an answer
        question = rf"Buy {other}{counted(quote.to_buy, 'job')} for [bold]{quote.price()}[/]? \[y/N] "
        try:
            with signals.raised() as wait:
                err.print(question, end="")
                wait(sys.stdin.fileno())
                return input().strip().lower() in ("y", "yes")
        except EOFError:
            err.print()
            return False

    def progress(self, progress: Progress) -> None:
        """Updates the bars on a terminal, and otherwise prints a line now and then."""
        if self._quiet:
            return
        if err.is_terminal:
            if self._live is None:
                self._live = Live(console=err, auto_refresh=False)
                self._live.start()
            self._live.update(screen(progress), refresh=True)
            return
        every = UNCHANGED_EVERY if progress.counts() == self._counts else PLAIN_EVERY
        if self._clock() - self._last >= every:
            self._last, self._counts = self._clock(), progress.counts()
            err.print(safe(progress.line()))

    def changed(self, change: Change) -> None:
        """Prints a line, where they are asked for."""
        if self._verbose:
            attempt = change.attempt
            state = f"[{_COLOURS.get(change.state, 'default')}]{change.state.replace('_', ' '):<9}[/]"
            cost = "" if change.cost is None else f"  {dollars(change.cost)} USD"
            row = row_in_words(attempt.row_id, attempt.sample, self._lines.get(attempt.job_key))
            err.print(f"{state} {safe(row)}{cost}  {safe(change.detail)}")

    def note(self, text: str) -> None:
        """Prints an event that a person should know."""
        err.print(f"[yellow]note:[/] {safe(text)}")

    def finished(self, summary: Summary) -> None:
        """Keeps the summary; it is shown when the flow has ended."""
        self.summary = summary

    def close(self) -> None:
        """Leaves the bars as they are."""
        if self._live:
            self._live.stop()
            self._live = None


def screen(progress: Progress) -> Group:
    """A bar for each step, and below them the jobs by state, the money, the limits and the time left."""
    columns = (TextColumn("  {task.description:<8}"), BarColumn(), MofNCompleteColumn())
    bars = Bars(*columns)
    for step in progress.steps():
        bars.add_task(step.name, completed=step.done, total=step.total)
    lines = (progress.counts(), progress.money(), *progress.submissions(), progress.time_left())
    return Group(bars.get_renderable(), *(Text(f"  {line}") for line in lines if line))
