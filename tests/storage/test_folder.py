"""A store in a folder: files are stored complete or not at all, and never over anything else."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from callsheet.errors import ConfigError, StorageConflict, StorageError
from callsheet.ledger.journal import Journal
from callsheet.records import StoredFile
from callsheet.storage.spool import Spool, Spooled
from callsheet.storage.store import Store
from tests.ledger.journals import answer
from tests.ledger.test_journal import ATTEMPT
from tests.storage.conftest import put, spooled

LINK = os.link


def refuse_links(*_: object) -> None:
    """What `os.link` does on a disk without hard links."""
    raise OSError(1, "Operation not permitted")


def refuse_other_disks(source: Path, target: Path) -> None:
    """What `os.link` does where the spool and the store are not on one disk."""
    if source.parent != target.parent:
        raise OSError(errno.EXDEV, "Invalid cross-device link", str(source))
    LINK(source, target)


@pytest.fixture(params=[LINK, refuse_links, refuse_other_disks], ids=["one disk", "no links", "two disks"])
def disks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test of it runs on each of these."""
    monkeypatch.setattr(os, "link", request.param)


@pytest.fixture
def two_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", refuse_other_disks)


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


def test_on_one_disk_a_file_is_not_copied(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "media"))
    path, sha256 = spooled(tmp_path)
    stored = Path(put(store, path, sha256))
    assert stored.samefile(path)
    path.unlink()
    assert stored.read_bytes() == b"media"
    shutil.rmtree(tmp_path / "media")
    assert Path(put(store, *spooled(tmp_path))).read_bytes() == b"media", "the folder is made again"


def default_acl(folder: Path) -> None:
    """Others may not read what is made in the folder, as `setfacl -d -m o::-` says."""
    entries = [(1, 7), (4, 5), (32, 0)]  # owner, group, others
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, mode, 2**32 - 1) for tag, mode in entries)
    try:
        os.setxattr(folder, "system.posix_acl_default", acl)
    except (AttributeError, OSError):
        pytest.skip("there are no access lists here")


@pytest.mark.parametrize("give", [default_acl, lambda folder: folder.chmod(0o2755)], ids=["list", "group"])
def test_a_file_gets_the_rights_that_its_folder_gives(give: Callable[[Path], None], tmp_path: Path) -> None:
    folder = tmp_path / "media/batch"
    folder.mkdir(parents=True)
    give(folder)
    path, sha256 = spooled(tmp_path)
    stored = Path(put(Store(str(tmp_path / "media")), path, sha256))
    assert not stored.samefile(path)
    (folder / "other").touch()
    assert stored.stat().st_mode == (folder / "other").stat().st_mode


def test_a_folder_that_cannot_be_made_durable_has_stored_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        raise OSError(5, "Input/output error", str(path))

    store = Store(str(tmp_path / "media"))
    with monkeypatch.context() as patch:
        patch.setattr("callsheet.storage.store.sync_folder", fail)
        with pytest.raises(StorageError, match="Input/output error"):
            put(store, *spooled(tmp_path))
    assert put(store, *spooled(tmp_path))


def test_a_file_goes_to_the_store_from_memory_and_stays_in_the_spool_where_its_name_is_taken(
    tmp_path: Path,
) -> None:
    store = Store(str(tmp_path / "media"))
    (tmp_path / "media").mkdir()
    (tmp_path / "media/3.png").write_bytes(b"not ours")

    async def scenario() -> list[StoredFile | BaseException]:
        files = [Spooled(tmp_path / "spool", f"{n}.png") for n in range(8)]
        for n, file in enumerate(files):
            file.hold(f"media {n}".encode())
        puts = (store.put(file, f"{n}.png", "image/png") for n, file in enumerate(files))
        return await asyncio.gather(*puts, return_exceptions=True)

    ends = asyncio.run(scenario())
    assert isinstance(ends.pop(3), StorageConflict)
    assert all(isinstance(end, StoredFile) for end in ends), ends
    assert (tmp_path / "media/3.png").read_bytes() == b"not ours"
    assert (tmp_path / "media/7.png").read_bytes() == b"media 7"
    assert len(list((tmp_path / "spool").iterdir())) == 8


@pytest.mark.usefixtures("disks")
def test_the_same_bytes_again_are_a_success_and_other_bytes_a_conflict(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "media"))
    first = put(store, *spooled(tmp_path))
    assert put(store, *spooled(tmp_path)) == first
    with pytest.raises(StorageConflict, match=r"row-1-0\.png: something else has this name"):
        put(store, *spooled(tmp_path, b"other"))
    assert Path(first).read_bytes() == b"media"
    assert [path.name for path in Path(first).parent.iterdir()] == ["row-1-0.png"]


@pytest.mark.usefixtures("two_disks")
def test_bytes_that_changed_in_the_spool_are_not_stored(tmp_path: Path) -> None:
    path, sha256 = spooled(tmp_path)
    path.write_bytes(b"mediA")
    with pytest.raises(StorageError, match="has changed since it was downloaded"):
        put(Store(str(tmp_path / "media")), path, sha256)
    assert list((tmp_path / "media/batch").iterdir()) == []


@pytest.mark.usefixtures("two_disks")
def test_the_partial_file_of_a_killed_run_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "media/batch"
    folder.mkdir(parents=True)
    path, sha256 = spooled(tmp_path)
    (folder / f".row-1-0.png.{sha256[:8]}.part").write_bytes(b"half")
    put(Store(str(tmp_path / "media")), path, sha256)
    assert [path.name for path in folder.iterdir()] == ["row-1-0.png"]


