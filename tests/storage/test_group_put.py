"""Files that are stored at the same time are stored together; each has its own end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from callsheet.errors import StorageConflict, StorageError
from callsheet.files import sync_folder
from callsheet.records import StoredFile
from callsheet.storage.spool import Spool, Spooled
from callsheet.storage.store import Store

MEDIA = "image/png"


def in_memory(place: Path, name: str) -> Spooled:
    spooled = Spooled(Spool(place / "spool"), name)
    spooled.hold(f"media {name}".encode())
    return spooled


def put_all(store: Store, place: Path, names: list[str]) -> list[StoredFile | BaseException]:
    async def scenario() -> list[StoredFile | BaseException]:
        puts = (store.put(in_memory(place, name), f"b/{name}", MEDIA) for name in names)
        return await asyncio.gather(*puts, return_exceptions=True)

    return asyncio.run(scenario())


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that were made durable."""
    synced: list[Path] = []

    def sync(path: Path) -> None:
        synced.append(path)
        sync_folder(path)

    monkeypatch.setattr("callsheet.storage.folder.sync_folder", sync)
    return synced


def test_their_folder_is_made_durable_once_for_each_group(tmp_path: Path, syncs: list[Path]) -> None:
    """The first goes alone; so many wait meanwhile that a second group goes beside it, and then the rest."""
    names = [f"{n}.png" for n in range(20)]
    stored = put_all(Store(str(tmp_path / "media")), tmp_path, names)
    assert [Path(file.url).read_text() for file in stored if isinstance(file, StoredFile)] == [
        f"media {name}" for name in names
    ]
    assert syncs == [tmp_path / "media/b"] * 3


def test_what_goes_wrong_with_one_file_leaves_the_others_alone(tmp_path: Path) -> None:
    (tmp_path / "media/b").mkdir(parents=True)
    (tmp_path / "media/b/3.png").write_bytes(b"not ours")
    names = [f"{n}.png" for n in range(8)]
    ends = put_all(Store(str(tmp_path / "media")), tmp_path, names)
    assert isinstance(ends.pop(3), StorageConflict)
    assert all(isinstance(end, StoredFile) for end in ends), ends
    assert (tmp_path / "media/b/3.png").read_bytes() == b"not ours"


def test_a_folder_that_cannot_be_made_durable_has_stored_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path / "media"))

    def fail(path: Path) -> None:
        raise OSError(5, "Input/output error", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("callsheet.storage.folder.sync_folder", fail)
        ends = put_all(store, tmp_path, ["1.png", "2.png"])
        assert all(isinstance(end, StorageError) for end in ends), ends
    again = put_all(store, tmp_path, ["1.png", "2.png"])
    assert all(isinstance(end, StoredFile) for end in again), again


def test_who_no_longer_waits_for_a_file_leaves_the_others_alone(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "media"))

    async def scenario() -> list[StoredFile]:
        puts = [
            asyncio.create_task(store.put(in_memory(tmp_path, f"{n}.png"), f"b/{n}.png", MEDIA))
            for n in range(4)
        ]
        await asyncio.sleep(0)  # the first is on its way, the others wait for it
        for task in puts[::2]:
            task.cancel()
        return await asyncio.gather(*puts[1::2])

    assert [Path(file.url).name for file in asyncio.run(scenario())] == ["1.png", "3.png"]
