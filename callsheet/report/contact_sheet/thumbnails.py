"""Thumbnails: a JPEG for each stored file, made once, whatever happens to the rows of the batch file.

They are made in the background, by a process of its own (`decoder.py`), which also says what it sees of the
file, for the checks: so a file is decoded once for both. Each is named by the SHA-256 of the file that it
shows, so two runs at once write the same bytes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from callsheet.batches.formats import local_copy
from callsheet.config.settings import BatchSettings
from callsheet.errors import InputError, StorageError
from callsheet.processes import APART
from callsheet.report.contact_sheet.cards import FOLDER, local_path
from callsheet.storage.store import Store

_FOLDER = f"{FOLDER}/thumbs"
_AT_ONCE = 16  # files that are read at the same time: a bucket answers slowly
_PATIENCE = 30.0  # seconds for one thumbnail
_MOST_DEATHS = 5  # of a decoder, one after another


def thumbnail_name(sha256: str) -> str:
    """The name of a thumbnail inside `report.url`, by the SHA-256 of the file that it shows."""
    return f"{_FOLDER}/{sha256}.jpg"


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of a file.

    Attributes:
        width, height: in pixels, as it is shown; 0 where no decoder can show the file.
        blank: an image of one colour, or a video of black frames alone.
        hash: a perceptual hash, 16 hex digits; None of a video, of what is blank, or where none is wanted.
        duration, fps: of a video, in seconds and frames a second; None where that cannot be measured.
        has_sound: whether anything can be heard in a video; None where that cannot be said.
        silent: a video has a sound track, and nothing can be heard.
        still: all frames of a video show the same picture, which is not black.
    """

    width: int = 0
    height: int = 0
    blank: bool = False
    hash: str | None = None
    duration: float | None = None
    fps: float | None = None
    has_sound: bool | None = None
    silent: bool = False
    still: bool = False


class Thumbnails:
    """The thumbnails of a contact sheet. Where the config wants no page, none is kept.

    Attributes:
        made: the SHA-256 of each file whose thumbnail is there.
        drawn: how many were made here.
        decoder: makes them.
    """

    def __init__(self, settings: BatchSettings) -> None:
        endpoint_url = settings.storage.endpoint_url
        self.made: set[str] = set()
        self.drawn = 0
        self.decoder = Decoder(endpoint_url, hashes=settings.checks.duplicate != "off")
        self._keeps = settings.report.contact_sheet > 0
        self._store = Store.of(f"{settings.report.url.rstrip('/')}/{_FOLDER}", settings.storage)
        self._looks: dict[str, asyncio.Future[Seen | None]] = {}
        self._left: deque[tuple[str, str, str]] = deque()  # a task for each would take ten times the memory
        self._workers: list[asyncio.Task[None]] = []
        self._error: StorageError | None = None

    async def find_made(self) -> None:
        """Finds those that earlier runs made.

        Raises:
            StorageError: the report cannot be read.
        """
        self.made.update(name.removesuffix(".jpg") for name, _ in await self._store.listing())

    def look_at(self, sha256: str, url: str, mime_type: str) -> asyncio.Future[Seen | None]:
        """Has a file looked at, once, and its thumbnail made: what was seen.

        None where it cannot be read, takes long, or ends the process that looks. Who waits for it and may be
        cancelled uses `asyncio.shield`.
        """
        if sha256 not in self._looks:
            self._looks[sha256] = asyncio.get_running_loop().create_future()
            self._left.append((sha256, url, mime_type))
            self._workers = [worker for worker in self._workers if not worker.done()]
            if len(self._workers) < _AT_ONCE:
                self._workers.append(asyncio.create_task(self._work()))
        return self._looks[sha256]

    @property
    def waiting(self) -> int:
        """How many have been asked for, and are not made yet."""
        return sum(not look.done() for look in self._looks.values())

    async def finish(self) -> None:
        """Waits until all that were asked for are made.

        Raises:
            StorageError: the report cannot be written.
        """
        while workers := [worker for worker in self._workers if not worker.done()]:
            await asyncio.gather(*workers)
        if self._error:
            raise self._error

    async def close(self) -> None:
        """Ends the work in the background, and the process that makes them."""
        for worker in self._workers:
            worker.cancel()
        for look in self._looks.values():
            look.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        await self.decoder.aclose()

    async def _work(self) -> None:
        while self._left:
            sha256, url, mime_type = self._left.popleft()
            look = self._looks[sha256]
            try:
                seen = await self._draw(sha256, url, mime_type)
                if not look.done():
                    look.set_result(seen)
            finally:
                look.cancel()  # where it has not ended as it should

    async def _draw(self, sha256: str, url: str, mime_type: str) -> Seen | None:
        seen, jpeg = await self.decoder.decode(url, mime_type)
        if jpeg and self._keeps and sha256 not in self.made:
            try:
                await self._store.write(f"{sha256}.jpg", jpeg, "image/jpeg")
                self.made.add(sha256)
                self.drawn += 1
            except StorageError as error:
                self._error = error
        return seen


def local_file(url: str, endpoint_url: str | None, copies: ExitStack) -> Path | None:
    """Where a stored file is on this machine, copied if need be; None where it cannot be read."""
    with suppress(InputError, StorageError, OSError):
        path = copies.enter_context(local_copy(str(local_path(url) or url), endpoint_url))
        return path.absolute() if path.is_file() else None
    return None


class Decoder:
    """Looks at files in a process of its own (`decoder.py`), which starts when it is needed.

    Args:
        endpoint_url: the address of an S3 server other than Amazon's.
        hashes: whether perceptual hashes are wanted.
    """

    def __init__(self, endpoint_url: str | None, *, hashes: bool = False) -> None:
        self._endpoint_url = endpoint_url
        self._hashes = hashes
        self._process: Process | None = None
        self._deaths = 0
        self._lock = asyncio.Lock()

    @property
    def works(self) -> bool:
        """Whether it is any use to ask: no after several processes have died, one after another."""
        return self._deaths < _MOST_DEATHS

    async def decode(self, url: str, mime_type: str) -> tuple[Seen | None, bytes]:
        """What is seen of a stored file, and a thumbnail as JPEG, which is empty where it cannot be shown.

        Nothing is seen where the file cannot be read, takes long, or ends the process.
        """
        with ExitStack() as copies:
            path = await asyncio.to_thread(local_file, url, self._endpoint_url, copies)
            if path is None:
                return None, b""
            async with self._lock:
                if not self.works:
                    return None, b""
                try:
                    async with asyncio.timeout(_PATIENCE):
                        answer = await self._ask(path, mime_type)
                except (OSError, TimeoutError, asyncio.IncompleteReadError):  # it has died, or hangs
                    self._deaths += 1
                    await self.aclose()
                    return None, b""
                self._deaths = 0
                return answer

    async def _ask(self, path: Path, mime_type: str) -> tuple[Seen, bytes]:
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "callsheet.report.contact_sheet.decoder"),
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,  # what the decoders of video say about damaged files
                **APART,  # a terminal's Ctrl-C is for the run
            )
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin and stdout  # noqa: S101 - both are pipes
        request = {"path": str(path), "type": mime_type, "hashed": self._hashes}
        stdin.write(json.dumps(request).encode() + b"\n")
        await stdin.drain()
        seen = json.loads(await stdout.readuntil())
        jpeg = await stdout.readexactly(seen.pop("jpeg"))
        return Seen(**seen), jpeg

    async def aclose(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
