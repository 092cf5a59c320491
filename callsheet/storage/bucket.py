"""A store in a bucket on S3, by boto3 with the standard credential chain (`AWS_PROFILE` and so on)."""

from __future__ import annotations

import base64
import hashlib
import secrets
from pathlib import Path
from typing import Any, BinaryIO

from callsheet import s3
from callsheet.errors import ConfigError, StorageConflict, StorageError
from callsheet.files import disk_errors


class Bucket:
    """See `Store`.

    Args:
        url: `s3://bucket/prefix`.
        endpoint_url: the address of an S3 server other than Amazon's.
    """

    def __init__(self, url: str, endpoint_url: str | None) -> None:
        self._bucket, _, prefix = url.removeprefix("s3://").partition("/")
        if not self._bucket:
            raise ConfigError(f"storage: {url} has no bucket", hint="It must look like s3://bucket/prefix.")
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        with s3.errors_as(StorageError, url):
            self._client = s3.client(endpoint_url)

    def url_of(self, name: str) -> str:
        """See `Store.url_of`."""
        return f"s3://{self._bucket}/{self._prefix}{name}"

    def probe(self) -> None:
        """See `Store.probe`."""
        name = f".callsheet-probe-{secrets.token_hex(8)}"
        data = b"callsheet"
        with s3.errors_as(StorageError, self.url_of(name)):
            self._upload(name, data, hashlib.sha256(data).hexdigest(), "text/plain", IfNoneMatch="*")
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + name)

    def put(self, spooled: Path, name: str, sha256: str, mime_type: str) -> None:
        """See `Store.put`."""
        from botocore.exceptions import ClientError

        url = self.url_of(name)
        with (
            disk_errors(spooled, "report.url", "read"),
            s3.errors_as(StorageError, url),
            spooled.open("rb") as file,
        ):
            try:
                answer = self._upload(name, file, sha256, mime_type, IfNoneMatch="*")
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] != 412:
                    raise
                if not self._has(name, sha256):
                    raise StorageConflict(f"{url}: another object has this name") from None
                return
            # A server that does not answer with the checksum may not have compared it.
            if answer.get("ChecksumSHA256") != _base64(sha256) and not self._has(name, sha256):
                raise StorageError(f"{url}: the server has stored other bytes than were sent")

    def write(self, name: str, data: bytes, mime_type: str) -> None:
        """See `Store.write`."""
        with s3.errors_as(StorageError, self.url_of(name)):
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

    def _has(self, name: str, sha256: str) -> bool:
        """Whether the object has these bytes, by the server's checksum or by the metadata stored with it."""
        head = self._client.head_object(Bucket=self._bucket, Key=self._prefix + name, ChecksumMode="ENABLED")
        if "ChecksumSHA256" in head:
            return head["ChecksumSHA256"] == _base64(sha256)
        metadata = {key.lower(): value for key, value in head["Metadata"].items()}  # some change the case
        return metadata.get("sha256") == sha256


def _base64(sha256: str) -> str:
    return base64.b64encode(bytes.fromhex(sha256)).decode()
