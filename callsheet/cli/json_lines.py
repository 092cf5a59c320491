"""Another program as the watcher of a run: a JSON object a line on stderr (docs/commands.md, "Progress")."""

from __future__ import annotations

import json
import sys
from typing import Any

from callsheet.errors import CallsheetError
from callsheet.ledger.approvals import Place
from callsheet.pricing.quote import Quote
from callsheet.report.summary import Summary
from callsheet.watch import Asked, Change, Progress


class JsonLines:
    """Prints each event of a run as a line of JSON; a `watch.Watcher`. Nobody is there to be asked.

    Args:
        verbose: prints a line for each job that comes into another state, too.
    """

    yes = Place.YES

    def __init__(self, *, verbose: bool = False) -> None:
        self._verbose = verbose
        self._last: Progress | None = None
        self.summary: Summary | None = None

    def quoted(self, quote: Quote) -> None:
        """Prints what `quote --json` prints."""
        _print("quoted", quote.as_json())

    def approves(self, asked: Asked) -> bool | None:
        """Asks nobody: `--yes` is for programs."""

    def progress(self, progress: Progress) -> None:
        """Prints the progress where it has changed."""
        if progress != self._last:
            self._last = progress
            _print("progress", progress.as_json())

    def changed(self, change: Change) -> None:
        """Prints the job, where that is asked for."""
        if self._verbose:
            _print("job", change.as_json())

    def note(self, text: str) -> None:
        """Prints an event that a person should know."""
        _print("note", {"text": text})

    def finished(self, summary: Summary) -> None:
        """Prints what `run --json` prints."""
        self.summary = summary
        _print("finished", summary.as_json())

    def close(self) -> None:
        """Nothing is open."""


def print_error(error: CallsheetError) -> None:
    """Prints the error that a command ends with."""
    _print("error", {"error": error.message, "hint": error.hint, "exit_code": error.exit_code})


def _print(event: str, values: dict[str, Any]) -> None:
    if sys.stderr is not None:  # it is None where the shell has closed it
        sys.stderr.write(json.dumps({"event": event} | values) + "\n")
        sys.stderr.flush()