def test_a_report_file_is_replaced_and_read_and_a_missing_one_is_none(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "report"))
    assert asyncio.run(store.read("report.json")) is None
    asyncio.run(store.write("report.json", b"{}", "application/json"))
    longer, _ = spooled(tmp_path, b"{} " * 1000)
    url = asyncio.run(store.write("report.json", longer, "application/json"))
    assert url == str(tmp_path / "report/report.json")
    assert asyncio.run(store.read("report.json")) == b"{} " * 1000
    assert [path.name for path in Path(url).parent.iterdir()] == ["report.json"]
    (tmp_path / "report/folder").mkdir()
    with pytest.raises(StorageError, match=r"report/folder: cannot be read"):
        asyncio.run(store.read("folder"))


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
    for left in ".callsheet-probe", ".callsheet-probe.0123abcd.part":
        (folder / left).write_text("what a run left that was killed in its probe")
    asyncio.run(Store(str(folder)).probe())
    assert list(folder.iterdir()) == []
    (tmp_path / "file").touch()
    for inside in ("file", "file/folder"):
        with pytest.raises(StorageError, match="cannot be written") as caught:
            asyncio.run(Store(str(tmp_path / inside)).probe())
        assert "storage.url" in caught.value.hint
    with pytest.raises(StorageError, match="cannot be written"):
        asyncio.run(Store("/proc/callsheet").probe())


@pytest.mark.usefixtures("two_disks")
@pytest.mark.parametrize("make", [os.symlink, os.link, os.mkfifo], ids=["link", "hard link", "pipe"])
def test_no_file_is_written_through_a_name_that_can_be_guessed(
    make: Callable[..., None], tmp_path: Path
) -> None:
    """The probe's, a copied file's, a report's, a spooled file's, a journal's: what is there is kept."""
    victim, _ = spooled(tmp_path, b"three years of notes")
    copied = f".a.png.{hashlib.sha256(b'media').hexdigest()[:8]}.part"
    names = ("media/.callsheet-probe", f"media/{copied}", "report/report.json")
    places = [tmp_path / name for name in (*names, "spool/answers-run.jsonl", "spool/a.png.part")]
    for place in places:
        place.parent.mkdir(exist_ok=True)
        make(*([] if make is os.mkfifo else [victim]), place)
    store, file = Store(str(tmp_path / "media")), Spooled(tmp_path / "spool", "a.png")
    asyncio.run(store.probe())
    asyncio.run(Store(str(tmp_path / "report")).write("report.json", b"{}", "application/json"))
    file.hold(b"media")
    file.complete()
    put(store, file.path, file.sha256, "a.png")
    with pytest.raises(OSError, match="a link, or no regular file"):
        Journal(tmp_path / "spool", "run").append(answer(ATTEMPT))
    assert victim.read_bytes() == b"three years of notes"
    assert [path.name for path in (tmp_path / "media").iterdir()] == ["a.png"]


def test_a_link_in_the_spool_is_not_taken_for_a_file_that_was_left(tmp_path: Path) -> None:
    path, sha256 = spooled(tmp_path)
    spool = Spool(tmp_path / "spool")
    spool.folder.mkdir()
    (spool.folder / f"a.png.{sha256}").symlink_to(path)
    os.mkfifo(spool.folder / f"b.png.{sha256}")
    assert spool.find_left() == {"a.png", "b.png"}
    assert [asyncio.run(spool.left(name)) for name in ("a.png", "b.png")] == [None, None]


def test_a_url_that_is_neither_a_folder_nor_a_bucket_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="gs://, which is not supported"):
        Store("gs://bucket/prefix")
    assert Store("file://localhost/media").url_of("a") == "file://localhost/media/a"


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


@pytest.mark.usefixtures("disks")
@pytest.mark.parametrize("by", ["a folder", "a dangling link", "a link to itself", "a pipe", "a device"])
def test_a_name_is_taken_by_anything_that_has_it(by: str, tmp_path: Path) -> None:
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


@pytest.mark.usefixtures("disks")
def test_stores_that_write_the_same_name_at_once_never_take_each_other_s_file(tmp_path: Path) -> None:
    """Two ledgers with one storage folder: one of them gets the name, and what is there is complete."""
    contents = [bytes([n]) * 3_000_000 for n in range(4)]
    paths = [tmp_path / f"spooled-{n}" for n in range(4)]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    sums = [hashlib.sha256(content).hexdigest() for content in contents]
    stores = [Store(str(tmp_path / "media")) for _ in contents]

    async def scenario(name: str) -> list[StoredFile | BaseException]:
        puts = (
            store.put(Spooled.completed(path, sha256, 3_000_000), name, "image/png")
            for store, path, sha256 in zip(stores, paths, sums, strict=True)
        )
        return await asyncio.gather(*puts, return_exceptions=True)

    for n in range(10):
        answers = asyncio.run(scenario(f"{n}.png"))
        stored = [contents[at] for at, answer in enumerate(answers) if isinstance(answer, StoredFile)]
        assert [(tmp_path / f"media/{n}.png").read_bytes()] == stored, "exactly one is stored"
        others = [answer for answer in answers if not isinstance(answer, StoredFile)]
        assert all(isinstance(answer, StorageConflict) for answer in others), others
