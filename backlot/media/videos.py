"""Videos: the image of a recipe, whose pattern moves to the left, and a chord where sound is on."""

from __future__ import annotations

import math
import tempfile
from array import array
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
from PIL import Image, ImageChops

from backlot.media import pictures
from backlot.media.recipe import FPS, Recipe

RATE = 44100
HOLD = 2  # frames that show the same image; each image costs more than its frames
X264 = {"preset": "ultrafast", "crf": "24", "threads": "1"}


def make_video(recipe: Recipe) -> bytes:
    """The video file of a recipe: H.264 in MP4, playable from its first byte, with AAC where sound is on."""
    with tempfile.TemporaryDirectory(prefix="backlot-") as folder:
        path = Path(folder, "made.mp4")  # a file: faststart reads it again
        with av.open(str(path), "w", options={"movflags": "+faststart"}) as container:
            video = container.add_stream("libx264", rate=FPS, options=X264)
            video.width, video.height, video.pix_fmt = recipe.width, recipe.height, "yuv420p"
            audio = container.add_stream("aac", rate=RATE, layout="mono") if recipe.sound else None
            for n, image in enumerate(images(recipe)):
                frame = av.VideoFrame.from_image(image).reformat(format="yuv420p")  # type: ignore[no-untyped-call]
                for frame.pts in range(n * HOLD, (n + 1) * HOLD):
                    container.mux(video.encode(frame))
            container.mux(video.encode())
            if audio:
                for block in chord(recipe):
                    container.mux(audio.encode(block))
                container.mux(audio.encode())
        return path.read_bytes()


def images(recipe: Recipe) -> Iterator[Image.Image]:
    """What the frames show: first and last what was given for them, otherwise the moving image."""
    size, count = (recipe.width, recipe.height), FPS * recipe.duration // HOLD
    picture = pictures.draw(recipe, *size)
    pattern = picture.crop((0, 0, recipe.width, pictures.pattern_height(recipe.height)))
    step = max(min(size) // 120, 1)
    first, last = (pictures.frame(recipe, role, size) for role in ("first_frame", "last_frame"))
    for n in range(count):
        if not recipe.still:
            picture.paste(ImageChops.offset(pattern, -n * step, 0))
        if first and n == 0:
            yield first
        elif last and n == count - 1:
            yield last
        else:
            yield picture


def chord(recipe: Recipe) -> Iterator[av.AudioFrame]:
    """A quiet chord whose volume rises once a second; its root note depends on the recipe."""
    root = 110 + int(recipe.digest()[:2], 16) % 88
    second = array("f")
    for n in range(RATE):
        t = n / RATE * 2 * math.pi
        tone = math.sin(t * root) + 0.6 * math.sin(t * (root * 3 // 2)) + 0.4 * math.sin(t * root * 2)
        second.append(0 if recipe.silent else tone * 0.12 * (0.75 - 0.25 * math.cos(t)))
    samples = second * recipe.duration
    for n in range(0, len(samples), 1024):
        block = samples[n : n + 1024]
        frame = av.AudioFrame(format="fltp", layout="mono", samples=len(block))
        frame.planes[0].update(block.tobytes())
        frame.sample_rate, frame.pts, frame.time_base = RATE, n, Fraction(1, RATE)
        yield frame
