"""Images in a batch file or instead of one: what `init` has sent with a prompt, and in which role."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.proposed import Make, config, given, quote
from tests.cli.test_rows import printed, refusal
from tests.conftest import Project
from tests.pictures import picture


@pytest.fixture
def photos(project: Make) -> Project:
    made = project()
    (made.folder / "photos").mkdir()
    for number, name in enumerate(("cup.png", "vase.jpeg")):
        kind = "PNG" if name.endswith("png") else "JPEG"
        (made.folder / "photos" / name).write_bytes(picture(number, kind))
    return made


def test_images_that_are_there_are_sent_and_the_guess_says_so(photos: Project) -> None:
    wrote = given(photos, "x.jsonl", '{"file_name": "photos/cup.png", "instruction": "give the cat a hat"}\n')
    assert wrote["columns"] == {"prompt": "instruction", "reference_image": "file_name"}
    assert wrote["guessed"]["images"] == {"taken": "file_name", "others": ["none"]}
    assert quote()["first_request"]["images"]


def test_images_of_a_model_that_takes_first_frames_are_its_first_frames(photos: Project) -> None:
    given(photos, "x.csv", "image,prompt\nphotos/cup.png,the cat walks\n", "--model", "reel-1")
    [sent] = quote()["first_request"]["images"]
    assert sent["role"] == "first_frame"


def test_a_folder_of_images_gets_a_config_with_the_prompt_that_is_given(photos: Project) -> None:
    printed("init", "photos", "--prompt", "A slow push in", "--media", "videos")
    wrote = config(photos, "photos.yaml")
    assert wrote["path"] == "photos"
    assert wrote["defaults"] == {"model": "dailies-1", "prompt": "A slow push in"}
    assert "2 videos (dailies-1" in printed("quote", "photos.yaml")
    assert not (photos.folder / "photos/batch.yaml").exists()


def test_a_glob_of_images_gets_a_config_and_no_folder_of_that_name(photos: Project) -> None:
    printed("init", "photos/*.jpeg", "--prompt", "{id} on a table", "--model", "still-1")
    wrote = config(photos, "photos.yaml")
    assert (wrote["path"], wrote["template"]) == ("photos/*.jpeg", "{id} on a table")
    assert "1 image (still-1" in printed("quote", "photos.yaml")
    assert not (photos.folder / "photos/*.jpeg").exists()


def test_without_a_prompt_the_option_is_named_and_texts_beside_the_images_are_prompts(
    photos: Project,
) -> None:
    assert '--prompt "A slow push in"' in refusal("init", "photos").hint
    (photos.folder / "photos/cup.txt").write_text("Steam rises")
    printed("init", "photos", "first.yaml", "--model", "reel-1")
    assert config(photos, "first.yaml")["defaults"] == {"model": "reel-1"}
    said = printed("quote", "first.yaml")
    assert "2 read, 1 rejected" in said
    assert "vase.jpeg has no prompt" in said


def test_a_folder_with_a_config_is_no_folder_of_images(photos: Project) -> None:
    (photos.folder / "photos/batch.yaml").write_text("batch: x\n")
    assert "batch.yaml: already there" in refusal("init", "photos").message


IMAGES = {
    "several, in their order": (
        "image1,image2,prompt\nphotos/cup.png,photos/vase.jpeg,Put the vase beside the cup\n",
        {"reference_image": ["image1", "image2"]},
        None,
        2,
    ),
    "a list in a cell": (
        'scene,characters,prompt\nphotos/cup.png,"[""photos/vase.jpeg"", ""photos/cup.png""]",They meet\n',
        {"reference_image": ["scene", "characters"]},
        "scene, characters",
        3,
    ),
    "first and last frames": (
        "start_image,end_image,prompt\nphotos/cup.png,photos/cup.png,The camera moves in\n",
        {"first_frame": "start_image", "last_frame": "end_image"},
        None,
        2,
    ),
    "results that are there": (
        "filename,prompt\nphotos/cup.png,A white cup on a table\n",
        {"id": "filename"},
        "none",
        0,
    ),
}


@pytest.mark.parametrize(("text", "names", "guessed", "count"), IMAGES.values(), ids=IMAGES)
def test_images_are_sent_where_they_are_found_and_are_no_results(
    photos: Project, text: str, names: dict[str, Any], guessed: str | None, count: int
) -> None:
    wrote = given(photos, "x.csv", text)
    assert wrote["columns"] == names
    assert wrote.get("guessed", {}).get("images", {}).get("taken") == guessed
    assert len(quote()["first_request"].get("images", [])) == count
