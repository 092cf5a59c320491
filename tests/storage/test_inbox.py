"""The inbox: which files wait in a folder or bucket, and where they go when they are bought."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from callsheet import waiting_files
from callsheet.errors import ConfigError, InputError
from callsheet.waiting_files import batch_name, move_to_done, waiting, waiting_file
from tests.servers import s3 as s3_server
from tests.servers.proxies import S3Proxy


class Inbox:
    """A folder, or a prefix of a real bucket, into which files are put."""

    def __init__(self, url: str, server: s3_server.Server | None = None) -> None:
        self.url = url
        self._client = server.client() if server else None

    def put(self, name: str, text: str = "prompt\nx\n", seconds_ago: float = 60) -> None:
        if self._client:
            bucket, _, prefix = self.url.removeprefix("s3://").partition("/")
            self._client.put_object(Bucket=bucket, Key=f"{prefix}/{name}", Body=text.encode())
            return
        path = Path(self.url, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (time.time() - seconds_ago,) * 2)

    def names(self, folder: str = "") -> list[str]:
        return [file.url.removeprefix(f"{self.url}/") for file in waiting(f"{self.url}{folder}")]


@pytest.fixture(params=["folder", "bucket"])
def inbox(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inbox:
    if request.param == "folder":
        return Inbox(str(tmp_path))
    server: s3_server.Server = request.getfixturevalue("s3")
    server.sign_in(monkeypatch)
    return Inbox(f"s3://{server.bucket}/{tmp_path.name}", server)


def test_batch_files_wait_in_the_order_of_their_names(inbox: Inbox) -> None:
    batches, others = ["a.csv", "b.parquet", "c.csv.gz", "d.XLSX"], ["notes.md", ".part.csv", "~$d.xlsx"]
    for name in (*reversed(batches), *others, "done/x.csv"):
        inbox.put(name, seconds_ago=11)
    assert inbox.names() == batches
    inbox.put("just-written.csv", seconds_ago=0)
    in_a_bucket = inbox.url.startswith("s3://")  # which shows only whole objects
    assert inbox.names() == [*batches, *(["just-written.csv"] if in_a_bucket else [])]


def test_a_file_that_is_dated_tomorrow_waits_as_others_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = Inbox(str(tmp_path))
    for days, name in ((1, "tomorrow.csv"), (400, "next-year.csv"), (0, "now.csv")):
        inbox.put(name, seconds_ago=-86_400 * days)
    monkeypatch.setattr(waiting_files, "SETTLED", 86_400)
    assert inbox.names() == [], "they may still be written"
    monkeypatch.setattr(waiting_files, "SETTLED", 0)
    assert inbox.names() == ["next-year.csv", "now.csv", "tomorrow.csv"]


def test_a_bought_file_is_moved_and_waits_no_longer(inbox: Inbox) -> None:
    inbox.put("a.csv", "prompt\nfirst\n")
    [file] = waiting(inbox.url)
    assert waiting(inbox.url) == [file] == [waiting_file(f"{inbox.url}/a.csv")], "however often it is listed"
    place = move_to_done(file)
    assert place
    assert inbox.names() == []
    assert inbox.names("/done") == [place.removeprefix(f"{inbox.url}/")]
    assert place.endswith("-a.csv")
    inbox.put("a.csv", "prompt\nsecond\n")
    [again] = waiting(inbox.url)
    assert again.key != file.key, "the same name with other content is another file"


def test_files_that_are_moved_while_an_inbox_is_listed_are_no_error(tmp_path: Path) -> None:
    inbox = Inbox(str(tmp_path))
    with ThreadPoolExecutor(1) as mover:
        for _ in range(10):
            for number in range(200):
                inbox.put(f"{number}.csv")
            moved = mover.submit(lambda: [path.rename(f"{path}.moved") for path in tmp_path.glob("*.csv")])
            while not moved.done():
                inbox.names()


def test_a_file_that_was_written_anew_meanwhile_stays(inbox: Inbox) -> None:
    inbox.put("a.csv")
    [file] = waiting(inbox.url)
    inbox.put("a.csv", "prompt\nanother\n")
    assert move_to_done(file) is None
    assert inbox.names() == ["a.csv"]


@pytest.mark.parametrize("refuses", [(), ("if-match",)], ids=["S3", "no If-Match"])
@pytest.mark.parametrize("before", ["HEAD", "DELETE", "nothing"])
def test_only_the_version_that_was_copied_is_deleted(
    s3: s3_server.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, refuses: tuple[str]
) -> None:
    """What is written while a file is moved stays, and waits. Where the server refuses `If-Match`, nobody can
    know what is written in the moment between the last look and the deleting."""
    inbox = Inbox(f"s3://{s3.bucket}/{tmp_path.name}", s3)
    s3.sign_in(monkeypatch)
    inbox.put("a.csv", "prompt\nfirst\n")
    with S3Proxy(s3.endpoint_url, "/") as proxy:
        proxy.refuses, proxy.demands = refuses, {"x-amz-acl": "bucket-owner-full-control"}
        [file] = waiting(inbox.url)
        heads = 0

        def written_anew(method: str, path: str) -> None:
            nonlocal heads
            heads += method == "HEAD"
            if method == before and (method == "DELETE" or heads == 2):
                inbox.put("a.csv", "prompt\nsecond\n")

        proxy.sees = written_anew
        place = move_to_done(file, proxy.url, {"ACL": "bucket-owner-full-control"})
        assert place
        if before == "nothing" or (refuses and before == "DELETE"):
            assert proxy.refused == len(refuses)
            assert inbox.names() == []
            return
    [again] = waiting(inbox.url)
    assert again.url == file.url
    assert again.key != file.key
    done = s3.client().get_object(Bucket=s3.bucket, Key=place.removeprefix(f"s3://{s3.bucket}/"))
    assert done["Body"].read() == b"prompt\nfirst\n"


def test_a_file_that_is_gone_and_an_inbox_that_is_not_there_are_named(inbox: Inbox, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.csv"):
        waiting_file(f"{inbox.url}/none.csv")
    with pytest.raises(InputError, match="there is no such folder") as wrong:
        waiting(str(tmp_path / "none"))
    assert wrong.value.hint == f"mkdir -p {tmp_path}/none"
    for place, said in ("s3://", "has no bucket"), ("s3:/bucket", "in place of s3://"), ("gs://b", "gs://"):
        with pytest.raises(ConfigError, match=said):
            waiting(place)


@pytest.mark.parametrize("file", ["shots.csv", "a b.csv", "a-b.csv", "ü.csv", "x" * 200 + ".csv", "../x.csv"])
def test_a_files_batch_has_a_valid_name_of_its_own(file: str) -> None:
    from pydantic import TypeAdapter

    from callsheet.config.setting_types import BatchName

    name = TypeAdapter(BatchName).validate_python(batch_name("inbox", file))
    others = [batch_name("inbox", other) for other in ("a_b.csv", "y" * 200 + ".csv", "o.csv")]
    assert name not in others
    assert len({batch_name("inbox", each) for each in ("a b.csv", "a-b.csv", "a?b.csv")}) == 3
