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
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from callsheet import s3
from callsheet.errors import StorageConflict, StorageError
from callsheet.files import CONFLICT, disk_errors

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client
    from types_boto3_s3.type_defs import (
        CompleteMultipartUploadOutputTypeDef,
        HeadObjectOutputTypeDef,
        PutObjectOutputTypeDef,
    )

    _Stored = PutObjectOutputTypeDef | CompleteMultipartUploadOutputTypeDef

_File = io.BytesIO | io.BufferedReader

_BY_PARTS = 1 << 30  # bytes from which on a file goes in parts: one PUT takes 5 GB
_PART = 64 << 20  # bytes; at most 10,000 parts, 640 GB
_PROBE = ".callsheet-probe"
_PROBED = b"callsheet"


@dataclass(frozen=True, slots=True)
class _Server:
    """What a server does in place of obeying, in a word; empty where it obeys."""

    conditions: str  # with `If-None-Match`
    checksums: str  # with the checksum of the bytes that it gets
    md5: bool  # its ETag is the MD5 of an object's bytes

    def does_not_obey(self) -> str:
        uses = [(self.conditions, "If-None-Match"), (self.checksums, "checksums")]
        return " and ".join(f"{use} {name}" for use, name in uses if use)


class Bucket:
    """See `Store`; the URL is `s3://bucket/prefix`."""

    def __init__(self, url: str, endpoint_url: str | None, put: Mapping[Any, str]) -> None:
        self._bucket, _, prefix = url.removeprefix("s3://").partition("/")
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._endpoint_url = endpoint_url
        self._put = dict[str, Any](put)
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
        sha256, another = (hashlib.sha256(content).hexdigest() for content in (_PROBED, _PROBED + b"?"))
        checksums = "" if self._checksums else "is not sent"
        with s3.errors_as(StorageError, self.url_of(_PROBE)):
            name, first = self._upload_probe(sha256)
            names = [name]
            try:
                # Of two runs that probe at once, one may remove the object just before the other writes it.
                conditions = self._use_of(412, name, sha256, IfNoneMatch="*")
                if conditions == "ignores":
                    conditions = self._use_of(412, name, sha256, IfNoneMatch="*")
                if name != _PROBE and not conditions:  # it may say of every name that it is taken
                    names.append(f"{name}-free")
                    conditions = "" if self._use_of(412, names[1], sha256, IfNoneMatch="*") else "refuses"
                if self._checksums:
                    checksums = self._use_of(400, name, another)
                elif not checksums:
                    checksums = "refuses"
            finally:
                # Who may not delete can use the bucket all the same.
                with suppress(self._client.exceptions.ClientError):
                    for name in names:
                        self._client.delete_object(Bucket=self._bucket, Key=self._prefix + name)
        self._server = _Server(conditions, checksums, _etag(first) == _md5(io.BytesIO(_PROBED)))
        if not (fault := self._server.does_not_obey()):
            return ""
        looked_up = "looked up before it is stored, and " if conditions else ""
        return f"the server of s3://{self._bucket} {fault}: each file is {looked_up}compared afterwards"

    def _upload_probe(self, sha256: str) -> tuple[str, _Stored]:
        """Makes the probe's object, or writes over one that an earlier probe could not delete; its name."""

        def upload(name: str, **condition: str) -> tuple[str, _Stored]:
            file = io.BytesIO(_PROBED)
            return name, self._upload_somehow(name, file, sha256, "text/plain", **condition)

        errors, left = self._client.exceptions.ClientError, None
        with suppress(errors):  # who may not list is answered 403; the upload says what else is wrong
            left = self._head(_PROBE)
        try:
            return upload(_PROBE, **({"IfMatch": left["ETag"]} if left else {"IfNoneMatch": "*"}))
        except errors as error:
            is_taken = s3.status_of(error) in (404, 409, 412)  # by another run, or it has just removed it
            if not (is_taken or s3.refuses_header(error)):
                raise
        return upload(f"{_PROBE}-{secrets.token_hex(8)}" if is_taken else _PROBE)

    def _use_of(self, obeyed: int, name: str, sha256: str, **headers: Any) -> str:
        """What the server does with an upload that it should answer with `obeyed`; see `_Server`."""
        try:
            self._upload(name, _PROBED, sha256, "text/plain", **headers)
        except self._client.exceptions.ClientError as error:
            if s3.status_of(error) == obeyed:
                return ""
            if not s3.refuses_header(error):
                raise
            return "refuses"
        return "ignores"

    def put(self, content: Path | bytes, name: str, sha256: str, mime_type: str) -> None:
        """See `Store.put`."""
        url = self.url_of(name)
        with self._probing:
            if self._server is None:
                self.probe()
        server = self._server
        assert server is not None  # noqa: S101 - the probe has set it, or raised
        with (
            disk_errors(Path(name), "report.url", "read"),
            s3.errors_as(StorageError, url),
            _opened(content) as file,
        ):
            answer = None
            condition: dict[str, Any] = {} if server.conditions else {"IfNoneMatch": "*"}
            is_large = file.seek(0, io.SEEK_END) > _BY_PARTS  # and is not sent in vain
            if (condition and not is_large) or self._head(name) is None:
                try:
                    answer = self._upload(name, file, sha256, mime_type, **condition)
                except self._client.exceptions.ClientError as error:
                    if not condition or s3.status_of(error) != 412:  # the name is taken
                        raise
            if answer and not server.does_not_obey():  # it has compared the checksum
                return
            if not self._has(name, sha256, file, server):
                if answer:
                    raise StorageError(f"{url}: the server has other bytes than were sent")
                raise StorageConflict(f"{url}: another object has this name", hint=CONFLICT)

    def write(self, name: str, data: bytes | Path, mime_type: str) -> None:
        """See `Store.write`."""
        with s3.errors_as(StorageError, self.url_of(name)), _opened(data) as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            self._upload_somehow(name, file, sha256, mime_type)

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

    def listing(self) -> list[tuple[str, int]]:
        """See `Store.listing`."""
        with s3.errors_as(StorageError, self.url_of("")):
            pages = self._client.get_paginator("list_objects_v2")
            return [
                (entry["Key"].removeprefix(self._prefix), entry["Size"])
                for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix)
                for entry in page.get("Contents", ())
            ]

    def remove(self, name: str) -> None:
        """See `Store.remove`."""
        with s3.errors_as(StorageError, self.url_of(name)):
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + name)

    def _upload_somehow(self, name: str, file: _File, sha256: str, mime_type: str, **headers: Any) -> _Stored:
        """Uploads with a checksum, and from now on without where the server refuses it."""
        sends = self._checksums
        try:
            file.seek(0)
            return self._upload(name, file, sha256, mime_type, **headers)
        except self._client.exceptions.ClientError as error:
            if not (sends and s3.refuses_header(error)):
                raise
        file.seek(0)
        plain = s3.client(self._endpoint_url, checksums=False)
        answer = self._upload(name, file, sha256, mime_type, plain=plain, **headers)
        self._client, self._checksums = plain, False  # so it was for the checksum
        return answer

    def _upload(
        self,
        name: str,
        body: bytes | _File,
        sha256: str,
        mime_type: str,
        *,
        plain: S3Client | None = None,
        **headers: Any,
    ) -> _Stored:
        if not isinstance(body, bytes) and body.seek(0, io.SEEK_END) > _BY_PARTS:
            return self._upload_parts(plain or self._client, name, body, sha256, mime_type, **headers)
        if not isinstance(body, bytes):
            body.seek(0)
        if self._checksums and not plain:
            headers["ChecksumSHA256"] = _base64(sha256)
        return (plain or self._client).put_object(
            Bucket=self._bucket,
            Key=self._prefix + name,
            Body=body,
            ContentType=mime_type,
            Metadata={"sha256": sha256},
            **self._put,
            **headers,
        )

    def _upload_parts(
        self,
        client: S3Client,
        name: str,
        file: _File,
        sha256: str,
        mime_type: str,
        **condition: Any,
    ) -> CompleteMultipartUploadOutputTypeDef:
        """As `_upload`. The whole is compared here, and each part by a server that takes checksums."""
        file.seek(0)
        if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
            raise StorageError(f"{self.url_of(name)}: the file has changed since it was downloaded")
        upload: dict[str, Any] = {"Bucket": self._bucket, "Key": self._prefix + name}
        checksums = self._checksums and client is self._client
        algorithm: dict[str, Any] = {"ChecksumAlgorithm": "SHA256"} if checksums else {}
        begun = client.create_multipart_upload(
            **upload, ContentType=mime_type, Metadata={"sha256": sha256}, **self._put, **algorithm
        )
        upload["UploadId"] = begun["UploadId"]
        if owner := self._put.get("ExpectedBucketOwner"):
            upload["ExpectedBucketOwner"] = owner
        parts: list[Any] = []
        try:
            file.seek(0)
            while content := file.read(_PART):
                part: dict[str, Any] = {"PartNumber": len(parts) + 1}
                if checksums:
                    part["ChecksumSHA256"] = _base64(hashlib.sha256(content).hexdigest())
                answer = client.upload_part(**upload, **part, Body=content)
                parts.append(part | {"ETag": answer["ETag"]})
            return client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts}, **condition)
        except BaseException:
            with suppress(client.exceptions.ClientError):  # what is left of it would be paid for
                client.abort_multipart_upload(**upload)
            raise

    def _head(self, name: str) -> HeadObjectOutputTypeDef | None:
        """What the server knows about an object; None where there is no such object."""
        try:
            mode: dict[str, Any] = {"ChecksumMode": "ENABLED"} if self._checksums else {}
            return self._client.head_object(Bucket=self._bucket, Key=self._prefix + name, **mode)
        except self._client.exceptions.ClientError as error:
            if s3.status_of(error) != 404:
                raise
            return None

    def _has(self, name: str, sha256: str, file: _File, server: _Server) -> bool:
        """Whether the object has the bytes of a file.

        By the server's checksum, or by the metadata stored with it; where the server compares no checksums,
        by the length too, and by the ETag if that is known to be the MD5.
        """
        head = self._head(name)
        if head is None:
            return False
        if server.checksums:
            length = file.seek(0, io.SEEK_END)
            has_md5 = server.md5 and "-" not in _etag(head)  # what was stored by parts has none
            if head["ContentLength"] != length or (has_md5 and _etag(head) != _md5(file)):
                return False
        if "ChecksumSHA256" in head and "-" not in head["ChecksumSHA256"]:
            return head["ChecksumSHA256"] == _base64(sha256)
        metadata = {key.lower(): value for key, value in head["Metadata"].items()}  # some change the case
        return metadata.get("sha256") == sha256


def _opened(content: bytes | Path) -> _File:
    return io.BytesIO(content) if isinstance(content, bytes) else content.open("rb")


def _etag(answer: _Stored | HeadObjectOutputTypeDef) -> str:
    return answer.get("ETag", "").strip('"').lower()


def _md5(file: _File) -> str:
    file.seek(0)
    return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _base64(sha256: str) -> str:
    return base64.b64encode(bytes.fromhex(sha256)).decode()
