"""The inbox: batch files that wait in a folder or under an S3 prefix, and where they go when they are bought.

It lists and moves files. It does not read them, and buys nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from callsheet import s3
from callsheet.batches.formats import is_batch_file
from callsheet.errors import ConfigError, InputError, StorageError
from callsheet.files import disk_errors, with_home, wrong_place

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client
    from types_boto3_s3.type_defs import CopySourceTypeDef

DONE = "done"
SETTLED = 10.0
"""Seconds for which a local file must be unchanged: it may still be written. S3 shows only whole objects."""


@dataclass(frozen=True, slots=True)
class WaitingFile:
    """A batch file in an inbox: its path or `s3://` URL, and a version, which is another when it changes."""

    url: str
    version: str

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return self.url.rpartition("/")[2]

    @property
    def key(self) -> str:
        """Names this version of this file, so that no second run is started for it."""
        return hashlib.sha256(f"{self.url}\n{self.version}".encode()).hexdigest()


def waiting(inbox: str, endpoint_url: str | None = None) -> list[WaitingFile]:
    """The batch files directly in a folder (`~` is the home folder) or in `s3://bucket/prefix`, by name.

    Raises:
        ConfigError: it names neither a folder nor a bucket.
        InputError: there is no such folder, or it cannot be read.
    """
    inbox = _with_home(inbox)
    if problem := wrong_place(inbox):
        raise ConfigError(f"inbox: {inbox} {problem[0]}", hint=problem[1])
    files = _on_s3(inbox, endpoint_url) if inbox.startswith("s3://") else _on_disk(Path(inbox))
    return sorted(files, key=lambda file: file.url)


def waiting_file(url: str, endpoint_url: str | None = None) -> WaitingFile:
    """A file of an inbox as it is now; InputError where there is none, or it cannot be read."""
    url = _with_home(url)
    if not url.startswith("s3://"):
        try:
            return WaitingFile(url.replace(os.sep, "/"), _version(Path(url)))
        except OSError as error:
            raise InputError(f"{url}: cannot be read: {error.strerror}") from None
    bucket, key = _bucket_and_key(url)
    with s3.errors_as(InputError, url):
        return WaitingFile(url, s3.client(endpoint_url).head_object(Bucket=bucket, Key=key)["ETag"])


def batch_name(prefix: str, file: str) -> str:
    """The name of a file's own batch: `example-shots.csv` for `example` and `shots.csv`.

    Characters that no batch name may have are replaced; a part of the name's hash keeps two such files apart.
    """
    name = f"{prefix}-{file}"
    allowed = re.sub(r"[^A-Za-z0-9._-]", "-", name)[:100]
    return name if name == allowed else f"{allowed[:91]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def move_to_done(
    file: WaitingFile, endpoint_url: str | None = None, put: Mapping[Any, str] = MappingProxyType({})
) -> str | None:
    """Moves a file into `done/` of its inbox, the time before its name. `put` is `storage.put`.

    Returns:
        Where it is now; None where it was written anew meanwhile, and so stays.

    Raises:
        InputError: it is no longer there.
        StorageError: it cannot be moved.
    """
    if waiting_file(file.url, endpoint_url) != file:
        return None
    folder = file.url.removesuffix(file.name)
    to = f"{folder}{DONE}/{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}-{file.name}"
    if file.url.startswith("s3://"):
        with s3.errors_as(StorageError, file.url):
            return to if _moved(s3.client(endpoint_url), file, to, put) else None
    with disk_errors(Path(to), "inbox", "written"):
        Path(to).parent.mkdir(exist_ok=True)
        Path(file.url).rename(to)
    return to


def _moved(client: S3Client, file: WaitingFile, to: str, put: Mapping[Any, str]) -> bool:
    """Copies a version of an object, and deletes that version; False where there is another one by now.

    A version that is written between copying and deleting stays, and waits as a file of its own. Only on a
    server that does not know `If-Match` for a DELETE, what is written in that very moment is deleted.
    """
    (bucket, key), (_, new_key) = _bucket_and_key(file.url), _bucket_and_key(to)
    # Without the directive, S3 copies the tags and leaves those of `put` out.
    tagging: dict[str, Any] = {"TaggingDirective": "REPLACE"} if "Tagging" in put else {}
    source: CopySourceTypeDef = {"Bucket": bucket, "Key": key}
    try:
        client.copy_object(
            Bucket=bucket,
            Key=new_key,
            CopySource=source,
            CopySourceIfMatch=file.version,
            **tagging,
            **dict[str, Any](put),
        )
    except client.exceptions.ClientError as error:
        if s3.status_of(error) != 412:
            raise
        return False
    try:
        if client.head_object(Bucket=bucket, Key=key)["ETag"] == file.version:
            client.delete_object(Bucket=bucket, Key=key, IfMatch=file.version)
    except client.exceptions.ClientError as error:
        if s3.refuses_header(error):
            client.delete_object(Bucket=bucket, Key=key)
        elif s3.status_of(error) not in (404, 412):  # it was deleted, or written anew
            raise
    return True


def _with_home(url: str) -> str:
    try:
        return with_home(url)
    except ValueError as error:
        raise InputError(f"{url}: {error}", hint="Write the whole path.") from None


def _on_disk(inbox: Path) -> list[WaitingFile]:
    files = []
    now = datetime.now(UTC).timestamp()
    try:
        for path in inbox.iterdir():
            with suppress(FileNotFoundError):  # it has just been moved
                if _waits(path.name) and path.is_file() and _changed_at(path, now) <= now - SETTLED:
                    files.append(WaitingFile(path.as_posix(), _version(path)))
    except FileNotFoundError:
        raise InputError(f"{inbox}: there is no such folder", hint=f"mkdir -p {inbox}") from None
    except OSError as error:
        raise InputError(f"{inbox}: cannot be read: {error.strerror}") from None
    return files


def _changed_at(path: Path, now: float) -> float:
    """When a file was last written; of one that is dated later than now, when it got that date."""
    status = path.stat()
    return status.st_mtime if status.st_mtime <= now else status.st_ctime


def _on_s3(inbox: str, endpoint_url: str | None) -> list[WaitingFile]:
    bucket, key = _bucket_and_key(inbox)
    prefix = f"{key.rstrip('/')}/".lstrip("/")
    with s3.errors_as(InputError, inbox):
        listing = s3.client(endpoint_url).get_paginator("list_objects_v2")
        return [
            WaitingFile(f"s3://{bucket}/{item['Key']}", item["ETag"])
            for page in listing.paginate(Bucket=bucket, Prefix=prefix, Delimiter="/")
            for item in page.get("Contents", ())
            if _waits(item["Key"].rpartition("/")[2])
        ]


def _waits(name: str) -> bool:
    """Whether a file is for the inbox: a batch file, and no hidden one, which may be an unfinished upload."""
    return is_batch_file(name) and not name.startswith((".", "~"))


def _version(path: Path) -> str:
    status = path.stat()
    return f"{status.st_size}-{status.st_mtime_ns}"


def _bucket_and_key(url: str) -> tuple[str, str]:
    bucket, _, key = url.removeprefix("s3://").partition("/")
    return bucket, key
