"""Files and folders on this machine: complete or absent, durable, and errors in words.

Does not know what the files are for.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Self
from urllib.parse import quote, unquote, urlsplit

from callsheet.errors import StorageError

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
_NO_RIGHTS = {errno.EACCES, errno.EPERM, errno.EROFS}
_WINDOWS = sys.platform == "win32"
NO_HARD_LINKS = frozenset(
    {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK}
    | ({errno.EINVAL} if _WINDOWS else set())
)
"""What `os.link` fails with where a file system cannot give a file a second name."""

FREES_OPEN_NAMES = not _WINDOWS
"""Whether a file that is open can be removed, or get another name."""

# How files are opened: no link is followed, and a pipe is not waited for. Windows has no such flags.
if sys.platform == "win32":
    _OPEN, _NO_LINK, _AT_ONCE = os.O_BINARY, 0, 0
else:
    _OPEN, _NO_LINK, _AT_ONCE = os.O_CLOEXEC, os.O_NOFOLLOW, os.O_NONBLOCK

PRIVATE = 0o600
"""The rights of a file that only this user can read and write."""

CONFLICT = "Move it away, or choose another storage.url or storage.key; then run the same command again."
"""What to do where something else has a file's name in storage."""

_NETWORK_DISKS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afpfs", "webdav", "9p", "ceph", "lustre", "beegfs"}
_PLACES = "Use a folder, or s3://bucket/prefix."
_DRIVE = re.compile("/[A-Za-z]:")
_IN_A_HOME = re.compile(r"(file:///|sqlite:///)?(~[^/]*)(.*)", re.DOTALL)


class PartialFile:
    """A file that gets its name only when it is complete.

    Use it in a `with` statement: write to `file`, then call `commit`. What is not committed is removed.

    Args:
        path: the complete file. Its folder is made when missing.
        partial: its name until it is complete, in the same folder. An older file of that name, which a killed
            process has left, is removed. None: a new name each time, for files that two processes may write
            at once.
        rights: who may read and write it, as in `chmod`; the process's umask takes some away.

    Raises:
        OSError: it cannot be written.
    """

    def __init__(self, path: Path, partial: Path | None = None, *, rights: int = 0o666) -> None:
        self._path = path
        self.partial = partial or path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        self._is_committed = False
        make_folder(path.parent)
        self.partial.unlink(missing_ok=True)
        self.file = os.fdopen(make_file(self.partial, rights), "wb")

    def __enter__(self) -> Self:
        return self

    def commit(self, *, path: Path | None = None, overwrite: bool = True) -> None:
        """Gives the file its name, once its bytes are on the disk.

        Args:
            path: another name than was meant, in the same folder.
            overwrite: replace what has that name.

        Raises:
            FileExistsError: without `overwrite`, something has that name already.
            OSError: the disk fails.
        """
        path = path or self._path
        self.file.flush()
        os.fsync(self.file.fileno())
        written = os.fstat(self.file.fileno())
        if not FREES_OPEN_NAMES:
            self.file.close()
        if overwrite:
            self.partial.replace(path)
            self._is_committed = True
            return
        try:
            os.link(self.partial, path)
        except OSError as error:
            if error.errno not in NO_HARD_LINKS:
                raise
            # A file system without hard links: take the name with an empty file, then replace that.
            path.touch(exist_ok=False)
            self.partial.replace(path)
        if not os.path.samestat(written, path.stat()):
            raise FileExistsError(errno.EEXIST, "another process writes it", str(path))

    def close(self) -> None:
        """Removes the file, unless it is committed."""
        with suppress(OSError):  # a full disk: what was written last is not needed any more
            self.file.close()
        if not self._is_committed:
            self.partial.unlink(missing_ok=True)

    def __exit__(self, *_: object) -> None:
        self.close()


def with_home(path: str) -> str:
    """A path in which a `~` or `~user` at the beginning is that home folder; other text stays as it is.

    It may be a `file:///` or `sqlite:///` URL of one. Raises ValueError where no such home folder is known.
    """
    match = _IN_A_HOME.fullmatch(path)
    if match is None:
        return path
    prefix, name, subpath = match.groups(default="")
    try:
        home = str(Path(name).expanduser()).rstrip("/")
    except RuntimeError:
        raise ValueError(f"begins with {name}, and no such home folder is known") from None
    if prefix == "file:///":
        prefix, home = ("file:///", home.replace("\\", "/")) if _WINDOWS else ("file://", home)
        home = quote(home, safe="/:" if _WINDOWS else "/")
    return f"{prefix}{home}{subpath}" or "/"


def path_of(url: str) -> Path:
    """The path that a URL of this machine names: a path, or `file:///path`."""
    if not url.startswith("file://"):
        return Path(url)
    path = unquote(urlsplit(url).path)
    return Path(path.removeprefix("/") if _WINDOWS and _DRIVE.match(path) else path)


