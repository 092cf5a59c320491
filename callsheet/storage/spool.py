"""The spool: a folder in which downloads are checked before they go to storage.

A file has its own name in the spool only when it is complete and of the promised type; until then it is in
memory, or its name ends in `.part`. A file that storage did not take stays in the spool for the next run; its
name ends in its SHA-256, so that the run knows whether it is still the same. Nothing is decoded.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections import defaultdict, deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Self

from callsheet import failpoints
from callsheet.errors import MediaError
from callsheet.files import PartialFile, disk_errors
from callsheet.media_types import begins_as
from callsheet.service.models import Download

SLOWEST = 1024
"""Bytes a second. Downloads that share a slow connection are faster; a server that hangs is slower."""

_BLOCK = 1 << 20  # bytes that are held before they are written: a call in a thread then costs next to nothing
_SETTING = "report.url"  # the spool is beside the report
_FIRST = 16  # bytes that tell a file's type
_PARTIAL = "part"
_SHA256 = re.compile("[0-9a-f]{64}")


class Spool:
    """The spool of one run.

    Args:
        folder: on the local disk; made when it is needed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._left: defaultdict[str, list[Path]] = defaultdict(list)  # what earlier runs left, by name
        self._stored: deque[Path] = deque()  # what can be removed; threads take from it

    def look(self) -> set[str]:
        """Finds what earlier runs left; for a thread, once, before everything else.

        Returns:
            The names of the files, complete or not.
        """
        for path in self.folder.glob("*"):
            name, _, ending = path.name.rpartition(".")
            if ending == _PARTIAL or _SHA256.fullmatch(ending):
                self._left[name].append(path)
        return set(self._left)

    def remove(self, names: Iterable[str]) -> None:
        """Removes files that earlier runs left, complete or not; for a thread."""
        for name in names:
            for path in self._left.pop(name, ()):
                path.unlink(missing_ok=True)

    async def left(self, name: str) -> Spooled | None:
        """A complete file that an earlier run left under this name; None where there is none."""
        paths = self._left.pop(name, None)
        return await asyncio.to_thread(self._verified, name, paths) if paths else None

    def _verified(self, name: str, paths: list[Path]) -> Spooled | None:
        """The one that has the bytes that it was left with."""
        for path in paths:
            with suppress(OSError), path.open("rb") as file:  # what cannot be read is downloaded again
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
                if path.name == f"{name}.{sha256}":
                    return Spooled.settled(path, sha256, file.tell())
        return None

    async def receive(self, download: Download, mime_type: str, name: str, *, patience: float) -> Spooled:
        """Receives a download and verifies it. A small one stays in memory until `Spooled.settle`.

        Args:
            download: what the client receives.
            mime_type: the type that the service promised (INTERFACE 2.6, 2.7).
            name: the file's name in the spool.
            patience: seconds after which the average speed must be at least `SLOWEST`.

        Raises:
            MediaError: it is short, empty, too slow or not of the promised type. Nothing of it is kept.
            MaybeSent: the connection broke off. Nothing of it is kept.
            StorageError: the spool cannot be written.
        """
        _check_declared_type(download.mime_type, mime_type)
        spooled = Spooled(self, name)
        began = time.monotonic()
        try:
            async for chunk in download.chunks:
                spooled.hold(chunk)
                _check_speed(spooled.bytes, time.monotonic() - began, patience)
                if spooled.held >= _BLOCK:
                    await asyncio.to_thread(spooled.write)
            _check_content(spooled, download.length, mime_type)
        except BaseException:
            spooled.discard()
            raise
        return spooled

    def forget(self, spooled: Spooled) -> None:
        """The file is stored, and the ledger knows it: it goes when the next one settles, or by `clear`."""
        self._stored.append(spooled.path)

    def clear(self) -> None:
        """Removes what was forgotten."""
        while self._stored:
            try:
                self._stored.popleft().unlink(missing_ok=True)
            except IndexError:  # another thread was quicker
                return


class Spooled:
    """A verified file: in memory, partly written, or settled in the spool.

    Args:
        spool: where it goes.
        name: its name there.

    Attributes:
        bytes: its size.
        first_bytes: what it begins with, by which its type is recognised.
        held: bytes in memory that are not written yet.
        sha256: in hex; empty until it is settled.
        path: its complete file, once it is settled.
    """

    def __init__(self, spool: Spool, name: str) -> None:
        self.bytes = self.held = 0
        self.first_bytes = b""
        self.sha256 = ""
        self.path = spool.folder / name
        self._spool = spool
        self._blocks: list[bytes] = []
        self._digest = hashlib.sha256()
        self._partial: PartialFile | None = None

    @classmethod
    def settled(cls, path: Path, sha256: str, size: int) -> Self:
        """A file that is complete already."""
        spooled = cls(Spool(path.parent), path.name)
        spooled.sha256, spooled.bytes = sha256, size
        return spooled

    def hold(self, block: bytes) -> None:
        """Takes in the next bytes."""
        self._blocks.append(block)
        self.held += len(block)
        self.bytes += len(block)
        if len(self.first_bytes) < _FIRST:
            self.first_bytes += block[: _FIRST - len(self.first_bytes)]

    def write(self) -> None:
        """Writes what is held; for a thread.

        Raises:
            StorageError: the spool cannot be written.
        """
        with disk_errors(self.path, _SETTING):
            if self._partial is None:
                self._partial = PartialFile(self.path, self.path.with_name(f"{self.path.name}.{_PARTIAL}"))
            for block in self._blocks:
                self._partial.file.write(block)
                self._digest.update(block)
        self._blocks.clear()
        self.held = 0

    def settle(self) -> None:
        """Completes the file in the spool, unless it is complete; for a thread.

        Raises:
            StorageError: the spool cannot be written. Nothing of the file is kept.
        """
        if self.sha256:
            return
        self._spool.clear()
        try:
            self.write()
            assert self._partial is not None  # noqa: S101 - `write` has opened it
            sha256 = self._digest.hexdigest()
            path = self.path.with_name(f"{self.path.name}.{sha256}")
            with disk_errors(path, _SETTING):
                self._partial.commit(path=path)
        finally:
            self.discard()
        self.path, self.sha256 = path, sha256
        failpoints.passed("after spool")

    def discard(self) -> None:
        """Removes what is not complete."""
        if self._partial:
            self._partial.close()


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


def _check_speed(size: int, seconds: float, patience: float) -> None:
    if seconds > patience and size < SLOWEST * seconds:
        raise MediaError(f"the download is slower than {SLOWEST} bytes a second")


def _check_content(content: Spooled, length: int | None, promised: str) -> None:
    if not content.bytes:
        raise MediaError("the download is empty")
    if length is not None and content.bytes != length:
        raise MediaError(f"the download has {content.bytes} of {length} bytes")
    if not begins_as(promised, content.first_bytes):
        raise MediaError(f"the download does not begin like {promised}: {content.first_bytes!r}")
