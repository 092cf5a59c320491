"""Thumbnails: a JPEG for each stored file, made once, whatever happens to the rows of the batch file.

They are made in the background, by a process of its own (`decoder.py`). Each is named by the SHA-256 of the
file that it shows, so two runs at once write the same bytes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import ExitStack, suppress
from pathlib import Path

from callsheet.batches.sources import local_copy
from callsheet.config.settings import BatchSettings
from callsheet.errors import InputError, StorageError
from callsheet.report.contact_sheet.cards import MediaFile
from callsheet.report.contact_sheet.links import FOLDER, local_path
from callsheet.storage.store import Store

_FOLDER = f"{FOLDER}/thumbs"
_AT_ONCE = 16  # files that are read at the same time: a bucket answers slowly
_PATIENCE = 30.0  # seconds for one thumbnail
_MOST_DEATHS = 5  # of a decoder, one after another


def thumbnail_name(sha256: str) -> str:
    """The name of a thumbnail inside `report.url`, by the SHA-256 of the file that it shows."""
    return f"{_FOLDER}/{sha256}.jpg"


class Thumbnails:
    """The thumbnails of a contact sheet.

    Args:
        settings: the config.
    """

    def __init__(self, settings: BatchSettings) -> None:
        self._endpoint_url = settings.storage.endpoint_url
        url = settings.report.url.rstrip("/")
        self._store = Store(f"{url}/{_FOLDER}", endpoint_url=self._endpoint_url)
        self._made: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._few = asyncio.Semaphore(_AT_ONCE)
        self._decoder = Decoder()

    async def look(self) -> None:
        """Finds those that earlier runs made.

        Raises:
            StorageError: the report cannot be read.
        """
        self._made.update(name.removesuffix(".jpg") for name, _ in await self._store.listing())

    def __contains__(self, file: MediaFile) -> bool:
        """Whether the thumbnail of a file is made."""
        return file.sha256 in self._made

    def ask(self, file: MediaFile) -> None:
        """Has the thumbnail of a file made, unless that was tried already."""
        if file not in self and file.sha256 not in self._tasks:
            self._tasks[file.sha256] = asyncio.create_task(self._make(file))

    @property
    def waiting(self) -> int:
        """How many have been asked for, and are not made yet."""
        return sum(not task.done() for task in self._tasks.values())

    @property
    def can_be_made(self) -> bool:
        """Whether there is a process that makes thumbnails: not after several have died."""
        return self._decoder.works

    async def finish(self) -> None:
        """Waits until all that were asked for are made.

        Raises:
            StorageError: the report cannot be written.
        """
        await asyncio.gather(*self._tasks.values())

    async def close(self) -> None:
        """Ends the work in the background, and the process that makes them."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self._decoder.aclose()

    async def _make(self, file: MediaFile) -> None:
        """Makes a thumbnail; none of a file that cannot be read or shown."""
        async with self._few:
            with ExitStack() as copies:
                path = await asyncio.to_thread(path_of, file.url, self._endpoint_url, copies)
                jpeg = await self._decoder.make(path, file.mime_type) if path else b""
            if jpeg:
                await self._store.write(f"{file.sha256}.jpg", jpeg, "image/jpeg")
                self._made.add(file.sha256)


def path_of(url: str, endpoint_url: str | None, copies: ExitStack) -> Path | None:
    """Where a stored file is on this machine, copied if need be; None where it cannot be read.

    Args:
        url: its URL.
        endpoint_url: the address of an S3 server other than Amazon's.
        copies: removes the copy at its end.
    """
    with suppress(InputError, StorageError, OSError):
        path = copies.enter_context(local_copy(str(local_path(url) or url), endpoint_url))
        return path if path.is_file() else None
    return None


class Decoder:
    """Makes thumbnails in a process of its own (`decoder.py`), which starts when it is needed."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._deaths = 0
        self._one = asyncio.Lock()

    @property
    def works(self) -> bool:
        """Whether it is any use to ask: no after several processes have died, one after another."""
        return self._deaths < _MOST_DEATHS

    async def make(self, path: Path, mime_type: str) -> bytes:
        """A thumbnail of a file, as JPEG; empty where it cannot be shown, or takes half a minute."""
        async with self._one:
            if not self.works:
                return b""
            try:
                async with asyncio.timeout(_PATIENCE):
                    jpeg = await self._ask(path, mime_type)
            except (OSError, TimeoutError, asyncio.IncompleteReadError):  # the process has died, or hangs
                self._deaths += 1
                await self.aclose()
                return b""
            self._deaths = 0
            return jpeg

    async def _ask(self, path: Path, mime_type: str) -> bytes:
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "callsheet.report.contact_sheet.decoder"),
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,  # what the decoders of video say about damaged files
                start_new_session=True,  # a terminal's Ctrl-C is for the run
            )
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin and stdout  # noqa: S101 - both are pipes
        stdin.write(json.dumps({"path": str(path), "type": mime_type}).encode() + b"\n")
        await stdin.drain()
        length = int.from_bytes(await stdout.readexactly(4), "big")
        return await stdout.readexactly(length)

    async def aclose(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
