"""The command `callsheet`: hears signals from its first line on, then loads the rest."""

from __future__ import annotations

import os
import sys

from callsheet import signals


def main() -> None:
    """Runs the command line; a signal during the loading is not lost, and shows no trace."""
    if sys.getfilesystemencoding() == "ascii" and "utf8" not in sys._xoptions:
        # As with LC_ALL=C and PYTHONUTF8=0. What is typed, and files' names, are in UTF-8 all the same.
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606 - itself
    if sys.argv[1:2] not in (["backlot"], ["mcp"]):  # they have servers of their own, which handle signals
        signals.keep_until_heard()
    from callsheet.cli.main import main as command_line

    command_line()


if __name__ == "__main__":
    main()
