"""Storing a small file."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

from callsheet.storage.store import Store


def spooled(folder: Path, content: bytes = b"media") -> tuple[Path, str]:
    path = folder / "spooled"
    path.write_bytes(content)
    return path, hashlib.sha256(content).hexdigest()


def put(store: Store, path: Path, sha256: str, file_name: str = "batch/row-1-0.png") -> str:
    return asyncio.run(store.put(path, file_name, sha256=sha256, mime_type="image/png"))
