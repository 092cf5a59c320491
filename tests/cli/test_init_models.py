"""Which model `init` writes, and whether it is for images or for videos."""

from __future__ import annotations

import json

import pytest

from tests.cli.proposed import SHOTS, Make, asked, config, given, quote, ran
from tests.cli.test_rows import printed, refusal


def test_the_model_that_is_written_fits_most_rows(project: Make) -> None:
    text = "id,prompt,ratio\na,x y,4:5\nb,x y,4:5\nc,x y,9:16\nd,x y,16:9\n"
    wrote = given(project(), "x.csv", text)
    assert (wrote["columns"], wrote["defaults"]) == ({"aspect_ratio": "ratio"}, {"model": "poster-1"})
    assert "16:9 is not offered by poster-1; it offers" in printed("quote", "new.yaml")


UNKNOWN_MODELS = {
    "a typo in every cell": ("model", "postr-1", "postr-1", "poster-1"),
    "those of another service, in a column of another name": ("Model Name", "flux.pro", "dalle-3", None),
}


@pytest.mark.parametrize(("name", "first", "second", "nearest"), UNKNOWN_MODELS.values(), ids=UNKNOWN_MODELS)
def test_the_model_is_a_doubt_where_a_column_of_models_names_none_of_the_catalogue(
    project: Make, name: str, first: str, second: str, nearest: str | None
) -> None:
    made, text = project(), f"id,prompt,{name}\na,A heron,{first}\nb,A fox,{second}\n"
    guessed = given(made, "x.csv", text)["guessed"]["model"]
    assert guessed["taken"] == "sketch-1"
    assert nearest in (None, guessed["others"][0])
    said = printed("init", "x.csv", "y.yaml")
    assert f"Not used   {name} names no model of the catalogue: {first}" in said
    assert ran("new.yaml", code=4)["stop_reason"] == "approval"
    made.folder.joinpath("new.yaml").unlink()
    assert "guessed" not in given(made, "x.csv", text, "--model", "poster-1")


def test_a_model_that_a_person_names_is_that_of_all_rows_and_says_the_medium(project: Make) -> None:
    made = project()
    wrote = given(made, "x.csv", "id,prompt,model\na,A heron,still-1\n", "--model", "poster-1")
    assert (wrote["columns"], wrote["defaults"]) == ({"model": None}, {"model": "poster-1"})
    made.folder.joinpath("new.yaml").unlink()
    wrote = given(made, "x.csv", SHOTS, "--model", "reel-1")
    assert wrote["columns"] == {"prompt": "motion_prompt", "duration": "seconds"}
    assert "guessed" not in wrote
    made.folder.joinpath("new.yaml").unlink()
    stills = given(made, "x.csv", SHOTS, "--production", "--model", "still-1")
    assert stills["defaults"] == {"model": "still-1", "samples": 3}
    assert config(made, "new-films.yaml")["defaults"] == {"model": "reel-1"}
    error = refusal("init", "x.csv", "y.yaml", "--media", "images", "--model", "reel-1")
    assert error.message == "reel-1 makes videos, not images"


def test_a_model_that_was_given_is_not_called_the_cheapest(project: Make) -> None:
    project().folder.joinpath("x.csv").write_text("id,prompt\na,A heron\n", encoding="utf-8")
    said = printed("init", "x.csv", "--model", "still-1")
    assert "1 image of 1 row on still-1; 0.0400 USD" in said


def test_models_for_images_and_for_videos_are_a_doubt_where_the_file_names_others(project: Make) -> None:
    made, text = project(), "id,prompt,type,model\na,A heron,image,stil-1\nb,A fox,video,real-1\n"
    wrote = given(made, "x.csv", text)
    taken = "sketch-1, dailies-1"
    assert wrote["guessed"]["model"] == {"taken": taken, "others": ["still-1", "silent-1", "reel-1"]}
    assert f"Guessed    model {taken} (also: still-1" in printed("quote", "new.yaml")
    assert "2 rows on sketch-1 and dailies-1, the cheapest;" in printed("init", "x.csv", "y.yaml")
    asked(made, "\n", text)
    wrote = config(made, "x.yaml")
    assert wrote["values"] == {"model": {"image": "sketch-1", "video": "dailies-1"}}
    assert "guessed" not in wrote
    made.folder.joinpath("new.yaml").unlink()
    shots = "image_prompt,motion_prompt,model\nA heron on a pond,The heron lifts its head,real-1\n"
    given(made, "y.csv", shots, "--production")
    assert config(made, "new-films.yaml")["guessed"]["model"]["others"][0] == "reel-1"


