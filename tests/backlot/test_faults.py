"""Faults on demand: each rule does what it describes, to the requests that it matches only."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import av
import httpx
import pytest
from PIL import Image

from backlot.errors import SettingsError
from backlot.faults import read_faults
from backlot.settings import Settings
from tests.servers import backlots

from .conftest import Clock, client, make_image, make_video, poll

Faulty = Callable[..., httpx.Client]


@pytest.fixture
def faulty(tmp_path: Path, clock: Clock) -> Iterator[Faulty]:
    """Starts a server with these rules, each a line of YAML; returns a client of it."""
    with ExitStack() as stack:

        def start(*rules: str) -> httpx.Client:
            path = tmp_path / "faults.yaml"
            path.write_text("rules:\n" + "".join(f"  - {rule}\n" for rule in rules))
            settings = Settings(port=0, image_seconds=0, video_seconds=10, faults=path)
            address = stack.enter_context(backlots.serve(settings, clock)).base_url
            return client(address)

        yield start


def test_what_comes_can_be_other_than_what_was_ordered_and_said_is_what_came(
    faulty: Faulty, clock: Clock
) -> None:
    """All that was asked for is charged; `says` alone says another thing than is true."""
    api = faulty(
        "{prompt: a little, do: smaller}",
        "{prompt: a photo, do: other_format}",
        "{prompt: brief, do: short, seconds: 1}",
        "{prompt: hushed, do: silent}",
        "{prompt: mute, do: silent, track: false}",
        "{prompt: frozen, do: still}",
        "{prompt: other, do: says, fields: {model: reel-1, duration: 9, width: null}}",
    )
    order = {"resolution": "1K", "aspect_ratio": "1:1", "output_format": "png"}
    little, photo = (
        make_image(api, prompt=prompt, **order).json()["data"][0] for prompt in ("a little one", "a photo")
    )
    assert (little["width"], little["height"], photo["mime_type"]) == (512, 512, "image/jpeg")
    assert Image.open(io.BytesIO(api.get(photo["url"]).content)).format == "JPEG"
    videos = {}
    for prompt in ("brief", "hushed", "mute", "frozen", "other", "usual"):
        made = make_video(api, prompt=prompt, model="dailies-1", duration=2, sound=True)
        clock.now += 10
        videos[prompt] = api.get(f"/v2/videos/generations/{made.json()['id']}").json()
    said = {prompt: video["data"][0] for prompt, video in videos.items()}
    assert {prompt: (item["duration"], item["has_sound"]) for prompt, item in said.items()} == {
        "brief": (1, True),
        "hushed": (2, True),
        "mute": (2, False),
        "frozen": (2, True),
        "other": (9, True),
        "usual": (2, True),
    }
    assert [video["usage"]["quantity"] for video in videos.values()] == [2] * 6
    assert (videos["other"]["model"], videos["usual"]["model"]) == ("reel-1", "dailies-1")
    assert (said["other"]["width"], said["other"]["height"]) == (None, said["usual"]["height"])


def test_a_file_can_be_black_or_of_another_size_than_asked_for(faulty: Faulty, clock: Clock) -> None:
    api = faulty("{prompt: nothing, do: blank}", "{prompt: narrow, do: wrong_size}")
    black, narrow, usual = (
        make_image(api, prompt=prompt, resolution="1K", aspect_ratio="1:1").json()["data"][0]
        for prompt in ("nothing", "a narrow one", "a fox")
    )
    assert [(item["width"], item["height"]) for item in (black, narrow, usual)] == [
        (1024, 1024),
        (512, 1024),
        (1024, 1024),
    ]
    images = [
        Image.open(io.BytesIO(api.get(item["url"]).content)).convert("L") for item in (black, narrow, usual)
    ]
    assert images[0].getextrema() == (0, 0)
    assert images[1].size == (512, 1024)
    assert images[2].getextrema()[1] > 200
    video = make_video(api, prompt="nothing")
    clock.now += 10
    content = api.get(poll(api, video)["data"][0]["url"]).content
    with av.open(io.BytesIO(content)) as opened:
        assert all(frame.to_image().convert("L").getextrema()[1] < 8 for frame in opened.decode(video=0))


def test_both_headers_of_a_429_on_demand_give_the_same_moment(faulty: Faulty, clock: Clock) -> None:
    clock.now = math.ceil(clock.now / 60) * 60 + 12
    answer = make_image(faulty("{endpoint: images, do: rate_limit}"))  # the first request of all
    assert answer.headers["Retry-After"] == "48"
    assert int(answer.headers["X-RateLimit-Reset"]) == clock.now + 48


def test_rules_match_model_prompt_and_the_nth_request(faulty: Faulty) -> None:
    api = faulty("{endpoint: images, model: still-1, prompt: fox, nth: [2, 3], do: error}")
    requests: list[dict[str, Any]] = [{}, {"prompt": "owl"}, {"model": "sketch-1"}, {}, {}, {}]
    assert [make_image(api, **fields).status_code for fields in requests] == [200, 200, 200, 500, 500, 200]


def test_the_same_seed_gives_the_same_random_faults(tmp_path: Path) -> None:
    path = tmp_path / "faults.yaml"

    def matched(seed: int) -> list[bool]:
        path.write_text(f"seed: {seed}\nrules: [{{do: error, probability: 0.3}}]")
        faults = read_faults(path)
        return [bool(faults.match("models")) for _ in range(400)]

    assert matched(1) == matched(1) != matched(2)
    assert 80 < sum(matched(1)) < 160
    path.write_text("rules:")  # all of them are comments
    assert read_faults(path).active == []


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("rules: [{do: explode}]", "explode"),
        ("rules: [{endpoint: images, do: error, status: 418}]", "status"),
        ("rules: [{endpoint: images, do: truncate}]", "downloads only"),
        ("rules: [{endpoint: balance, prompt: x, do: error}]", "balance has no prompt"),
        ("rules: [{endpoint: models, model: still-1, do: error}]", "models has no model"),
        ("rules: [{do: error, nth: 0}]", "rules.0.error.nth.0: Input should be greater"),
        ("rules: [{do: error, nth: [1, 0]}]", "rules.0.error.nth.1: Input should be greater"),
        ("rules: [{do: error, nth: []}]", "nth names no request"),
        ("rules: [{do: surcharge, amount: 0.01}]", "in quotes"),
        ("rules: [{do: fail_video, code: oops}]", "fail_video.code: Input should be"),
        ("rules: [{do: delay, seconds: 1, colour: red}]", "colour"),
        ("rule: []", "rule: unknown key"),
        ("[]", "faults.yaml: expected keys and values"),
        ("", "faults.yaml: expected keys and values"),
    ],
)
def test_a_wrong_faults_file_names_the_file_and_the_rule(
    tmp_path: Path, content: str, complaint: str
) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text(content)
    with pytest.raises(SettingsError, match=complaint) as error:
        read_faults(path)
    assert str(path) in str(error.value)
