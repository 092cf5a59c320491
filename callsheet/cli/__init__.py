"""The commands, and what a person sees on a terminal.

What takes long to import is imported inside the command that needs it, so that `--help` is instant. Begin
with `main.py`.
"""

import time

STARTED = time.monotonic()
"""When the command began, for how long the person has waited."""
