"""Ledgers with other waits: for processes that open them by themselves, as a command does."""

from __future__ import annotations

from functools import partial

from callsheet.ledger.ledger import Ledger


def set_waits(**seconds: float) -> None:
    """From now on this process opens every ledger with these `busy` and `lease`, in seconds."""
    Ledger.open = staticmethod(partial(Ledger.open, **seconds))  # type: ignore[method-assign, assignment]
