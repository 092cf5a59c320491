"""How long the ledger waits, in seconds. Production uses the defaults; tests shorten them (`set_waits`)."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds.

    Attributes:
        busy: for how long a write waits for another process's write; then the ledger counts as locked.
        idle: for how long a transaction in PostgreSQL may pause; then its machine counts as vanished.
        lease: for how long a run counts as alive after it has last renewed its lease.
    """

    busy: float = 30
    idle: float = 30
    lease: float = 60


_current = Waits()


def waits() -> Waits:
    """How long the ledger waits now."""
    return _current


def set_waits(**seconds: float) -> Waits:
    """For tests: changes single waits, for ledgers that this process opens later; returns the old ones."""
    global _current
    before, _current = _current, replace(_current, **seconds)
    return before
