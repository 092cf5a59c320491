"""Where files go: a folder, or a bucket on S3. Whole or not at all, and never over another file.

The URL chooses: a path or `file://` is a folder, `s3://bucket/prefix` a bucket (boto3 with the standard
credential chain, `AWS_PROFILE` and all). Everything runs in threads of its own, so that a slow bucket holds
up nothing else. That no two files want one name is the ledger's work; here a taken name is only noticed.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import functools
import hashlib
import io
import os
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ParamSpec, Protocol, TypeVar
from urllib.parse import quote, unquote, urlsplit

from callsheet.errors import ConfigError, StorageConflict, StorageError
from callsheet.folders import make_folder, sync_folder

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

P = ParamSpec("P")
T = TypeVar("T")

_THREADS = 16  # as many as the steps put side by side


class Store:
    """A folder or a bucket.

    Args:
        url: `out/media`, `/abs`, `file:///abs` or `s3://bucket/prefix`.
        endpoint_url: the address of an S3 server other than Amazon's.

    Raises:
        ConfigError: the URL is of another kind.
        StorageError: the AWS settings of this machine cannot be used.
    """

    def __init__(self, url: str, *, endpoint_url: str | None = None) -> None:
        self._place: _Place
        if url.startswith("s3://"):
            self._place = _Bucket(url, endpoint_url)
        else:
            self._place = _Folder(url)
        self._threads = ThreadPoolExecutor(_THREADS, "storage")

    def url_of(self, name: str) -> str:
        """The final URL of a name; in a folder, the path as the store's URL begins it."""
        return self._place.url_of(name)

    async def probe(self) -> None:
        """Writes a small file, and removes it.

        Raises:
            StorageError: the store does not take it; says what to do.
        """
        await self._in_thread(self._place.probe)

    async def put(self, spooled: Path, name: str, *, sha256: str, mime_type: str) -> str:
        """Stores a verified file under a name that must be free, or hold the same bytes.

        Returns:
            The final URL. When this returns, the file is there after a power cut too.

        Raises:
            StorageConflict: the name is taken by other bytes.
            StorageError: the store refused it; `spooled` is untouched.
        """
        await self._in_thread(self._place.put, spooled, name, sha256, mime_type)
        return self.url_of(name)

    async def write(self, name: str, data: bytes | Path, mime_type: str) -> str:
        """Writes a report file, in place of an older one at once or not at all.

        Returns:
            The final URL.

        Raises:
            StorageError: the store refused it.
        """
        content = data if isinstance(data, bytes) else await self._in_thread(data.read_bytes)
        await self._in_thread(self._place.write, name, content, mime_type)
        return self.url_of(name)

    async def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        call = functools.partial(work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


class _Place(Protocol):
    """What a folder and a bucket have in common; `Store` documents it."""

    def url_of(self, name: str) -> str: ...
    def probe(self) -> None: ...
    def put(self, spooled: Path, name: str, sha256: str, mime_type: str) -> None: ...
    def write(self, name: str, data: bytes, mime_type: str) -> None: ...


# ---- a folder


class _Folder:
    def __init__(self, url: str) -> None:
        scheme, _, rest = url.partition("://")
        if rest and scheme != "file":
            raise ConfigError(
                f"storage: {scheme}:// is not supported", hint="Use a folder, or s3://bucket/prefix."
            )
        self._is_url = bool(rest)
        if self._is_url and urlsplit(url).netloc not in ("", "localhost"):
            raise ConfigError(
                f"storage: {url} names the host {urlsplit(url).netloc}, not a folder of this machine",
                hint="Write file:/// and the whole path, or a relative folder without file://.",
            )
        self._url = url.rstrip("/") or "/"
        self._root = Path(unquote(urlsplit(url).path) if self._is_url else url)

    def url_of(self, name: str) -> str:
        return f"{self._url.removesuffix('/')}/{quote(name) if self._is_url else name}"

    def probe(self) -> None:
        with _disk(self._root):
            make_folder(self._root)
            path = self._root / ".callsheet-probe"  # always the same: what a killed run left is cleared away
            try:
                path.write_bytes(b"callsheet")
            finally:
                path.unlink(missing_ok=True)

    def put(self, spooled: Path, name: str, sha256: str, mime_type: str) -> None:
        final = self._root / name
        with _disk(final), spooled.open("rb") as file, _partial(final) as partial:
            if _copy(file, partial) != sha256:
                raise StorageError(f"{spooled}: is not what was downloaded any more")
            try:
                _rename_to_free(partial, final)
            except FileExistsError:
                if _sha256(final) != sha256:
                    raise StorageConflict(f"{final}: is taken by another file") from None

    def write(self, name: str, data: bytes, mime_type: str) -> None:
        final = self._root / name
        with _disk(final), _partial(final, secrets.token_hex(4)) as partial:  # two runs may report at once
            _copy(io.BytesIO(data), partial)
            partial.replace(final)


@contextmanager
def _partial(final: Path, mark: str = "") -> Iterator[Path]:
    """A name beside `final` to write to; at the end it is gone, and what became of it is durable.

    Without a `mark` the name is the same each time, so that what a killed run left is cleared away by the
    next: for files that one run alone may write.
    """
    make_folder(final.parent)
    partial = final.with_name(f".{final.name}.{mark}part")
    partial.unlink(missing_ok=True)
    try:
        yield partial
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(final.parent)


def _rename_to_free(partial: Path, final: Path) -> None:
    """Renames without overwriting.

    Raises:
        FileExistsError: `final` exists.
    """
    try:
        os.link(partial, final)
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP}:
            raise
        # A file system without hard links: take the name first, then put the file in its place.
        final.touch(exist_ok=False)
        partial.replace(final)


