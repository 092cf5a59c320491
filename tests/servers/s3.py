"""A real S3 server on this machine: SeaweedFS, which checks keys, signatures, checksums and conditions."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError, ClientError

from tests.waiting import LONGEST

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

_GRPC = 10_000  # above its port is the one that each part takes for gRPC
_TRIES = 3
_READER = ["Read", "List"]
_ACCOUNTS = {
    "writer": ("writer-key", "writer-secret", ["Admin"]),
    "reader": ("reader-key", "reader-secret", _READER),
}


@dataclass(frozen=True)
class Server:
    """Its address, and its accounts."""

    endpoint_url: str
    bucket: str

    def environment(self, account: str = "writer") -> dict[str, str]:
        """Environment variables for the standard credential chain; `account` is `writer` or `reader`."""
        key, secret, _ = _ACCOUNTS[account]
        return {
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_ENDPOINT_URL": self.endpoint_url,
        }

    def sign_in(self, monkeypatch: pytest.MonkeyPatch, account: str = "writer") -> None:
        """Puts the keys of an account into the environment."""
        for name, value in self.environment(account).items():
            monkeypatch.setenv(name, value)

    def sign(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> dict[str, str]:
        """A request's headers with a new signature, as the account `writer`; see `proxies.Signer`."""
        key, secret, _ = _ACCOUNTS["writer"]
        request = AWSRequest(method, url, dict(headers), body)
        S3SigV4Auth(Credentials(key, secret), "s3", "us-east-1").add_auth(request)
        return dict(request.headers.items())

    def client(self) -> S3Client:
        """A client with all rights."""
        key, secret, _ = _ACCOUNTS["writer"]
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint_url,
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
        )


@contextmanager
def s3(folder: Path, bucket: str = "media") -> Iterator[Server]:
    """Starts the server with its data in `folder`, and one empty bucket; about 3 s.

    A port that was free may be another's when the server takes it, so it is started with others then.
    """
    identities = [
        {"name": name, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}
        for name, (key, secret, actions) in _ACCOUNTS.items()
    ]
    (folder / "s3.json").write_text(json.dumps({"identities": identities}))
    for tries_left in reversed(range(_TRIES)):
        ports = dict(zip(["s3", "master", "volume", "filer"], _free_ports(4), strict=True))
        process = _start(folder, ports)
        server = Server(f"http://127.0.0.1:{ports['s3']}", bucket)
        try:
            try:
                _wait_for_bucket(server, process, folder / "weed.log")
            except RuntimeError:
                if not tries_left:
                    raise
                continue
            yield server
            return
        finally:
            process.kill()  # a polite end takes long, and the data is not needed
            process.wait()
            for part, port in ports.items():
                Path(f"/tmp/seaweedfs-{part}-grpc-{port + _GRPC}.sock").unlink(
                    missing_ok=True
                )  # it ignores the options


def _start(folder: Path, ports: Mapping[str, int]) -> subprocess.Popen[bytes]:
    options = {
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "dir": ".",
        "filer": "true",
        "filer.localSocket": "filer.sock",
        "s3": "true",
        "s3.config": "s3.json",
        "s3.localSocket": "s3.sock",
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "master.telemetry": "false",  # otherwise it reports to its makers
        "master.volumeSizeLimitMB": 64,
        "volume.max": 50,
        **{f"{part}.port": port for part, port in ports.items()},
    }
    weed = shutil.which("weed", path=str(Path(sys.executable).parent)) or "weed"
    command = [weed, "-logdir=.", "server", *(f"-{name}={value}" for name, value in options.items())]
    with (folder / "weed.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)


def _wait_for_bucket(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    client = server.client()
    deadline = time.monotonic() + LONGEST
    while True:
        try:
            client.create_bucket(Bucket=server.bucket)
            client.put_object(Bucket=server.bucket, Key="ready", Body=b"ready")
            client.delete_object(Bucket=server.bucket, Key="ready")
        except (BotoCoreError, ClientError):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the S3 server did not start:\n{log.read_text()[-2000:]}") from None
            time.sleep(0.1)
        else:
            return


def _free_ports(count: int) -> list[int]:
    """Free ports whose neighbours 10,000 above, which SeaweedFS takes for gRPC, are free, too."""
    holders = []
    ports: list[int] = []
    while len(ports) < count:
        holder = socket.create_server(("127.0.0.1", 0))
        holders.append(holder)
        port = holder.getsockname()[1]
        with suppress(OSError, OverflowError):  # it is another's, or no port
            holders.append(socket.create_server(("127.0.0.1", port + _GRPC)))
            ports.append(port)
    for holder in holders:
        holder.close()
    return ports
