"""Where the review of a batch is served on this machine now, for others who want to link to it.

The address has no token: it opens in a browser that has opened the link before.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from callsheet.config.settings import BatchSettings
from callsheet.pricing.plan import work_folder

_FILE = "review.address"


@contextmanager
def announced(settings: BatchSettings, address: str) -> Iterator[None]:
    """While it lasts, `served_address` finds the address."""
    path = work_folder(settings) / _FILE
    with suppress(OSError):  # then nobody links to it
        path.write_text(address)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def served_address(settings: BatchSettings) -> str | None:
    """The address, where the review is served; None where it is not, also after a kill."""
    with suppress(OSError, ValueError):
        address = (work_folder(settings) / _FILE).read_text()
        with socket.create_connection(("127.0.0.1", urlsplit(address).port or 0), timeout=1):
            return address
    return None
