"""Images and videos, downloaded over HTTP and read by real decoders."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import av
import httpx
import pytest
from PIL import Image, ImageChops, ImageDraw, ImageFont, ImageOps, ImageStat

from backlot.media import make
from backlot.media.recipe import Recipe, size

from .conftest import Account, Clock, data_url, make_image, make_video, poll


def opened(content: bytes) -> Image.Image:
    """A file, decoded."""
    image = Image.open(io.BytesIO(content))
    image.load()
    return image


def fetch(api: httpx.Client, **fields: object) -> Image.Image:
    """A finished image, decoded."""
    item = make_image(api, **fields).json()["data"][0]
    answer = api.get(item["url"])
    image = opened(answer.content)
    assert image.size == (item["width"], item["height"])
    assert Image.MIME[image.format or ""] == item["mime_type"] == answer.headers["Content-Type"]
    return image


def difference(a: Image.Image, b: Image.Image) -> float:
    """How different two images are: 0 is the same, 255 is black and white."""
    return sum(ImageStat.Stat(ImageChops.difference(a.convert("RGB"), b.convert("RGB"))).mean) / 3


@pytest.mark.parametrize("labels", [("0.25K", "0.5K", "1K", "2K", "4K"), ("360p", "480p", "720p", "1080p")])
def test_every_ratio_is_exact_and_every_higher_label_has_more_pixels(labels: tuple[str, ...]) -> None:
    for ratio in ("1:1", "16:9", "9:16", "3:2", "2:3", "4:5"):
        wide, high = (int(part) for part in ratio.split(":"))
        sizes = [size(ratio, label) for label in labels]
        assert all(width * high == height * wide and width % 2 == height % 2 == 0 for width, height in sizes)
        areas = [width * height for width, height in sizes]
        assert areas == sorted(set(areas))


def test_an_image_has_the_requested_format_and_no_exif(api: httpx.Client) -> None:
    for mime in ("png", "jpeg", "webp"):
        image = fetch(api, model="sketch-1", output_format=mime, aspect_ratio="1:1")
        assert (image.format or "").lower() == mime
        assert image.size == size("1:1", "0.25K")
        assert not image.getexif()


def test_samples_of_the_same_request_differ_visibly_and_are_numbered(account: Account) -> None:
    """Each next one is another image, also after others, and each project begins with the first."""
    api, other = account(), account()
    first, second, third = (fetch(api, prompt="a boat", output_format="png") for _ in range(3))
    for one, another in ((first, second), (second, third), (first, third)):
        assert difference(one, another) > 25
    assert difference(first, fetch(other, prompt="a boat", output_format="png")) == 0


@pytest.mark.parametrize(
    "field", [{"prompt": "a ship"}, {"model": "proof-1"}, {"seed": 1}, {"sample": 2}], ids=str
)
def test_a_recipe_gives_one_image_and_another_recipe_another(field: dict[str, Any]) -> None:
    one = Recipe("still-1", "a boat", 352, 198, "png", seed=0)
    drawn = make(one)
    make.cache_clear()
    assert drawn == make(one)
    assert difference(opened(drawn), opened(make(replace(one, **field)))) > 25


def test_prompt_model_and_sample_are_written_in_the_image(api: httpx.Client) -> None:
    """Its caption is what Pillow's font draws of these words."""
    fetch(api, prompt="LEGIBLE", output_format="png")
    image = fetch(api, prompt="LEGIBLE", output_format="png").convert("L")
    caption = ImageOps.autocontrast(image.crop((0, 720, 1024, 1024)))
    expected = Image.new("L", caption.size, 255)
    pen = ImageDraw.Draw(expected)
    pen.text((41, 38), "LEGIBLE", 0, ImageFont.load_default(73))
    pen.text(
        (41, 263), "still-1 \u00b7 1024 x 1024 \u00b7 sample 2", 0, ImageFont.load_default(37), anchor="ls"
    )
    assert difference(caption, expected) < 1 < difference(caption, Image.new("L", caption.size, 255))


