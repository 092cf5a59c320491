"""Named points of a run: the seam of the crash harness (`tests/crash`), which kills a run at each of them.

Production sets no observer, and passing a point then does nothing. The names are `before <step>` and
`after <step>`. A step is a durable write of the ledger, by its operation or the state that it moves a job to
(`ledger.reserve`, `ledger.submitting`; the point is the COMMIT of the group that holds it), or `submit` (the
POST), `spool`, `store.put`. Decides nothing, and imports nothing of Callsheet.
"""

from __future__ import annotations

from collections.abc import Callable

observer: Callable[[str], None] | None = None
"""Is told the name of each point that is passed, in whichever thread passes it."""


def passed(point: str) -> None:
    """Tells the observer, if there is one."""
    if observer is not None:
        observer(point)
