"""Titles: the prompt in wrapped lines, and the small label under it.

Pillow's own font has little more than ASCII. Others are transliterated (`text-unidecode`: "Привет"
becomes "Privet", "café" "cafe"), and emoji are written as their names in brackets, so that every prompt can
be read. Other scripts cannot be shown.
"""

from __future__ import annotations

import functools
import math
import unicodedata

from PIL import Image, ImageChops, ImageDraw, ImageFont
from text_unidecode import unidecode  # type: ignore[import-untyped]  # it has no types

Font = ImageFont.FreeTypeFont


@functools.cache
def font(size: int) -> Font:
    """Pillow's own font. Raises `RuntimeError` where Pillow was built without FreeType."""
    loaded = ImageFont.load_default(size)
    if not isinstance(loaded, ImageFont.FreeTypeFont):
        raise RuntimeError("Pillow has no FreeType, which the titles need")  # noqa: TRY004 - a broken install
    return loaded


@functools.cache
def drawn(character: str) -> bytes:
    """What the font draws for a character."""
    return bytes(font(20).getmask(character))


def has_glyph(character: str) -> bool:
    """Whether the font has a character; otherwise it draws a box."""
    return drawn(character) != drawn("\U000ffffd")


def drawable(text: str) -> str:
    """The text in one line of characters that the font has."""

    def replaced(character: str) -> str:
        if character.isspace():
            return " "
        if has_glyph(character):
            return character
        name = unicodedata.name(character, "").lower()
        latin = unidecode(character) or (f"[{name}]" if unicodedata.category(character) == "So" else "")
        return latin if latin.isprintable() else ""

    text = unicodedata.normalize("NFC", text)
    return " ".join("".join(replaced(character) for character in text).split()) or "(no letters)"


def wrap(text: str, face: Font, width: int) -> list[str]:
    """Lines of at most `width` pixels; a word that is wider than a line is broken."""
    advance = functools.cache(face.getlength)
    lines = []
    line, used = "", 0.0
    for word in text.split(" "):
        length = sum(map(advance, word))
        if line and used + advance(" ") + length <= width:
            line, used = line + " ", used + advance(" ")
        elif line:
            lines.append(line)
            line, used = "", 0.0
        for character in word:
            if line and used + advance(character) > width:
                lines.append(line)
                line, used = "", 0.0
            line, used = line + character, used + advance(character)
    return [*lines, line]


def fit(text: str, width: int, height: int) -> tuple[Font, list[str]]:
    """The largest font with which the text fits the box. In the smallest font, a long text ends in dots."""
    largest, smallest = max(round(height * 0.28), 10), max(round(height * 0.06), 8)
    size = min(largest, max(round(math.sqrt(width * height / (0.5 * len(text)))), smallest))
    while True:
        face = font(size)
        most = max(int(height / (size * 1.25)), 1)
        lines = wrap(text[: most * width * 4 // size], face, width)  # no character is narrower than a quarter
        if len(lines) <= most:
            return face, lines
        if size <= smallest:
            return face, [*lines[: most - 1], lines[most - 1][:-3].rstrip() + "..."]
        size = max(round(size * 0.9), smallest)


def title(width: int, height: int, prompt: str, label: str) -> tuple[Image.Image, Image.Image, int]:
    """The title of an image of this size: its brightness, its mask, and the row on which it begins.

    Where the mask is set, the image is dark (brightness 0) or has text (brightness 255).
    """
    margin = round(min(width, height) * 0.06)
    share = 0.32 if len(prompt) < 300 else 0.5
    face, lines = fit(drawable(prompt), width - 2 * margin, round(height * share))
    small = font(max(round(min(width, height) * 0.022), 8))
    line_height, small_height = round(face.size * 1.25), round(small.size * 2.4)
    block = len(lines) * line_height + small_height + margin
    tall = min(round(block * 1.5), height)
    light = Image.new("L", (width, tall))
    pen = ImageDraw.Draw(light)
    y = tall - block
    for line in lines:
        pen.text((margin, y), line, font=face, fill=255)
        y += line_height
    pen.rectangle(
        (margin, y + small.size * 0.5, margin + margin, y + small.size * 0.5 + max(height // 400, 1)),
        fill=255,
    )
    pen.text((margin, y + small.size), drawable(label), font=small, fill=225)
    return light, ImageChops.lighter(scrim(width, tall), light), height - tall


def scrim(width: int, height: int) -> Image.Image:
    """A dark gradient from the bottom."""
    ramp = (
        Image.linear_gradient("L").resize((1, height)).point([min(round(v * 1.25), 205) for v in range(256)])
    )
    return ramp.resize((width, height), Image.Resampling.NEAREST)
