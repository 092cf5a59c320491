"""The store of media or of report files: a folder, or a bucket on S3. Begin reading here.

The URL decides which: a path or `file://` is a folder, `s3://bucket/prefix` is a bucket. Everything runs
in the store's own threads, so that a slow bucket does not hold up the rest of a run. The caller gives the
names: the ledger makes sure that no two files have the same one.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, Self, TypeVar, TypeVarTuple

from callsheet import failpoints, s3
from callsheet.errors import ConfigError
from callsheet.files import wrong_place
from callsheet.records import StoredFile
from callsheet.storage.bucket import Bucket
from callsheet.storage.folder import Folder
from callsheet.storage.spool import Spooled

Arguments = TypeVarTuple("Arguments")
T = TypeVar("T")


class Access(Protocol):
    """What the config's `storage` says of S3."""

    @property
    def endpoint_url(self) -> str | None:
        """The address of a server other than Amazon's."""

    @property
    def put(self) -> Mapping[Any, str]:
        """More arguments of PutObject."""


class Store:
    """A folder or a bucket.

    Args:
        url: `out/media`, `/abs`, `file:///abs` or `s3://bucket/prefix`.
        endpoint_url: the address of an S3 server other than Amazon's.
        put: more arguments of S3's PutObject, for a bucket that demands them (`storage.put`).

    Raises:
        ConfigError: the URL is neither a folder nor a bucket.
        StorageError: the AWS settings of this machine cannot be used.

    Every method that reads or writes raises `StorageError` where the store refuses it.
    """

    def __init__(
        self, url: str, *, endpoint_url: str | None = None, put: Mapping[Any, str] = MappingProxyType({})
    ) -> None:
        if wrong := wrong_place(url):
            raise ConfigError(f"{url} {wrong[0]}", hint=wrong[1])
        is_bucket = url.startswith("s3://")
        self._place: Bucket | Folder = Bucket(url, endpoint_url, put) if is_bucket else Folder(url)
        self._threads = ThreadPoolExecutor(s3.THREADS, "storage")

    @classmethod
    def of(cls, url: str, access: Access) -> Self:
        """The store at a URL, with what the config's `storage` says of S3."""
        return cls(url, endpoint_url=access.endpoint_url, put=access.put)

    def url_of(self, name: str) -> str:
        """The URL of a stored file; in a folder, a path that begins as the store's URL does."""
        return self._place.url_of(name)

    async def probe(self) -> str:
        """Writes a small file and removes it, to find out whether the store can be used.

        Who may not delete in a bucket leaves one object there, which the next probe writes over.

        Returns:
            What a person should know of the store, in one line; mostly nothing.
        """
        return await self._in_thread(self._place.probe)

    async def put(self, spooled: Spooled, name: str, mime_type: str) -> StoredFile:
        """Stores a verified file, once it is settled in the spool. Nothing that is stored is overwritten.

        A file of that name with the same bytes is taken for the file itself, stored by an earlier attempt.

        Returns:
            Where the file is. Once this returns, it survives a power cut.

        Raises:
            StorageConflict: something else has this name.
            StorageError: the store refused it, and the file is in the spool; or the spool did, and it is not.
        """
        await self._in_thread(self._put, spooled, name, mime_type)
        return StoredFile(self.url_of(name), spooled.sha256, spooled.bytes, datetime.now(UTC), mime_type)

    def _put(self, spooled: Spooled, name: str, mime_type: str) -> None:
        spooled.settle()
        failpoints.passed("before store.put")
        self._place.put(spooled.path, name, spooled.sha256, mime_type)
        failpoints.passed("after store.put")

    async def add(self, name: str, data: bytes, mime_type: str) -> None:
        """Stores a small file, as `put` does: `StorageConflict` where something else has this name."""
        await self._in_thread(self._place.put, data, name, hashlib.sha256(data).hexdigest(), mime_type)

    async def write(self, name: str, data: bytes | Path, mime_type: str) -> str:
        """Writes a report file of any size (its bytes, or the file that has them); returns its URL.

        An older one is replaced in one step, and unchanged where the store refuses the new one.
        """
        await self._in_thread(self._place.write, name, data, mime_type)
        return self.url_of(name)

    async def read(self, name: str) -> bytes | None:
        """The bytes of a report file; None where there is no such file."""
        return await self._in_thread(self._place.read, name)

    async def exists(self, name: str) -> bool:
        """Whether something has this name."""
        return await self._in_thread(self._place.exists, name)

    async def listing(self) -> list[tuple[str, int]]:
        """The names and sizes of all files."""
        return await self._in_thread(self._place.listing)

    async def remove(self, name: str) -> None:
        """Removes a file, where it is there."""
        await self._in_thread(self._place.remove, name)

    async def _in_thread(self, work: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
