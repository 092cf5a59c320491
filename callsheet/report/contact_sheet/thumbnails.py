"""Thumbnails in packed files: each is made once, whatever happens to the rows of the batch file.

A pack is a JavaScript file with some hundred JPEGs as base64, because a page that is opened from a disk may
load scripts and nothing else. `thumbnails.parquet` has the place of each, by the SHA-256 of the file that it
shows. Each run has packs of its own, so that two runs at once never mix up what is where.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import polars as pl

from callsheet.storage.store import Store

PER_PACK = 200
"""Thumbnails of a pack: some 3 MB."""

_INDEX = "contact-sheet/data/thumbnails.parquet"
_SCHEMA = {"sha256": pl.String, "pack": pl.String, "place": pl.UInt32}
_PATIENCE = 60.0  # seconds for one thumbnail
_MOST_DEATHS = 5  # of a decoder, one after another

Place = tuple[str, int]
"""The name of a pack, and the number of a thumbnail in it."""


def pack_file(pack: str) -> str:
    """The name of a pack's file inside `report.url`."""
    return f"contact-sheet/data/thumbs-{pack}.js"


class Thumbnails:
    """The thumbnails of a contact sheet. Use `open`, `add` some, and `write`.

    Args:
        store: where the report is.
        run: names this run's packs.
        places: the place of each thumbnail by the SHA-256 of its file; None for a file that cannot be shown.

    Attributes:
        packs: how many thumbnails each pack has that is written.
    """

    def __init__(self, store: Store, run: str, places: dict[str, Place | None]) -> None:
        self._store = store
        self._run = run
        self._places = places
        self._last: list[str] = []  # of the last pack, as base64
        self._number = 0
        self._changed = False
        self.packs = Counter(place[0] for place in places.values() if place)

    @classmethod
    async def open(cls, store: Store, run: str) -> Thumbnails:
        """Those that earlier runs made.

        Raises:
            StorageError: the report cannot be read.
        """
        index = await store.read(_INDEX)
        return cls(store, run, await asyncio.to_thread(_places, index) if index else {})

    def __contains__(self, sha256: str) -> bool:
        return sha256 in self._places

    def place(self, sha256: str) -> Place | None:
        """Where the thumbnail of a file is; None where it is not made, or the file cannot be shown."""
        return self._places.get(sha256)

    async def add(self, sha256: str, jpeg: bytes) -> None:
        """Adds a thumbnail; empty for a file that cannot be shown. A pack that is full is written.

        Raises:
            StorageError: the report cannot be written.
        """
        self._changed = True
        if not jpeg:
            self._places[sha256] = None
            return
        self._places[sha256] = (self._pack, len(self._last))
        self._last.append(base64.b64encode(jpeg).decode())
        if len(self._last) == PER_PACK:
            await self._write_pack()
            self._number, self._last = self._number + 1, []

    async def write(self) -> None:
        """Writes what is not written yet: the last pack, and then the index.

        Raises:
            StorageError: the report cannot be written.
        """
        if not self._changed:
            return
        if len(self._last) > self.packs[self._pack]:
            await self._write_pack()
        index = await asyncio.to_thread(_index, self._places)
        await self._store.write(_INDEX, index, "application/vnd.apache.parquet")
        self._changed = False

    @property
    def _pack(self) -> str:
        return f"{self._run}-{self._number:03d}"

    async def _write_pack(self) -> None:
        thumbnails = await asyncio.to_thread(json.dumps, self._last)
        text = f"callsheet.pack({json.dumps(self._pack)},{thumbnails})\n"
        await self._store.write(pack_file(self._pack), text.encode(), "text/javascript")
        self.packs[self._pack] = len(self._last)


def _places(index: bytes) -> dict[str, Place | None]:
    places: dict[str, Place | None] = {}
    with suppress(pl.exceptions.PolarsError):  # an index that is damaged, or another: all are made again
        for sha256, pack, place in pl.read_parquet(index).match_to_schema(_SCHEMA).iter_rows():
            places[sha256] = None if pack is None else (pack, place)
    return places


def _index(places: Mapping[str, Place | None]) -> bytes:
    rows = [(sha256, *(place or (None, None))) for sha256, place in places.items()]
    content = io.BytesIO()
    pl.DataFrame(rows, schema=_SCHEMA, orient="row").write_parquet(content)
    return content.getvalue()


class Decoder:
    """Makes thumbnails in a process of its own (`decoder.py`), which starts when it is needed.

    Only one thread may use it at a time.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._deaths = 0

    @property
    def works(self) -> bool:
        """Whether it is any use to ask: no after several processes have died, one after another."""
        return self._deaths < _MOST_DEATHS

    def make(self, path: Path, mime_type: str) -> bytes:
        """A thumbnail of a file, as JPEG; empty where it cannot be shown, or takes more than a minute."""
        try:
            process = self._process or self._started()
        except OSError:
            self._deaths = _MOST_DEATHS
            return b""
        timer = threading.Timer(_PATIENCE, process.kill)
        timer.start()
        try:
            assert process.stdin and process.stdout  # noqa: S101 - both are pipes
            request = {"path": str(path.absolute()), "type": mime_type}
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            head = process.stdout.read(4)
            length = int.from_bytes(head, "big")
            jpeg = process.stdout.read(length)
            whole = len(head) == 4 and len(jpeg) == length
        except OSError:
            whole = False
        finally:
            timer.cancel()
        if not whole:  # the process has died
            self._deaths += 1
            self.close()
            return b""
        self._deaths = 0
        return jpeg

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "callsheet.report.contact_sheet.decoder"]
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # what the decoders of video say about damaged files
            start_new_session=True,  # a terminal's Ctrl-C is for the run
        )
        return self._process

    def close(self) -> None:
        """Ends the process."""
        if self._process:
            self._process.kill()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe:
                    with suppress(OSError):  # what it was asked for last was not sent
                        pipe.close()
            self._process.wait()
            self._process = None
