"""Images and videos, downloaded over HTTP and read by real decoders."""

from __future__ import annotations

import base64
import io

import av
import httpx
import pytest
from hypothesis import given, settings, strategies
from PIL import Image, ImageChops, ImageStat

from backlot.media import images, titles, videos
from backlot.media.recipe import Recipe, size

from .conftest import Clock, data_url, make_image, make_video, poll


def fetch(api: httpx.Client, **fields: object) -> Image.Image:
    """A finished image, decoded."""
    item = make_image(api, **fields).json()["data"][0]
    answer = api.get(item["url"])
    image = Image.open(io.BytesIO(answer.content))
    image.load()
    assert image.size == (item["width"], item["height"])
    assert Image.MIME[image.format or ""] == item["mime_type"] == answer.headers["Content-Type"]
    return image


def difference(a: Image.Image, b: Image.Image) -> float:
    """How different two images are: 0 is the same, 255 is black and white."""
    return sum(ImageStat.Stat(ImageChops.difference(a.convert("RGB"), b.convert("RGB"))).mean) / 3


@pytest.mark.parametrize("model", ["still-1", "sketch-1", "poster-1"])
def test_every_ratio_is_exact_and_every_higher_label_has_more_pixels(api: httpx.Client, model: str) -> None:
    listed = api.get(f"/v2/models/{model}").json()
    for ratio in listed["supported_aspect_ratios"]:
        wide, high = (int(part) for part in ratio.split(":"))
        areas = {}
        for label in listed["supported_resolutions"]:
            item = make_image(api, model=model, aspect_ratio=ratio, resolution=label).json()["data"][0]
            assert item["width"] * high == item["height"] * wide
            areas[float(label[:-1])] = item["width"] * item["height"]
        assert [areas[k] for k in sorted(areas)] == sorted(set(areas.values()))


@pytest.mark.parametrize("mime", ["png", "jpeg", "webp"])
def test_an_image_has_the_requested_format_and_no_exif(api: httpx.Client, mime: str) -> None:
    image = fetch(api, output_format=mime, aspect_ratio="3:2")
    assert image.size == size("3:2", "1K")
    assert not image.getexif()


def test_the_same_prompt_gives_the_same_image_and_another_prompt_another(api: httpx.Client) -> None:
    first = fetch(api, prompt="a boat at sunset", output_format="png")
    assert difference(first, fetch(api, prompt="a boat at sunset", output_format="png")) == 0
    assert difference(first, fetch(api, prompt="a boat at night", output_format="png")) > 10
    assert (
        difference(
            first,
            fetch(
                api,
                prompt="a boat at sunset",
                model="poster-1",
                aspect_ratio="1:1",
                resolution="1K",
                output_format="png",
            ),
        )
        > 5
    )


def test_another_seed_gives_another_image() -> None:
    one, two = (Recipe("still-1", "a hill", 256, 256, "0.25K", "png", seed) for seed in (0, 1))
    assert images.make_image(one) == images.make_image(one) != images.make_image(two)


def test_the_prompt_is_in_the_image(api: httpx.Client) -> None:
    """Where the title has text, the image is white."""
    image = fetch(api, prompt="LEGIBLE", output_format="png").convert("L")
    light, _, top = titles.title(1024, 1024, "LEGIBLE", "still-1 \u00b7 1K \u00b7 1024 x 1024")
    region = image.crop((0, top, 1024, 1024))
    text = light.point(lambda v: 255 if v > 250 else 0)  # type: ignore[operator]
    assert ImageStat.Stat(text).sum[0] / 255 > 2000, "there are enough pixels of text"
    assert ImageStat.Stat(region, text).mean[0] > 235
    assert ImageStat.Stat(region, light.point(lambda v: 255 if v == 0 else 0)).mean[0] < 130  # type: ignore[operator]


@pytest.mark.parametrize(
    ("prompt", "written"),
    [
        ("Grüße aus Łódź", "Grusse aus Lodz"),
        ("Привет", "Privet"),
        ("a 😀\n\tcat", "a [grinning face] cat"),
        ("\u200b", "(no letters)"),
        ("“quoted”…", "“quoted”…"),
    ],
)
def test_characters_that_the_font_lacks_are_transliterated(prompt: str, written: str) -> None:
    assert titles.drawable(prompt) == written