def wrong_place(url: str) -> tuple[str, str] | None:
    """Why files cannot be stored at a URL (`path`, `file:///path`, `s3://bucket/prefix`), and what to do.

    None where it names a folder or a bucket.
    """
    scheme, slashes, location = url.partition("://")
    host = location.partition("/")[0]
    if not slashes:
        near = next((name for name in ("s3", "file") if url.startswith(f"{name}:")), None)
        return (f"begins with {near}: in place of {near}://", _PLACES) if near else None
    if scheme not in {"s3", "file"}:
        return f"begins with {scheme}://, which is not supported", _PLACES
    if scheme == "s3" and not host:
        return "has no bucket", "It must look like s3://bucket/prefix."
    if scheme == "file" and host not in {"", "localhost"}:
        hint = "Write file:/// and an absolute path, or a relative folder without file://."
        return f"names the host {host}, not a folder of this machine", hint
    return None


def make_folder(folder: Path) -> None:
    """Makes a folder and those above it, durably.

    Raises:
        NotADirectoryError: something else has its name.
        OSError: it cannot be made.
    """
    if not folder.is_dir():
        make_folder(folder.parent)
        try:
            folder.mkdir(exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, "it is not a folder", str(folder)) from None
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Makes a folder's list of names durable. Raises OSError where it is not there, or the disk fails."""
    if _WINDOWS:  # which opens no folder, and keeps a journal of names
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_regular(path: Path) -> BufferedReader:
    """Opens a file for reading; OSError where it cannot be opened, or is a folder, a pipe or a device.

    Reading a pipe may never end, and a device such as /dev/zero never does.
    """
    descriptor = os.open(path, os.O_RDONLY | _AT_ONCE | _OPEN)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def make_file(path: Path, rights: int) -> int:
    """Makes a file and opens it for writing; returns the descriptor.

    Raises:
        FileExistsError: something has its name, a link to nothing too: it is left as it is.
        OSError: it cannot be made.
    """
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | _OPEN, rights)


def open_private(path: Path, flags: int) -> int:
    """Opens a file of a name that everybody knows, for writing too, or makes it; returns the descriptor.

    What is written must not get into another file, so it is no link, and has no other name. A new one can
    only be read by this user. `flags` are those of `os.open`.

    Raises:
        OSError: it cannot be opened or made, or is no such file: nothing was changed.
    """
    refusal = OSError(errno.EINVAL, "it is a link, or no regular file", str(path))
    if not _NO_LINK and path.is_symlink():
        raise refusal
    try:
        descriptor = os.open(path, flags | os.O_CREAT | _NO_LINK | _AT_ONCE | _OPEN, PRIVATE)
    except OSError as error:
        raise (refusal if error.errno in (errno.ELOOP, errno.ENXIO) else error) from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise refusal
    return descriptor


def make_private(descriptor: int) -> None:
    """Lets nobody but this user read and write a file. On Windows its folder says who may."""
    if sys.platform != "win32":
        os.fchmod(descriptor, PRIVATE)


@contextmanager
def disk_errors(path: Path, setting: str, action: str = "written") -> Iterator[None]:
    """Explains why a file cannot be `written` or `read`: `StorageError` in place of an OSError.

    Args:
        path: the file, unless the error names another.
        setting: what a person changes to have it elsewhere, for example `storage.url`.
        action: `written` or `read`.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            hint = f"Free some space there, or choose another {setting}; then run the same command again."
        elif error.errno in _NO_RIGHTS:
            hint = f"Give this user the right to read and write there, or choose another {setting}."
        elif isinstance(error, NotADirectoryError):
            hint = f"Move it away, or choose another {setting}."
        else:
            hint = f"Check {setting}."
        raise StorageError(
            f"{error.filename or path}: cannot be {action}: {error.strerror or error}", hint=hint
        ) from error


def network_disk(path: Path) -> str:
    """The kind of network file system that a path is on, in the system's word; empty where it is on none.

    What a program serves (FUSE) counts as one, but for the disks of containers. Windows is not asked.
    """
    if _WINDOWS:
        return ""
    import psutil  # no command waits for it that makes no ledger

    path = path.resolve()
    disks = [disk for disk in psutil.disk_partitions(all=True) if path.is_relative_to(disk.mountpoint)]
    *_, disk = sorted(disks, key=lambda disk: len(disk.mountpoint)) or [None]
    kind = disk.fstype.lower() if disk else ""
    is_served = kind.startswith(("fuse.", "macfuse", "osxfuse")) and kind != "fuse.fuse-overlayfs"
    return kind if is_served or kind in _NETWORK_DISKS else ""


@contextmanager
def temporary_file_errors() -> Iterator[None]:
    """Explains why a temporary file cannot be written: `StorageError` in place of an OSError."""
    try:
        yield
    except OSError as error:
        folder = tempfile.tempdir or "the temporary folder"
        raise StorageError(
            f"{folder}: a temporary file cannot be written: {error.strerror or error}",
            hint="Free some space there, or name another folder in the environment variable TMPDIR.",
        ) from None
