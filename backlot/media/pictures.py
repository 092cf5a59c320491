"""Images: a pattern of shapes in the colours of a recipe, with prompt, model and sample written below it."""

from __future__ import annotations

import colorsys
import functools
import io
import random
import textwrap
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont, ImageOps, UnidentifiedImageError

from backlot.media.recipe import Recipe, Reference

SAVE = {
    "jpeg": {"quality": 88},
    "png": {"compress_level": 1},
    "webp": {"quality": 82, "method": 0},
}
SMALLEST = 7  # pixels of type
PATTERN = 0.7  # of the height; below it is the caption

# Hue (added to the recipe's own), lightness and saturation of the shapes.
COLOURS = ((0, 0.44, 0.45), (0.06, 0.7, 0.55), (0.5, 0.56, 0.5), (0.56, 0.83, 0.6), (0.02, 0.24, 0.4))
PAPER, INK = (0.06, 0.95, 0.5), (0, 0.15, 0.4)
TURN = Image.Transpose
TURNS = (TURN.ROTATE_90, TURN.ROTATE_180, TURN.ROTATE_270, TURN.FLIP_LEFT_RIGHT)
Colour = tuple[int, int, int]
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def reduce(data: bytes, mime_type: str) -> bytes:
    """An inline image as a JPEG of at most 1280 pixels a side.

    Raises:
        ValueError: the bytes are not a readable image of that type.
    """
    try:
        with Image.open(io.BytesIO(data), formats=[mime_type.removeprefix("image/").upper()]) as opened:
            opened.draft("RGB", (1280, 1280))
            image = ImageOps.exif_transpose(opened).convert("RGB")
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"the data is not a readable {mime_type}: {error}") from None
    image.thumbnail((1280, 1280))
    return encode(image, "jpeg")


def encode(image: Image.Image, format_: str) -> bytes:
    """An image as a file, without EXIF."""
    out = io.BytesIO()
    image.save(out, format_.upper(), **SAVE[format_])
    return out.getvalue()


def frame(recipe: Recipe, role: str, size: tuple[int, int]) -> Image.Image | None:
    """The reference image of a role, fitted to a size; None where there is none."""
    reference = next((reference for reference in recipe.references if reference.role == role), None)
    return ImageOps.fit(open_reference(reference), size) if reference else None


def draw(recipe: Recipe, width: int, height: int) -> Image.Image:
    """The image of a recipe in any size; its composition is the same in all sizes of a ratio."""
    if recipe.blank:
        return Image.new("RGB", (width, height))
    rng = random.Random(f"{recipe.model}\n{recipe.prompt}\n{recipe.seed}\n{recipe.sample}")  # noqa: S311 - repeatable on purpose
    references = [reference for reference in recipe.references if reference.role == "reference_image"]
    hue = rng.random()
    image = Image.new("RGB", (width, height), colour(hue, PAPER))
    image.paste(pattern(rng, hue, width, pattern_height(height), references))
    label = f"{recipe.model} \u00b7 {recipe.width} x {recipe.height} \u00b7 sample {recipe.sample}"
    write(image, recipe.prompt, label, colour(hue, INK))
    return image


def pattern_height(height: int) -> int:
    """The pixels of a picture's height that the pattern takes."""
    return round(height * PATTERN)


def colour(hue: float, tone: tuple[float, float, float]) -> Colour:
    """A tone of the picture's own hue."""
    added, lightness, saturation = tone
    red, green, blue = colorsys.hls_to_rgb((hue + added) % 1, lightness, saturation)
    return round(red * 255), round(green * 255), round(blue * 255)


