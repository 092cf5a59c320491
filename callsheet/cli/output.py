"""Printing for people: results on stdout, everything else on stderr.

Text from users or from the service goes through `safe` first.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape

from callsheet.plain_text import printable

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

MOST_LISTED = 1_000
"""Rows of a table that lists jobs. Nobody reads more, and printing half a million takes minutes."""


def safe(text: str) -> str:
    """Text from users or the service, for `Console.print`: no control characters, no markup, one line."""
    return escape(printable(text))


def print_facts(console: Console, facts: Iterable[tuple[str, str]], indent: str = "  ") -> None:
    """Prints facts, a line each: the name, and what is to say."""
    for name, value in facts:
        console.print(f"{indent}[bold]{name:<10}[/] {safe(value)}")


def print_more(jobs: int) -> None:
    """Prints how many jobs a table leaves out, of so many in all."""
    if jobs > MOST_LISTED:
        out.print(f"  and {jobs - MOST_LISTED:,} more: --json and costs.parquet have all\n")


def print_steps(steps: Iterable[str]) -> None:
    """Prints what a person can do next, a line each."""
    print_facts(out, (("" if number else "Next", step) for number, step in enumerate(steps)))
