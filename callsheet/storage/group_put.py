"""Group put: files that come while others are being stored wait for these, and are then stored together.

Passing a small file to a thread and back costs more than storing it, and a disk takes several files in little
more time than one. What goes wrong with one file is that file's error; the others are stored.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from callsheet import failpoints
from callsheet.errors import StorageError
from callsheet.storage.spool import Spooled


class Place(Protocol):
    """Where files are put.

    Attributes:
        together: how many files a group has at most; the others wait for it, or are a group beside it.
    """

    together: int

    def put(self, content: Path | bytes, name: str, sha256: str, mime_type: str) -> None:
        """Puts a file under a name that nothing has; see `Store.put`."""

    def sync(self, names: Iterable[str]) -> None:
        """Makes sure that these names survive a power cut."""


@dataclass(slots=True)
class _ToPut:
    spooled: Spooled
    name: str
    mime_type: str
    stored: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    error: Exception | None = None


class GroupPut:
    """Puts files into a place, for one event loop at a time.

    Args:
        place: the place.
        threads: where it is done.
        most: groups at the same time.
    """

    def __init__(self, place: Place, threads: ThreadPoolExecutor, most: int) -> None:
        self._place = place
        self._threads = threads
        self._most = most
        self._waiting: deque[_ToPut] = deque()
        self._groups = 0  # at work

    async def put(self, spooled: Spooled, name: str, mime_type: str) -> None:
        """Settles a file in the spool, and puts it; raises what either does."""
        file = _ToPut(spooled, name, mime_type)
        self._waiting.append(file)
        self._begin()
        await file.stored

    def _begin(self) -> None:
        """Begins a group where none is at work, and others where whole groups wait: then the disk is slow."""
        whole = self._place.together
        while self._waiting and self._groups < (self._most if len(self._waiting) >= whole else 1):
            files = [self._waiting.popleft() for _ in range(min(whole, len(self._waiting)))]
            self._groups += 1
            work = asyncio.get_running_loop().run_in_executor(self._threads, _put, self._place, files)
            work.add_done_callback(partial(self._end, files))

    def _end(self, files: Sequence[_ToPut], work: asyncio.Future[None]) -> None:
        self._groups -= 1
        for file in files:
            if file.stored.done():  # who waited for it was cancelled
                continue
            if error := file.error or work.exception():
                file.stored.set_exception(error)
            else:
                file.stored.set_result(None)
        self._begin()


def _put(place: Place, files: Sequence[_ToPut]) -> None:
    """Puts files together; for a thread."""
    _each(files, lambda file: file.spooled.begin_settling())
    _each(files, lambda file: file.spooled.settle())
    _each(files, partial(_put_one, place))
    put = [file for file in files if not file.error]
    try:
        place.sync([file.name for file in put])
    except StorageError as error:
        for file in put:
            file.error = error
    _each(put, lambda _: failpoints.passed("after store.put"))


def _put_one(place: Place, file: _ToPut) -> None:
    failpoints.passed("before store.put")
    place.put(file.spooled.path, file.name, file.spooled.sha256, file.mime_type)


def _each(files: Iterable[_ToPut], step: Callable[[_ToPut], None]) -> None:
    """Does a step with each file that is well so far."""
    for file in files:
        if file.error is None:
            try:
                step(file)
            except Exception as error:  # noqa: BLE001 - who waits for the file gets it
                file.error = error