def _copy(source: BinaryIO, target: Path) -> str:
    """Copies to the disk itself, and returns the sha256 of what was copied, in hex."""
    digest = hashlib.sha256()
    with target.open("xb") as file:
        while block := source.read(1 << 20):
            digest.update(block)
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_DISK_HINTS = {
    errno.ENOSPC: "Free some space on that disk; then run the same command again.",
    errno.EDQUOT: "Free some space in your quota; then run the same command again.",
    errno.EACCES: "Give this user the right to write there, or choose another storage.url.",
    errno.EPERM: "Give this user the right to write there, or choose another storage.url.",
    errno.EROFS: "That file system is read-only: choose another storage.url.",
}


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{error.filename or path}: cannot be written: {error.strerror}",
            hint=_DISK_HINTS.get(error.errno or 0, "Check storage.url and report.url."),
        ) from error


# ---- a bucket


class _Bucket:
    def __init__(self, url: str, endpoint_url: str | None) -> None:
        self._bucket, _, prefix = url.removeprefix("s3://").partition("/")
        if not self._bucket:
            raise ConfigError(f"storage: {url} names no bucket", hint="It takes the form s3://bucket/prefix.")
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._client = _s3_client(url, endpoint_url)

    def url_of(self, name: str) -> str:
        return f"s3://{self._bucket}/{self._prefix}{name}"

    def probe(self) -> None:
        name = f".callsheet-probe-{secrets.token_hex(8)}"
        data = b"callsheet"
        with _s3(self.url_of(name)):
            self._upload(name, data, hashlib.sha256(data).hexdigest(), "text/plain", IfNoneMatch="*")
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + name)

    def put(self, spooled: Path, name: str, sha256: str, mime_type: str) -> None:
        from botocore.exceptions import ClientError

        with _disk(spooled), _s3(self.url_of(name)), spooled.open("rb") as file:
            try:
                answer = self._upload(name, file, sha256, mime_type, IfNoneMatch="*")
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] != 412:
                    raise
                if not self._holds(name, sha256):
                    raise StorageConflict(f"{self.url_of(name)}: is taken by another object") from None
                return
            # A server that does not say so may not have looked at the checksum.
            if answer.get("ChecksumSHA256") != _base64(sha256) and not self._holds(name, sha256):
                raise StorageError(f"{self.url_of(name)}: the server has kept other bytes than were sent")

    def write(self, name: str, data: bytes, mime_type: str) -> None:
        with _s3(self.url_of(name)):
            self._upload(name, data, hashlib.sha256(data).hexdigest(), mime_type)

    def _upload(
        self, name: str, body: bytes | BinaryIO, sha256: str, mime_type: str, **conditions: Any
    ) -> dict[str, Any]:
        return self._client.put_object(  # type: ignore[return-value]
            Bucket=self._bucket,
            Key=self._prefix + name,
            Body=body,
            ChecksumSHA256=_base64(sha256),
            ContentType=mime_type,
            Metadata={"sha256": sha256},
            **conditions,
        )

    def _holds(self, name: str, sha256: str) -> bool:
        """Whether the object has these bytes, by the server's own checksum or by what was noted with it."""
        head = self._client.head_object(Bucket=self._bucket, Key=self._prefix + name, ChecksumMode="ENABLED")
        if "ChecksumSHA256" in head:
            return head["ChecksumSHA256"] == _base64(sha256)
        noted = {
            key.lower(): value for key, value in head["Metadata"].items()
        }  # some servers change the case
        return noted.get("sha256") == sha256


