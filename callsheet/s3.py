"""S3: a client by the standard credential chain, and errors in words.

Does not know what the objects are.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from callsheet.errors import InputError, StorageError

if TYPE_CHECKING:
    from botocore.exceptions import ClientError
    from types_boto3_s3 import S3Client

THREADS = 16
"""As many threads may use a client at once without waiting for a connection."""

_CREDENTIALS = (
    "Check the AWS credentials (profile, environment) and their rights to read and write. "
    "What a bucket demands of each PUT, such as an encryption or an ACL, is set in storage.put."
)
_HINTS = {
    "NoSuchBucket": "Create the bucket, or correct the URL or storage.endpoint_url.",
    "AccessDenied": _CREDENTIALS,
    "403": _CREDENTIALS,
    "InvalidAccessKeyId": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "ExpiredToken": "Renew the AWS credentials; then run the same command again.",
    "SlowDown": "The server is too busy: run the same command again later.",
    "NotImplemented": "This server cannot do what S3 does here: use another.",
}
_OTHER_KEYS = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"}  # a person puts others there
_NOT_FOUND = {"NoSuchKey": "object", "404": "object", "NoSuchBucket": "bucket"}

_making = threading.Lock()
"""Threads may share a client, but not make two of one session at once."""


def client(endpoint_url: str | None, *, checksums: bool = True, region: str | None = None) -> S3Client:
    """A client that threads may share. Call it inside `errors_as`.

    Making one takes 0.1 s, so there is one for as long as the AWS variables of the environment stay the same,
    and its credentials are good.

    Args:
        endpoint_url: the address of an S3 server other than Amazon's.
        checksums: whether it may send checksums that nobody asked for; False for a server that refuses them.
        region: where the bucket is, in place of what the AWS settings say.
    """
    with _making:
        return _client(endpoint_url, checksums, region, _variables())


def _variables() -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in os.environ.items() if name.startswith("AWS_"))


@functools.lru_cache(maxsize=8)
def _client(endpoint_url: str | None, checksums: bool, region: str | None, _variables: object) -> S3Client:
    import boto3  # 0.3 s that a run without S3 need not spend
    from botocore.config import Config

    config = Config(
        retries={"mode": "standard", "total_max_attempts": 5},
        connect_timeout=10,
        max_pool_connections=THREADS,
        signature_version="s3v4",  # of links too: buckets with keys of their own take no older one
        s3={"addressing_style": "path"} if endpoint_url else None,  # its buckets seldom have host names
        request_checksum_calculation=None if checksums else "when_required",  # None: as the settings say
    )
    return boto3.session.Session().client("s3", region, endpoint_url=endpoint_url, config=config)


def sends_checksums(client: S3Client) -> bool:
    """Whether checksums are to be sent: not where AWS_REQUEST_CHECKSUM_CALCULATION is `when_required`."""
    calculation: str = client.meta.config.request_checksum_calculation  # type: ignore[attr-defined]  # it is there
    return calculation != "when_required"


def status_of(error: ClientError) -> int:
    """The HTTP status of a server's answer."""
    return error.response["ResponseMetadata"]["HTTPStatusCode"]


def refuses_header(error: ClientError) -> bool:
    """Whether a server may have refused a request for a header that it does not know (400, 501)."""
    return status_of(error) in (400, 501)


def signed(url: str, endpoint_url: str | None, seconds: float) -> str:
    """An address at which anybody can read an object for some seconds, at most a week.

    The answer is not to be kept by browsers, so that a file that is written anew is also read anew. Call it
    inside `errors_as`.
    """
    bucket, _, key = url.removeprefix("s3://").partition("/")
    region = _region_of(bucket, endpoint_url, _variables())
    return client(endpoint_url, region=region).generate_presigned_url(
        "get_object",
        Params={"Bucket": bucket, "Key": key, "ResponseCacheControl": "no-cache"},
        ExpiresIn=int(seconds),
    )


@functools.lru_cache(maxsize=64)
def _region_of(bucket: str, endpoint_url: str | None, _variables: object) -> str | None:
    """Where a bucket is; None where the server does not say. A link signed for elsewhere does not work.

    Other requests go to the right place by themselves.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        answer: Any = client(endpoint_url).head_bucket(Bucket=bucket)
    except ClientError as error:  # who may not look at the bucket is told where it is all the same
        answer = error.response
    except BotoCoreError:  # signing says what is wrong
        return None
    region: str | None = answer["ResponseMetadata"]["HTTPHeaders"].get("x-amz-bucket-region")
    return region


@dataclass(frozen=True, slots=True)
class ObjectState:
    """What tells an object from another one of its name, and for how many seconds it has been there, by the
    server's clock; 0 where that is not known.
    """

    etag: str
    age: float


def state_of(url: str, endpoint_url: str | None) -> ObjectState:
    """The state of an object, which is not read. Call it inside `errors_as`."""
    bucket, _, key = url.removeprefix("s3://").partition("/")
    answer = client(endpoint_url).head_object(Bucket=bucket, Key=key)
    now = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    age = parsedate_to_datetime(now) - answer["LastModified"] if now else timedelta()
    return ObjectState(answer["ETag"], age.total_seconds())


def by_temporary_credentials(address: str) -> bool:
    """Whether a signed address has a session's token in it: when the session ends, it works no more."""
    return "&X-Amz-Security-Token=" in address


@contextmanager
def errors_as(error_type: type[InputError | StorageError], url: str) -> Iterator[None]:
    """Turns the errors of boto3 about a URL into one of ours, with a hint."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, ProfileNotFound

    try:
        yield
    except ClientError as error:
        code = error.response["Error"].get("Code", "")
        message = error.response["Error"].get("Message", "")
        hint = _HINTS.get(code, "Check the URL and storage.endpoint_url.")
        if code in _OTHER_KEYS:
            _client.cache_clear()
        if code in _NOT_FOUND:
            raise error_type(f"{url}: there is no such {_NOT_FOUND[code]} ({code})", hint=hint) from error
        raise error_type(f"{url}: S3 refused the request: {code}: {message}", hint=hint) from error
    except (NoCredentialsError, ProfileNotFound) as error:
        _client.cache_clear()
        raise error_type(f"{url}: S3 cannot be used: {error}", hint=_CREDENTIALS) from error
    except (BotoCoreError, Boto3Error, ValueError) as error:
        hint = "Check the URL, storage.endpoint_url and the network."
        raise error_type(f"{url}: S3 cannot be used: {error}", hint=hint) from error