@pytest.mark.parametrize("ratio", ["16:9", "9:16"])
def test_any_prompt_can_be_drawn_inside_of_its_image(ratio: str) -> None:
    """Nothing is written over the edge: the caption's margin has one colour."""
    width, height = size(ratio, "0.5K")
    russian = "\u041f\u0440\u0438\u0432\u0435\u0442"
    for prompt in ("word " * 819, "\u6c34" * 4096, "a", "\n", "W" * 60, russian, "\0 \u200b \U0001f600"):
        image = opened(make(Recipe("sketch-1", prompt, width, height, "png", 0)))
        assert image.size == (width, height)
        margin = image.crop((width - 4, round(height * 0.7) + 1, width, height))
        assert len(margin.getcolors() or ()) == 1, prompt


def test_a_reference_image_is_visible_in_the_image(api: httpx.Client) -> None:
    given = [{"url": data_url("#ff0000", (200, 200))}]
    red, green, blue = ImageStat.Stat(fetch(api, images=given).crop((50, 50, 450, 450))).mean
    assert red > 240 > 20 > max(green, blue)
    named, other = (fetch(api, images=[{"url": f"https://example.com/{name}.png"}]) for name in "ab")
    assert difference(named.crop((0, 0, 400, 400)), other.crop((0, 0, 400, 400))) > 25, "drawn from its text"


def decode(content: bytes) -> tuple[av.container.InputContainer, list[Image.Image]]:
    """A video's container and its frames."""
    container = av.open(io.BytesIO(content))
    return container, [frame.to_image() for frame in container.decode(video=0)]


def finished(api: httpx.Client, clock: Clock, **fields: object) -> tuple[dict[str, object], bytes]:
    """A finished video's data item and file."""
    video = make_video(api, **fields)
    clock.now += 10
    item = poll(api, video)["data"][0]
    return item, api.get(item["url"], timeout=300).content


@pytest.mark.parametrize(
    ("fields", "sound"),
    [
        ({"model": "dailies-1", "sound": True}, True),
        ({"model": "silent-1", "duration": 2, "aspect_ratio": "16:9"}, False),
    ],
    ids=str,
)
def test_a_video_has_the_length_size_and_sound_of_its_data(
    api: httpx.Client, clock: Clock, fields: dict[str, object], sound: bool
) -> None:
    item, content = finished(api, clock, **fields)
    container, frames = decode(content)
    video = container.streams.video[0]
    assert (video.codec_context.name, video.average_rate) == ("h264", item["fps"])
    assert frames[0].size == (item["width"], item["height"])
    assert len(frames) == item["duration"] * 24  # type: ignore[operator]
    assert abs((container.duration or 0) / 1e6 - item["duration"]) < 0.06  # type: ignore[operator]
    assert bool(container.streams.audio) == item["has_sound"] == sound
    if sound:
        audio = av.open(io.BytesIO(content))
        samples = list(audio.decode(audio=0))
        assert audio.streams.audio[0].codec_context.name == "aac"
        assert abs(sum(f.samples for f in samples) / 44100 - item["duration"]) < 0.1  # type: ignore[operator]
        assert max(max(memoryview(bytes(f.planes[0])).cast("f")) for f in samples) > 0.05, "not silence"
    assert content.index(b"moov") < content.index(b"mdat"), "playable from its first bytes"


def test_the_first_and_the_last_frame_are_the_ones_given(api: httpx.Client, clock: Clock) -> None:
    given = {"first_frame": "#c03020", "last_frame": "#2040c0"}
    images = [{"url": data_url(color, (320, 180)), "role": role} for role, color in given.items()]
    _, content = finished(api, clock, images=images)
    _, frames = decode(content)
    for frame, color in zip((frames[0], frames[-1]), given.values(), strict=True):
        assert difference(frame, Image.new("RGB", frame.size, color)) < 6
    assert difference(frames[0], frames[-1]) > 60
