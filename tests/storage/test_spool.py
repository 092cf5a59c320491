"""A download is kept only when it is complete and of the promised type."""

from __future__ import annotations

import asyncio
import hashlib
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from callsheet.errors import MaybeSent, MediaError, StorageError
from callsheet.media_types import extension, is_whole, with_extension
from callsheet.service.client import Client
from callsheet.storage.spool import Spool, Spooled
from tests.servers.sockets import Behaviour, raw, reply, serve, trickle


def image(file_format: str) -> bytes:
    buffer = io.BytesIO()
    Image.effect_noise((640, 480), 90).save(buffer, file_format)
    return buffer.getvalue()


FILES = {
    "image/png": image("png"),
    "image/jpeg": image("jpeg"),
    "image/webp": image("webp"),
    "video/mp4": b"\0\0\0\x20ftypisom"
    + bytes(20)
    + (8).to_bytes(4)
    + b"moov"
    + (3_000_008).to_bytes(4)
    + b"mdat"
    + bytes(3_000_000),
}


def fetch(behaviour: Behaviour, promised: str, folder: Path, patience: float = 60) -> Spooled:
    async def scenario() -> Spooled:
        async with Client(server.url, "sk_x") as client, client.download(server.url) as download:
            spooled = await Spool(folder).receive(download, promised, "job-1-0", patience=patience)
            spooled.complete()
            spooled.complete()  # does nothing
            return spooled

    with serve(behaviour) as server:
        return asyncio.run(scenario())


def left(folder: Path) -> Spooled | None:
    """What the next run finds."""
    spool = Spool(folder)
    spool.find_left()
    return asyncio.run(spool.left("job-1-0"))


@pytest.mark.parametrize("mime_type", FILES)
@pytest.mark.parametrize(
    "announced, declared", [("image/jpeg", "text/plain"), ("video/mp4", "image/jpeg"), ("", "")]
)
def test_a_complete_file_is_kept_and_its_bytes_say_its_type_whatever_is_announced(
    mime_type: str, announced: str, declared: str, tmp_path: Path
) -> None:
    folder, content = tmp_path / "new/spool", FILES[mime_type]
    spooled = fetch(reply(200, content, {"Content-Type": declared}), announced, folder)
    assert (spooled.sha256, spooled.bytes) == (hashlib.sha256(content).hexdigest(), len(content))
    assert spooled.mime_type == mime_type
    assert spooled.path.read_bytes() == content
    assert list(folder.iterdir()) == [spooled.path]
    found = left(folder)
    assert found
    assert (found.path, found.sha256, found.bytes) == (spooled.path, spooled.sha256, spooled.bytes)
    assert found.mime_type == mime_type
    Spool(folder).forget(found)
    assert list(folder.iterdir()) == []


NEITHER = "neither an image nor a video"
PAGE = b"<html>Sign in</html>"


@pytest.mark.parametrize(
    "content, declared, announced, why",
    [
        *((content[:2], mime_type, mime_type, NEITHER) for mime_type, content in FILES.items()),
        (b"RIFF\0\0\0\0WAVE", "image/webp", "image/webp", NEITHER),  # sound, which begins with RIFF too
        (b"", "image/png", "image/png", "empty"),
        (PAGE, "image/png; charset=utf-8", "image/png", NEITHER),
        (PAGE, "text/html; charset=utf-8", "", NEITHER),
        (PAGE, "application/json", "image/png", NEITHER),
        (PAGE, "application/problem+json", "image/jxl", NEITHER),
    ],
)
def test_other_first_bytes_and_a_page_or_an_error_in_place_of_a_file_are_refused(
    content: bytes, declared: str, announced: str, why: str, tmp_path: Path
) -> None:
    with pytest.raises(MediaError, match=why):
        fetch(reply(200, content, {"Content-Type": declared}), announced, tmp_path)
    assert list(tmp_path.iterdir()) == []


def sized(box: bytes, content: bytes) -> bytes:
    return (8 + len(content)).to_bytes(4) + box + content


def gif() -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (64, 64)).save(buffer, "gif")
    return buffer.getvalue()


