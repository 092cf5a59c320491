"""Where input files are: a path, a glob, or the same on S3; and their bytes.

Reads only. S3 goes by boto3 with the standard credential chain, at `endpoint_url` where one is given.
Every failure is an `InputError` that names the file.
"""

from __future__ import annotations

import glob
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from callsheet import s3
from callsheet.errors import InputError
from callsheet.files import temporary_file_errors

if TYPE_CHECKING:
    from botocore.response import StreamingBody

_WILDCARD = re.compile(r"[*?\[]")


def find(path: str, endpoint_url: str | None = None) -> list[str]:
    """The files that a path, a glob or an `s3://` URL means, in the order of their names.

    Raises:
        InputError: there is none, the path is a folder, or disk or S3 cannot be asked.
    """
    found = _find_s3(path, endpoint_url) if path.startswith("s3://") else _find_local(path)
    if not found:
        what = "no file matches" if _WILDCARD.search(path) else "there is no such file"
        raise InputError(f"{path}: {what}", hint=f"Relative paths start at {Path.cwd()}.")
    return found


def _find_local(path: str) -> list[str]:
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            mode = Path(path).stat().st_mode
            if stat.S_ISDIR(mode):
                raise InputError(
                    f"{path}: is a folder", hint=f"Say which of its files: {Path(path, '*.csv')}."
                )
            return [path] if stat.S_ISREG(mode) else []
        matches = glob.glob(path, recursive=True)  # noqa: PTH207  # Path.glob takes no absolute pattern
        return sorted(each for each in matches if Path(each).is_file())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path}: is no file name: {error}") from None


def _find_s3(url: str, endpoint_url: str | None) -> list[str]:
    bucket, pattern = _bucket_and_key(url)
    wildcard = _WILDCARD.search(pattern)
    if wildcard is None:
        return [url]
    prefix = pattern[: wildcard.start()]
    with s3.errors_as(InputError, url):
        pages = (
            s3.client(endpoint_url).get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        )
        keys = [each["Key"] for page in pages for each in page.get("Contents", ())]
    # As in a local glob, a '*' stays within its folder.
    depth = pattern.count("/")
    return sorted(
        f"s3://{bucket}/{key}" for key in keys if key.count("/") == depth and fnmatchcase(key, pattern)
    )


@contextmanager
def local(name: str, endpoint_url: str | None = None) -> Iterator[Path]:
    """The file as a local path; an S3 object is copied to a temporary file for as long as the context lasts.

    Raises:
        InputError: it cannot be read.
        StorageError: there is no room for the copy.
    """
    if not name.startswith("s3://"):
        yield Path(name)
        return
    with ExitStack() as stack:
        with temporary_file_errors(), s3.errors_as(InputError, name):
            copy = stack.enter_context(NamedTemporaryFile(prefix="callsheet-"))
            shutil.copyfileobj(_open_s3(name, endpoint_url)[0], copy, 1 << 20)
            copy.flush()
        yield Path(copy.name)


def read(name: str, limit: int, endpoint_url: str | None = None) -> bytes:
    """A file's bytes.

    Raises:
        InputError: it cannot be read, or has more than `limit` bytes; the message does not repeat the name.
    """
    if name.startswith("s3://"):
        with s3.errors_as(InputError, name):
            body, size = _open_s3(name, endpoint_url)
            return body.read() if size <= limit else _too_large(size, limit)
    try:
        size = Path(name).stat().st_size
        return Path(name).read_bytes() if size <= limit else _too_large(size, limit)
    except FileNotFoundError:
        raise InputError("there is no such file", hint=f"Relative paths start at {Path.cwd()}.") from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"is no file name: {error}") from None


def _too_large(size: int, limit: int) -> bytes:
    raise InputError(f"has {size:,} bytes; at most {limit:,} are taken")


def _open_s3(url: str, endpoint_url: str | None) -> tuple[StreamingBody, int]:
    bucket, key = _bucket_and_key(url)
    answer = s3.client(endpoint_url).get_object(Bucket=bucket, Key=key)
    return answer["Body"], answer["ContentLength"]


def _bucket_and_key(url: str) -> tuple[str, str]:
    bucket, _, key = url.removeprefix("s3://").partition("/")
    if not bucket or not key:
        raise InputError(f"{url}: takes the form s3://bucket/key")
    return bucket, key
