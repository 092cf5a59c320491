"""Images: a landscape made from the prompt, with the reference images on it and the prompt as its title."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace

from PIL import Image, ImageOps, ImageStat, UnidentifiedImageError

from backlot.media import places, scenes, titles
from backlot.media.recipe import Recipe, Reference

FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "WEBP"}
THUMBNAIL = 360  # pixels of the longer side
SAVE = {
    "jpeg": {"quality": 88},
    "png": {"compress_level": 1},
    "webp": {"quality": 82, "method": 0},
}


def reduce(data: bytes, mime_type: str) -> bytes:
    """An inline image as a JPEG of at most 1280 pixels a side.

    Raises:
        ValueError: the bytes are not a readable image of that type.
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


def make_image(recipe: Recipe) -> bytes:
    """The image file of a recipe, without EXIF."""
    out = io.BytesIO()
    draw(recipe, label(recipe)).save(out, recipe.format.upper(), **SAVE[recipe.format])
    return out.getvalue()


def make_thumbnail(recipe: Recipe) -> bytes:
    """A small JPEG of an image or of a video's beginning. Drawing it small is much cheaper than the file."""
    factor = min(THUMBNAIL / max(recipe.width, recipe.height), 1)
    width, height = (max(round(side * factor), 16) for side in (recipe.width, recipe.height))
    given = {reference.role: reference for reference in recipe.references}
    if first := given.get("first_frame", given.get("last_frame")):
        image = ImageOps.fit(open_reference(first, THUMBNAIL), (width, height))
    else:
        image = draw(replace(recipe, width=width, height=height), label(recipe))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=85)
    return out.getvalue()


def draw(recipe: Recipe, small_type: str) -> Image.Image:
    """The image of a recipe, with its prompt and `small_type` as the title."""
    image = scene(recipe, recipe.width).flatten()
    add_references(image, [open_reference(reference, 320) for reference in recipe.references])
    light, mask, top = titles.title(recipe.width, recipe.height, recipe.prompt, small_type)
    image.paste(Image.merge("RGB", (light, light, light)), (0, top), mask)
    return image


def scene(recipe: Recipe, width: int) -> scenes.Scene:
    """The scene of a recipe. Its composition is the same in every size and format."""
    tint = mean_color(open_reference(recipe.references[0], 64)) if recipe.references else None
    seed_text = f"{recipe.model}\n{recipe.prompt}\n{recipe.seed}"
    return scenes.compose(seed_text, recipe.prompt, width, recipe.height, tint)


def label(recipe: Recipe) -> str:
    """The small line under the title: model and size."""
    return f"{recipe.model} \u00b7 {recipe.label} \u00b7 {recipe.width} x {recipe.height}"


def open_reference(reference: Reference, most: int) -> Image.Image:
    """A reference image of at most `most` pixels a side; for an https URL, a scene made from its text."""
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


def add_references(image: Image.Image, references: Sequence[Image.Image]) -> None:
    """Draws the reference images along the top, each in a white frame and slightly rotated."""
    if not references:
        return
    margin = round(min(image.size) * 0.05)
    available = (image.width - margin) / len(references)
    side = max(round(min(available - margin / 2, min(image.size) * 0.34)), 16)
    for n, reference in enumerate(references):
        small = ImageOps.contain(reference, (side, side))
        framed = ImageOps.expand(small, max(side // 22, 2), "white").convert("RGBA")
        framed = framed.rotate((-4, 3, -2, 5)[n % 4], Image.Resampling.BILINEAR, expand=True)
        image.paste(framed, (round(margin + n * min(available, side * 1.25)), margin), framed)
