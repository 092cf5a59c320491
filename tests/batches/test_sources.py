"""Where batch files and images are: on disk or on S3, and what is not a file."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import polars as pl
import pytest

from callsheet.batches import formats
from callsheet.batches.read import read_batch
from callsheet.errors import InputError
from callsheet.pricing import references
from tests.batches.conftest import prompts, settings
from tests.servers import s3 as servers
from tests.servers.sockets import raw, serve


def test_a_path_that_is_not_a_file_says_why(tmp_path):
    (tmp_path / "shots").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    for path, expected in [
        ("shots", "shots: is a folder"),
        ("none.csv", "none.csv: there is no such file"),
        ("none-*.csv", "none-*.csv: no file matches"),
        ("sho?s", "sho?s: no file matches"),
        ("x" * 300 + ".csv", "cannot be read: File name too long"),
        ("loop", "cannot be read: Too many levels"),
        ("a\0b", "is not a file name"),
    ]:
        with pytest.raises(InputError) as caught:
            read_batch(settings(tmp_path / path))
        assert expected in caught.value.message
        assert (f"{tmp_path / 'shots/*.csv'}." in caught.value.hint) == (path == "shots")
    with pytest.raises(InputError, match="gs:// is not supported") as caught:
        read_batch(settings("gs://bucket/p.csv"))
    assert "s3://bucket/key" in caught.value.hint


def test_several_files_are_read_in_the_order_of_their_names(tmp_path):
    (tmp_path / "b.csv").write_text("prompt,id,note\nthird,3,\nagain,1,n\n,4,\n")
    (tmp_path / "a.tsv").write_text("id\tprompt\tsize\n1\tfirst\t9\n2\tsecond\n")
    (tmp_path / "c.md").write_text("not a batch")
    found = read_batch(settings(tmp_path / "[ab].?sv"))
    assert prompts(found) == [(2, "first"), (2, "third")]
    assert found.rows["carried"].to_list() == [{"size": "9", "note": None}, {"size": None, "note": ""}]
    assert [(line, reason.split(str(tmp_path))[0]) for line, _, _, reason in found.rejects.rows()] == [
        (3, "the line has 2 cells, and the header has 3 (in "),
        (3, "line 2 of "),
        (4, "the prompt is empty (in "),
    ]
    assert found.total == 5


@pytest.fixture
def bucket(s3: servers.Server, monkeypatch: pytest.MonkeyPatch) -> servers.Server:
    """The server, found by the standard environment variables."""
    for variable, value in s3.environment("reader").items():
        monkeypatch.setenv(variable, value)
    return s3


def put(server: servers.Server, key: str, content: bytes) -> str:
    server.client().put_object(Bucket=server.bucket, Key=key, Body=content)
    return f"s3://{server.bucket}/{key}"


def test_batch_files_are_read_from_s3(bucket, tmp_path, monkeypatch):
    put(bucket, "batch-files/b.csv.gz", gzip.compress(b"id,prompt\n3,z\n"))
    url = put(bucket, "batch-files/a.csv", b"id,prompt\n1,x\n2,\n")
    put(bucket, "batch-files/deeper/c.csv", b"id,prompt\n4,w\n")
    pl.DataFrame({"prompt": ["p"]}).write_parquet(tmp_path / "p.parquet")
    parquet = put(bucket, "batch-files/p.parquet", (tmp_path / "p.parquet").read_bytes())
    assert prompts(read_batch(settings(url))) == [(2, "x")]
    assert prompts(read_batch(settings(parquet))) == [(1, "p")]
    found = read_batch(settings(f"s3://{bucket.bucket}/batch-files/*.csv*"))
    assert found.rows["row_id"].to_list() == ["1", "3"]
    assert found.rejects["reason"].to_list() == [f"the prompt is empty (in {url})"]
    named = put(bucket, "batch-files/shots [1].csv", b"prompt\nin brackets\n")
    assert prompts(read_batch(settings(named))) == [(2, "in brackets")]
    monkeypatch.delenv("AWS_ENDPOINT_URL")  # then it comes from the config
    given = settings(url)
    storage = given.storage.model_copy(update={"endpoint_url": bucket.endpoint_url})
    assert prompts(read_batch(given.model_copy(update={"storage": storage}))) == [(2, "x")]


def test_an_object_that_cannot_be_read_is_named(bucket, monkeypatch):
    for url, expected in [
        (f"s3://{bucket.bucket}/none.csv", "there is no such object"),
        (f"s3://{bucket.bucket}/none-*.csv", "no file matches"),
        (f"s3://{bucket.bucket}/batch-files/", "is a folder"),
        ("s3://nobody/none.csv", "there is no such bucket (NoSuchBucket)"),
        ("s3://nobod?/none.csv", "S3 "),
        ("s3://nobody", "must look like s3://bucket/key"),
    ]:
        with pytest.raises(InputError) as caught:
            read_batch(settings(url))
        assert caught.value.message.startswith(url)
        assert expected in caught.value.message
        assert "Relative paths" not in caught.value.hint
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(InputError, match="S3 refused the request"):
        read_batch(settings(f"s3://{bucket.bucket}/none.csv"))


def test_reference_images_are_read_from_s3(bucket):
    content = b"\x89PNG\r\n\x1a\n" + b"p" * 100
    url = put(bucket, "look.png", content)
    assert isinstance(references.examine(url), references.RequestImage)
    assert formats.read_file(url, 200) == content
    assert "there is no such object" in str(references.examine(url + "x"))
    with pytest.raises(InputError, match="has 108 bytes; at most 100 are allowed"):
        formats.read_file(url, 100)


@pytest.fixture(params=["a pipe", "a device", "a link to a device", "a folder"])
def not_a_file(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = tmp_path / "x.csv"
    match request.param:
        case "a pipe":
            os.mkfifo(path)
        case "a device":
            return "/dev/zero"
        case "a link to a device":
            path.symlink_to("/dev/zero")
        case "a folder":
            path.mkdir()
    return str(path)


def test_an_image_or_a_batch_that_is_not_a_regular_file_is_an_error(not_a_file):
    with pytest.raises(InputError, match="cannot be read: it is not a regular file"):
        formats.read_file(not_a_file, 100)
    with pytest.raises(InputError, match=r"is not a regular file|is a folder") as caught:
        read_batch(settings(not_a_file))
    assert not_a_file in caught.value.message


def test_a_file_is_read_to_its_limit_and_not_beyond(tmp_path):
    path = tmp_path / "x.png"
    path.write_bytes(b"x" * 100)
    assert formats.read_file(str(path), 100) == b"x" * 100
    with pytest.raises(InputError, match="has 100 bytes; at most 99 are allowed"):
        formats.read_file(str(path), 99)
    with pytest.raises(InputError, match="has more than 10 bytes; at most 10 are allowed"):
        formats.read_file("/proc/self/maps", 10)  # a regular file whose declared size is 0


def test_an_object_of_unknown_length_is_read_to_its_limit_and_not_beyond(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    chunk = b"40\r\n" + b"x" * 64 + b"\r\n"
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with serve(raw(head + chunk + b"0\r\n\r\n")) as server:
        assert formats.read_file("s3://b/x.png", 64, server.url) == b"x" * 64
    too_large = pytest.raises(InputError, match="has more than 64 bytes; at most 64 are allowed")
    with serve(raw(head + 100_000 * chunk)) as server, too_large:
        formats.read_file("s3://b/x.png", 64, server.url)