MOVIE = sized(b"ftyp", b"isom" + bytes(12)) + sized(b"free", b"") + sized(b"moov", bytes(500))
LONG = (1).to_bytes(4) + b"mdat" + (16 + 90_000).to_bytes(8) + bytes(90_000)
WHOLE = {
    "png": FILES["image/png"],
    "jpeg": FILES["image/jpeg"],
    "jpeg-padded": FILES["image/jpeg"] + bytes(3),
    "webp": FILES["image/webp"],
    "gif": gif(),
    "mp4": MOVIE + sized(b"mdat", bytes(100_000)),
    "mp4-long-box": MOVIE + LONG,
    "mp4-index-last": sized(b"ftyp", b"isom" + bytes(12)) + LONG + sized(b"moov", bytes(500)),
    "avif": sized(b"ftyp", b"avif" + bytes(12)) + sized(b"meta", bytes(900)) + sized(b"mdat", bytes(2_000)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_file_with_the_end_of_its_format_is_whole_and_a_part_of_it_is_not(name: str) -> None:
    """Where the transfer proves that nothing is missing, a server may have sent what was cut off before."""
    content = WHOLE[name]
    assert is_whole(io.BytesIO(content))
    cuts = {len(content) // 2, len(content) - 60, len(content) - 5}
    if name.startswith("mp4") or name == "avif":  # in the middle of a box's head, too
        cuts |= {20 + 8 + ends for ends in range(1, 8)} | {20 + 12 + ends for ends in range(1, 8)}
    for cut in cuts:
        assert not is_whole(io.BytesIO(content[:cut])), cut
        if name != "gif":
            assert not is_whole(io.BytesIO(content[:cut]), proven=True), cut


@pytest.mark.parametrize("name", WHOLE)
def test_what_comes_after_the_end_of_a_format_is_kept_where_nothing_is_missing(
    name: str, tmp_path: Path
) -> None:
    content = WHOLE[name] + b"trailer" * 20
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(content), content)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert fetch(raw(head + chunks), "", tmp_path).path.read_bytes() == content


@pytest.mark.parametrize(
    "framing",
    [b"Content-Length: 500\r\n\r\n%s", b"Transfer-Encoding: chunked\r\n\r\n10\r\n%s"],
    ids=["length", "chunked"],
)
def test_a_file_that_is_cut_off_leaves_nothing_behind(framing: bytes, tmp_path: Path) -> None:
    with pytest.raises(MaybeSent):
        fetch(raw(b"HTTP/1.1 200 OK\r\n" + framing % FILES["image/png"][:12]), "image/png", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_download_that_is_too_slow_ends_after_the_patience(tmp_path: Path) -> None:
    content = FILES["image/png"]
    with pytest.raises(MediaError, match="is slower than 1024 bytes a second"):
        fetch(trickle(content), "image/png", tmp_path, patience=0.2)
    assert list(tmp_path.iterdir()) == []
    small = b"RIFF\x04\0\0\0WEBP"
    assert fetch(trickle(small), "image/webp", tmp_path).bytes == len(small)


@pytest.mark.parametrize("mime_type", ["image/png", "video/mp4"])
@pytest.mark.parametrize("ending", ["part", "the SHA-256"])
@pytest.mark.parametrize("change", [lambda content: content[:-1], lambda content: b"edited" + content[6:]])
def test_what_is_incomplete_or_was_changed_in_the_spool_is_removed_and_downloaded_anew(
    mime_type: str, ending: str, change: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """A killed run has left it; or a person has edited it in storage, where it may be the same file."""
    content = FILES[mime_type]
    ending = ending.replace("the SHA-256", hashlib.sha256(content).hexdigest())
    (tmp_path / f"job-1-0.{ending}").write_bytes(change(content))
    assert left(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    (tmp_path / f"job-1-0.{ending}").write_bytes(change(content))
    spooled = fetch(reply(200, content, {"Content-Type": mime_type}), mime_type, tmp_path)
    assert spooled.path.read_bytes() == content
    found = left(tmp_path)
    assert found
    assert found.path.read_bytes() == content


def test_what_earlier_runs_left_is_removed_by_name_and_the_journal_is_not(tmp_path: Path) -> None:
    names = [f"job-1-0.{'0' * 64}", "job-1-0.part", f"job-1-01.{'0' * 64}", "answers-1.jsonl"]
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / "job-2-0.part").mkdir()  # it cannot be removed, which ends no run
    spool = Spool(tmp_path)
    assert spool.find_left() == {"job-1-0", "job-1-01", "job-2-0"}
    spool.remove({"job-1-0", "job-2-0", "job-9-0"})
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names[2:], "job-2-0.part"])


def test_a_spool_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"file.*: cannot be written"):
        fetch(reply(200, FILES["image/png"], {"Content-Type": "image/png"}), "image/png", tmp_path / "file")


@pytest.mark.parametrize(
    "promised, declared",
    [
        ("image/jxl", "image/jxl"),
        ("image/svg+xml", "image/svg+xml"),
        ("image/jxl", "application/octet-stream"),
        ("image/jpeg", "image/jxl"),
        ("", "video/x-matroska"),
    ],
)
def test_a_file_of_a_type_that_the_interface_does_not_name_is_kept_unchecked(
    promised: str, declared: str, tmp_path: Path
) -> None:
    assert fetch(reply(200, b"anything", {"Content-Type": declared}), promised, tmp_path).bytes == 8


def test_extensions() -> None:
    assert with_extension("b/1.2-1-0.jpeg", "image/webp") == "b/1.2-1-0.webp"
    assert with_extension("b/a-1-0.bin", "video/mp4") == "b/a-1-0.mp4"
    assert with_extension("b/a.photo", "image/png") == "b/a.photo"
    types = ["image/png", "image/jpeg", "IMAGE/JPG", "image/webp", "video/mp4", "image/../x"]
    assert [extension(mime_type) for mime_type in types] == ["png", "jpeg", "jpeg", "webp", "mp4", "bin"]
