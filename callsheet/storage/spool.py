"""The spool: a folder in which downloads are checked before they go to storage.

A file that has not come to its end is in memory, or its name ends in `.part`. Once it has, and is an image
or a video, its name ends in its SHA-256. If storage does not take it, it stays in the spool for the next
run, which sees by its name whether all of it is there and whether it is still the same. Nothing is decoded.

Two ledgers may have one spool. A file under a name that nobody asks for stays: another ledger may want it.
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
from callsheet.media_types import Ending, extension, recognise
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
        """The one that has the bytes that its name tells; those that do not are removed."""
        for path in paths:
            with suppress(OSError):  # what cannot be read is downloaded again
                with path.open("rb") as file:
                    sha256 = hashlib.file_digest(file, "sha256").hexdigest()
                    if path.name == f"{name}.{sha256}":
                        size = file.tell()
                        file.seek(0)
                        return Spooled.settled(path, sha256, size, recognise(file.read(_FIRST)) or "")
                path.unlink()
        return None

    async def receive(self, download: Download, announced: str, name: str, *, patience: float) -> Spooled:
        """Receives a download and verifies it. A small one stays in memory until `Spooled.settle`.

        Args:
            download: what the client receives.
            announced: the type that the service announced (INTERFACE 2.6, 2.7); the bytes say the true one.
            name: the file's name in the spool.
            patience: seconds after which the average speed must be at least `SLOWEST`.

        Raises:
            MediaError: it is short, empty, too slow, or no image or video. Nothing of it is kept.
            MaybeSent: the connection broke off. Nothing of it is kept.
            StorageError: the spool cannot be written.
        """
        spooled, ending = Spooled(self, name), Ending()
        began = time.monotonic()
        try:
            async for chunk in download.chunks:
                spooled.hold(chunk)
                ending.feed(chunk)
                _check_speed(spooled.bytes, time.monotonic() - began, patience)
                if spooled.held >= _BLOCK:
                    await asyncio.to_thread(spooled.write)
            _check_length(spooled.bytes, download.length, ending)
            spooled.mime_type = _type_of(spooled.first_bytes, announced, download.mime_type)
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
        mime_type: its type, by its bytes; empty where they are of no known format.
        held: bytes in memory that are not written yet.
        sha256: in hex; empty until it is settled.
        path: its file; complete once it is settled.
    """

    path: Path

    def __init__(self, spool: Spool, name: str) -> None:
        self.bytes = self.held = 0
        self.first_bytes = b""
        self.sha256 = self.mime_type = ""
        self._spool = spool
        self._name = name
        self._blocks: list[bytes] = []
        self._digest = hashlib.sha256()
        self._partial: PartialFile | None = None
        self._begun = False

    @classmethod
    def settled(cls, path: Path, sha256: str, size: int, mime_type: str = "") -> Self:
        """A file that is complete already."""
        spooled = cls(Spool(path.parent), path.name)
        spooled.path, spooled.sha256, spooled.bytes, spooled.mime_type = path, sha256, size, mime_type
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
        self._write(last=False)

    def begin_settling(self) -> None:
        """Writes all of it, and waits for no disk; for a thread. `settle` does the rest.

        The disk writes several files that are begun in this way together.

        Raises:
            StorageError: the spool cannot be written. Nothing of the file is kept.
        """
        if self.sha256 or self._begun:
            return
        self._begun = True
        try:
            self._write(last=True)
        except BaseException:
            self.discard()
            raise

    def settle(self) -> None:
        """Completes the file in the spool, unless it is complete; for a thread.

        Raises:
            StorageError: the spool cannot be written. Nothing of the file is kept.
        """
        if self.sha256:
            return
        self._spool.clear()
        self.begin_settling()
        assert self._partial is not None  # noqa: S101 - it is written
        try:
            with disk_errors(self.path, _SETTING):
                self._partial.commit(path=self.path)
        finally:
            self.discard()
        self.sha256 = self._digest.hexdigest()
        failpoints.passed("after spool")

    def _write(self, *, last: bool) -> None:
        """Writes what is held. Where nothing follows, `path` has the file's own name from now on."""
        with disk_errors(self._spool.folder, _SETTING):
            for block in self._blocks:
                self._digest.update(block)
            if last:
                self.path = self._named(self._digest.hexdigest())
            if self._partial is None:  # a file that is written at once has its own name from the beginning
                partial = self.path if last else self._named(_PARTIAL)
                self._partial = PartialFile(partial, partial)
            for block in self._blocks:
                self._partial.file.write(block)
            if last:
                self._partial.start_sync()
        self._blocks.clear()
        self.held = 0

    def _named(self, ending: str) -> Path:
        return self._spool.folder / f"{self._name}.{ending}"

    def discard(self) -> None:
        """Removes what is not complete."""
        if self._partial:
            self._partial.close()


def _check_speed(size: int, seconds: float, patience: float) -> None:
    if seconds > patience and size < SLOWEST * seconds:
        raise MediaError(f"the download is slower than {SLOWEST} bytes a second")


def _check_length(size: int, length: int | None, ending: Ending) -> None:
    """Refuses what is not whole: by its length, and where that is not known, by the end of its format."""
    if not size:
        raise MediaError("the download is empty")
    if length is not None and size != length:
        raise MediaError(f"the download has {size} of {length} bytes")
    if length is None and not ending.is_whole():
        raise MediaError(f"the download was cut off after {size} bytes: it does not end as its format ends")


def _type_of(first_bytes: bytes, announced: str, declared: str) -> str:
    """The type of a file: by its bytes. Of another format that it may be, the service's word is taken.

    Args:
        first_bytes: what it begins with.
        announced: the type in the service's answer.
        declared: the `Content-Type` header.

    Raises:
        MediaError: it is a web page, an error, or no file of the type that is said.
    """
    if known := recognise(first_bytes):
        return known
    is_text = declared.startswith("text/") or declared.endswith(("json", "xml"))
    for said in (declared, announced):
        is_media = said.startswith(("image/", "video/")) and extension(said) == "bin"
        if is_media and (said == declared or not is_text):
            return said
    sent = f"{declared}: " if declared else ""
    raise MediaError(f"the download is neither an image nor a video: {sent}{first_bytes!r}")
