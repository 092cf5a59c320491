"""Where a command shows its run, on stderr: a terminal for people, or a line of JSON for each event."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bars
from rich.text import Text

from callsheet.cli import keyboard
from callsheet.cli.output import err
from callsheet.errors import CallsheetError, ConfigError
from callsheet.ledger.words import Place
from callsheet.present import priced, under_way
from callsheet.present.asked import pilot_screen, question
from callsheet.present.console import print_line, print_page, safe
from callsheet.pricing.quote import Quote
from callsheet.records import Change, Progress, State, as_json
from callsheet.report.contact_sheet.cards import browser_address
from callsheet.report.summary import Summary
from callsheet.watch import WATCHER, Asked, Watcher

PLAIN_EVERY = 5.0  # seconds between two lines of progress where stderr is not a terminal
UNCHANGED_EVERY = 60.0  # the same while no job changes
_COLOURS = {State.STORED: "green", State.FAILED: "red", State.IN_DOUBT: "yellow", State.LOST: "red"}


def run_watched(work: Coroutine[Any, Any, Summary], screen: Terminal | JsonLines) -> Summary:
    """Carries out the steps of a batch in this process, with a screen as the run's watcher."""

    async def watched() -> Summary:
        WATCHER.set(screen)
        return await work

    # What the imports made stays to the end: looking at it again and again took a tenth of a row's CPU.
    gc.freeze()
    try:
        return asyncio.run(watched())
    finally:
        screen.close()


def screen_of(style: str, *, quiet: bool, verbose: bool) -> Terminal | JsonLines:
    """The screen that the options ask for; `style` is that of `--progress`.

    Raises:
        ConfigError: they contradict each other.
    """
    if quiet and (verbose or style == "jsonl"):
        raise ConfigError(
            "--quiet cannot be combined with --verbose or --progress jsonl", hint="Choose one of them."
        )
    return JsonLines(verbose=verbose) if style == "jsonl" else Terminal(quiet=quiet, verbose=verbose)


class Terminal(Watcher):
    """Shows a run to the person at the terminal.

    `quiet` shows no quote and no progress; questions and notes all the same. `verbose` prints a line for each
    job that comes into another state. `clock` gives the seconds that pass, from any moment on.
    """

    yes = Place.YES

    def __init__(
        self, *, quiet: bool = False, verbose: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._quiet = quiet
        self._verbose = verbose
        self._clock = clock
        self._lines: dict[str, int] = {}  # by job, where there is no row id to name it by
        self._live: Live | None = None
        self._sheet = ""
        self._last, self._counts = clock(), ""  # of the last line of progress

    def quoted(self, quote: Quote) -> None:
        """Shows the quote; a quiet run only what a person should look at before anything is bought."""
        self.close()  # the bars of a pilot stay as they are
        if not self._quiet:
            print_page(err, priced.screen(quote))
        for warning in priced.warnings(quote) if self._quiet else ():
            self.note(warning)
        if self._verbose:
            self._lines = quote.plan.line_numbers()

    async def approves(self, asked: Asked) -> bool | None:
        """Asks, where there is a terminal to ask on."""
        if not (sys.stdin.isatty() and err.is_terminal):
            return None
        shown = asked.word.shown
        if shown.is_rest:
            self.close()
            print_page(err, pilot_screen(asked.pilot, asked.contact_sheet))
        keyboard.forget()  # what was typed before the question is not an answer
        err.print(rf"{safe(question(shown))} \[y/N] ", end="")
        answer = await keyboard.line()  # a signal ends the waiting
        if not answer:  # Ctrl-D
            err.print()
        return answer.strip().lower() in ("y", "yes")

    def sheet(self, url: str) -> None:
        """Prints its address, once: the page is there while the run goes on."""
        if not self._quiet and url != self._sheet:
            self._sheet = url
            err.print(f"Contact sheet: {safe(browser_address(url))}", soft_wrap=True)

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
        counts = under_way.counts(progress)
        interval = UNCHANGED_EVERY if counts == self._counts else PLAIN_EVERY
        if self._clock() - self._last >= interval:
            self._last, self._counts = self._clock(), counts
            err.print(safe(under_way.line(progress)))

    def changed(self, change: Change) -> None:
        """Prints a line, where they are asked for."""
        if self._verbose:
            state = f"[{_COLOURS.get(change.state, 'default')}]{change.state.in_words:<9}[/]"
            job = under_way.of_job(change, self._lines.get(change.attempt.job_key))
            print_line(err, f"{state} {safe(job)}", 10)

    def note(self, text: str) -> None:
        """Prints an event that a person should know."""
        print_line(err, f"[yellow]note:[/] {safe(text)}", 6)

    def close(self) -> None:
        """Leaves the bars as they are."""
        if self._live:
            self._live.stop()
            self._live = None


def screen(progress: Progress) -> Group:
    """A bar for each step, and below them the jobs by state, the money, the limits and the time left."""
    columns = (TextColumn("  {task.description:<8}"), BarColumn(), MofNCompleteColumn())
    bars = Bars(*columns)
    for name, (done, total) in progress.steps().items():
        bars.add_task(name, completed=done, total=total)
    return Group(bars.get_renderable(), *(Text(f"  {line}") for line in under_way.lines(progress)))


class JsonLines(Watcher):
    """Prints each event of a run as a JSON object a line (docs/commands.md, "Progress").

    Nobody is there to be asked: `--yes` is for programs. `verbose` prints a line for each job that comes into
    another state, too.
    """

    yes = Place.YES

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose
        self._last: Progress | None = None

    def quoted(self, quote: Quote) -> None:
        """Prints what `quote --json` prints."""
        _print("quoted", priced.figures(quote).as_json())

    def progress(self, progress: Progress) -> None:
        """Prints the progress where it has changed."""
        if progress != self._last:
            self._last = progress
            _print("progress", under_way.figures(progress))

    def changed(self, change: Change) -> None:
        """Prints the job, where that is asked for."""
        if self._verbose:
            _print("job", under_way.figures_of_job(change))

    def note(self, text: str) -> None:
        """Prints an event that a person should know."""
        _print("note", {"text": text})

    def finished(self, summary: Summary) -> None:
        """Prints what `run --json` prints."""
        _print("finished", summary.as_json())

    def close(self) -> None:
        """Nothing is open."""


def print_error(error: CallsheetError) -> None:
    """Prints the error that a command ends with as a line of JSON."""
    _print("error", {"error": error.message, "hint": error.hint, "exit_code": error.exit_code})


def _print(event: str, values: dict[str, Any]) -> None:
    if sys.stderr is not None:  # it is None where the shell has closed it
        sys.stderr.write(json.dumps(as_json({"event": event} | values)) + "\n")
        sys.stderr.flush()
