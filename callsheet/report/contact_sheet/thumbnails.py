"""Thumbnails in packed files: each is made once, whatever happens to the rows of the batch file.

A pack is a JavaScript file with some hundred JPEGs as base64, because a page that is opened from a disk may
load scripts and nothing else. `thumbnails.parquet` has the place of each, by the SHA-256 of the file that it
shows. Packs only grow, so a page that knows a place can rely on it.
"""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import polars as pl

from callsheet.storage.store import Store

PER_PACK = 200
"""Thumbnails of a pack: some 3 MB."""

PACK_HEAD = "callsheet.pack("

_INDEX = "contact-sheet/data/thumbnails.parquet"
_SCHEMA = {"sha256": pl.String, "pack": pl.UInt32, "place": pl.UInt32}
_PATIENCE = 60.0  # seconds for one thumbnail
_MOST_DEATHS = 5  # of a decoder, one after another
_SCRIPT_TYPE = "text/javascript"

Place = tuple[int, int]
"""The number of a pack, and the number of a thumbnail in it."""


def pack_name(number: int) -> str:
    """The name of a pack inside `report.url`."""
    return f"contact-sheet/data/thumbs-{number:04d}.js"


class Thumbnails:
    """The thumbnails of a contact sheet. Use `open`, `add` some, and `write`.

    Args:
        store: where the report is.
        places: the place of each thumbnail by the SHA-256 of its file; None for a file that cannot be shown.
        last: the thumbnails of the last pack, as base64, unless it is full.
    """

    def __init__(self, store: Store, places: dict[str, Place | None], last: list[str]) -> None:
        self._store = store
        self._places = places
        self._last = last
        full = max((place[0] for place in places.values() if place), default=-1)
        self._number = full if last else full + 1
        self._changed = False
        self._written = len(last)

    @classmethod
    async def open(cls, store: Store) -> Thumbnails:
        """Those that earlier runs made.

        Raises:
            StorageError: the report cannot be read.
        """
        index = await store.read(_INDEX)
        places: dict[str, Place | None] = {}
        with suppress(pl.exceptions.PolarsError):  # a damaged index: all are made again
            table = pl.read_parquet(io.BytesIO(index)) if index else pl.DataFrame(schema=_SCHEMA)
            for sha256, pack, place in table.select([*_SCHEMA]).iter_rows():
                places[sha256] = None if pack is None else (pack, place)
        packed = [place for place in places.values() if place]
        last = max((pack for pack, _ in packed), default=0)
        count = sum(pack == last for pack, _ in packed)
        if not 0 < count < PER_PACK:
            return cls(store, places, [])
        content = await store.read(pack_name(last))
        jpegs = _unpacked(content) if content else []
        if len(jpegs) < count:  # the pack is gone or damaged
            places = {sha256: place for sha256, place in places.items() if not place or place[0] != last}
            jpegs = []
        return cls(store, places, jpegs[:count])

    def __contains__(self, sha256: str) -> bool:
        return sha256 in self._places

    def place(self, sha256: str) -> Place | None:
        """Where the thumbnail of a file is; None where it is not made, or the file cannot be shown."""
        return self._places.get(sha256)

    def lengths(self) -> Iterator[tuple[int, int]]:
        """The number of each pack that is written, and how many thumbnails it has."""
        yield from ((number, PER_PACK) for number in range(self._number))
        if self._written:
            yield self._number, self._written

    async def add(self, sha256: str, jpeg: bytes) -> None:
        """Adds a thumbnail; empty for a file that cannot be shown. A pack that is full is written.

        Raises:
            StorageError: the report cannot be written.
        """
        self._changed = True
        if not jpeg:
            self._places[sha256] = None
            return
        self._places[sha256] = (self._number, len(self._last))
        self._last.append(base64.b64encode(jpeg).decode())
        if len(self._last) == PER_PACK:
            await self._write_pack()
            self._number, self._last, self._written = self._number + 1, [], 0

    async def write(self) -> None:
        """Writes what is not written yet: the last pack, and then the index.

        Raises:
            StorageError: the report cannot be written.
        """
        if not self._changed:
            return
        if self._last:
            await self._write_pack()
        rows = [(sha256, *(place or (None, None))) for sha256, place in self._places.items()]
        content = io.BytesIO()
        pl.DataFrame(rows, schema=_SCHEMA, orient="row").write_parquet(content)
        await self._store.write(_INDEX, content.getvalue(), "application/vnd.apache.parquet")
        self._changed = False

    async def _write_pack(self) -> None:
        text = f"{PACK_HEAD}{self._number},{json.dumps(self._last)})\n"
        await self._store.write(pack_name(self._number), text.encode(), _SCRIPT_TYPE)
        self._written = len(self._last)


def _unpacked(content: bytes) -> list[str]:
    try:
        jpegs: list[str] = json.loads(content[content.index(b"[") : content.rindex(b"]") + 1])
    except ValueError:
        return []
    return jpegs


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
            length = process.stdout.read(4)
            jpeg = process.stdout.read(int.from_bytes(length, "big"))
        except OSError:  # the process has died
            length = b""
        finally:
            timer.cancel()
        if len(length) < 4:
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
            bufsize=0,
            start_new_session=True,  # a terminal's Ctrl-C is for the run
        )
        return self._process

    def close(self) -> None:
        """Ends the process."""
        if self._process:
            self._process.kill()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe:
                    pipe.close()
            self._process.wait()
            self._process = None