@pytest.mark.parametrize("examples", [100, pytest.param(3000, marks=pytest.mark.soak)])
def test_any_text_becomes_drawable(examples: int) -> None:
    @given(strategies.text(max_size=40))
    @settings(max_examples=examples, deadline=None)
    def becomes_drawable(text: str) -> None:
        written = titles.drawable(text)
        assert written.strip()
        assert all(character == " " or titles.has_glyph(character) for character in written)

    becomes_drawable()


@pytest.mark.parametrize("prompt", ["x" * 4096, "word " * 819, "水" * 4096, "a", "\n", "i" * 300])
@pytest.mark.parametrize("ratio", ["16:9", "9:16"])
def test_any_prompt_fits_its_image(prompt: str, ratio: str) -> None:
    width, height = size(ratio, "0.5K")
    recipe = Recipe("sketch-1", prompt, width, height, "0.5K", "jpeg", 0)
    assert Image.open(io.BytesIO(images.make_image(recipe))).size == (width, height)
    face, lines = titles.fit(titles.drawable(prompt), width - 40, height // 2)
    assert all(face.getlength(line) <= width - 40 for line in lines)


def test_a_reference_image_is_visible_in_the_image(api: httpx.Client) -> None:
    plain = fetch(api, prompt="a hill", output_format="png")
    red = fetch(api, prompt="a hill", output_format="png", images=[{"url": data_url("#ff0000", (200, 200))}])
    pinned = red.crop((150, 150, 250, 250)).convert("RGB")
    means = ImageStat.Stat(pinned).mean
    assert means[0] > 240 > 20 > means[1] + means[2] - 10
    assert difference(plain, red) > 10
    named = fetch(api, prompt="a hill", output_format="png", images=[{"url": "https://example.com/a.png"}])
    other = fetch(api, prompt="a hill", output_format="png", images=[{"url": "https://example.com/b.png"}])
    assert difference(named, other) > 3


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
        ({"model": "dailies-1", "duration": 3, "aspect_ratio": "16:9"}, False),
        ({"model": "silent-1", "duration": 2, "aspect_ratio": "16:9"}, False),
        ({"model": "reel-1", "sound": True}, True),
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


def test_a_video_moves(api: httpx.Client, clock: Clock) -> None:
    _, content = finished(api, clock, model="dailies-1", prompt="a city")
    _, frames = decode(content)
    steps = [difference(a, b) for a, b in zip(frames[12::6], frames[18::6], strict=False)]
    assert min(steps) > 1


def test_the_first_and_the_last_frame_are_the_ones_given(api: httpx.Client, clock: Clock) -> None:
    given = {"first_frame": "#c03020", "last_frame": "#2040c0"}
    images = [{"url": data_url(color, (320, 180)), "role": role} for role, color in given.items()]
    _, content = finished(api, clock, images=images)
    _, frames = decode(content)
    for frame, color in zip((frames[0], frames[-1]), given.values(), strict=True):
        assert difference(frame, Image.new("RGB", frame.size, color)) < 6
    assert difference(frames[0], frames[-1]) > 60


def test_a_video_with_only_a_first_frame_begins_with_it(api: httpx.Client, clock: Clock) -> None:
    half = Image.new("RGB", (160, 160), "#10a040")
    half.paste("#e0e0e0", (80, 0, 160, 160))
    out = io.BytesIO()
    half.save(out, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"
    images = [{"url": url, "role": "first_frame"}]
    _, content = finished(api, clock, model="silent-1", duration=2, images=images)
    _, frames = decode(content)
    assert difference(frames[0], half.resize(frames[0].size)) < 8
    assert difference(frames[0], frames[24]) > 3


def test_a_reference_image_is_visible_in_a_video(api: httpx.Client, clock: Clock) -> None:
    images = [{"url": data_url("#ff0000", (200, 200)), "role": "reference_image"}]
    _, content = finished(api, clock, model="dailies-1", images=images)
    _, frames = decode(content)
    for frame in (frames[0], frames[-1]):
        red, green, blue = ImageStat.Stat(frame.crop((50, 50, 80, 80))).mean
        assert red > 200 > 80 > max(green, blue)


def test_the_same_recipe_gives_the_same_video() -> None:
    recipe = Recipe("dailies-1", "a hill", *size("16:9", "360p"), "360p", "mp4", 0, duration=1, sound=True)
    assert videos.make_video(recipe) == videos.make_video(recipe)
