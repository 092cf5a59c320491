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

    Attributes:
        made: the SHA-256 of each file whose thumbnail is there.
        decoder: makes them.
    """

    def __init__(self, settings: BatchSettings) -> None:
        endpoint_url = settings.storage.endpoint_url
        self.made: set[str] = set()
        self.decoder = Decoder(endpoint_url)
        self._store = Store(f"{settings.report.url.rstrip('/')}/{_FOLDER}", endpoint_url=endpoint_url)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._few = asyncio.Semaphore(_AT_ONCE)

    async def look(self) -> None:
        """Finds those that earlier runs made.

        Raises:
            StorageError: the report cannot be read.
        """
        self.made.update(name.removesuffix(".jpg") for name, _ in await self._store.listing())

    def ask(self, file: MediaFile) -> None:
        """Has the thumbnail of a file made, unless that was tried already."""
        if file.sha256 not in self.made and file.sha256 not in self._tasks:
            self._tasks[file.sha256] = asyncio.create_task(self._make(file))

    @property
    def waiting(self) -> int:
        """How many have been asked for, and are not made yet."""
        return sum(not task.done() for task in self._tasks.values())

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
        await self.decoder.aclose()

    async def _make(self, file: MediaFile) -> None:
        async with self._few:
            if jpeg := await self.decoder.make(file.url, file.mime_type):
                await self._store.write(f"{file.sha256}.jpg", jpeg, "image/jpeg")
                self.made.add(file.sha256)


class Decoder:
    """Makes thumbnails in a process of its own (`decoder.py`), which starts when it is needed.

    Args:
        endpoint_url: the address of an S3 server other than Amazon's.
    """

    def __init__(self, endpoint_url: str | None) -> None:
        self._endpoint_url = endpoint_url
        self._process: Process | None = None
        self._deaths = 0
        self._one = asyncio.Lock()

    @property
    def works(self) -> bool:
        """Whether it is any use to ask: no after several processes have died, one after another."""
        return self._deaths < _MOST_DEATHS

    async def make(self, url: str, mime_type: str) -> bytes:
        """A thumbnail of a stored file, as JPEG; empty where it cannot be read or shown, or takes long."""
        with ExitStack() as copies:
            path = await asyncio.to_thread(self._path_of, url, copies)
            if path is None:
                return b""
            async with self._one:
                return await self._try(path, mime_type) if self.works else b""

    def _path_of(self, url: str, copies: ExitStack) -> Path | None:
        """Where a file is on this machine, copied if need be; None where it cannot be read."""
        with suppress(InputError, StorageError, OSError):
            path = copies.enter_context(local_copy(str(local_path(url) or url), self._endpoint_url))
            return path if path.is_file() else None
        return None

    async def _try(self, path: Path, mime_type: str) -> bytes:
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
