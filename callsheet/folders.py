"""Folders that are still there after a power cut. Knows nothing of what is in them."""

from __future__ import annotations

import os
from pathlib import Path


def make_folder(folder: Path) -> None:
    """Makes a folder and those above it, durably.

    Raises:
        OSError: it cannot be made.
    """
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Makes durable which names a folder has.

    Raises:
        OSError: it is not there, or the disk fails.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
