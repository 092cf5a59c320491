"""Pictures: a scene of the prompt, the reference images pinned to it, and the prompt as its title."""

from __future__ import annotations

import io
from collections.abc import Sequence

from PIL import Image, ImageOps, ImageStat, UnidentifiedImageError

from backlot.media import places, scenes, titles
from backlot.media.recipe import Recipe, Reference

FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "WEBP"}
SAVE = {
    "jpeg": {"quality": 88},
    "png": {"compress_level": 1},
    "webp": {"quality": 82, "method": 0},
}


def reduce(data: bytes, mime_type: str) -> bytes:
    """An inline picture, decoded and shrunk to a JPEG of at most 1280 pixels a side.

    Raises:
        ValueError: the bytes are not a readable picture of that type.
    """
    try:
        with Image.open(io.BytesIO(data), formats=[FORMATS[mime_type]]) as opened:
            opened.draft("RGB", (1280, 1280))
            image = ImageOps.exif_transpose(opened).convert("RGB")
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"the data is not a readable {mime_type}: {error}") from None
    image.thumbnail((1280, 1280))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=88)
    return out.getvalue()


def picture(recipe: Recipe) -> bytes:
    """The finished picture as a file, without EXIF."""
    image = scene(recipe, recipe.width).flatten()
    pin(image, [opened(reference, 320) for reference in recipe.references])
    light, mask, top = titles.title(recipe.width, recipe.height, recipe.prompt, label(recipe))
    image.paste(Image.merge("RGB", (light, light, light)), (0, top), mask)
    out = io.BytesIO()
    image.save(out, recipe.format.upper(), **SAVE[recipe.format])
    return out.getvalue()


def scene(recipe: Recipe, width: int) -> scenes.Scene:
    """The scene of a recipe; the same composition in every size and format."""
    tint = mean_color(opened(recipe.references[0], 64)) if recipe.references else None
    seed_text = f"{recipe.model}\n{recipe.prompt}\n{recipe.seed}"
    return scenes.compose(seed_text, recipe.prompt, width, recipe.height, tint)


def label(recipe: Recipe) -> str:
    """The small print: what made it, and how large it is."""
    return f"{recipe.model} \u00b7 {recipe.label} \u00b7 {recipe.width} x {recipe.height}"


def opened(reference: Reference, most: int) -> Image.Image:
    """A reference image of at most so many pixels a side; for an https URL, a scene of the URL's text."""
    if not reference.data:
        return scenes.compose(reference.url, reference.url, most, most * 3 // 4).flatten()
    file = Image.open(io.BytesIO(reference.data))
    file.draft("RGB", (most, most))
    image = file.convert("RGB")
    image.thumbnail((most, most))
    return image


def mean_color(image: Image.Image) -> places.Color:
    """The average colour."""
    red, green, blue = (round(value) for value in ImageStat.Stat(image).mean)
    return red, green, blue


def pin(picture: Image.Image, prints: Sequence[Image.Image]) -> None:
    """Pin prints along the top, framed in white and a little askew."""
    if not prints:
        return
    margin = round(min(picture.size) * 0.05)
    room = (picture.width - margin) / len(prints)
    side = max(round(min(room - margin / 2, min(picture.size) * 0.34)), 16)
    for n, image in enumerate(prints):
        image = ImageOps.contain(image, (side, side))  # noqa: PLW2901 - the same print, smaller
        framed = ImageOps.expand(image, max(side // 22, 2), "white").convert("RGBA")
        framed = framed.rotate((-4, 3, -2, 5)[n % 4], Image.Resampling.BILINEAR, expand=True)
        picture.paste(framed, (round(margin + n * min(room, side * 1.25)), margin), framed)
