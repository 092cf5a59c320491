"""A store in a bucket of a real S3 server, and what a person reads when it cannot be used."""

from __future__ import annotations

import asyncio
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from callsheet.errors import StorageConflict, StorageError
from callsheet.s3 import by_temporary_credentials, signed
from callsheet.storage import bucket
from callsheet.storage.store import Store
from tests.servers import s3 as servers
from tests.servers.proxies import ANY_CHECKSUM, S3Proxy
from tests.servers.sockets import reply, serve, unused_port
from tests.storage.conftest import put, spooled


@pytest.fixture(autouse=True)
def no_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in [variable for variable in os.environ if variable.startswith("AWS_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))


@pytest.fixture
def signed_in(s3: servers.Server, monkeypatch: pytest.MonkeyPatch) -> servers.Server:
    """The server, for which the environment has keys."""
    s3.sign_in(monkeypatch)
    return s3


def objects(s3: servers.Server, folder: str) -> dict[str, bytes]:
    """The objects of a folder, by their names in it."""
    client = s3.client()
    found = client.list_objects_v2(Bucket=s3.bucket, Prefix=f"{folder}/").get("Contents", ())
    bodies = {each["Key"]: client.get_object(Bucket=s3.bucket, Key=each["Key"])["Body"] for each in found}
    return {key.removeprefix(f"{folder}/"): body.read() for key, body in bodies.items()}


def test_an_object_is_stored_once_with_its_sha256_and_type(signed_in: servers.Server, tmp_path: Path) -> None:
    store = Store(f"s3://{signed_in.bucket}/some/prefix/")
    assert asyncio.run(store.probe()) == "", "a server that ignores nothing needs no words"
    path, sha256 = spooled(tmp_path)
    url = put(store, path, sha256, "b/r%2F1.png")
    assert url == f"s3://{signed_in.bucket}/some/prefix/b/r%2F1.png"
    assert put(store, path, sha256, "b/r%2F1.png") == url
    with pytest.raises(StorageConflict, match="another object has this name"):
        put(store, *spooled(tmp_path, b"other"), "b/r%2F1.png")

    client = signed_in.client()
    found = client.list_objects_v2(Bucket=signed_in.bucket, Prefix="some/")["Contents"]
    assert [each["Key"] for each in found] == ["some/prefix/b/r%2F1.png"]
    head = client.get_object(Bucket=signed_in.bucket, Key=found[0]["Key"])
    assert head["Body"].read() == b"media"
    assert (head["ContentType"], head["Metadata"]) == ("image/png", {"sha256": sha256})
    with pytest.raises(StorageError, match="BadDigest"):
        put(store, spooled(tmp_path, b"other")[0], sha256, "wrong.png")


def test_a_report_object_can_be_replaced_and_read_and_a_missing_one_is_none(
    signed_in: servers.Server,
) -> None:
    store = Store(f"s3://{signed_in.bucket}/readable")
    assert asyncio.run(store.read("report.json")) is None
    for content in (b"older", b"newer"):
        asyncio.run(store.write("report.json", content, "application/json"))
    assert asyncio.run(store.read("report.json")) == b"newer"
    with pytest.raises(StorageError, match="no such bucket"):
        asyncio.run(Store("s3://no-such-bucket/x").read("report.json"))


def test_a_bucket_that_demands_headers_gets_them_and_one_that_forbids_deleting_keeps_one_probe(
    s3: servers.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a policy that denies PUTs without them. Each start writes over the object of the one before."""
    url = f"s3://{s3.bucket}/{tmp_path.name}"
    with S3Proxy(s3.endpoint_url, "/") as proxy:
        proxy.demands = {"x-amz-acl": "bucket-owner-full-control", "x-amz-tagging": "team=studio"}
        replace(s3, endpoint_url=proxy.url).sign_in(monkeypatch)
        with pytest.raises(StorageError, match="AccessDenied") as caught:
            asyncio.run(Store(url).probe())
        assert "storage.put" in caught.value.hint
        given = {"ACL": "bucket-owner-full-control", "Tagging": "team=studio"}
        assert asyncio.run(Store(url, put=given).probe()) == ""
        assert objects(s3, tmp_path.name) == {}
        proxy.forbids = ("DELETE",)
        for number in range(3):
            store = Store(url, put=given)
            assert asyncio.run(store.probe()) == ""
            put(store, *spooled(tmp_path), f"{number}.png")
        asyncio.run(store.write("report.json", b"{}", "application/json"))
    stored = dict.fromkeys(("0.png", "1.png", "2.png"), b"media")
    assert objects(s3, tmp_path.name) == stored | {".callsheet-probe": b"callsheet", "report.json": b"{}"}


def test_runs_that_probe_at_once_are_not_in_each_other_s_way(
    signed_in: servers.Server, tmp_path: Path
) -> None:
    stores = [Store(f"s3://{signed_in.bucket}/{tmp_path.name}") for _ in range(2)]

    async def probe() -> list[str]:
        return await asyncio.gather(*(store.probe() for store in stores))

    assert [asyncio.run(probe()) for _ in range(10)] == [["", ""]] * 10
    assert objects(signed_in, tmp_path.name) == {}


def test_links_are_signed_by_version_4(signed_in: servers.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the bucket's own region. One that ends with a session of temporary credentials is told apart."""
    url = f"s3://{signed_in.bucket}/a b.png"
    address = signed(url, None, 60)
    assert "X-Amz-Algorithm=AWS4-HMAC-SHA256" in address
    assert not by_temporary_credentials(address)
    for status in (200, 403):  # of who may look at the bucket, and who may not
        with serve(reply(status, b"", {"x-amz-bucket-region": "eu-west-1"})) as server:
            assert "%2Feu-west-1%2Fs3%2F" in signed(url, server.url, 60)
            assert "%2Feu-west-1%2Fs3%2F" in signed(url, server.url, 60)
            assert len(server.requests) == 1, "the bucket's place is asked for once"
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    assert by_temporary_credentials(signed(url, signed_in.endpoint_url, 60))


def test_the_endpoint_and_a_profile_may_come_from_the_settings_and_the_aws_files(
    s3: servers.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = s3.environment()
    (tmp_path / "credentials").write_text(
        f"[studio]\naws_access_key_id={keys['AWS_ACCESS_KEY_ID']}\n"
        f"aws_secret_access_key={keys['AWS_SECRET_ACCESS_KEY']}\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "studio")
    asyncio.run(Store(f"s3://{s3.bucket}", endpoint_url=s3.endpoint_url).probe())
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(StorageError, match="nobody") as caught:
        Store(f"s3://{s3.bucket}", endpoint_url=s3.endpoint_url)
    assert "AWS credentials" in caught.value.hint


def test_a_probe_says_what_is_wrong_with_a_bucket(
    s3: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def probe(bucket: str = s3.bucket, endpoint_url: str | None = None) -> StorageError:
        with pytest.raises(StorageError) as caught:
            asyncio.run(Store(f"s3://{bucket}", endpoint_url=endpoint_url).probe())
        return caught.value

    assert "AWS credentials" in probe(endpoint_url=s3.endpoint_url).hint
    s3.sign_in(monkeypatch, "reader")
    assert "AccessDenied" in probe().message
    assert "AWS credentials" in probe().hint
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    assert "SignatureDoesNotMatch" in probe().message
    s3.sign_in(monkeypatch)
    assert "Invalid bucket name" in probe("No Bucket").message


def test_an_error_of_a_server_has_a_hint(tmp_path: Path, signed_in: servers.Server) -> None:
    """The answers of servers other than ours: no bucket, no conditional writes, none at all."""
    for status, code, hint in [
        (404, "NoSuchBucket", "Create the bucket"),
        (501, "NotImplemented", "use another"),
        (400, "Other", "Check the URL"),
    ]:
        body = f"<Error><Code>{code}</Code><Message>No.</Message></Error>".encode()
        with serve(reply(status, body, {"Content-Type": "application/xml"})) as server:
            with pytest.raises(StorageError, match=code) as caught:
                asyncio.run(Store("s3://b", endpoint_url=server.url).probe())
            assert hint in caught.value.hint
    with unused_port() as port:
        store = Store("s3://b", endpoint_url=f"http://127.0.0.1:{port}")
        with pytest.raises(StorageError, match=r"S3 cannot be used: .*Could not connect") as caught:
            put(store, *spooled(tmp_path))
    assert "storage.endpoint_url" in caught.value.hint


@pytest.mark.parametrize(
    "refuses", [(), ("if-none-match",), ANY_CHECKSUM], ids=["", "conditions", "checksums"]
)
def test_a_large_file_goes_in_parts_over_nothing_and_leaves_no_part_behind(
    s3: servers.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: tuple[str, ...]
) -> None:
    """One PUT takes 5 GB; parts have 5 MB at least, so that they begin there in this test."""
    monkeypatch.setattr(bucket, "_BY_PARTS", 5 << 20)
    monkeypatch.setattr(bucket, "_PART", 5 << 20)
    content, other = (random.Random(seed).randbytes(12 << 20) for seed in (1, 2))
    folder = f"large/{len(refuses)}-{tmp_path.name}"
    with S3Proxy(s3.endpoint_url, "/") as proxy:
        proxy.refuses = refuses
        requests: list[str] = []
        proxy.sees = lambda method, path: requests.append(f"{method} {path}")
        replace(s3, endpoint_url=proxy.url).sign_in(monkeypatch)
        store = Store(f"s3://{s3.bucket}/{folder}")
        large = spooled(tmp_path, content)
        for _ in range(2):
            put(store, *large, "film.mp4")
        assert sum("partNumber=3" in request for request in requests) >= 1
        with pytest.raises(StorageConflict, match="another object has this name"):
            put(store, *spooled(tmp_path, other), "film.mp4")
        with pytest.raises(StorageError):
            put(store, spooled(tmp_path, other)[0], large[1], "wrong.mp4")
        asyncio.run(store.write("costs.parquet", spooled(tmp_path, content)[0], "x/y"))
        asyncio.run(store.write("costs.parquet", spooled(tmp_path, other)[0], "x/y"))
    assert objects(s3, folder) == {"film.mp4": content, "costs.parquet": other}
    assert "Uploads" not in s3.client().list_multipart_uploads(Bucket=s3.bucket, Prefix=folder)


@pytest.mark.parametrize(
    "refuses, said, refusal",
    [
        (("if-none-match",), "refuses If-None-Match: each file is looked up", (501, "NotImplemented")),
        (("if-none-match", "if-match"), "refuses If-None-Match: each file", (412, "PreconditionFailed")),
        (("if-none-match",), "refuses If-None-Match: each file", (412, "PreconditionFailed")),
        (
            ("if-none-match", *ANY_CHECKSUM),
            "refuses If-None-Match and refuses checksums: each file is looked",
            (400, "InvalidArgument"),
        ),
    ],
    ids=["conditions", "every condition fails", "none matches", "both"],
)
def test_a_server_that_refuses_headers_is_used_without_them(
    s3: servers.Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refuses: tuple[str, ...],
    said: str,
    refusal: tuple[int, str],
) -> None:
    """Nothing is overwritten, each file is compared, and the server is not asked again and again."""
    folder = f"{tmp_path.name}/refusing"
    s3.client().put_object(Bucket=s3.bucket, Key=f"{folder}/taken.png", Body=b"not ours")
    with S3Proxy(s3.endpoint_url, "/") as proxy:
        proxy.refuses, proxy.refusal = refuses, refusal
        replace(s3, endpoint_url=proxy.url).sign_in(monkeypatch)
        store = Store(f"s3://{s3.bucket}/{folder}")
        assert said in asyncio.run(store.probe())
        refused = proxy.refused
        put(store, *spooled(tmp_path), "free.png")
        put(store, *spooled(tmp_path), "free.png")
        for content, name in (b"media", "taken.png"), (b"other", "free.png"):
            with pytest.raises(StorageConflict, match="another object has this name") as caught:
                put(store, *spooled(tmp_path, content), name)
            assert "storage.key" in caught.value.hint
        assert proxy.refused == refused
        report = random.Random(1).randbytes(9 << 20)
        fresh = Store(f"s3://{s3.bucket}/{folder}")
        for name, data in ("report.json", b"{}"), ("costs.parquet", spooled(tmp_path, report)[0]):
            asyncio.run(fresh.write(name, data, "application/json"))
    stored = {"taken.png": b"not ours", "free.png": b"media", "report.json": b"{}", "costs.parquet": report}
    assert objects(s3, folder) == stored


def test_no_checksums_are_sent_where_the_aws_settings_say_so(
    s3: servers.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file is compared afterwards."""
    with S3Proxy(s3.endpoint_url, f"/{s3.bucket}/unsent/damaged") as proxy:
        proxy.refuses = ANY_CHECKSUM
        replace(s3, endpoint_url=proxy.url).sign_in(monkeypatch)
        monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
        store = Store(f"s3://{s3.bucket}/unsent")
        assert "is not sent checksums: each file is compared" in asyncio.run(store.probe())
        put(store, *spooled(tmp_path), "whole.png")
        asyncio.run(store.write("report.json", b"{}", "application/json"))
        assert proxy.refused == 0
        proxy.ignores, proxy.signer, proxy.damages = ("x-amz-meta-sha256",), s3.sign, True
        with pytest.raises(StorageError, match="has other bytes than were sent"):
            put(store, *spooled(tmp_path), "damaged.png")


def test_a_refusal_that_is_not_for_a_header_is_an_error(
    s3: servers.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe that fails leaves nothing behind."""
    with S3Proxy(s3.endpoint_url, "/") as proxy:
        proxy.refuses, proxy.refusal = ("host",), (400, "ExpiredToken")
        replace(s3, endpoint_url=proxy.url).sign_in(monkeypatch)
        store = Store(f"s3://{s3.bucket}/{tmp_path.name}")
        with pytest.raises(StorageError, match="ExpiredToken") as caught:
            asyncio.run(store.write("report.json", b"{}", "application/json"))
        assert "Renew the AWS credentials" in caught.value.hint
        proxy.refuses, proxy.refusal = ("if-none-match",), (405, "MethodNotAllowed")
        with pytest.raises(StorageError, match="MethodNotAllowed"):
            asyncio.run(store.probe())
        proxy.refuses = ()
        assert asyncio.run(store.probe()) == ""
    assert objects(s3, tmp_path.name) == {}
