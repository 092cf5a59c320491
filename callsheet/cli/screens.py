"""Where a command shows its run: on the terminal for people, or line by line for another program."""

from __future__ import annotations

from typing import Protocol

from callsheet.cli.options import Style
from callsheet.errors import ConfigError
from callsheet.report.summary import Summary
from callsheet.watch import Watcher


class Screen(Watcher, Protocol):
    """The watcher of a command's run; `summary` is the run's, once it has one."""

    summary: Summary | None

    def close(self) -> None:
        """The run is over, or broken off."""


def screen_of(style: Style, *, quiet: bool, verbose: bool) -> Screen:
    """The screen that the options ask for.

    Raises:
        ConfigError: they contradict each other.
    """
    if quiet and (verbose or style is Style.JSONL):
        raise ConfigError(
            "--quiet cannot be combined with --verbose or --progress jsonl", hint="Choose one of them."
        )
    if style is Style.JSONL:
        from callsheet.cli.json_lines import JsonLines

        return JsonLines(verbose=verbose)
    from callsheet.cli.terminal import Terminal

    return Terminal(quiet=quiet, verbose=verbose)
