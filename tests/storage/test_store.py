"""Files arrive in a folder or a bucket whole, once, and under names that are nobody else's."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callsheet.errors import ConfigError, StorageConflict, StorageError
from callsheet.storage.names import folded, name, safe_name
from callsheet.storage.store import Store
from tests.servers import s3 as servers
from tests.servers.s3_proxy import s3_proxy
from tests.servers.sockets import reply, serve, unused_port


def spooled(folder: Path, content: bytes = b"media") -> tuple[Path, str]:
    path = folder / "spooled"
    path.write_bytes(content)
    return path, hashlib.sha256(content).hexdigest()


def put(store: Store, path: Path, sha256: str, file_name: str = "batch/row-1-0.png") -> str:
    return asyncio.run(store.put(path, file_name, sha256=sha256, mime_type="image/png"))


def refuse_links(*_: object) -> None:
    """What `os.link` does on a disk without hard links."""
    raise OSError(1, "Operation not permitted")


# ---- a folder


@pytest.mark.parametrize(
    "url", ["out/media", "out/media/", "./out/media", "{tmp}/media", "file://{tmp}/a%20b"]
)
def test_a_file_is_stored_under_the_path_as_the_url_begins_it(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = url.format(tmp=tmp_path)
    store = Store(url)
    final = put(store, *spooled(tmp_path), "b/r%2F1.png")
    assert final == store.url_of("b/r%2F1.png")
    if url.startswith("file://"):
        assert final == f"{url}/b/r%252F1.png"
        path = tmp_path / "a b/b/r%2F1.png"
    else:
        assert final == url.rstrip("/") + "/b/r%2F1.png"
        path = Path(final)
    assert path.read_bytes() == b"media"
    assert [each.name for each in path.parent.iterdir()] == ["r%2F1.png"]


def test_the_same_bytes_again_are_a_success_and_other_bytes_a_conflict(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "media"))
    first = put(store, *spooled(tmp_path))
    assert put(store, *spooled(tmp_path)) == first
    with pytest.raises(StorageConflict, match=r"row-1-0\.png: something else has this name"):
        put(store, *spooled(tmp_path, b"other"))
    assert Path(first).read_bytes() == b"media"
    assert [path.name for path in Path(first).parent.iterdir()] == ["row-1-0.png"]


def test_bytes_that_changed_in_the_spool_are_not_stored(tmp_path: Path) -> None:
    path, sha256 = spooled(tmp_path)
    path.write_bytes(b"mediA")
    with pytest.raises(StorageError, match="has changed since it was downloaded"):
        put(Store(str(tmp_path / "media")), path, sha256)
    assert list((tmp_path / "media/batch").iterdir()) == []


def test_the_partial_file_of_a_killed_run_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "media/batch"
    folder.mkdir(parents=True)
    path, sha256 = spooled(tmp_path)
    (folder / f".row-1-0.png.{sha256[:8]}.part").write_bytes(b"half")
    put(Store(str(tmp_path / "media")), path, sha256)
    assert [path.name for path in folder.iterdir()] == ["row-1-0.png"]


def test_a_disk_without_hard_links_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", refuse_links)
    test_the_same_bytes_again_are_a_success_and_other_bytes_a_conflict(tmp_path)


def test_a_kill_at_any_time_leaves_a_complete_file_or_none(tmp_path: Path) -> None:
    content = random.Random(1).randbytes(8_000_000)
    path, sha256 = spooled(tmp_path, content)
    script = (
        "import asyncio, sys; from pathlib import Path; from callsheet.storage.store import Store\n"
        "store, file = Store(sys.argv[1]), Path(sys.argv[2]); print('ready', flush=True)\n"
        "for n in range(1000):\n"
        "    asyncio.run(store.put(file, f'b/{n}.png', sha256=sys.argv[3], mime_type='image/png'))\n"
    )
    chance = random.Random(2)
    for kill in range(6):
        folder = tmp_path / f"media-{kill}"
        command = [sys.executable, "-c", script, str(folder), str(path), sha256]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout
            process.stdout.readline()
            time.sleep(chance.uniform(0, 0.1))
            process.send_signal(signal.SIGKILL)
        for stored in folder.rglob("*.png"):
            assert stored.stat().st_size == len(content)
        assert len(list(folder.rglob(".*.part"))) <= 1


def test_a_report_file_is_replaced(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "report"))
    asyncio.run(store.write("report.json", b"{}", "application/json"))
    longer, _ = spooled(tmp_path, b"{} " * 1000)
    url = asyncio.run(store.write("report.json", longer, "application/json"))
    assert url == str(tmp_path / "report/report.json")
    assert Path(url).read_bytes() == b"{} " * 1000
    assert [path.name for path in Path(url).parent.iterdir()] == ["report.json"]


def test_two_runs_can_write_the_same_report_file_at_once(tmp_path: Path) -> None:
    stores = [Store(str(tmp_path / "report")) for _ in range(2)]

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            for n in range(100):
                group.create_task(stores[n % 2].write("costs.parquet", bytes([n]) * 10_000, "x/y"))

    asyncio.run(scenario())
    assert len(set((tmp_path / "report/costs.parquet").read_bytes())) == 1
    assert len(list((tmp_path / "report").iterdir())) == 1


def test_a_probe_leaves_nothing_and_fails_where_nothing_can_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "new/folder"
    asyncio.run(Store(str(folder)).probe())
    (folder / ".callsheet-probe").write_text("what a run left that was killed in its probe")
    asyncio.run(Store(str(folder)).probe())
    assert list(folder.iterdir()) == []
    (tmp_path / "file").touch()
    for inside in ("file", "file/folder"):
        with pytest.raises(StorageError, match="cannot be written") as caught:
            asyncio.run(Store(str(tmp_path / inside)).probe())
        assert "storage.url" in caught.value.hint
    with pytest.raises(StorageError, match="cannot be written"):
        asyncio.run(Store("/proc/callsheet").probe())


def test_a_url_that_is_neither_a_folder_nor_a_bucket_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="gs:// is not supported"):
        Store("gs://bucket/prefix")
    with pytest.raises(ConfigError, match="has no bucket"):
        Store("s3:///prefix")
    with pytest.raises(ConfigError, match="names the host out, not a folder of this machine"):
        Store("file://out/media")
    assert Store("file://localhost/media").url_of("a") == "file://localhost/media/a"


# ---- a bucket


@pytest.fixture(autouse=True)
def no_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in [variable for variable in os.environ if variable.startswith("AWS_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))


def sign_in(monkeypatch: pytest.MonkeyPatch, server: servers.Server, account: str = "writer") -> None:
    for variable, value in server.environment(account).items():
        monkeypatch.setenv(variable, value)


def test_an_object_is_stored_once_with_its_sha256_and_type(
    s3: servers.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign_in(monkeypatch, s3)
    store = Store(f"s3://{s3.bucket}/some/prefix/")
    asyncio.run(store.probe())
    path, sha256 = spooled(tmp_path)
    url = put(store, path, sha256, "b/r%2F1.png")
    assert url == f"s3://{s3.bucket}/some/prefix/b/r%2F1.png"
    assert put(store, path, sha256, "b/r%2F1.png") == url
    with pytest.raises(StorageConflict, match="another object has this name"):
        put(store, *spooled(tmp_path, b"other"), "b/r%2F1.png")

    client = s3.client()
    found = client.list_objects_v2(Bucket=s3.bucket, Prefix="some/")["Contents"]
    assert [each["Key"] for each in found] == ["some/prefix/b/r%2F1.png"]
    head = client.get_object(Bucket=s3.bucket, Key=found[0]["Key"])
    assert head["Body"].read() == b"media"
    assert (head["ContentType"], head["Metadata"]) == ("image/png", {"sha256": sha256})


def test_many_objects_at_once(s3: servers.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sign_in(monkeypatch, s3)
    store = Store(f"s3://{s3.bucket}/many")
    path, sha256 = spooled(tmp_path, bytes(200_000))

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            for n in range(40):
                group.create_task(store.put(path, f"{n}.png", sha256=sha256, mime_type="image/png"))

    asyncio.run(scenario())
    assert s3.client().list_objects_v2(Bucket=s3.bucket, Prefix="many/")["KeyCount"] == 40


def test_the_server_refuses_a_wrong_sha256(
    s3: servers.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign_in(monkeypatch, s3)
    path, _ = spooled(tmp_path)
    with pytest.raises(StorageError, match="BadDigest"):
        put(Store(f"s3://{s3.bucket}"), path, hashlib.sha256(b"other").hexdigest(), "wrong.png")


def test_a_report_object_is_replaced(s3: servers.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    sign_in(monkeypatch, s3)
    store = Store(f"s3://{s3.bucket}/report")
    for content in (b"older", b"newer"):
        asyncio.run(store.write("report.json", content, "application/json"))
    assert s3.client().get_object(Bucket=s3.bucket, Key="report/report.json")["Body"].read() == b"newer"


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
    sign_in(monkeypatch, s3, "reader")
    assert "AccessDenied" in probe().message
    assert "AWS credentials" in probe().hint
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    assert "SignatureDoesNotMatch" in probe().message
    sign_in(monkeypatch, s3)
    assert "Invalid bucket name" in probe("No Bucket").message


def test_an_error_of_a_server_has_a_hint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The answers of servers other than ours: no bucket, no conditional writes, too busy."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    for status, code, hint in [
        (404, "NoSuchBucket", "Create the bucket"),
        (501, "NotImplemented", "If-None-Match"),
        (400, "Other", "Check the URL"),
    ]:
        body = f"<Error><Code>{code}</Code><Message>No.</Message></Error>".encode()
        with serve(reply(status, body, {"Content-Type": "application/xml"})) as server:
            with pytest.raises(StorageError, match=code) as caught:
                asyncio.run(Store("s3://b", endpoint_url=server.url).probe())
            assert hint in caught.value.hint


def test_a_server_that_answers_without_a_checksum_is_asked_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    path, sha256 = spooled(tmp_path)
    probe = [reply(200), reply(412), reply(204)]
    with serve(*probe, reply(200), reply(200, b"", {"X-Amz-Meta-SHA256": sha256})) as server:
        put(Store("s3://b", endpoint_url=server.url), path, sha256)
    assert [request.split(b" ")[0] for request in server.requests[len(probe) :]] == [b"PUT", b"HEAD"]
    with serve(*probe, reply(200)) as server, pytest.raises(StorageError, match="has stored other bytes"):
        put(Store("s3://b", endpoint_url=server.url), path, sha256)


def test_a_server_that_cannot_be_reached_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    with unused_port() as port:
        store = Store("s3://b", endpoint_url=f"http://127.0.0.1:{port}")
        with pytest.raises(StorageError, match=r"S3 cannot be used: .*Could not connect") as caught:
            put(store, *spooled(tmp_path))
    assert "storage.endpoint_url" in caught.value.hint


# ---- names

ids = (
    st.text(max_size=150)
    | st.text("./%~\\ aA-_\0é", max_size=12)
    | st.integers(0, 400).map(lambda n: "x" * n)
)


@given(ids, ids)
def test_no_two_ids_share_a_name(one: str, other: str) -> None:
    assert (safe_name(one) == safe_name(other)) == (one == other)


@given(ids)
def test_a_safe_name_is_one_segment_of_plain_characters(row_id: str) -> None:
    safe = safe_name(row_id)
    assert set(safe) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.%~")
    assert len(safe) <= 100
    assert not safe.startswith(".")


@given(
    st.sampled_from(
        ["{batch}/{row_id}-{sample}-{index}.{ext}", "{row_id}", "..{row_id}/.{batch}", "{model}/"]
    ),
    ids,
    ids,
)
def test_a_name_stays_inside_the_store(template: str, row_id: str, model: str) -> None:
    made = name(template, batch="b", row_id=row_id, sample=1, index=0, ext="png", model=model)
    path = PurePosixPath(made)
    assert not path.is_absolute()
    assert made == str(path), "no empty segment, and none that is a single dot"
    assert ".." not in path.parts
    assert all(len(part.encode()) <= 240 for part in path.parts)


def test_plain_ids_stay_readable_in_names() -> None:
    template = "{batch}/{row_id}-{sample}-{index}.{ext}"
    assert (
        name(template, batch="shots", row_id="SKU_1.a", sample=2, index=0, ext="jpeg")
        == "shots/SKU_1.a-2-0.jpeg"
    )
    assert name(template, batch="shots", row_id="../../etc", sample=1, index=0, ext="png") == (
        "shots/%2E.%2F..%2Fetc-1-0.png"
    )
    assert safe_name("a b/ü~") == "a%20b%2F%C3%BC%7E"
    long = safe_name("y" * 101)
    assert long.startswith("y" * 67 + "~")
    assert len(long) == 100
    assert name("{a}{b}{c}.png", a="1" * 100, b="2" * 100, c="3" * 100).endswith(".png")
    assert len(name("{a}{b}{c}.png", a="1" * 100, b="2" * 100, c="3" * 100)) == 200


def test_names_that_some_disks_take_for_the_same_have_the_same_folded_form() -> None:
    assert folded("Shots/CAFÉ.png") == folded("shots/cafe\u0301.PNG") == "shots/café.png"
    assert folded("STRASSE") == folded("straße")
    assert folded("a.png") != folded("b.png")


# ---- a server that ignores If-None-Match


@pytest.fixture
def overwriting(s3: servers.Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of an S3 server that ignores `If-None-Match`, and so overwrites."""
    with s3_proxy(s3.endpoint_url, "/") as proxy:
        proxy.ignores_conditions = s3.sign
        sign_in(monkeypatch, replace(s3, endpoint_url=proxy.url))
        yield proxy.url


