"""Videos: a camera that moves along a scene, or between the given frames, with the prompt as a title.

Everything is drawn once, in RGB, and then moved plane by plane in the codec's colours (YCbCr 4:2:0), which
costs much less than drawing each frame.
"""

from __future__ import annotations

import math
import tempfile
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import av
from PIL import Image, ImageOps

from backlot.media import images, titles
from backlot.media.recipe import FPS, Recipe

RATE = 44100
STEP = 4  # pixels that the nearest layer moves from one frame to the next; even, for half-size chroma
X264 = {
    "preset": "ultrafast",
    "crf": "24",
    "threads": "1",
    "x264-params": "colorprim=smpte170m:transfer=smpte170m:colormatrix=smpte170m:keyint=48",
}


class Planes(NamedTuple):
    """An image in the codec's colours: luma in full size, chroma half as wide and high."""

    luma: Image.Image
    blue: Image.Image
    red: Image.Image


def planes(image: Image.Image) -> Planes:
    """RGB to limited-range YCbCr 4:2:0; a mask (mode L) in the sizes of the three planes."""
    half = (image.width // 2, image.height // 2)
    if image.mode == "L":
        small = image.resize(half, Image.Resampling.BOX)
        return Planes(image, small, small)
    luma, blue, red = image.convert("YCbCr").split()
    chroma = [16 + round(v * 224 / 255) for v in range(256)]
    return Planes(
        luma.point([16 + round(v * 219 / 255) for v in range(256)]),
        blue.resize(half, Image.Resampling.BOX).point(chroma),
        red.resize(half, Image.Resampling.BOX).point(chroma),
    )


def paste(onto: Planes, what: Planes, mask: Planes, x: int, y: int) -> None:
    """Pastes one image onto another; `x` and `y` are even."""
    onto.luma.paste(what.luma, (x, y), mask.luma)
    onto.blue.paste(what.blue, (x // 2, y // 2), mask.blue)
    onto.red.paste(what.red, (x // 2, y // 2), mask.red)


def window(image: Planes, x: int, width: int, height: int) -> Planes:
    """A part of a wide image; all numbers are even."""
    chroma = (x // 2, 0, (x + width) // 2, height // 2)
    return Planes(image.luma.crop((x, 0, x + width, height)), image.blue.crop(chroma), image.red.crop(chroma))


def make_video(recipe: Recipe) -> bytes:
    """The video file of a recipe: H.264 in MP4, playable from its first byte, with AAC where sound is on."""
    with tempfile.TemporaryDirectory(
        prefix="backlot-"
    ) as folder:  # the moov atom goes first by the file's name
        path = Path(folder) / "video.mp4"
        with av.open(str(path), "w", format="mp4", options={"movflags": "+faststart"}) as container:
            video = container.add_stream("libx264", rate=FPS, options=X264)
            video.width, video.height, video.pix_fmt = recipe.width, recipe.height, "yuv420p"
            audio = container.add_stream("aac", rate=RATE, layout="mono") if recipe.sound else None
            for image in frames(recipe):
                container.mux(video.encode(as_frame(image)))
            container.mux(video.encode())
            if audio:
                for block in chord(recipe):
                    container.mux(audio.encode(block))
                container.mux(audio.encode())
        return path.read_bytes()


def as_frame(image: Planes) -> av.VideoFrame:
    """A frame of the codec, whose rows may be longer than the image's."""
    frame = av.VideoFrame(image.luma.width, image.luma.height, "yuv420p")
    for target, plane in zip(frame.planes, image, strict=True):
        if target.line_size != plane.width:
            padded = plane.crop((0, 0, target.line_size, plane.height))
            target.update(padded.tobytes())
        else:
            target.update(plane.tobytes())
    return frame


def frames(recipe: Recipe) -> Iterator[Planes]:
    """All frames. Given first and last frames are exact; the title fades in and out between them."""
    given = {r.role: r for r in recipe.references if r.role != "reference_image"}
    count = FPS * recipe.duration
    if given:
        ends = [
            ImageOps.fit(images.open_reference(given[role], 1920), (recipe.width, recipe.height))
            for role in ("first_frame", "last_frame")
            if role in given
        ]
        moving = between(ends, count)
    else:
        moving = along(recipe, count)
    light, mask, top = titles.title(recipe.width, recipe.height, recipe.prompt, images.label(recipe))
    top -= top % 2
    title = planes(Image.merge("RGB", (light, light, light)))
    fading = [planes(mask.point([v * n // 12 for v in range(256)])) for n in range(13)]
    for n, image in enumerate(moving):
        # Given frames are shown without the title; a video without them may begin with it.
        shown = min(n, count - 1 - n, 12) if given else min(n + 4, 12)
        if shown:
            paste(image, title, fading[shown], 0, top)
        yield image


@dataclass(frozen=True, slots=True)
class Strip:
    """A layer of the scene in the codec's colours; it moves `step` pixels from frame to frame."""

    image: Planes
    mask: Planes
    top: int
    step: int


def along(recipe: Recipe, count: int) -> Iterator[Planes]:
    """A camera that moves along the scene: near layers move faster than far ones."""
    width, height = recipe.width, recipe.height
    scene = images.scene(recipe, width + STEP * count)
    far = scene.backdrop
    references = [images.open_reference(reference, 384) for reference in recipe.references]
    near = scene.layers[-2:]
    for layer in scene.layers[:-2]:
        far.paste(layer.image, (0, layer.top), layer.mask)
    backdrop = planes(far)
    strips = []
    for step, layer in zip((STEP // 2, STEP)[-len(near) :], near, strict=True):
        top = layer.top - layer.top % 2
        image = layer.image.crop((0, 0, layer.image.width, height - top))
        strips.append(Strip(planes(image), planes(layer.mask.crop((0, 0, *image.size))), top, step))
    overlay = reference_overlay(width, height, references) if references else None
    for n in range(count):
        # The sky moves two pixels at a time, so that luma and chroma stay aligned.
        frame = window(backdrop, n // 4 * 2, width, height)
        for strip in strips:
            paste(frame, strip.image, strip.mask, -n * strip.step, strip.top)
        if overlay:
            paste(frame, *overlay, 0, 0)
        yield frame


def reference_overlay(width: int, height: int, references: list[Image.Image]) -> tuple[Planes, Planes]:
    """The reference images in front of the scene, and their mask."""
    overlay, mask = Image.new("RGB", (width, height)), Image.new("RGB", (width, height))
    images.add_references(overlay, references)
    images.add_references(mask, [Image.new("RGB", image.size, "white") for image in references])
    return planes(overlay), planes(mask.convert("L"))


def between(ends: list[Image.Image], count: int) -> Iterator[Planes]:
    """The first image exactly, then a slow zoom; the last one fades in and is exact in the last frame."""
    first, last = planes(ends[0]), planes(ends[-1])
    if len(ends) == 1:
        yield from (zoomed(first, 1 + 0.15 * n / count) for n in range(count))
        return
    near_first, near_last = zoomed(first, 1.06), zoomed(last, 1.06)
    for n in range(count):
        t = n / (count - 1)
        if t < 0.3:
            yield zoomed(first, 1 + 0.2 * t)
        elif t > 0.7:
            yield zoomed(last, 1 + 0.2 * (1 - t))
        else:
            pairs = zip(near_first, near_last, strict=True)
            yield Planes(*(Image.blend(a, b, (t - 0.3) / 0.4) for a, b in pairs))


def zoomed(image: Planes, factor: float) -> Planes:
    """The middle of an image, enlarged by `factor`."""
    if factor == 1:
        return Planes(*(plane.copy() for plane in image))
    result = []
    for plane in image:
        x, y = (side * (1 - 1 / factor) / 2 for side in plane.size)
        box = (x, y, plane.width - x, plane.height - y)
        result.append(plane.resize(plane.size, Image.Resampling.BILINEAR, box=box))
    return Planes(*result)


def chord(recipe: Recipe) -> Iterator[av.AudioFrame]:
    """A quiet chord whose volume rises once a second; its root note depends on the recipe."""
    root = 110 + recipe.digest()[0] % 88
    second = array("f")
    for n in range(RATE):
        t = n / RATE * 2 * math.pi
        tone = math.sin(t * root) + 0.6 * math.sin(t * (root * 3 // 2)) + 0.4 * math.sin(t * root * 2)
        second.append(tone * 0.12 * (0.75 - 0.25 * math.cos(t)))
    samples = second * recipe.duration
    for n in range(0, len(samples), 1024):
        block = samples[n : n + 1024]
        frame = av.AudioFrame(format="fltp", layout="mono", samples=len(block))
        frame.planes[0].update(block.tobytes())
        frame.sample_rate, frame.pts, frame.time_base = RATE, n, Fraction(1, RATE)
        yield frame
