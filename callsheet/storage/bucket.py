"""A store in a bucket on S3, by boto3 with the standard credential chain (`AWS_PROFILE` and so on).

S3 itself refuses to overwrite an object when a PUT has the header `If-None-Match: *`, and refuses bytes that
do not have the checksum that the PUT names. Some other servers ignore one or both, and some refuse the whole
PUT. The store finds that out before its first PUT. On such a server it looks, before each PUT, whether the
name is free, and after it, whether the object has the bytes that were sent; only a program that writes the
same name in the same moment can then be overwritten.
"""

from __future__ import annotations

import base64
import hashlib
import io
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO

from callsheet import s3
from callsheet.errors import StorageConflict, StorageError
from callsheet.files import CONFLICT, disk_errors

if TYPE_CHECKING:
    from types_boto3_s3.type_defs import HeadObjectOutputTypeDef, PutObjectOutputTypeDef

_LARGEST_PUT = 1 << 30  # bytes that are sent in one request; S3 takes at most 5 GB


class _Use(StrEnum):
    """What a server does with a header that is sent to it, or that is not."""

    OBEYS = "obeys"
    IGNORES = "ignores"
    REFUSES = "refuses"
    IS_NOT_SENT = "is not sent"


@dataclass(frozen=True, slots=True)
class _Server:
    """What a server does.

    Attributes:
        conditions: with `If-None-Match`.
        checksums: with the checksum of the bytes that it gets.
        md5: its ETag is the MD5 of an object's bytes.
    """

    conditions: _Use
    checksums: _Use
    md5: bool

    def does_not_obey(self) -> str:
        """What it does not obey, in words."""
        uses = [(self.conditions, "If-None-Match"), (self.checksums, "checksums")]
        return " and ".join(f"{use} {name}" for use, name in uses if use is not _Use.OBEYS)


