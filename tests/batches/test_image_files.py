"""A folder of images is a batch file: its rows, their ids and prompts, and what is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from callsheet.batches.read import Batch, original_rows, read_batch
from callsheet.errors import InputError
from tests.batches.conftest import places, settings
from tests.pictures import picture
from tests.servers import s3 as servers

MOVES = {"model": "reel-1", "prompt": "A slow push in"}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    for number, name in enumerate(("vase.png", "cup.jpg", "shoes/left.webp", ".hidden.png", "Lamp.JPEG")):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number))
    (folder / "cup.txt").write_bytes("Steam rises\r\nfrom the cup\n".encode("utf-8-sig"))
    for name in ("notes.md", "shoes/prices.pdf", "alone.txt"):
        (folder / name).write_text("x")
    return folder


def rows(batch: Batch) -> list[tuple[str, str]]:
    return batch.rows.select("row_id", "prompt").rows()


def images(batch: Batch) -> list[dict[str, str]]:
    return [json.loads(cell)[0] for cell in batch.rows["images"]]


def read(path: Path | str, **given: Any) -> Batch:
    return read_batch(settings(path, **given))


def test_each_image_of_a_folder_is_a_row_by_its_name_with_the_prompt_beside_it(photos: Path) -> None:
    found = read(f"{photos}/", defaults=MOVES)
    assert rows(found) == [
        ("Lamp", "A slow push in"),
        ("cup", "Steam rises\nfrom the cup"),
        ("shoes/left", "A slow push in"),
        ("vase", "A slow push in"),
    ]
    assert images(found)[2] == {"role": "by_model", "url": f"{photos}/shoes/left.webp"}
    [note] = found.notes
    assert note.endswith(
        "3 files of " + f"{photos} are no images, and left out: alone.txt, notes.md, shoes/prices.pdf"
    )
    assert found.columns.used == {"id": "id", "prompt": "prompt", "images": "file"}
    assert rows(read(photos, defaults=MOVES)) == rows(found), "with a slash or without"


def test_an_image_without_a_prompt_is_rejected_by_its_name_and_a_folder_without_any_says_so(
    photos: Path,
) -> None:
    found = read(photos)
    assert rows(found) == [("cup", "Steam rises\nfrom the cup")]
    assert (found.total, found.rejects.height) == (4, 3)
    assert places(found)[0] == (
        1,
        "",
        f"{photos}/Lamp.JPEG has no prompt: there is no text in Lamp.txt, and none in the config",
    )
    (photos / "cup.txt").unlink()
    with pytest.raises(InputError, match="4 images, and no prompt") as caught:
        read(photos)
    assert "input.template" in caught.value.hint
    assert rows(read(photos, template="Around {id}"))[0] == ("Lamp", "Around Lamp")
    assert rows(read(photos, columns={"prompt": "id"}))[2] == ("shoes/left", "shoes/left")


def test_a_glob_of_images_is_one_too_and_a_glob_of_batch_files_is_none(photos: Path) -> None:
    assert rows(read(photos / "*.jpg")) == [("cup", "Steam rises\nfrom the cup")]
    ids = [row for row, _ in rows(read(photos / "**/*.[jw]*", defaults=MOVES))]
    assert ids == ["cup", "shoes/left"]
    assert rows(read(photos / "vase.png", defaults=MOVES)) == [("vase", "A slow push in")]
    (photos / "cup.csv").write_text("prompt\nx\n")
    with pytest.raises(InputError, match="is not of a known type"):
        read(photos / "*")
    with pytest.raises(InputError, match="no file matches"):
        read(photos / "*.gif")


def test_the_config_says_what_the_images_are_and_may_name_them_itself(photos: Path) -> None:
    as_role = read(photos, defaults=MOVES, role="reference_image")
    assert {each["role"] for each in images(as_role)} == {"reference_image"}
    named = read(photos, defaults=MOVES, columns={"last_frame": "file"})
    assert named.rows["images"].null_count() == 4
    assert named.rows["last_frame"][3] == f"{photos}/vase.png"
    both = read(photos, defaults=MOVES | {"first_frame": "open.png"}, role="last_frame")
    assert images(both)[3] == {"role": "last_frame", "url": f"{photos}/vase.png"}
    assert both.rows["first_frame"].unique().to_list() == ["open.png"]


def test_what_the_batch_has_stored_in_the_folder_is_no_row(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(photos)
    (photos / "out/media/b").mkdir(parents=True)
    (photos / "out/media/b/cup-1-0.png").write_bytes(picture(9))
    assert [row for row, _ in rows(read(".", defaults=MOVES))] == ["Lamp", "cup", "shoes/left", "vase"]


def test_two_images_of_one_name_are_not_two_rows_of_one_id(photos: Path) -> None:
    (photos / "cup.png").write_bytes(picture(5))
    found = read(photos, defaults=MOVES)
    assert [row for row, _ in rows(found)] == ["Lamp", "cup", "shoes/left", "vase"]
    assert places(found)[0][:2] == (3, "id")


def test_rows_that_are_images_are_not_written_into_a_file(photos: Path) -> None:
    with pytest.raises(InputError, match="has files, and no rows"):
        original_rows(settings(photos, defaults=MOVES), ["cup"])


def test_a_folder_and_a_glob_on_s3_are_read(s3: servers.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in s3.environment("reader").items():
        monkeypatch.setenv(variable, value)
    for key, content in [
        ("shoot/cup.jpg", picture(1)),
        ("shoot/cup.txt", b"Steam rises"),
        ("shoot/shoes/left.png", picture(2)),
        ("shoot/notes.md", b"x"),
    ]:
        s3.client().put_object(Bucket=s3.bucket, Key=key, Body=content)
    found = read(f"s3://{s3.bucket}/shoot/", defaults=MOVES)
    assert rows(found) == [("cup", "Steam rises"), ("shoes/left", "A slow push in")]
    assert images(found)[1]["url"] == f"s3://{s3.bucket}/shoot/shoes/left.png"
    assert "notes.md" in found.notes[0]
    assert rows(read(f"s3://{s3.bucket}/shoot/*.jpg")) == [("cup", "Steam rises")]
    with pytest.raises(InputError, match="is a folder"):
        read(f"s3://{s3.bucket}/nothing/")