@pytest.mark.parametrize("probed", [True, False], ids=["probed", "not probed"])
def test_no_object_is_overwritten_on_a_server_that_ignores_conditions(
    s3: servers.Server, overwriting: str, tmp_path: Path, probed: bool
) -> None:
    folder = f"overwriting/{probed}"
    s3.client().put_object(Bucket=s3.bucket, Key=f"{folder}/taken.png", Body=b"not ours")
    store = Store(f"s3://{s3.bucket}/{folder}")
    if probed:
        asyncio.run(store.probe())
    with pytest.raises(StorageConflict, match="another object has this name"):
        put(store, *spooled(tmp_path), "taken.png")
    put(store, *spooled(tmp_path), "free.png")
    put(store, *spooled(tmp_path), "free.png")
    with pytest.raises(StorageConflict, match="another object has this name"):
        put(store, *spooled(tmp_path, b"other"), "free.png")

    keys = [each["Key"] for each in s3.client().list_objects_v2(Bucket=s3.bucket, Prefix=folder)["Contents"]]
    bodies = {key: s3.client().get_object(Bucket=s3.bucket, Key=key)["Body"].read() for key in keys}
    assert bodies == {f"{folder}/taken.png": b"not ours", f"{folder}/free.png": b"media"}


# ---- names that are taken by something that is not a file