def pattern(
    rng: random.Random, hue: float, width: int, height: int, references: Sequence[Reference] = ()
) -> Image.Image:
    """Cells with a shape in each, and the reference images in a row over the first ones."""
    image = Image.new("RGB", (width, height))
    columns = min(max(round(3 * width / min(width, height)), 4), width)
    rows = min(max(round(height * columns / width), 2), height)
    xs = [round(n * width / columns) for n in range(columns + 1)]
    ys = [round(n * height / rows) for n in range(rows + 1)]
    for row in range(rows):
        for column in range(columns):
            ground, shape = rng.sample(COLOURS, 2)
            kind, turn = rng.randrange(len(shapes())), rng.choice(TURNS)
            left, top = xs[column], ys[row]
            size = (xs[column + 1] - left, ys[row + 1] - top)
            image.paste(colour(hue, ground), (left, top, left + size[0], top + size[1]))
            image.paste(colour(hue, shape), (left, top), mask(kind, turn, size))
    side = max(width // max(len(references), 2), 1)
    for n, reference in enumerate(references):
        image.paste(ImageOps.fit(open_reference(reference), (side, min(side, height))), (n * side, 0))
    return image


@functools.lru_cache(256)
def mask(kind: int, turn: Image.Transpose, size: tuple[int, int]) -> Image.Image:
    """A shape in the size of a cell, turned."""
    return shapes()[kind].transpose(turn).resize(size, Image.Resampling.BILINEAR)


@functools.cache
def shapes() -> list[Image.Image]:
    """The shapes of a cell, as masks of 256 by 256 pixels with smooth edges."""
    masks = [Image.new("L", (1024, 1024)) for _ in range(8)]
    disc, dot, ring, half, quarter, corner, stripes, _ = map(ImageDraw.Draw, masks)
    disc.ellipse((0, 0, 1023, 1023), fill=255)
    dot.ellipse((256, 256, 767, 767), fill=255)
    ring.ellipse((64, 64, 959, 959), outline=255, width=192)
    half.ellipse((0, -512, 1023, 511), fill=255)
    quarter.ellipse((0, 0, 2047, 2047), fill=255)
    corner.polygon((0, 0, 1024, 0, 0, 1024), fill=255)
    for y in range(0, 1024, 256):
        stripes.rectangle((0, y, 1023, y + 127), fill=255)
    return [mask.reduce(4) for mask in masks]


def open_reference(reference: Reference) -> Image.Image:
    """A reference image; for an https URL, a pattern made from its text."""
    if reference.data:
        return Image.open(io.BytesIO(reference.data)).convert("RGB")
    rng = random.Random(reference.url)  # noqa: S311 - repeatable on purpose
    return pattern(rng, rng.random(), 512, 512)


def write(image: Image.Image, prompt: str, label: str, ink: Colour) -> None:
    """Writes a picture's caption: the prompt as large as it fits, and the label below it in small type."""
    pen = ImageDraw.Draw(image)
    margin, small = round(min(image.size) * 0.04), max(round(min(image.size) * 0.036), SMALLEST)
    pen.text((margin, image.height - margin), label, ink, font(small), anchor="ls")
    top = pattern_height(image.height) + margin
    width, height = image.width - 2 * margin, image.height - top - margin - round(small * 1.3)
    text = " ".join(prompt.split())
    text = f"{text[:297]}..." if len(text) > 300 else text
    lines, size, face = wrap(text, width, height)
    for n, line in enumerate(lines):
        pen.text((margin, top + n * size * 1.2), line, ink, face)


def wrap(text: str, width: float, height: float) -> tuple[list[str], float, Font]:
    """The lines of a text in a box, as large as it fits, with their size and font.

    A text that has no room in the smallest type ends in dots.
    """
    size = max(height / 2.4, SMALLEST)
    while True:
        face = font(round(size), ascii_only=text.isascii())
        characters = 0.95 * width * len(text) / max(face.getlength(text), 1)
        max_lines = max(int(height / size / 1.2), 1)
        lines = textwrap.wrap(text, max(int(characters), 5), max_lines=max_lines, placeholder=" ...")
        is_whole = "".join(lines).replace(" ", "") == text.replace(" ", "")
        if size == SMALLEST or (is_whole and all(face.getlength(line) <= width for line in lines)):
            return lines, size, face
        size = max(size * 0.9, SMALLEST)


@functools.cache
def font(size: int, *, ascii_only: bool = True) -> Font:
    """Pillow's own font, which has little more than ASCII; for other text one of the system, if it is there.

    A character that a font lacks is drawn as a box.
    """
    if not ascii_only:
        try:
            return ImageFont.truetype("DejaVuSans.ttf", size)
        except OSError:
            pass
    return ImageFont.load_default(size)
