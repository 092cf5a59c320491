"""Shows a run under the cell of a notebook that started it. It decides nothing."""

from __future__ import annotations

import sys
from html import escape
from typing import Any

from callsheet.plain_text import printable
from callsheet.pricing.quote import Quote
from callsheet.report.summary import Summary
from callsheet.watch import Progress, Watcher


def in_notebook() -> bool:
    """Whether this program is the kernel of a notebook."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class Notebook(Watcher):
    """One line of output that follows the run. Notes get lines of their own.

    It asks nobody, because a cell that waits for an answer would keep the whole notebook waiting; and a line
    for each job would fill the page.
    """

    def __init__(self) -> None:
        self._line: Any = None  # IPython's handle of the output
        self._shown = ""

    def quoted(self, quote: Quote) -> None:
        """Shows the quote in one line."""
        self._show(quote.line())

    def progress(self, progress: Progress) -> None:
        """Shows a bar, and how many jobs are in each state."""
        bar = f'<progress max="{progress.jobs}" value="{progress.done}"></progress> '
        self._show(progress.line(), bar)

    def note(self, text: str) -> None:
        """Shows an event that a person should know."""
        _display(f"note: {printable(text)}")

    def finished(self, summary: Summary) -> None:
        """Shows the result in one line, in place of the progress."""
        self._show(summary.line())

    def _show(self, text: str, bar: str = "") -> None:
        text = printable(text)
        if self._line is None:
            self._line = _display(text, bar, display_id=True)
        elif text != self._shown:
            self._line.update(_formats(text, bar), raw=True)
        self._shown = text


def _display(text: str, bar: str = "", **options: Any) -> Any:
    from IPython.display import display

    show: Any = display
    return show(_formats(text, bar), raw=True, **options)


def _formats(text: str, bar: str) -> dict[str, str]:
    return {"text/plain": text, "text/html": f"{bar}{escape(text)}"}
