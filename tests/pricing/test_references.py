"""Reference images: what a cell may name, and bytes that are sent only as they were priced."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from callsheet.errors import InputError
from callsheet.pricing.parameters import Reject
from callsheet.pricing.references import Reference, RequestImage, examine, fill, parse_references
from callsheet.records import Job, ModelType
from tests.pictures import picture
from tests.pricing.plans import PNG

JPEG, WEBP = picture(kind="JPEG"), picture(kind="WEBP")


def cells(**given: str) -> dict[str, str | None]:
    return dict.fromkeys(["images", "first_frame", "last_frame", "reference_image"]) | given


def url(mime: str, content: bytes) -> str:
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"


def test_images_come_in_the_order_of_the_request():
    listed = json.dumps([{"url": "https://h/1.png", "role": "reference_image"}, {"url": "a b.png"}])
    given = cells(
        images=listed, reference_image='x.png | s3://b/y.png|["z.png", "w.png"]', first_frame="f.png"
    )
    assert parse_references(given) == [
        Reference("https://h/1.png", "reference_image", "images"),
        Reference("a b.png", None, "images"),
        Reference("f.png", "first_frame", "first_frame"),
        Reference("x.png", "reference_image", "reference_image"),
        Reference("s3://b/y.png", "reference_image", "reference_image"),
        Reference("z.png", "reference_image", "reference_image"),
        Reference("w.png", "reference_image", "reference_image"),
    ]
    assert parse_references(cells()) == parse_references(cells(images="[]")) == []


@pytest.mark.parametrize(
    "text",
    [
        "a.png",
        "[" * 100_000,
        r'[{"url": "\ud800"}]',
        '{"url": "a.png"}',
        '["a.png", 7]',
        '[{"role": "first_frame"}]',
        '[{"url": " "}]',
        '[{"url": "a", "role": 1}]',
        '[{"url": "a", "weight": 1}]',
    ],
)
def test_a_wrong_list_of_images_is_rejected(text):
    rejected = parse_references(cells(images=text))
    assert isinstance(rejected, Reject)
    assert (rejected.column, rejected.value) == ("images", text)
    assert rejected.reason.startswith("is not a JSON list of images (")


@pytest.mark.parametrize(
    ("content", "mime"), [(PNG, "image/png"), (JPEG, "image/jpeg"), (WEBP, "image/webp")]
)
def test_a_local_image_s_type_is_what_its_bytes_say(tmp_path, content, mime):
    path = tmp_path / "misnamed.txt"
    path.write_bytes(content)
    sha256 = hashlib.sha256(content).hexdigest()
    added_bytes = len(url(mime, content)) - len(f"sha256:{sha256}")
    assert examine(str(path)) == RequestImage(f"sha256:{sha256}", sha256, added_bytes, str(path))


def test_an_image_may_be_in_the_home_folder(tmp_path, monkeypatch):
    (tmp_path / "a.png").write_bytes(PNG)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert examine("~/a.png") == replace(examine(str(tmp_path / "a.png")), place="~/a.png")
    assert anyio.run(fill, job(Path("~/a.png"), PNG))["images"][0]["url"] == url("image/png", PNG)
    assert examine("~no-such-user/a.png") == (
        "is not a file name: begins with ~no-such-user, and no such home folder is known"
    )


@pytest.mark.parametrize("source", ["https://h/x.png", url("image/png", PNG)])
def test_urls_and_data_urls_are_sent_unchanged(source):
    assert examine(source) == RequestImage(source)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("http://h/x.png", "is not an https:// or s3:// address"),
        ("https://", "is not an https:// address"),
        ("https://h/waves.mp4#last_frame", "neither local nor on S3"),
        ("https://h/a b.png", "is not an https:// address"),
        ("a\0b.png", "is not a file name"),
        ("x" * 5000, "cannot be read: File name too long"),
        ("none.png", "there is no such file"),
        ("data:image/png,abc", "is not a data URL"),
        ("data:image/gif;base64,R0lG", "is not a data URL"),
        ("data:image/png;base64,abc", "is not a data URL"),
        (url("image/png", JPEG), "says image/png, but its bytes are image/jpeg"),
        (url("image/png", b"text"), "says image/png, but its bytes are not an image"),
        (url("image/png", PNG + b"x" * (10 << 20)), "at most 10,485,760 are allowed"),
    ],
)
def test_a_source_that_cannot_be_sent_has_a_reason(source, expected):
    assert expected in str(examine(source))


def test_a_local_file_that_cannot_be_sent_has_a_reason(tmp_path):
    path = tmp_path / "x.png"
    path.write_bytes(PNG + b"x" * (10 * 1024 * 1024 - len(PNG)))
    assert isinstance(examine(str(path)), RequestImage), "10 MiB exactly are allowed"
    path.write_bytes(PNG + b"x" * (10 * 1024 * 1024 - len(PNG) + 1))
    said = (
        "has 10,485,761 bytes; at most 10,485,760 are allowed; with input.fit: true a smaller JPEG of it is"
    )
    assert examine(str(path)) == f"{said} sent"


def job(source: Path | str, content: bytes, *more: dict[str, str]) -> Job:
    sha256 = hashlib.sha256(content).hexdigest()
    images = [{"role": "first_frame", "url": f"sha256:{sha256}"}, *more]
    request = {"model": "m", "prompt": "p", "images": images}
    return Job("k", "shot-7", 1, ModelType.VIDEO, "m", request, None, "r", inlined={sha256: str(source)})


def test_the_body_has_the_bytes_that_were_priced(tmp_path):
    path = tmp_path / "x.png"
    path.write_bytes(PNG)
    last = {"role": "last_frame", "url": "https://h/last.png"}
    asked = job(path, PNG, last)
    images = [{"role": "first_frame", "url": url("image/png", PNG)}, last]
    assert anyio.run(fill, asked) == {"model": "m", "prompt": "p", "images": images}
    assert asked.request["images"][0]["url"].startswith("sha256:"), "the job itself stays as it is"


def test_an_image_that_has_changed_or_gone_is_not_sent(tmp_path):
    path = tmp_path / "x.jpg"
    path.write_bytes(JPEG + b"after")
    with pytest.raises(InputError, match=r"row shot-7: the image .*x\.jpg: has changed since it was priced"):
        anyio.run(fill, job(path, JPEG + b"before"))
    path.unlink()
    with pytest.raises(InputError, match=r"row shot-7: the image .*x\.jpg: there is no such file"):
        anyio.run(fill, job(path, JPEG + b"before"))
    path.write_bytes(JPEG + b"before")
    assert anyio.run(fill, job(path, JPEG + b"before")), "it is read again for the next request"
