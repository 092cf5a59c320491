"""Landscapes: a sky and a few layers of silhouettes, composed from a prompt.

Words of the prompt choose the place and the light ("a city at night"); the seed decides the rest.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFilter

from backlot.media.places import PAINTERS, Color, Ground, Layer, gradient, mix, mountains

LIGHTS: dict[str, tuple[str, ...]] = {
    # sky from top to horizon, sun, farthest layer, nearest layer
    "dawn": ("#27375f", "#8c6a9c", "#f2a497", "#ffd9a8", "#fff1cf", "#b58aa5", "#2c2745"),
    "day": ("#2f74c0", "#66a5dc", "#a9d3ee", "#e2f1f4", "#fffbe8", "#8fb3c4", "#20485a"),
    "sunset": ("#2b1d4e", "#8b2f62", "#e5603f", "#fdb65a", "#fff0b8", "#a4475a", "#230f2b"),
    "night": ("#050a1f", "#0e1c3f", "#1e3a66", "#3f6089", "#f3f3e2", "#2f4a70", "#050b18"),
    "mist": ("#7d8f99", "#a3b1b5", "#c9d1cf", "#e6e6df", "#fbf7ea", "#aab7b6", "#39494d"),
    "green": ("#1d5c63", "#3f8f83", "#9cc9a1", "#e8e8b8", "#fff8d6", "#7fae90", "#0f3a31"),
    "neon": ("#12062e", "#3a0f63", "#8f1f8a", "#ff5d8f", "#ffd1e3", "#6a2a86", "#0b0620"),
    "gold": ("#5a7d9a", "#a9b6a6", "#ecc98a", "#f9e3b4", "#fff7df", "#d3a870", "#5b3420"),
}
# The first entry with a word of the prompt is used, so the time of day comes before the weather and colours.
LIGHT_WORDS = {
    "dawn": "dawn sunrise morning",
    "sunset": "sunset dusk evening",
    "night": "night midnight moon stars space lunar",
    "mist": "mist fog rain storm cloudy",
    "neon": "neon cyber cyberpunk futuristic club",
    "day": "day noon summer snow winter ice sky",
    "gold": "gold golden desert sand dune savanna wheat autumn yellow",
    "green": "green jungle garden moss meadow spring",
}
PLACE_WORDS = {
    "mountains": "mountain mountains hill hills valley fox eagle snow cabin peak alpine",
    "sea": "sea ocean boat ship sail wave lake river harbour harbor beach island whale fish lighthouse",
    "city": "city street skyline car tower office building robot market product poster neon shop train",
    "dunes": "desert dune dunes sand camel pyramid canyon savanna",
    "forest": "forest tree trees wood woods jungle bear owl deer garden mushroom",
    "planets": "space planet planets moon rocket galaxy astronaut alien star stars satellite",
}


@dataclass(frozen=True, slots=True)
class Scene:
    """An opaque backdrop, and the layers in front of it from far to near. All have the same width."""

    backdrop: Image.Image
    layers: tuple[Layer, ...]

    def flatten(self) -> Image.Image:
        """The scene as one image."""
        image = self.backdrop
        for layer in self.layers:
            image.paste(layer.image, (0, layer.top), layer.mask)
        return image


def compose(seed_text: str, prompt: str, width: int, height: int, tint: Color | None = None) -> Scene:
    """The scene of a prompt, `width` by `height` pixels; its colours are mixed with `tint`."""
    rng = random.Random(hashlib.sha256(seed_text.encode()).digest())  # noqa: S311 - repeatable on purpose
    words = re.findall(r"\w+", prompt.lower())
    light = pick(rng, LIGHT_WORDS, words)
    place = pick(rng, PLACE_WORDS, words)
    colors = [mix(rgb(code), tint, 0.35) for code in LIGHTS[light]]
    sunlight = rgb(LIGHTS[light][4])
    horizon = round(height * rng.uniform(0.5, 0.62))
    sun = (round(height * rng.uniform(0.3, 1.1)) % width, round(horizon * rng.uniform(0.35, 0.8)))
    backdrop = gradient(width, height, colors[:4], horizon)
    if light in {"night", "neon"} or place == "planets":
        add_stars(backdrop, rng, horizon)
    elif light != "mist":
        add_clouds(backdrop, rng, horizon, sunlight)
    add_sun(backdrop, sun, round(height * rng.uniform(0.045, 0.085)), sunlight)
    if place == "planets":
        add_planet(backdrop, rng, horizon, colors)
    ground = Ground(rng, width, height, horizon, colors[5:], sun[0])
    return Scene(backdrop, tuple(PAINTERS.get(place, mountains)(ground)))


def pick(rng: random.Random, choices: dict[str, str], words: Sequence[str]) -> str:
    """The first choice with a word of the prompt; without one, a random choice."""
    random_choice = rng.choice(sorted(choices))
    return next(
        (name for name, terms in choices.items() if not set(terms.split()).isdisjoint(words)), random_choice
    )


def rgb(code: str) -> Color:
    """The colour of a code `#rrggbb`."""
    red, green, blue = bytes.fromhex(code[1:])
    return red, green, blue


def add_stars(image: Image.Image, rng: random.Random, horizon: int) -> None:
    """Draws stars, more of them at the top."""
    pen = ImageDraw.Draw(image)
    for _ in range(round(image.width * horizon / 2600)):
        x, y = rng.random() * image.width, horizon * rng.random() ** 1.5
        radius = image.height * rng.choice((0.0006, 0.0008, 0.0016))
        shade = rng.randint(150, 255)
        pen.ellipse(
            (x - radius, y - radius, x + radius, y + radius), fill=(shade, shade, min(shade + 20, 255))
        )


def add_clouds(image: Image.Image, rng: random.Random, horizon: int, color: Color) -> None:
    """Draws flat, soft clouds."""
    small = Image.new("L", (image.width // 5 + 1, horizon // 5 + 1))
    pen = ImageDraw.Draw(small)
    for _ in range(rng.randint(3, 6) * max(image.width // image.height, 1)):
        x, y = rng.random() * small.width, small.height * rng.uniform(0.1, 0.75)
        for _ in range(7):
            wide, high = small.height * rng.uniform(0.1, 0.5), small.height * rng.uniform(0.01, 0.035)
            left, up = x + rng.gauss(0, small.height * 0.2), y + rng.gauss(0, high)
            pen.ellipse((left - wide, up - high, left + wide, up + high), fill=rng.randint(50, 130))
    soft = small.filter(ImageFilter.GaussianBlur(small.height / 55))
    image.paste(color, (0, 0), soft.resize((image.width, horizon), Image.Resampling.BILINEAR))


def disc(radius: int) -> Image.Image:
    """The mask of a circle with a smooth edge."""
    mask = Image.new("L", (radius * 4, radius * 4))
    ImageDraw.Draw(mask).ellipse((0, 0, radius * 4 - 1, radius * 4 - 1), fill=255)
    return mask.reduce(2)


def add_sun(image: Image.Image, centre: tuple[int, int], radius: int, color: Color) -> None:
    """Draws a disc with a glow."""
    x, y = centre
    reach = radius * 5
    glow = Image.radial_gradient("L").point([round(150 * max(0, 1 - v / 180) ** 2) for v in range(256)])
    image.paste(color, (x - reach, y - reach), glow.resize((reach * 2, reach * 2), Image.Resampling.BILINEAR))
    image.paste(color, (x - radius, y - radius), disc(radius))


def add_planet(image: Image.Image, rng: random.Random, horizon: int, colors: Sequence[Color]) -> None:
    """Draws a large planet with a ring, lit from one side."""
    radius = round(image.height * rng.uniform(0.12, 0.2))
    x, y = (
        round(image.height * rng.uniform(0.9, 1.3)) % image.width,
        round(horizon * rng.uniform(0.4, 0.6)),
    )
    bands = gradient(radius * 2, radius * 2, [mix(colors[2], colors[3], rng.random()) for _ in range(7)])
    shade = Image.linear_gradient("L").rotate(-60).resize(bands.size)
    bands.paste(colors[0], (0, 0), shade)
    image.paste(bands, (x - radius, y - radius), disc(radius))
    pen = ImageDraw.Draw(image)
    wide, high = radius * 1.8, radius * 0.35
    pen.arc((x - wide, y - high, x + wide, y + high), -12, 192, fill=colors[4], width=max(radius // 22, 1))
