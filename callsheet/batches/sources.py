"""Where input files are (a path, a glob, or the same on S3), and their bytes.

Reads only. S3 is read by `callsheet.s3`. Every error names the file.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from fnmatch import fnmatchcase
from io import BufferedReader
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from callsheet import s3
from callsheet.errors import InputError
from callsheet.files import open_regular, temporary_file_errors, with_home

if TYPE_CHECKING:
    from botocore.response import StreamingBody

_WILDCARD = re.compile(r"[*?\[]")


def find_files(path: str, endpoint_url: str | None = None) -> list[str]:
    """The files that `input.path` names (a path, a glob or an `s3://` URL), sorted by name.

    Raises:
        InputError: there are none, the path is a folder, or the disk or S3 cannot be read.
    """
    files = _find_on_s3(path, endpoint_url) if path.startswith("s3://") else _find_on_disk(path)
    if not files:
        scheme, slashes, _ = path.partition("://")
        if slashes and scheme != "s3":
            hint = "Name a file, a glob or s3://bucket/key."
            raise InputError(f"{path}: {scheme}:// is not supported", hint=hint)
        problem = "no file matches" if _WILDCARD.search(path) else "there is no such file"
        raise InputError(f"{path}: {problem}", hint="" if slashes else _relative_paths())
    return files


def is_glob(path: str) -> bool:
    """Whether a path or URL has wildcards, and does not name one file."""
    return bool(_WILDCARD.search(path)) and not Path(path).is_file()


def _relative_paths() -> str:
    return f"Relative paths start at {Path.cwd()}."


def _find_on_disk(path: str) -> list[str]:
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            mode = Path(path).stat().st_mode
            if stat.S_ISDIR(mode):
                raise InputError(f"{path}: is a folder", hint=f"Name its files: {Path(path, '*.csv')}.")
            if not stat.S_ISREG(mode):
                raise InputError(f"{path}: is not a regular file")
            return [path]
        matches = glob.glob(path, recursive=True)  # noqa: PTH207  # Path.glob takes no absolute pattern
        return sorted(match for match in matches if Path(match).is_file())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path}: is not a file name: {error}") from None


def _find_on_s3(url: str, endpoint_url: str | None) -> list[str]:
    bucket, pattern = _bucket_and_key(url)
    wildcard = _WILDCARD.search(pattern)
    if pattern.endswith("/"):
        raise InputError(f"{url}: is a folder", hint=f"Name its files: {url}*.csv.")
    if wildcard is None:
        return [url]
    prefix = pattern[: wildcard.start()]
    with s3.errors_as(InputError, url):
        listing = s3.client(endpoint_url).get_paginator("list_objects_v2")
        pages = listing.paginate(Bucket=bucket, Prefix=prefix)
        keys = [content["Key"] for page in pages for content in page.get("Contents", ())]
    if pattern in keys:  # as on a disk, what has this very name is meant
        return [url]
    # As in a local glob, a '*' stays within its folder.
    depth = pattern.count("/")
    return sorted(
        f"s3://{bucket}/{key}" for key in keys if key.count("/") == depth and fnmatchcase(key, pattern)
    )


@contextmanager
def local_copy(name: str, endpoint_url: str | None = None) -> Iterator[Path]:
    """A file's path on this machine; for an S3 object that of a temporary copy, which the context removes.

    Raises:
        InputError: the object cannot be read.
        StorageError: the copy cannot be written.
    """
    if not name.startswith("s3://"):
        yield Path(name)
        return
    with ExitStack() as stack:
        with temporary_file_errors(), s3.errors_as(InputError, name):
            copy = stack.enter_context(NamedTemporaryFile(prefix="callsheet-"))
            shutil.copyfileobj(_open_on_s3(name, endpoint_url)[0], copy, 1 << 20)
            copy.flush()
        yield Path(copy.name)


def read_file(name: str, limit: int, endpoint_url: str | None = None) -> bytes:
    """A file's bytes: that of a local path, where `~` is the home folder, or of an `s3://` URL.

    Raises:
        InputError: it cannot be read, or has more than `limit` bytes. For a local file the message does not
            repeat the name.
    """
    if name.startswith("s3://"):
        with s3.errors_as(InputError, name):
            body, size = _open_on_s3(name, endpoint_url)
            with closing(body):
                return _read_to_limit(body, size, limit)
    try:
        with open_regular(Path(with_home(name))) as file:
            return _read_to_limit(file, os.fstat(file.fileno()).st_size, limit)
    except FileNotFoundError:
        raise InputError("there is no such file", hint=_relative_paths()) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"is not a file name: {error}") from None


def _read_to_limit(file: BufferedReader | StreamingBody, declared: int, limit: int) -> bytes:
    """A file's bytes; InputError where there are more than the limit, whatever size was declared.

    `declared` is the size that the disk or the server gives, and 0 if it gives none.
    """
    content = file.read(limit + 1) if declared <= limit else b""
    if declared > limit or len(content) > limit:
        size = f"{declared:,}" if declared > limit else f"more than {limit:,}"
        raise InputError(f"has {size} bytes; at most {limit:,} are allowed")
    return content


def _open_on_s3(url: str, endpoint_url: str | None) -> tuple[StreamingBody, int]:
    """An object's body, and its size in bytes, 0 where the server does not declare it."""
    bucket, key = _bucket_and_key(url)
    answer = s3.client(endpoint_url).get_object(Bucket=bucket, Key=key)
    return answer["Body"], answer.get("ContentLength", 0)


def _bucket_and_key(url: str) -> tuple[str, str]:
    bucket, _, key = url.removeprefix("s3://").partition("/")
    if not bucket or not key:
        raise InputError(f"{url}: must look like s3://bucket/key")
    return bucket, key
