"""The command `callsheet`: hears signals from its first line on, then loads the rest."""

from __future__ import annotations

import sys

from callsheet import signals


def main() -> None:
    """Runs the command line; a signal during the loading is not lost, and shows no trace."""
    if sys.argv[1:2] != ["backlot"]:  # it has a server of its own, which handles its signals
        signals.keep_until_heard()
    from callsheet.cli.main import main as command_line

    command_line()


if __name__ == "__main__":
    main()
