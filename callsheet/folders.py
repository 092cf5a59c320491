"""Folders that are still there after a power cut, and the one for temporary files.

Knows nothing of what is in them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from callsheet.errors import StorageError


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


@contextmanager
def temporary_explained() -> Iterator[None]:
    """Says in words why a temporary file cannot be written.

    Raises:
        StorageError: in place of an OSError.
    """
    try:
        yield
    except OSError as error:
        folder = tempfile.tempdir or "the temporary folder"
        raise StorageError(
            f"{folder}: a temporary file cannot be written: {error.strerror or error}",
            hint="Make room there, or name a folder that has some in the environment variable TMPDIR.",
        ) from None