class Bucket:
    """See `Store`.

    Args:
        url: `s3://bucket/prefix`.
        endpoint_url: the address of an S3 server other than Amazon's.
    """

    together = 1

    def __init__(self, url: str, endpoint_url: str | None) -> None:
        self._bucket, _, prefix = url.removeprefix("s3://").partition("/")
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._endpoint_url = endpoint_url
        with s3.errors_as(StorageError, url):
            self._client = s3.client(endpoint_url)
        self._checksums = s3.sends_checksums(self._client)
        self._server: _Server | None = None  # None until the probe
        self._probing = Lock()

    def url_of(self, name: str) -> str:
        """See `Store.url_of`."""
        return f"s3://{self._bucket}/{self._prefix}{name}"

    def probe(self) -> str:
        """See `Store.probe`. Also finds out what the server ignores or refuses."""
        name = f".callsheet-probe-{secrets.token_hex(8)}"
        data = b"callsheet"
        with s3.errors_as(StorageError, self.url_of(name)):
            first, checksums = self._try_checksums(name, data)
            conditions = self._try_conditions(name, data)
            if checksums is _Use.OBEYS and self._takes_damaged(name, data):
                checksums = _Use.IGNORES
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + name)
        self._server = _Server(conditions, checksums, _etag(first) == _md5(io.BytesIO(data)))
        wrong = self._server.does_not_obey()
        looked_up = "" if conditions is _Use.OBEYS else "looked up before it is stored, and "
        return (
            wrong
            and f"the server of s3://{self._bucket} {wrong}: each file is {looked_up}compared afterwards"
        )

    def _try_checksums(self, name: str, data: bytes) -> tuple[PutObjectOutputTypeDef, _Use]:
        """Uploads with a checksum, and from now on without where the server refuses it."""
        from botocore.exceptions import ClientError

        sha256 = hashlib.sha256(data).hexdigest()
        sends = self._checksums
        try:
            return self._upload(name, data, sha256, "text/plain"), _Use.OBEYS if sends else _Use.IS_NOT_SENT
        except ClientError as error:
            if not (sends and s3.refuses_header(error)):
                raise
        before = self._client
        self._client, self._checksums = s3.client(self._endpoint_url, checksums=False), False
        try:
            return self._upload(name, data, sha256, "text/plain"), _Use.REFUSES
        except ClientError:  # it was not for the checksum
            self._client, self._checksums = before, True
            raise

    def _try_conditions(self, name: str, data: bytes) -> _Use:
        """What the server does with `If-None-Match` for a name that is taken."""
        from botocore.exceptions import ClientError

        sha256 = hashlib.sha256(data).hexdigest()
        try:
            taken = self._upload_to_free_name(name, data, sha256, "text/plain") is None
        except ClientError as error:
            if not s3.refuses_header(error):
                raise
            return _Use.REFUSES
        return _Use.OBEYS if taken else _Use.IGNORES

    def _takes_damaged(self, name: str, data: bytes) -> bool:
        """Whether the server takes bytes that do not have the checksum they come with."""
        from botocore.exceptions import ClientError

        try:
            self._upload(name, data, hashlib.sha256(data + b"?").hexdigest(), "text/plain")
        except ClientError as error:
            if s3.status_of(error) != 400:
                raise
            return False
        return True

    def _probed(self) -> _Server:
        with self._probing:
            if self._server is None:
                self.probe()
        assert self._server is not None  # noqa: S101 - the probe has set it, or raised
        return self._server

    def put(self, content: Path | bytes, name: str, sha256: str, mime_type: str) -> None:
        """See `Store.put`."""
        url = self.url_of(name)
        server = self._probed()
        with (
            disk_errors(Path(url) if isinstance(content, bytes) else content, "report.url", "read"),
            s3.errors_as(StorageError, url),
            io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as file,
        ):
            answer = None
            if server.conditions is _Use.OBEYS:
                answer = self._upload_to_free_name(name, file, sha256, mime_type)
            elif self._head(name) is None:
                answer = self._upload(name, file, sha256, mime_type)
            # A server that does not answer with the checksum may not have compared it.
            if answer and not server.does_not_obey() and answer.get("ChecksumSHA256") == _base64(sha256):
                return
            if not self._has(name, sha256, file, server):
                if answer:
                    raise StorageError(f"{url}: the server has other bytes than were sent")
                raise StorageConflict(f"{url}: another object has this name", hint=CONFLICT)

    def sync(self, names: Iterable[str]) -> None:
        """See `Place.sync`. An object that S3 has taken is durable."""

    def write(self, name: str, data: bytes | Path, mime_type: str) -> None:
        """See `Store.write`."""
        from botocore.exceptions import ClientError

        with s3.errors_as(StorageError, self.url_of(name)):
            try:
                self._write(name, data, mime_type)
            except ClientError as error:
                if not (self._checksums and s3.refuses_header(error)):
                    raise
                if self._probed().checksums is not _Use.REFUSES:
                    raise
                self._write(name, data, mime_type)

    def _write(self, name: str, data: bytes | Path, mime_type: str) -> None:
        if isinstance(data, bytes):
            self._upload(name, data, hashlib.sha256(data).hexdigest(), mime_type)
            return
        with data.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            if data.stat().st_size <= _LARGEST_PUT:
                self._upload(name, file, sha256, mime_type)
            else:
                self._upload_in_parts(name, file, sha256, mime_type)

    def read(self, name: str) -> bytes | None:
        """See `Store.read`."""
        with s3.errors_as(StorageError, self.url_of(name)):
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=self._prefix + name)
            except self._client.exceptions.NoSuchKey:
                return None
            return answer["Body"].read()

    def exists(self, name: str) -> bool:
        """See `Store.exists`."""
        with s3.errors_as(StorageError, self.url_of(name)):
            return self._head(name) is not None

    def listing(self) -> Iterator[list[tuple[str, int]]]:
        """See `Store.listing`."""
        with s3.errors_as(StorageError, self.url_of("")):
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix):
                if objects := page.get("Contents"):
                    yield [(found["Key"].removeprefix(self._prefix), found["Size"]) for found in objects]

    def remove(self, name: str) -> None:
        """See `Store.remove`."""
        with s3.errors_as(StorageError, self.url_of(name)):
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + name)

    def _upload_to_free_name(
        self, name: str, body: bytes | BinaryIO, sha256: str, mime_type: str
    ) -> PutObjectOutputTypeDef | None:
        """Uploads with `If-None-Match`; None where the server refuses because the name is taken."""
        from botocore.exceptions import ClientError

        try:
            return self._upload(name, body, sha256, mime_type, IfNoneMatch="*")
        except ClientError as error:
            if s3.status_of(error) != 412:
                raise
            return None

    def _upload(
        self, name: str, body: bytes | BinaryIO, sha256: str, mime_type: str, **conditions: Any
    ) -> PutObjectOutputTypeDef:
        if self._checksums:
            conditions["ChecksumSHA256"] = _base64(sha256)
        return self._client.put_object(
            Bucket=self._bucket,
            Key=self._prefix + name,
            Body=body,
            ContentType=mime_type,
            Metadata={"sha256": sha256},
            **conditions,
        )

    def _upload_in_parts(self, name: str, file: BinaryIO, sha256: str, mime_type: str) -> None:
        """Uploads a file of any size; S3 checks each part, and shows the object when it has them all."""
        extra: dict[str, Any] = {"ContentType": mime_type, "Metadata": {"sha256": sha256}}
        if self._checksums:
            extra["ChecksumAlgorithm"] = "SHA256"
        self._client.upload_fileobj(file, self._bucket, self._prefix + name, ExtraArgs=extra)

    def _head(self, name: str) -> HeadObjectOutputTypeDef | None:
        """What the server knows about an object; None where there is no such object."""
        from botocore.exceptions import ClientError

        try:
            mode: dict[str, Any] = {"ChecksumMode": "ENABLED"} if self._checksums else {}
            return self._client.head_object(Bucket=self._bucket, Key=self._prefix + name, **mode)
        except ClientError as error:
            if s3.status_of(error) != 404:
                raise
            return None

    def _has(self, name: str, sha256: str, file: BinaryIO, server: _Server) -> bool:
        """Whether the object has the bytes of a file.

        By the server's checksum, or by the metadata stored with it; where the server compares no checksums,
        by the length too, and by the ETag if that is known to be the MD5.
        """
        head = self._head(name)
        if head is None:
            return False
        if server.checksums is not _Use.OBEYS:
            length = file.seek(0, io.SEEK_END)
            if head["ContentLength"] != length or (server.md5 and _etag(head) != _md5(file)):
                return False
        if "ChecksumSHA256" in head:
            return head["ChecksumSHA256"] == _base64(sha256)
        metadata = {key.lower(): value for key, value in head["Metadata"].items()}  # some change the case
        return metadata.get("sha256") == sha256


def _etag(answer: PutObjectOutputTypeDef | HeadObjectOutputTypeDef) -> str:
    return answer.get("ETag", "").strip('"').lower()


def _md5(file: BinaryIO) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    file.seek(0)
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def _base64(sha256: str) -> str:
    return base64.b64encode(bytes.fromhex(sha256)).decode()
