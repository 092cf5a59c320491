"""A store in a folder of this machine, or of a network drive."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from callsheet.errors import StorageConflict, StorageError
from callsheet.files import (
    CONFLICT,
    NO_HARD_LINKS,
    PartialFile,
    disk_errors,
    make_folder,
    open_regular,
    path_of,
    sync_folder,
)

_SETTING = "storage.url or report.url"
_PROBE = "callsheet-probe"


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
                if not _has(path, sha256):
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
        with disk_errors(self._root, _SETTING, "read"):
            paths = (Path(at, name) for at, _, names in os.walk(self._root, onerror=_raise) for name in names)
            return [(path.relative_to(self._root).as_posix(), path.lstat().st_size) for path in paths]

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

    Raises:
        FileExistsError: something has that name.
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
    """Copies a file from another disk, and compares its bytes.

    Raises:
        FileExistsError: something has the new name.
        StorageError: they are not those of `sha256`.
    """
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


def _has(path: Path, sha256: str) -> bool:
    """Whether a path is a file with these bytes, and not another file, a folder or anything else."""
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except OSError:
        return False
