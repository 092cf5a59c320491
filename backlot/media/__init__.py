"""Images and videos, drawn from a recipe: made when first asked for; the last ones are kept in memory."""

from __future__ import annotations

import functools
from pathlib import Path

from PIL import Image

from backlot.media import pictures
from backlot.media.recipe import Recipe

FILES = 100  # that are kept, of each kind
THUMBNAIL = 360  # pixels of the longer side


@functools.lru_cache(FILES)
def make(recipe: Recipe) -> bytes:
    """The file of a recipe: an image, or a video. The last ones are kept in memory."""
    if recipe.format == "mp4":
        from backlot.media.videos import make_video  # the codecs take a while to load

        return make_video(recipe)
    return pictures.encode(pictures.draw(recipe, recipe.width, recipe.height), recipe.format)


@functools.lru_cache(FILES)
def make_thumbnail(recipe: Recipe) -> bytes:
    """A small JPEG of an image or of a video's first frame."""
    factor = min(THUMBNAIL / max(recipe.width, recipe.height), 1)
    small = (max(round(recipe.width * factor), 16), max(round(recipe.height * factor), 16))
    first = pictures.frame(recipe, "first_frame", small)
    return pictures.encode(first or pictures.draw(recipe, *small), "jpeg")


def thumbnail_of(path: Path) -> bytes:
    """A small JPEG of a program's image, or of its video's first frame. Raises `OSError`: it is not there."""
    if path.suffix == ".mp4":
        import av

        with av.open(str(path)) as container:
            image = next(container.decode(video=0)).to_image()  # type: ignore[no-untyped-call]
    else:
        with Image.open(path) as opened:
            image = opened.convert("RGB")
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    return pictures.encode(image, "jpeg")
