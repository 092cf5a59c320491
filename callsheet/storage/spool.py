"""The spool: a folder in which downloads are checked before they go to storage; and where it is.

A file that has not come to its end is in memory, or its name ends in `.part`. Once it has, and is an image
or a video, its name ends in its SHA-256. If storage does not take it, it stays in the spool for the next
run, which sees by its name whether all of it is there and whether it is still the same. Nothing is decoded.

Two ledgers may have one spool. A file under a name that nobody asks for stays: another ledger may want it.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import re
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from callsheet import failpoints
from callsheet.config.settings import BatchSettings
from callsheet.errors import MediaError, StorageError
from callsheet.files import PartialFile, disk_errors, open_regular
from callsheet.media_types import extension, is_whole, recognise
from callsheet.service.models import Download

SLOWEST = 1024
"""Bytes a second. Downloads that share a slow connection are faster; a server that hangs is slower."""

_BLOCK = 1 << 20  # bytes that are held before they are written: a call in a thread then costs next to nothing
_SETTING = "report.url"  # the spool is beside the report
_FIRST = 16  # bytes that tell a file's type
_PARTIAL = "part"
_SHA256 = re.compile("[0-9a-f]{64}")


def work_folder(settings: BatchSettings, *, make: bool = True) -> Path:
    """The folder of the plan, the spool and the images that were made to be sent, on this machine: the
    report's own if it is local, otherwise `.callsheet/<batch>`.

    `make`: it is made where it is missing. Who only looks makes none.

    Raises:
        StorageError: it cannot be made.
    """
    is_local = "://" not in settings.report.url
    folder = Path(settings.report.url) if is_local else Path(".callsheet", settings.batch)
    try:
        if make:
            folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        hint = "Set report.url to a folder that exists or can be made."
        if not is_local:
            hint = "The plan is kept on this machine: start in a folder that can be written."
        raise StorageError(f"{folder}: the folder cannot be made: {reason}", hint=hint) from None
    return folder


class Spool:
    """The spool of one run: a folder on the local disk, which is made when it is needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._left: defaultdict[str, list[Path]] = defaultdict(list)  # what earlier runs left, by name

    def probe(self) -> None:
        """Writes a small file and removes it; for a thread, before anything is bought.

        Raises:
            StorageError: the spool cannot be made or written.
        """
        with disk_errors(self.folder, _SETTING), PartialFile(self.folder / "probe") as partial:
            partial.file.write(b"callsheet")
            partial.file.flush()

    def find_left(self) -> set[str]:
        """The names of what earlier runs left, complete or not; for a thread, once, before all else."""
        for path in self.folder.glob("*"):
            name, _, ending = path.name.rpartition(".")
            if ending == _PARTIAL or _SHA256.fullmatch(ending):
                self._left[name].append(path)
        return set(self._left)

    def remove(self, names: Iterable[str]) -> None:
        """Removes files that earlier runs left, complete or not, where that can be done; for a thread."""
        for name in names:
            for path in self._left.pop(name, ()):
                with suppress(OSError):
                    path.unlink()

    async def left(self, name: str) -> Spooled | None:
        """A complete file that an earlier run left under this name; None where there is none."""
        paths = self._left.pop(name, None)
        return await asyncio.to_thread(_verified, name, paths) if paths else None

    async def receive(self, download: Download, announced: str, name: str, *, patience: float) -> Spooled:
        """Receives a download and verifies it. A small one stays in memory until `Spooled.complete`.

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
        spooled, began = Spooled(self.folder, name), time.monotonic()
        with ExitStack() as on_error:
            on_error.callback(spooled.discard)
            async for chunk in download.chunks:
                spooled.hold(chunk)
                seconds = time.monotonic() - began
                if seconds > patience and spooled.bytes < SLOWEST * seconds:
                    raise MediaError(f"the download is slower than {SLOWEST} bytes a second")
                if spooled.held >= _BLOCK:
                    await asyncio.to_thread(spooled.write)
            size = spooled.bytes
            if not size:
                raise MediaError("the download is empty")
            if download.length not in (None, size):
                raise MediaError(f"the download has {size} of {download.length} bytes")
            if not await asyncio.to_thread(spooled.is_whole, proven=download.proven):
                cut = f"the download was cut off after {size} bytes: the end of its format is missing"
                raise MediaError(cut)
            spooled.mime_type = _type_of(spooled.first_bytes, announced, download.mime_type)
            on_error.pop_all()
        return spooled

    def forget(self, spooled: Spooled) -> None:
        """Removes a file that is stored, and that the ledger knows; otherwise the next run does."""
        with suppress(OSError):
            spooled.path.unlink()


class Spooled:
    """A verified file: in memory, partly written, or complete in the spool."""

    path: Path  # its file, once it is complete

    def __init__(self, folder: Path, name: str) -> None:
        self.bytes = 0  # its size
        self.held = 0  # bytes in memory that are not written yet
        self.first_bytes = b""  # by which its type is recognised
        self.mime_type = ""  # by its bytes; empty where they are of no known format
        self.sha256 = ""  # in hex; empty until it is complete
        self._file = folder / name  # without the ending
        self._blocks: list[bytes] = []
        self._digest = hashlib.sha256()
        self._partial: PartialFile | None = None

    @classmethod
    def completed(cls, path: Path, sha256: str, size: int, mime_type: str = "") -> Self:
        """A file that is complete already."""
        spooled = cls(path.parent, path.name)
        spooled.path, spooled.sha256, spooled.bytes, spooled.mime_type = path, sha256, size, mime_type
        return spooled

    def hold(self, block: bytes) -> None:
        """Takes in the next bytes."""
        self._blocks.append(block)
        self.held += len(block)
        self.bytes += len(block)
        if len(self.first_bytes) < _FIRST:
            self.first_bytes += block[: _FIRST - len(self.first_bytes)]

    def write(self) -> PartialFile:
        """Writes what is held; for a thread.

        Raises:
            StorageError: the spool cannot be written.
        """
        partial_path = self._named(_PARTIAL)
        with disk_errors(self._file.parent, _SETTING):
            self._partial = self._partial or PartialFile(partial_path, partial_path)
            for block in self._blocks:
                self._digest.update(block)
                self._partial.file.write(block)
        self._blocks.clear()
        self.held = 0
        return self._partial

    def is_whole(self, *, proven: bool) -> bool:
        """Whether it has the end of its format (`media_types.is_whole`); for a thread.

        Raises:
            StorageError: the spool cannot be written.
        """
        if self._partial is None:  # it is all in memory
            return is_whole(io.BytesIO(b"".join(self._blocks)), proven=proven)
        partial = self.write()
        with disk_errors(self._file.parent, _SETTING):
            partial.file.flush()
            with self._named(_PARTIAL).open("rb") as file:
                return is_whole(file, proven=proven)

    def complete(self) -> None:
        """Completes the file in the spool, unless it is complete; for a thread.

        Raises:
            StorageError: the spool cannot be written. Nothing of the file is kept.
        """
        if self.sha256:
            return
        try:
            partial = self.write()
            sha256 = self._digest.hexdigest()
            self.path = self._named(sha256)
            with disk_errors(self.path, _SETTING):
                partial.commit(path=self.path)
        finally:
            self.discard()
        self.sha256 = sha256
        failpoints.passed("after spool")

    def _named(self, ending: str) -> Path:
        return self._file.with_name(f"{self._file.name}.{ending}")

    def discard(self) -> None:
        """Removes what is not complete."""
        if self._partial:
            self._partial.close()


def _verified(name: str, paths: list[Path]) -> Spooled | None:
    """The one that has the bytes that its name tells; those that do not are removed."""
    for path in paths:
        with suppress(OSError):  # what cannot be read is downloaded again
            if path.is_symlink():  # storage would get the link
                continue
            with open_regular(path) as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
                if path.name == f"{name}.{sha256}":
                    size = file.tell()
                    file.seek(0)
                    return Spooled.completed(path, sha256, size, recognise(file.read(_FIRST)) or "")
            path.unlink()
    return None


def _type_of(first_bytes: bytes, announced: str, declared: str) -> str:
    """The type of a file: by its bytes. Of another format that it may be, the service's word is taken.

    That is the `Content-Type` header (`declared`), or else what its answer announced.

    Raises:
        MediaError: it is a web page, an error, or no file of the type that is said.
    """
    if recognised := recognise(first_bytes):
        return recognised
    is_text = declared.startswith("text/") or declared.endswith(("json", "xml"))
    for mime_type in (declared, announced):
        is_media = mime_type.startswith(("image/", "video/")) and extension(mime_type) == "bin"
        if is_media and (mime_type == declared or not is_text):
            return mime_type
    sent = f"{declared}: " if declared else ""
    raise MediaError(f"the download is neither an image nor a video: {sent}{first_bytes!r}")
