"""The store of media or of report files: a folder, or a bucket on S3. Begin reading here.

The URL decides which: a path or `file://` is a folder, `s3://bucket/prefix` is a bucket. Everything runs
in the store's own threads, so that a slow bucket does not hold up the rest of a run. The caller gives the
names: the ledger makes sure that no two files have the same one.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import shutil
import stat
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeVar, TypeVarTuple
from urllib.parse import quote

from callsheet import failpoints, s3
from callsheet.config.settings import Storage
from callsheet.errors import ConfigError, StorageConflict, StorageError
from callsheet.files import (
    CONFLICT,
    NO_HARD_LINKS,
    PartialFile,
    disk_errors,
    make_folder,
    open_regular,
    path_of,
    sync_folder,
    wrong_place,
)
from callsheet.records import StoredFile
from callsheet.storage.bucket import Bucket
from callsheet.storage.spool import Spooled

_SETTING = "storage.url or report.url"
_PROBE = "callsheet-probe"
Arguments = TypeVarTuple("Arguments")
T = TypeVar("T")


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
        if problem := wrong_place(url):
            raise ConfigError(f"{url} {problem[0]}", hint=problem[1])
        is_bucket = url.startswith("s3://")
        self._place: Bucket | Folder = Bucket(url, endpoint_url, put) if is_bucket else Folder(url)
        self._threads = ThreadPoolExecutor(s3.THREADS, "storage")

    @classmethod
    def of(cls, url: str, storage: Storage) -> Self:
        """The store at a URL, with what the config's `storage` says of S3."""
        return cls(url, endpoint_url=storage.endpoint_url, put=storage.put)

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
        """Stores a verified file, once it is complete in the spool. Nothing that is stored is overwritten.

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
        spooled.complete()
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


class Folder:
    """See `Store`; the URL is a path, or a `file://` URL of this machine."""

    def __init__(self, url: str) -> None:
        self._is_url = url.startswith("file://")
        self._url = url.rstrip("/") or "/"
        self._root = path_of(url)

    def url_of(self, name: str) -> str:
        """See `Store.url_of`."""
        return f"{self._url.removesuffix('/')}/{quote(name) if self._is_url else name}"

    def probe(self) -> str:
        """See `Store.probe`."""
        with disk_errors(self._root, _SETTING):
            with PartialFile(self._root / _PROBE) as partial:
                partial.file.write(b"callsheet")
                partial.file.flush()
            for left in self._root.glob(f".{_PROBE}*"):  # by runs that were killed at it
                with suppress(OSError):
                    left.unlink()
        return ""

    def put(self, content: Path | bytes, name: str, sha256: str, mime_type: str) -> None:
        """See `Store.put`. On one disk a file is not copied: it gets a second name."""
        path = self._root / name
        with disk_errors(path, _SETTING):
            try:
                if isinstance(content, bytes):
                    with PartialFile(path) as partial:
                        partial.file.write(content)
                        partial.commit(overwrite=False)
                elif not _linked(content, path):
                    _copy(content, path, sha256)
            except FileExistsError:
                if not _has_bytes(path, sha256):
                    raise StorageConflict(f"{path}: something else has this name", hint=CONFLICT) from None
            sync_folder(path.parent)

    def write(self, name: str, data: bytes | Path, mime_type: str) -> None:
        """See `Store.write`."""
        path = self._root / name
        with disk_errors(path, _SETTING):
            with PartialFile(path) as partial:
                if isinstance(data, bytes):
                    partial.file.write(data)
                else:
                    with data.open("rb") as source:
                        shutil.copyfileobj(source, partial.file, 1 << 20)
                partial.commit()
            sync_folder(path.parent)

    def read(self, name: str) -> bytes | None:
        """See `Store.read`."""
        path = self._root / name
        with disk_errors(path, _SETTING, "read"):
            try:
                with open_regular(path) as file:
                    return file.read()
            except FileNotFoundError:
                return None

    def exists(self, name: str) -> bool:
        """See `Store.exists`."""
        return os.path.lexists(self._root / name)

    def listing(self) -> list[tuple[str, int]]:
        """See `Store.listing`."""
        files: list[tuple[str, int]] = []
        with disk_errors(self._root, _SETTING, "read"):
            for at, _, names in os.walk(self._root, onerror=_raise):
                folder = Path(at).relative_to(self._root).as_posix()
                prefix = "" if folder == "." else f"{folder}/"
                files += [(prefix + name, os.lstat(f"{at}/{name}").st_size) for name in names]
        return files

    def remove(self, name: str) -> None:
        """See `Store.remove`."""
        path = self._root / name
        with disk_errors(path, _SETTING):
            path.unlink(missing_ok=True)


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):  # a folder that is not there has no files
        raise error


def _linked(spooled: Path, path: Path) -> bool:
    """Gives a file its name in the store; False where it has to be copied.

    So it is on another disk, and where a new file gets a group or rights from its folder: a link does not.
    """
    make_folder(path.parent)
    if path.parent.stat().st_mode & stat.S_ISGID or _has_default_acl(path.parent):
        return False
    try:
        os.link(spooled, path)
    except OSError as error:
        if error.errno not in NO_HARD_LINKS | {errno.EXDEV}:
            raise
        return False
    return True


def _has_default_acl(folder: Path) -> bool:
    if sys.platform != "linux":
        return False
    try:
        return "system.posix_acl_default" in os.listxattr(folder)
    except (AttributeError, OSError):  # neither the system nor the disk has such a thing
        return False


def _copy(spooled: Path, path: Path, sha256: str) -> None:
    """Copies a file from another disk, and compares its bytes."""
    # Always the same name for the same bytes, so that what a killed run left is removed; and another for
    # other bytes, which another ledger may want to store under the same name at the same time.
    partial_path = path.with_name(f".{path.name}.{sha256[:8]}.part")
    digest = hashlib.sha256()
    with spooled.open("rb") as source, PartialFile(path, partial_path) as partial:
        while block := source.read(1 << 20):
            digest.update(block)
            partial.file.write(block)
        if digest.hexdigest() != sha256:
            raise StorageError(f"{spooled}: has changed since it was downloaded")
        partial.commit(overwrite=False)


def _has_bytes(path: Path, sha256: str) -> bool:
    """Whether a path is a file with these bytes, and not another file, a folder or anything else."""
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except OSError:
        return False
