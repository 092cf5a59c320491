"""Reference images: what a cell may name, and bytes that are sent only as they were priced."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from callsheet.errors import InputError
from callsheet.pricing import references
from callsheet.pricing.rates import Reject
from callsheet.pricing.references import Reference, Sent, fill, look, named
from callsheet.records import Job, ModelType

PNG = b"\x89PNG\r\n\x1a\n" + b"p" * 100
JPEG = b"\xff\xd8\xff" + b"j" * 101
WEBP = b"RIFF\x00\x00\x00\x00WEBP" + b"w" * 102


def cells(**said: str) -> dict[str, str | None]:
    return dict.fromkeys(["images", "first_frame", "last_frame", "reference_image"]) | said


def url(mime: str, content: bytes) -> str:
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"


def test_images_come_in_the_order_of_the_request():
    listed = json.dumps([{"url": "https://h/1.png", "role": "reference_image"}, {"url": "a b.png"}])
    assert named(cells(images=listed, reference_image="x.png | s3://b/y.png|", first_frame="f.png")) == [
        Reference("https://h/1.png", "reference_image", "images"),
        Reference("a b.png", None, "images"),
        Reference("f.png", "first_frame", "first_frame"),
        Reference("x.png", "reference_image", "reference_image"),
        Reference("s3://b/y.png", "reference_image", "reference_image"),
    ]
    assert named(cells()) == named(cells(images="[]")) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a.png", "is no JSON:"),
        ("[" * 100_000, "is nested too deeply"),
        (r'[{"url": "\ud800"}]', "is no JSON: "),
        ('{"url": "a.png"}', "is no JSON list"),
        ('["a.png"]', 'is no {"url": "...", "role": "..."}'),
        ('[{"role": "first_frame"}]', "is no {"),
        ('[{"url": ""}]', "is no {"),
        ('[{"url": "a", "role": 1}]', "is no {"),
        ('[{"url": "a", "weight": 1}]', "is no {"),
    ],
)
def test_a_list_of_images_that_is_none_is_refused(text, says):
    found = named(cells(images=text))
    assert isinstance(found, Reject)
    assert found.column == "images"
    assert says in found.reason


@pytest.mark.parametrize(
    ("content", "mime"), [(PNG, "image/png"), (JPEG, "image/jpeg"), (WEBP, "image/webp")]
)
def test_a_local_image_s_type_is_what_its_bytes_say(tmp_path, content, mime):
    path = tmp_path / "misnamed.txt"
    path.write_bytes(content)
    sha256 = hashlib.sha256(content).hexdigest()
    grows = len(url(mime, content)) - len(f"sha256:{sha256}")
    assert look(str(path)) == Sent(f"sha256:{sha256}", sha256, grows)


def test_what_needs_no_reading_is_sent_as_it_stands():
    assert look("https://h/x.png") == Sent("https://h/x.png")
    assert look(url("image/png", PNG)) == Sent(url("image/png", PNG))


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("http://h/x.png", "is no https:// or s3:// address"),
        ("ftp://h/x.png", "is no https:// or s3:// address"),
        ("https://", "is no https:// address"),
        ("https://h/a b.png", "is no https:// address"),
        ("a\0b.png", "is not a file name"),
        ("x" * 5000, "cannot be read: File name too long"),
        ("none.png", "there is no such file"),
        ("data:image/png,abc", "is no data URL"),
        ("data:image/gif;base64,R0lG", "is no data URL"),
        ("data:image/png;base64,abc", "is no data URL"),
        (url("image/png", JPEG), "says image/png, and its bytes are image/jpeg"),
        (url("image/png", b"text"), "says image/png, and its bytes are no image"),
        (url("image/png", PNG + b"x" * (10 << 20)), "at most 10,485,760 are allowed"),
    ],
)
def test_what_cannot_be_sent_says_why(source, says):
    assert says in str(look(source))


def test_a_local_file_that_cannot_be_sent_says_why(tmp_path):
    path = tmp_path / "x.png"
    path.write_bytes(b"GIF89a")
    assert look(str(path)) == "is no PNG, JPEG or WebP image"
    path.write_bytes(PNG + b"x" * (10 * 1024 * 1024 - len(PNG)))
    assert isinstance(look(str(path)), Sent), "10 MiB exactly are taken"
    path.write_bytes(PNG + b"x" * (10 * 1024 * 1024 - len(PNG) + 1))
    assert look(str(path)) == "has 10,485,761 bytes; at most 10,485,760 are allowed"
    assert "cannot be read" in str(look(str(tmp_path)))


def job(path: Path, content: bytes, **more: Any) -> Job:
    sha256 = hashlib.sha256(content).hexdigest()
    images = [
        {"role": "first_frame", "url": f"sha256:{sha256}"},
        {"role": "last_frame", "url": "https://h/last.png"},
    ]
    request = {"model": "m", "prompt": "p", "images": images}
    return Job("k", "shot-7", 1, ModelType.VIDEO, "m", request, None, {sha256: str(path)}, **more)


def test_the_body_carries_the_bytes_that_were_priced(tmp_path):
    path = tmp_path / "x.png"
    path.write_bytes(PNG)
    asked = job(path, PNG)
    assert anyio.run(fill, asked) == {
        "model": "m",
        "prompt": "p",
        "images": [
            {"role": "first_frame", "url": url("image/png", PNG)},
            {"role": "last_frame", "url": "https://h/last.png"},
        ],
    }
    assert asked.request["images"][0]["url"].startswith("sha256:"), "the job itself stays as it is"


def test_an_image_of_many_rows_is_read_once(tmp_path):
    path = tmp_path / "x.webp"
    path.write_bytes(WEBP)
    first = anyio.run(fill, job(path, WEBP))
    path.unlink()
    assert anyio.run(fill, job(path, WEBP)) == first


def test_images_are_kept_up_to_a_number_of_bytes(tmp_path):
    keep = references._Inlined(most=400)
    paths = []
    for at in range(3):
        content = PNG + bytes([at])
        path = tmp_path / f"{at}.png"
        path.write_bytes(content)
        paths.append((path, content))
        keep.get(job(path, content), hashlib.sha256(content).hexdigest(), None)
    assert sum(map(len, keep._urls.values())) <= 400
    assert hashlib.sha256(paths[2][1]).hexdigest() in keep._urls


def test_an_image_that_has_changed_or_gone_is_not_sent(tmp_path):
    path = tmp_path / "x.jpg"
    path.write_bytes(JPEG + b"after")
    with pytest.raises(InputError, match=r"row shot-7: the image .*x\.jpg has changed since it was priced"):
        anyio.run(fill, job(path, JPEG + b"before"))
    path.unlink()
    with pytest.raises(InputError, match=r"row shot-7: the image .*x\.jpg: there is no such file"):
        anyio.run(fill, job(path, JPEG + b"before"))
