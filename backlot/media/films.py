"""Films."""

from __future__ import annotations

import tempfile
from fractions import Fraction
from pathlib import Path

import av
from PIL import ImageDraw

from backlot.media import pictures
from backlot.media.recipe import FPS, Recipe


def film(recipe: Recipe) -> bytes:
    with tempfile.TemporaryDirectory(prefix="backlot-") as folder:  # faststart rewrites the file by its name
        path = Path(folder) / "film.mp4"
        shoot(recipe, path)
        return path.read_bytes()


def shoot(recipe: Recipe, path: Path) -> None:
    base = pictures.draw(recipe)
    with av.open(str(path), "w", format="mp4", options={"movflags": "+faststart"}) as container:
        video = container.add_stream("libx264", rate=FPS, options={"preset": "ultrafast"})
        video.width, video.height, video.pix_fmt = recipe.width, recipe.height, "yuv420p"
        audio = container.add_stream("aac", rate=44100) if recipe.sound else None
        for n in range(FPS * recipe.duration):
            frame = base.copy()
            ImageDraw.Draw(frame).rectangle((n, recipe.height - 20, n + 40, recipe.height), fill="white")
            container.mux(video.encode(av.VideoFrame.from_image(frame)))
        container.mux(video.encode())
        if audio:
            for n in range(44100 * recipe.duration // 1024):
                silence = av.AudioFrame(format="fltp", layout="mono", samples=1024)
                silence.planes[0].update(bytes(4096))
                silence.sample_rate, silence.pts, silence.time_base = 44100, n * 1024, Fraction(1, 44100)
                container.mux(audio.encode(silence))
            container.mux(audio.encode())
