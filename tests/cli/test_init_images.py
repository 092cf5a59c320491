"""`callsheet init` for a folder and a glob of images."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml

from tests.cli.test_rows import printed, refusal
from tests.conftest import Project
from tests.pictures import picture

Make = Callable[..., Project]


@pytest.fixture
def made(project: Make) -> Project:
    made = project()
    (made.folder / "photos").mkdir()
    for number, name in enumerate(("cup.png", "vase.jpeg")):
        kind = "PNG" if name.endswith("png") else "JPEG"
        (made.folder / "photos" / name).write_bytes(picture(number, kind))
    return made


def config(made: Project, name: str) -> dict[str, object]:
    return dict(yaml.safe_load((made.folder / name).read_text())["input"])


def test_a_folder_of_images_gets_a_config_with_the_prompt_that_is_given(made: Project) -> None:
    printed("init", "photos", "--prompt", "A slow push in", "--media", "videos")
    wrote = config(made, "photos.yaml")
    assert wrote["path"] == "photos"
    assert wrote["defaults"] == {"model": "dailies-1", "prompt": "A slow push in"}
    assert "2 videos (dailies-1" in printed("quote", "photos.yaml")
    assert not (made.folder / "photos/batch.yaml").exists()


def test_a_glob_of_images_gets_a_config_and_no_folder_of_that_name(made: Project) -> None:
    printed("init", "photos/*.jpeg", "--prompt", "{id} on a table", "--model", "still-1")
    wrote = config(made, "photos.yaml")
    assert (wrote["path"], wrote["template"]) == ("photos/*.jpeg", "{id} on a table")
    assert "1 image (still-1" in printed("quote", "photos.yaml")
    assert not (made.folder / "photos/*.jpeg").exists()


def test_without_a_prompt_the_option_is_named_and_texts_beside_the_images_are_prompts(made: Project) -> None:
    assert '--prompt "A slow push in"' in refusal("init", "photos").hint
    (made.folder / "photos/cup.txt").write_text("Steam rises")
    printed("init", "photos", "first.yaml", "--model", "reel-1")
    assert config(made, "first.yaml")["defaults"] == {"model": "reel-1"}
    said = printed("quote", "first.yaml")
    assert "2 read, 1 rejected" in said
    assert "vase.jpeg has no prompt" in said


def test_a_folder_with_a_config_is_no_folder_of_images(made: Project) -> None:
    (made.folder / "photos/batch.yaml").write_text("batch: x\n")
    assert "batch.yaml: already there" in refusal("init", "photos").message
