"""Downloads: a file on its way from the service, checked while it is written into the spool.

A file stands in the spool under its own name only when it is whole and what was promised; until then it is a
`.part`. So what storage could not take is still there for the next run. Pictures and films are not decoded.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from callsheet.errors import MediaError, StorageError
from callsheet.service.models import Download

# The extension is the interface's own word for the format (INTERFACE 2.3 `output_format`), so `jpeg`.
_EXTENSIONS = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/jpg": "jpeg",
    "image/webp": "webp",
    "video/mp4": "mp4",
}
SLOWEST = 1024  # bytes a second: a poor line shared by many files brings more, a server that hangs does not
_BLOCK = 1 << 20  # bytes that go to a thread at once: large enough that the hop costs nothing


@dataclass(frozen=True, slots=True)
class Spooled:
    """A verified file in the spool: its sha256 in hex, and its size in bytes."""

    path: Path
    sha256: str
    bytes: int


def extension(mime_type: str) -> str:
    """The file name extension for a type, without the dot; `bin` for one that the interface does not name."""
    return _EXTENSIONS.get(mime_type.lower(), "bin")


async def spool(download: Download, mime_type: str, folder: Path, name: str, *, patience: float) -> Spooled:
    """Takes a download into the spool.

    Args:
        download: what the client is receiving.
        mime_type: what the service promised (INTERFACE 2.6, 2.7).
        folder: the spool; made when missing.
        name: the file's name there. A file of that name is replaced.
        patience: seconds after which it must have come at `SLOWEST` on average.

    Raises:
        MediaError: it is short, empty, hardly comes, or not what was promised. Nothing of it is kept.
        MaybeSent: the bytes stopped coming. Nothing of them is kept.
        StorageError: the spool cannot be written.
    """
    _check_family(download.mime_type, mime_type)
    partial = _Partial(folder / f"{name}.part")
    began = time.monotonic()
    try:
        block = bytearray()
        async for chunk in download.chunks:
            block += chunk
            seconds = time.monotonic() - began
            if seconds > patience and partial.bytes + len(block) < SLOWEST * seconds:
                raise MediaError(f"the download comes at less than {SLOWEST} bytes a second")
            if len(block) >= _BLOCK:
                await asyncio.to_thread(partial.write, bytes(block))
                block.clear()
        await asyncio.to_thread(partial.write, bytes(block))
        _check(partial, download.length, mime_type)
        return await asyncio.to_thread(partial.keep_as, folder / name)
    finally:
        partial.drop()


def waiting(folder: Path, name: str) -> Spooled | None:
    """A file that an earlier run has verified and left in the spool; None where there is none."""
    path = folder / name
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return Spooled(path, digest, file.tell())
    except FileNotFoundError:
        return None


class _Partial:
    """A file that is being written and hashed; the disk is used in threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digest = hashlib.sha256()
        self.head = b""
        self.bytes = 0
        with _disk(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("wb")

    def write(self, block: bytes) -> None:
        with _disk(self._path):
            self._file.write(block)
        self._digest.update(block)
        self.head = self.head or block[:16]
        self.bytes += len(block)

    def keep_as(self, path: Path) -> Spooled:
        with _disk(path):
            self._file.flush()
            os.fsync(self._file.fileno())  # a name in the spool promises whole bytes, also after a power cut
            self._path.replace(path)
        return Spooled(path, self._digest.hexdigest(), self.bytes)

    def drop(self) -> None:
        """Closes the file, and removes it unless it was kept."""
        with _disk(self._path):
            self._file.close()
            self._path.unlink(missing_ok=True)


def _check_family(said: str, promised: str) -> None:
    """Refuses a page in place of a file. Which picture it is, its first bytes say better than a header."""
    family = promised.partition("/")[0]
    if family not in ("image", "video") or said == promised:
        return
    other = said.startswith(("image/", "video/", "text/")) and not said.startswith(f"{family}/")
    if other or said.endswith(("json", "xml")):
        raise MediaError(f"the service sends {said} where it promised {promised}")


def _check(partial: _Partial, length: int | None, promised: str) -> None:
    if not partial.bytes:
        raise MediaError("the download is empty")
    if length is not None and partial.bytes != length:
        raise MediaError(f"the download has {partial.bytes} of {length} bytes")
    if not _begins_as(promised, partial.head):
        raise MediaError(f"the download does not begin as {promised} does: {partial.head!r}")


def _begins_as(mime_type: str, head: bytes) -> bool:
    """Whether a file's first bytes fit its type; a type that the interface does not name cannot be told."""
    match extension(mime_type):
        case "png":
            return head.startswith(b"\x89PNG\r\n\x1a\n")
        case "jpeg":
            return head.startswith(b"\xff\xd8\xff")
        case "webp":
            return head.startswith(b"RIFF") and head[8:12] == b"WEBP"
        case "mp4":
            return head[4:8] == b"ftyp"
        case _:
            return True


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"the spool cannot be written: {path}: {error.strerror}",
            hint="Free some disk space, or check the folder's permissions; then run the same command again.",
        ) from error
