"""What a copy says of where it came from: read back by Pillow and by bytes, and nothing else has changed."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import pytest
from PIL import Image

from callsheet.export.provenance import MADE_BY_A_MODEL, Provenance
from callsheet.media_types import is_whole, recognise
from tests.cli.test_rows import printed
from tests.conftest import Project

Make = Callable[..., Project]
PROMPT = 'a "mug" & a <lamp>, 20 °C'
ROWS: list[dict[str, Any]] = [
    *(
        {"id": name, "prompt": PROMPT, "model": "sketch-1", "output_format": name, "aspect_ratio": "1:1"}
        for name in ("jpeg", "png", "webp")
    ),
    {"id": "mp4", "prompt": PROMPT, "model": "dailies-1", "duration": 1},
]
UUID_BOX = bytes.fromhex("be7acfcb97a942e89c71999491e3afac")


def xmp(path: Path) -> str:
    """The packet of a file; empty where it has none."""
    if path.suffix == ".mp4":
        _, _, rest = path.read_bytes().partition(b"uuid" + UUID_BOX)
        return rest.decode()
    with Image.open(path) as image:
        image.load()
        packet = image.info.get("xmp") or image.info.get("XML:com.adobe.xmp") or b""
        return packet if isinstance(packet, str) else packet.decode()


def shown(path: Path) -> list[bytes]:
    """The pixels of an image, or of each frame of a video."""
    if path.suffix != ".mp4":
        with Image.open(path) as image:
            return [image.tobytes()]
    with av.open(path) as video:
        return [frame.to_ndarray(format="rgb24").tobytes() for frame in video.decode(video=0)]


def test_copies_say_that_a_model_has_made_them_and_what_is_stored_stays_as_it_came(project: Make) -> None:
    made = project(ROWS)
    made.run()
    stored = {path.suffix: path for path in (made.folder / "out/media").rglob("*-1-0.*")}
    before = {path: path.read_bytes() for path in stored.values()}
    printed("export", "batch.yaml", "--to", "plain")
    exported = (made.folder / "plain" / f"{row['id']}.{row['id']}" for row in ROWS)
    assert {path.read_bytes() for path in exported} == {*before.values()}

    made.set(storage={"provenance": True})
    for to, copied in (("plain", 4), ("plain", 0), ("marked", 4)):
        assert json.loads(printed("export", "batch.yaml", "--to", to, "--json"))["copied"] == copied
    for row in ROWS:
        name = row["id"]
        copy = made.folder / "marked" / f"{name}.{name}"
        said = xmp(copy)
        assert f'DigitalSourceType="{MADE_BY_A_MODEL}"' in said, name
        assert 'CreatorTool="Callsheet 0.2.0"' in said
        assert f'AISystemUsed="{row["model"]} by 127.0.0.1"' in said
        assert "AIPromptInformation" not in said
        assert shown(copy) == shown(stored[f".{name}"]), name
        with copy.open("rb") as file:
            assert is_whole(file)
    assert {path: path.read_bytes() for path in before} == before

    made.set(storage={"provenance": "prompt"})
    printed("export", "batch.yaml", "--to", "with-prompts", "--as", "imagefolder")
    [copy] = (made.folder / "with-prompts/train").glob("*.png")
    assert "AIPromptInformation='a \"mug\" &amp; a &lt;lamp&gt;, 20 °C'" in xmp(copy)
    first = json.loads(printed("export", "batch.yaml", "--to", "shards", "--as", "webdataset", "--json"))
    made.set(storage={"provenance": False})
    again = json.loads(printed("export", "batch.yaml", "--to", "shards", "--as", "webdataset", "--json"))
    assert again["copied"] == first["copied"] == 4


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
@pytest.mark.parametrize("exif", [b"", b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0"])
def test_a_webp_of_either_kind_keeps_what_it_has(tmp_path: Path, mode: str, exif: bytes) -> None:
    picture = Image.new(mode, (33, 21), (200, 10, 10, 90)[: len(mode)])
    content = io.BytesIO()
    picture.save(content, "WEBP", lossless=True, exif=exif)
    path = tmp_path / "picture.webp"
    path.write_bytes(content.getvalue())
    row = {"mime_type": "image/webp", "model": "m", "prompt": "p", "bytes": path.stat().st_size}
    provenance = Provenance("", with_prompt=True)
    copy = provenance.write(path, row, tmp_path / "copy.webp")
    assert MADE_BY_A_MODEL in xmp(copy)
    assert shown(copy) == shown(path)
    assert copy.stat().st_size in provenance.sizes(row)
    with Image.open(copy) as image, Image.open(path) as original:
        assert (image.mode, image.size) == (mode, (33, 21))
        assert image.info.get("exif") == original.info.get("exif")
    assert provenance.write(copy, row, tmp_path / "again.webp") == copy, "it has XMP of its own now"


def test_what_cannot_carry_it_is_left_as_it_is_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "picture.gif"
    Image.new("RGB", (3, 3)).save(path)
    assert recognise(path.read_bytes()) == "image/gif"
    row = {"mime_type": "image/gif", "model": "m", "prompt": "p", "bytes": path.stat().st_size}
    provenance = Provenance("", with_prompt=False)
    assert provenance.write(path, row, tmp_path / "copy") == path
    assert provenance.sizes(row) == (path.stat().st_size,)
