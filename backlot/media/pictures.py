"""Pictures."""

from __future__ import annotations

import io

from PIL import Image, ImageDraw, ImageFont, UnidentifiedImageError

from backlot.media.recipe import Recipe

FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "WEBP"}


def reduce(data: bytes, mime_type: str) -> bytes:
    """An inline picture, decoded and shrunk to a JPEG of at most 1280 pixels a side.

    Raises:
        ValueError: the bytes are not a readable picture of that type.
    """
    try:
        with Image.open(io.BytesIO(data), formats=[FORMATS[mime_type]]) as opened:
            opened.draft("RGB", (1280, 1280))
            image = opened.convert("RGB")
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"the data is not a readable {mime_type}: {error}") from None
    image.thumbnail((1280, 1280))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=88)
    return out.getvalue()


def picture(recipe: Recipe) -> bytes:
    out = io.BytesIO()
    draw(recipe).save(out, recipe.format.upper())
    return out.getvalue()


def draw(recipe: Recipe) -> Image.Image:
    hue = int.from_bytes(recipe.digest()[:2]) % 360
    image = Image.new("RGB", (recipe.width, recipe.height), f"hsl({hue}, 50%, 40%)")
    pen = ImageDraw.Draw(image)
    pen.text((20, 20), recipe.prompt[:200], font=ImageFont.load_default(recipe.height // 20), fill="white")
    return image