@pytest.mark.parametrize(
    ("name", "text"), [("video_prompts.csv", "prompt\nA heron\n"), ("x.csv", "clip_prompt\nA heron\n")]
)
def test_a_name_that_says_video_is_a_reason_for_videos(project: Make, name: str, text: str) -> None:
    wrote = given(project(), name, text)
    assert "guessed" not in wrote, "nothing says images"
    assert quote()["media"] == {"images": 0, "videos": 1}


MEDIA = {
    "a duration alone": ("x.csv", "id,prompt,duration\na,Waves,5\n", ["videos", "images"]),
    "a duration beside a name of images": ("photos.csv", "prompt,seconds\nWaves,5\n", ["videos", "images"]),
    "a prompt of images beside one of motion": ("x.csv", SHOTS, ["images", "videos", "both"]),
    "first frames": ("x.csv", "prompt,start_image\nWaves,https://example.com/a.png\n", []),
    "nothing": ("x.csv", "id,prompt\na,Waves\n", []),
}


@pytest.mark.parametrize(("name", "text", "answers"), MEDIA.values(), ids=MEDIA)
def test_the_medium_is_in_doubt_where_there_is_a_reason_for_both(
    project: Make, name: str, text: str, answers: list[str]
) -> None:
    guessed = given(project(), name, text).get("guessed", {}).get("media")
    assert ([guessed["taken"], *guessed["others"]] if guessed else []) == answers


def test_a_column_of_media_types_gives_each_row_a_model_of_its_type(project: Make) -> None:
    wrote = given(project(), "x.csv", "id,kind,prompt\n1,image,A heron\n2,Video,A fox\n")
    assert wrote["columns"] == {"model": "kind"}
    assert wrote["values"] == {"model": {"image": "sketch-1", "Video": "dailies-1"}}
    assert quote()["media"] == {"images": 1, "videos": 1}


def test_values_that_fit_no_model_are_named_with_what_the_models_offer(project: Make) -> None:
    made = project()
    (made.folder / "x.csv").write_text("id,prompt,duration\n1,Waves,1:30\n")
    said = printed("init", "x.csv", code=2)
    assert said.startswith(
        "Nothing can be bought: every row is rejected. duration 90 is not offered by reel-1;"
    )
    assert "not offered by silent-1" in said
    assert json.loads(printed("quote", "x.yaml", "--json"))["rejected_rows"] == 1


def test_what_the_models_do_not_take_is_not_mapped_and_where_nothing_can_be_bought_init_ends_with_2(
    project: Make,
) -> None:
    made = project()
    named = "id,prompt,model,seconds\na,A heron,still-1,5\nb,A fox,still-1,4\n"
    assert "columns" not in given(made, "x.csv", named), "the models of the file make images"
    assert quote()["media"] == {"images": 2, "videos": 0}
    assert "'seconds' is for videos, and images are bought" in printed("quote", "new.yaml")
    mixed = "id,prompt,model,duration\na,A heron,still-1,\nb,A fox runs,reel-1,5\n"
    (made.folder / "m.csv").write_text(mixed)
    assert "Doubt" not in printed("init", "m.csv"), "each row's model says what it makes"
    said = printed("init", "x.csv", "y.yaml", "--media", "videos", code=2)
    assert said.startswith("Nothing can be bought: every row is rejected. line 2, seconds: duration is for")
    assert printed("quote", "y.yaml").splitlines()[1] == "Nothing to buy: every row is rejected."

    (made.folder / "q.csv").write_text("id,prompt,resolution\na,A heron,4K\n")
    said = printed("init", "q.csv", "--model", "sketch-1")
    assert "resolution holds what sketch-1 does not take as resolution: resolution 4K is not offered" in said
    assert json.loads(printed("quote", "q.yaml", "--json"))["to_buy"] == 1
