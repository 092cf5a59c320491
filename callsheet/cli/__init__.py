"""The commands, and what a person sees on a terminal.

The only package that imports `flows`, and only inside the command that needs them, so that `--help` is
instant. Begin with `main.py`.
"""

import time

STARTED = time.monotonic()
"""When the command began, for how long the person has waited."""
