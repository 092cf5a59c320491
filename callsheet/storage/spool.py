"""The spool: a folder in which downloads are checked before they go to storage.

A file has its own name in the spool only when it is complete and of the promised type; until then its name
ends in `.part`. A file that storage did not take stays in the spool for the next run. Images and videos are
not decoded.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass
from pathlib import Path

from callsheet.errors import MediaError
from callsheet.files import PartialFile, disk_errors
from callsheet.media_types import begins_as
from callsheet.service.models import Download

SLOWEST = 1024
"""Bytes a second. Downloads that share a slow connection are faster; a server that hangs is slower."""

_BLOCK = 1 << 20  # bytes for one call in a thread: so many that the call itself costs next to nothing


@dataclass(frozen=True, slots=True)
class Spooled:
    """A verified file in the spool: its path, its SHA-256 in hex and its size in bytes."""

    path: Path
    sha256: str
    bytes: int


async def spool(download: Download, mime_type: str, folder: Path, name: str, *, patience: float) -> Spooled:
    """Writes a download to the spool and verifies it.

    Args:
        download: what the client receives.
        mime_type: the type that the service promised (INTERFACE 2.6, 2.7).
        folder: the spool; made when missing.
        name: the file's name there. A file of that name is replaced.
        patience: seconds after which the average speed must be at least `SLOWEST`.

    Raises:
        MediaError: it is short, empty, too slow or not of the promised type. Nothing of it is kept.
        MaybeSent: the connection broke off. Nothing of it is kept.
        StorageError: the spool cannot be written.
    """
    _check_declared_type(download.mime_type, mime_type)
    path = folder / name
    began = time.monotonic()
    with disk_errors(path, "report.url"), PartialFile(path, folder / f"{name}.part") as partial:
        content = _Content(partial)
        block = bytearray()
        async for chunk in download.chunks:
            block += chunk
            seconds = time.monotonic() - began
            if seconds > patience and content.size + len(block) < SLOWEST * seconds:
                raise MediaError(f"the download is slower than {SLOWEST} bytes a second")
            if len(block) >= _BLOCK:
                await asyncio.to_thread(content.add, bytes(block))
                block.clear()
        await asyncio.to_thread(content.add, bytes(block))
        _check_content(content, download.length, mime_type)
        await asyncio.to_thread(partial.commit)
    return Spooled(path, content.digest.hexdigest(), content.size)


def waiting(folder: Path, name: str) -> Spooled | None:
    """A file that an earlier run verified and left in the spool; None when it is not there."""
    path = folder / name
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return Spooled(path, digest, file.tell())
    except FileNotFoundError:
        return None


class _Content:
    """The bytes of a download: written, hashed and counted."""

    def __init__(self, partial: PartialFile) -> None:
        self._file = partial.file
        self.digest = hashlib.sha256()
        self.first_bytes = b""
        self.size = 0

    def add(self, block: bytes) -> None:
        self._file.write(block)
        self.digest.update(block)
        self.first_bytes = self.first_bytes or block[:16]
        self.size += len(block)


def _check_declared_type(declared: str, promised: str) -> None:
    """Refuses a web page or an error in place of a file, by the `Content-Type` header.

    Which image format it is, the first bytes say more reliably than the header.
    """
    family = promised.partition("/")[0]
    if family not in ("image", "video") or declared == promised:
        return
    other_family = declared.startswith(("image/", "video/", "text/")) and not declared.startswith(
        f"{family}/"
    )
    if other_family or declared.endswith(("json", "xml")):
        raise MediaError(f"the service sent {declared}; it promised {promised}")


def _check_content(content: _Content, length: int | None, promised: str) -> None:
    if not content.size:
        raise MediaError("the download is empty")
    if length is not None and content.size != length:
        raise MediaError(f"the download has {content.size} of {length} bytes")
    if not begins_as(promised, content.first_bytes):
        raise MediaError(f"the download does not begin like {promised}: {content.first_bytes!r}")
