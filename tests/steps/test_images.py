"""Images as rows, bought from a service: what is sent, what is not, and what is bought again."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from callsheet.config.load import load
from callsheet.pricing.quote import Quote, quote_batch
from callsheet.pricing.references import Reading, fill, jpeg
from callsheet.steps.connect import connect
from tests.conftest import Project
from tests.pictures import HEIC, large, picture

Make = Callable[..., Project]
MOVES = {"model": "reel-1", "prompt": "A slow push in"}


def quoted(made: Project, *overrides: str) -> Quote:
    settings = load(made.config, overrides)

    async def quote() -> Quote:
        async with await connect(settings) as client:
            return await quote_batch(settings, client)

    return asyncio.run(quote())


def sent_images(made: Project, of: Quote) -> list[Any]:
    folder = made.folder / "out/report/images"
    reading = Reading(None, fit=True, folder=folder)
    jobs = [*of.plan.jobs_in_order()]
    return [asyncio.run(fill(job, reading=reading))["images"][0] for job in jobs]


@pytest.fixture
def six(project: Make) -> Project:
    made = project()
    photos = made.folder / "photos"
    photos.mkdir()
    for number, name in enumerate(("a.png", "b.jpg", "c.webp", "d.bmp")):
        kind = {"b.jpg": "JPEG", "c.webp": "WEBP", "d.bmp": "BMP"}.get(name, "PNG")
        (photos / name).write_bytes(picture(number, kind))
    (photos / "e.heic").write_bytes(HEIC)
    (photos / "f.png").write_bytes(large())
    made.set(input={"path": "photos", "defaults": MOVES})
    return made


def test_of_six_images_those_that_fit_are_bought_and_the_others_are_when_they_are_made_to(
    six: Project,
) -> None:
    before = quoted(six)
    assert (before.to_buy, before.plan.rejected_rows) == (3, 3)
    reasons = {value.rpartition("/")[2]: reason for _, _, value, reason in before.plan.rejects.rows()}
    assert "photos/d.bmp is a BMP image" in reasons["d.bmp"]
    assert "input.fit: true" in reasons["d.bmp"]
    assert "save it as JPEG" in reasons["e.heic"]
    assert "12,0" in reasons["f.png"]
    assert "input.fit: true" in reasons["f.png"]
    assert six.run().stored == 3

    six.set(input={"fit": True})
    after = quoted(six)
    assert (after.already_bought, after.to_buy, after.plan.rejected_rows) == (3, 2, 1)
    [note] = [note for note in after.plan.notes if "JPEG" in note]
    assert note.startswith("2 images are sent as JPEGs, as input.fit says: at most 4,096 pixels")
    original = (six.folder / "photos/f.png").read_bytes()
    assert six.run().stored == 5
    assert (six.folder / "photos/f.png").read_bytes() == original
    sizes = []
    for image in sent_images(six, after):
        content = base64.b64decode(image["url"].partition(",")[2])
        sizes.append(len(content))
        assert image["role"] == "first_frame"
        assert Image.open(io.BytesIO(content)).format in ("PNG", "JPEG", "WEBP")
    assert max(sizes) <= 10 << 20
    assert len(six.sold) == 5


def test_the_job_is_that_of_the_original_whatever_was_made_of_it(six: Project) -> None:
    six.set(input={"fit": True, "path": "photos/*.bmp"})
    assert six.run().stored == 1
    for made in (six.folder / "out/report/images").iterdir():
        made.write_bytes(picture(8, "JPEG"))  # as another version of the decoder makes it
    assert quoted(six).to_buy == 0
    six.set(input={"fit": False})
    assert quoted(six).to_buy == 0, "what is bought stays bought"


def test_each_model_of_a_matrix_gets_the_image_as_it_takes_one(project: Make) -> None:
    made = project()
    (made.folder / "cup.png").write_bytes(picture(1))
    made.set(
        input={
            "path": "cup.png",
            "defaults": {"prompt": "The cup turns"},
            "matrix": {"model": ["reel-1", "dailies-1", "still-1"]},
        }
    )
    roles = {job.model: job.request["images"][0]["role"] for job in quoted(made).plan.jobs_in_order()}
    assert roles == {
        "reel-1": "first_frame",
        "dailies-1": "reference_image",
        "still-1": "reference_image",
    }
    assert made.run().stored == 3
    made.set(input={"role": "reference_image"})
    again = quoted(made)
    assert again.to_buy == 1, "what was a reference image is the same request"


def test_an_edited_image_is_a_new_job_and_a_moved_folder_is_not(project: Make) -> None:
    made = project()
    photos = made.folder / "photos"
    photos.mkdir()
    for number, name in enumerate("abc"):
        (photos / f"{name}.png").write_bytes(picture(number))
    made.set(input={"path": "photos", "defaults": MOVES | {"model": "silent-1"}})
    assert made.run().stored == 3
    photos.rename(made.folder / "moved")
    made.set(input={"path": "moved"})
    assert quoted(made).to_buy == 0
    Path("moved/b.png").write_bytes(picture(7))
    edited = quoted(made)
    assert [job.row_id for job in edited.jobs_in_order()] == ["b"]
    assert any("another file of an image" in note for note in edited.plan.notes)


def test_the_last_frame_of_a_video_is_an_image_and_the_job_is_that_of_the_video(project: Make) -> None:
    made = project([{"id": "a", "prompt": "waves", "model": "dailies-1", "duration": 1}])
    assert made.run().stored == 1
    [video] = made.manifest()["url"].to_list()
    made.rows({"id": "b", "prompt": "and on", "model": "reel-1", "first_frame": f"{video}#last_frame"})
    quote = quoted(made)
    [job] = [each for each in quote.plan.jobs_in_order() if each.row_id == "b"]
    assert job.request["images"][0]["url"] == f"sha256:{made.manifest()['sha256'][0]}"
    for kept in (made.folder / "out/report/images").iterdir():
        kept.unlink()
    assert made.run().outcome == "complete"
    made.rows({"id": "b", "prompt": "and on", "model": "reel-1", "first_frame": video})
    [reason] = quoted(made).plan.rejects["reason"]
    assert reason == "is a video, and no image; its last frame is one, by its name with #last_frame"


@pytest.mark.parametrize("mode", ["L", "LA", "P", "CMYK", "I;16", "RGBA", "1"])
def test_every_kind_of_pixels_becomes_a_jpeg(mode: str, tmp_path: Path) -> None:

    content = io.BytesIO()
    Image.new(mode, (5000, 40)).save(content, "TIFF")
    made = Image.open(io.BytesIO(jpeg(content.getvalue())))
    assert (made.format, made.mode, made.size) == ("JPEG", "RGB", (4096, 33))