def _base64(sha256: str) -> str:
    return base64.b64encode(bytes.fromhex(sha256)).decode()


def _s3_client(url: str, endpoint_url: str | None) -> S3Client:
    import boto3  # 0.3 s that a local store need not spend
    from botocore.config import Config

    config = Config(
        retries={"mode": "standard", "total_max_attempts": 5},
        connect_timeout=10,
        max_pool_connections=_THREADS,
        s3={"addressing_style": "path"} if endpoint_url else None,  # its buckets seldom have host names
    )
    with _s3(url):
        return boto3.session.Session().client("s3", endpoint_url=endpoint_url, config=config)


_RIGHTS = "Check the AWS credentials (profile, environment) and the rights to read, write and delete there."
_S3_HINTS = {
    "NoSuchBucket": "Create the bucket, or correct storage.url or storage.endpoint_url.",
    "AccessDenied": _RIGHTS,
    "403": _RIGHTS,
    "InvalidAccessKeyId": _RIGHTS,
    "SignatureDoesNotMatch": _RIGHTS,
    "ExpiredToken": "Renew the AWS credentials; then run the same command again.",
    "SlowDown": "The server is too busy: run the same command again later.",
    "NotImplemented": "This server cannot write only where nothing is yet (If-None-Match): use another.",
}


@contextmanager
def _s3(url: str) -> Iterator[None]:
    """Turns boto3's errors into ours."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, ProfileNotFound

    try:
        yield
    except ClientError as error:
        code = error.response["Error"].get("Code", "")
        message = error.response["Error"].get("Message", "")
        hint = _S3_HINTS.get(code, "Check storage.url and storage.endpoint_url.")
        raise StorageError(f"{url}: S3 refuses it: {code}: {message}", hint=hint) from error
    except BotoCoreError as error:
        known = isinstance(error, NoCredentialsError | ProfileNotFound)
        hint = _RIGHTS if known else "Check storage.url, storage.endpoint_url and the network."
        raise StorageError(f"{url}: S3 cannot be used: {error}", hint=hint) from error


# ---- names


_FIELD, _SEGMENT = (
    100,
    200,
)  # characters; file systems take 255 bytes in a name, and a partial's has a few more


def safe_name(row_id: str) -> str:
    """A row's id as a part of a file name; no two ids have the same.

    ASCII letters, digits, `-`, `_` and `.` stay; all else, and a leading dot, is percent-encoded. What is
    longer than 100 characters ends in `~` and a hash.
    """
    name = quote(row_id, safe="").replace("~", "%7E")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    return _bounded(name, _FIELD)


def name(template: str, **fields: object) -> str:
    """A file's name inside the store, by `storage.key`.

    Every field is made safe, so the only `/` are the template's; a segment that is empty or only dots cannot
    come of it, and none is longer than 200 characters. Never raises for a template that the settings took.

    Args:
        template: `{batch}/{row_id}-{sample}-{index}.{ext}`.
        fields: what its braces stand for.
    """
    filled = template.format(**{key: safe_name(str(value)) for key, value in fields.items()})
    return "/".join(_segment(part) for part in filled.split("/") if part) or "%"


def _segment(part: str) -> str:
    if not part.strip("."):
        return part.replace(".", "%2E")
    stem, dot, ending = part.rpartition(".")
    if not stem or len(ending) > 10:
        return _bounded(part, _SEGMENT)
    return _bounded(stem, _SEGMENT - 1 - len(ending)) + dot + ending


def _bounded(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[: limit - 33]}~{hashlib.sha256(text.encode()).hexdigest()[:32]}"
