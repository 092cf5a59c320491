"""Storing a small file."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

from callsheet.storage.spool import Spooled
from callsheet.storage.store import Store


def spooled(folder: Path, content: bytes = b"media") -> tuple[Path, str]:
    path = folder / "spooled"
    path.unlink(missing_ok=True)  # what is stored may be the same file
    path.write_bytes(content)
    return path, hashlib.sha256(content).hexdigest()


def put(store: Store, path: Path, sha256: str, file_name: str = "batch/row-1-0.png") -> str:
    settled = Spooled.completed(path, sha256, path.stat().st_size)
    stored = asyncio.run(store.put(settled, file_name, "image/png"))
    assert (stored.sha256, stored.bytes) == (sha256, path.stat().st_size)
    return stored.url
