"""Named points of a run, at which the crash tests (`tests/crash`) kill it.

Outside the tests there is no observer, and passing a point does nothing. A point's name is `before
<step>` or `after <step>`. A step is `submit` (the POST), `spool`, `store.put`, `tidy.remove`, or a durable
write of the ledger, named by its operation or by the state that it moves a job to: `ledger.reserve`,
`ledger.submitting`. Before and after such a write means before and after the COMMIT of its group. This
module imports nothing of Callsheet.
"""

from __future__ import annotations

from collections.abc import Callable

observer: Callable[[str], None] | None = None
"""Called with the name of each point, in the thread that passes it."""


def passed(point: str) -> None:
    """Calls the observer, if there is one."""
    if observer is not None:
        observer(point)