def make_taken(path: Path, by: str) -> None:
    path.parent.mkdir(parents=True)
    match by:
        case "a folder":
            path.mkdir()
        case "a dangling link":
            path.symlink_to("nowhere")
        case "a link to itself":
            path.symlink_to(path.name)
        case "a pipe":
            os.mkfifo(path)
        case "a device":
            path.symlink_to("/dev/zero")


@pytest.mark.parametrize("hard_links", [True, False], ids=["links", "no links"])
@pytest.mark.parametrize("by", ["a folder", "a dangling link", "a link to itself", "a pipe", "a device"])
def test_a_name_is_taken_by_anything_that_has_it(
    by: str, hard_links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not hard_links:
        monkeypatch.setattr(os, "link", refuse_links)
    store = Store(str(tmp_path / "media"))
    path = tmp_path / "media/batch/row-1-0.png"
    make_taken(path, by)
    with pytest.raises(StorageConflict, match=r"row-1-0\.png: .* has this name"):
        put(store, *spooled(tmp_path))
    assert put(store, *spooled(tmp_path), "batch/other.png").endswith("other.png")
    assert sorted(each.name for each in path.parent.iterdir()) == ["other.png", "row-1-0.png"]


def test_a_file_where_a_folder_must_be_is_named(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "media"))
    (tmp_path / "media").mkdir()
    (tmp_path / "media/batch").touch()
    with pytest.raises(StorageError, match=r"media/batch: cannot be written: it is not a folder") as caught:
        put(store, *spooled(tmp_path))
    assert "Move it away" in caught.value.hint
    with pytest.raises(StorageError, match=r"batch: cannot be written: it is not a folder"):
        asyncio.run(store.write("batch/report.json", b"{}", "application/json"))


def test_stores_that_write_the_same_name_at_once_never_take_each_other_s_file(tmp_path: Path) -> None:
    """Two ledgers with one storage folder: one of them gets the name, and what is there is complete."""
    contents = [bytes([n]) * 3_000_000 for n in range(4)]
    paths = [tmp_path / f"spooled-{n}" for n in range(4)]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    sums = [hashlib.sha256(content).hexdigest() for content in contents]
    stores = [Store(str(tmp_path / "media")) for _ in contents]

    async def scenario(name: str) -> list[str | BaseException]:
        puts = (
            store.put(path, name, sha256=sha256, mime_type="image/png")
            for store, path, sha256 in zip(stores, paths, sums, strict=True)
        )
        return await asyncio.gather(*puts, return_exceptions=True)

    for n in range(10):
        answers = asyncio.run(scenario(f"{n}.png"))
        stored = [contents[at] for at, answer in enumerate(answers) if isinstance(answer, str)]
        assert [(tmp_path / f"media/{n}.png").read_bytes()] == stored, "exactly one is stored"
        others = [answer for answer in answers if not isinstance(answer, str)]
        assert all(isinstance(answer, StorageConflict) for answer in others), others
