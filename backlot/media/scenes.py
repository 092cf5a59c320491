"""Landscapes: a sky and a few layers of silhouettes, near ones over far ones, composed from a prompt.

Words of the prompt choose the place and the light ("a city at night"); what they leave open, the seed
decides.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFilter

Color = tuple[int, int, int]
Points = list[tuple[float, float]]

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
# The first that a prompt names counts: the hour more than the weather, and both more than colours.
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
class Layer:
    """A strip of the scene: what it shows, where it is not transparent, and the row on which it begins."""

    image: Image.Image
    mask: Image.Image
    top: int


@dataclass(frozen=True, slots=True)
class Scene:
    """An opaque backdrop, and the layers before it from far to near. All are equally wide."""

    backdrop: Image.Image
    layers: tuple[Layer, ...]

    def flatten(self) -> Image.Image:
        """The whole scene as one picture."""
        picture = self.backdrop
        for layer in self.layers:
            picture.paste(layer.image, (0, layer.top), layer.mask)
        return picture


def compose(seed_text: str, prompt: str, width: int, height: int, tint: Color | None = None) -> Scene:
    """The scene of a prompt, `width` by `height` pixels; `tint` draws its colours towards a reference's."""
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
    painters = {"sea": sea, "city": city, "dunes": dunes, "forest": forest}
    layers = painters.get(place, mountains)(ground)
    return Scene(backdrop, tuple(layers))


@dataclass(frozen=True, slots=True)
class Ground:
    """What lies before the sky: its size, where it begins, its colours from far to near, the sun's column."""

    rng: random.Random
    width: int
    height: int
    horizon: int
    colors: list[Color]
    sun: int


def pick(rng: random.Random, choices: dict[str, str], words: Sequence[str]) -> str:
    """The first choice that the prompt names, or any."""
    any_of_them = rng.choice(sorted(choices))
    return next(
        (name for name, known in choices.items() if not set(known.split()).isdisjoint(words)), any_of_them
    )


def rgb(code: str) -> Color:
    """A colour from its `#rrggbb`."""
    red, green, blue = bytes.fromhex(code[1:])
    return red, green, blue


def mix(a: Color, b: Color | None, share: float) -> Color:
    """A colour between two."""
    if b is None:
        return a
    red, green, blue = (round(x + (y - x) * share) for x, y in zip(a, b, strict=True))
    return red, green, blue


def gradient(width: int, height: int, colors: Sequence[Color], end: int | None = None) -> Image.Image:
    """Colours from top to bottom, the last one reached on row `end`."""
    strip = Image.new("RGB", (1, len(colors)))
    strip.putdata(list(colors))
    end = end or height
    column = strip.resize((1, end), Image.Resampling.BILINEAR, box=(0, 0.5, 1, len(colors) - 0.5))
    if end < height:
        column = column.crop((0, 0, 1, height))
        column.paste(colors[-1], (0, end, 1, height))
    return column.resize((width, height), Image.Resampling.NEAREST)


def silhouette(width: int, height: int, shapes: Sequence[Points]) -> Image.Image:
    """A mask of polygons with smooth edges: drawn twice as large where that is affordable."""
    scale = 2 if width * height < 2_000_000 else 1
    mask = Image.new("L", (width * scale, height * scale))
    pen = ImageDraw.Draw(mask)
    for shape in shapes:
        pen.polygon([(x * scale, y * scale) for x, y in shape], fill=255)
    return mask.reduce(scale) if scale > 1 else mask


def ridge(rng: random.Random, width: int, base: float, swing: float, roughness: float) -> Points:
    """A mountain line by midpoint displacement, closed along the bottom far below."""
    heights = [rng.uniform(-1, 1), rng.uniform(-1, 1)]
    step = 1.0
    while len(heights) < 257:
        step *= roughness
        doubled = []
        for left, right in itertools.pairwise(heights):
            doubled += [left, (left + right) / 2 + rng.uniform(-step, step)]
        heights = [*doubled, heights[-1]]
    line = [(n * width / 256, base - swing * h) for n, h in enumerate(heights)]
    return [*line, (width, base + 1e4), (0, base + 1e4)]


def layered(ground: Ground, top: int, shapes: Sequence[Points], color: Color) -> Layer:
    """Silhouettes (in the scene's coordinates) as a layer that fades into the haze at its foot."""
    moved = [[(x, y - top) for x, y in shape] for shape in shapes]
    image = gradient(ground.width, ground.height - top, [color, mix(color, ground.colors[0], 0.35)])
    return Layer(image, silhouette(image.width, image.height, moved), top)


def depths(colors: Sequence[Color], count: int) -> list[Color]:
    """Colours from the farthest layer to the nearest."""
    return [mix(colors[0], colors[1], n / (count - 1)) for n in range(count)]


def mountains(ground: Ground) -> list[Layer]:
    """Four ridges, rough far away and soft near by."""
    rng, width, height, horizon, colors = (
        ground.rng,
        ground.width,
        ground.height,
        ground.horizon,
        ground.colors,
    )
    layers = []
    for n, color in enumerate(depths(colors, 4)):
        base = horizon + (height - horizon) * n * 0.24
        line = ridge(rng, width, base, height * (0.16 - 0.03 * n), 0.56 - 0.04 * n)
        top = max(round(min(y for _, y in line)), 0)
        layers.append(layered(ground, top, [line], color))
    return layers


def dunes(ground: Ground) -> list[Layer]:
    """Long soft waves of sand, each with one sharp crest."""
    rng, width, height, horizon, colors = (
        ground.rng,
        ground.width,
        ground.height,
        ground.horizon,
        ground.colors,
    )
    layers = []
    for n, color in enumerate(depths(colors, 4)):
        base = horizon + (height - horizon) * n * 0.25
        length, phase = height * rng.uniform(0.9, 1.6), rng.uniform(0, 7)
        swing = height * 0.05 * (1 + n * 0.3)
        crest: Points = [
            (x, base - swing * (abs(math.sin(x / length * math.pi + phase)) ** 1.5 * 1.6 - 0.6))
            for x in range(0, width + 8, 8)
        ]
        line = [*crest, (width, 2.0 * height), (0, 2.0 * height)]
        layers.append(layered(ground, round(base - swing * 1.1), [line], color))
    return layers


def forest(ground: Ground) -> list[Layer]:
    """Rows of firs on soft hills."""
    rng, width, height, horizon, colors = (
        ground.rng,
        ground.width,
        ground.height,
        ground.horizon,
        ground.colors,
    )
    layers = mountains(ground)[:1]
    for n, color in enumerate(depths(colors, 4)[1:], 1):
        base = horizon + (height - horizon) * (n * 0.27 - 0.05)
        tall = height * (0.07 + 0.055 * n)
        shapes: list[Points] = [[(0, base), (width, base), (width, 2.0 * height), (0, 2.0 * height)]]
        x = -tall * rng.random()
        while x < width:
            shapes.append(fir(x, base + tall * 0.1, tall * rng.uniform(0.7, 1.15)))
            x += tall * rng.uniform(0.18, 0.5)
        layers.append(layered(ground, max(round(base - tall * 1.1), 0), shapes, color))
    return layers


def fir(x: float, foot: float, tall: float) -> Points:
    """One tree: three skirts of branches."""
    left, right = [], []
    for n in range(4):
        out, y = tall * 0.055 * (n + 1), foot - tall * (1 - n * 0.26)
        if n:
            left.append((x - out, y))
            right.append((x + out, y))
        left.append((x - out * 0.45, y))
        right.append((x + out * 0.45, y))
    return [(x, foot - tall), *right, (x + tall * 0.2, foot), (x - tall * 0.2, foot), *reversed(left)]


def city(ground: Ground) -> list[Layer]:
    """Three rows of houses, the nearest with lit windows."""
    rng, width, height, horizon, colors = (
        ground.rng,
        ground.width,
        ground.height,
        ground.horizon,
        ground.colors,
    )
    layers = []
    for n, color in enumerate(depths(colors, 3)):
        base = horizon + (height - horizon) * (0.15 + n * 0.25)
        unit = height * (0.035 + 0.02 * n)
        shapes, houses, x = [], [], 0.0
        while x < width:
            wide, tall = unit * rng.uniform(1, 2.4), height * rng.triangular(0.08, 0.42 - 0.06 * n, 0.16)
            top = base - tall
            roof = [(x, top), (x + wide, top)]
            if rng.random() < 0.2:
                roof = [
                    (x, top),
                    (x + wide * 0.48, top),
                    (x + wide * 0.5, top - unit * 1.6),
                    (x + wide * 0.52, top),
                ]
                roof.append((x + wide, top))
            shapes.append([*roof, (x + wide, 2.0 * height), (x, 2.0 * height)])
            houses.append((x, top, wide))
            x += wide + (unit * rng.uniform(0, 0.5) if rng.random() < 0.3 else 0)
        first = max(round(min(y for shape in shapes for _, y in shape)), 0)
        layer = layered(ground, first, shapes, color)
        if n:
            light_windows(layer, rng, houses, unit * 0.22, first)
        layers.append(layer)
    return layers


def light_windows(
    layer: Layer, rng: random.Random, houses: Sequence[tuple[float, float, float]], size: float, top: int
) -> None:
    """Some windows are lit, in warm light."""
    pen = ImageDraw.Draw(layer.image)
    for left, roof, wide in houses:
        columns = int(wide / (size * 2.2))
        for row in range(8):
            for column in range(columns):
                if rng.random() < 0.4:
                    x = left + size + column * size * 2.2
                    y = roof - top + size * 1.5 + row * size * 2.6
                    pen.rectangle((x, y, x + size, y + size * 1.5), fill=(255, rng.randint(196, 232), 140))


def sea(ground: Ground) -> list[Layer]:
    """Far hills, then water with the sun's path on it, and a few sails."""
    rng, width, height, horizon, colors = (
        ground.rng,
        ground.width,
        ground.height,
        ground.horizon,
        ground.colors,
    )
    line = ridge(rng, width, horizon, height * 0.05, 0.5)
    far = layered(ground, max(round(min(y for _, y in line)), 0), [line], colors[0])
    depth = height - horizon
    water = gradient(width, depth, [mix(colors[0], (255, 255, 255), 0.25), mix(colors[0], colors[1], 0.75)])
    pen = ImageDraw.Draw(water)
    for _ in range(260):
        y = depth * rng.random() ** 1.8
        spread = height * (0.03 + 0.35 * y / depth)
        x, half = rng.gauss(ground.sun, spread), height * rng.uniform(0.004, 0.03) * (0.3 + y / depth)
        thick = max(round(height * 0.004 * (0.3 + y / depth)), 1)
        pen.line(
            (x - half, y, x + half, y),
            fill=mix(colors[0], (255, 248, 225), rng.uniform(0.45, 0.9)),
            width=thick,
        )
    surface = Layer(water, Image.new("L", water.size, 255), horizon)
    boats: list[Points] = []
    for x in range(round(width * rng.uniform(0.1, 0.5)), width, round(height * 0.9)):
        size, y = height * rng.uniform(0.05, 0.13), horizon + depth * rng.uniform(0.1, 0.35)
        boats += [
            [
                (x - size * 0.5, y),
                (x + size * 0.5, y),
                (x + size * 0.3, y + size * 0.18),
                (x - size * 0.35, y + size * 0.18),
            ],
            [(x, y - size * 1.2), (x + size * 0.42, y - size * 0.06), (x, y - size * 0.06)],
            [
                (x - size * 0.05, y - size * 1.05),
                (x - size * 0.05, y - size * 0.06),
                (x - size * 0.36, y - size * 0.06),
            ],
        ]
    top = max(round(min(y for boat in boats for _, y in boat)), 0)
    return [far, surface, layered(ground, top, boats, colors[1])]


def add_stars(picture: Image.Image, rng: random.Random, horizon: int) -> None:
    """Stars, denser high up."""
    pen = ImageDraw.Draw(picture)
    for _ in range(round(picture.width * horizon / 2600)):
        x, y = rng.random() * picture.width, horizon * rng.random() ** 1.5
        radius = picture.height * rng.choice((0.0006, 0.0008, 0.0016))
        shade = rng.randint(150, 255)
        pen.ellipse(
            (x - radius, y - radius, x + radius, y + radius), fill=(shade, shade, min(shade + 20, 255))
        )


def add_clouds(picture: Image.Image, rng: random.Random, horizon: int, color: Color) -> None:
    """Flat soft banks of cloud."""
    small = Image.new("L", (picture.width // 8 + 1, horizon // 8 + 1))
    pen = ImageDraw.Draw(small)
    for _ in range(rng.randint(3, 6) * max(picture.width // picture.height, 1)):
        x, y = rng.random() * small.width, small.height * rng.uniform(0.1, 0.75)
        for _ in range(7):
            wide, high = small.height * rng.uniform(0.1, 0.5), small.height * rng.uniform(0.01, 0.035)
            left, up = x + rng.gauss(0, small.height * 0.2), y + rng.gauss(0, high)
            pen.ellipse((left - wide, up - high, left + wide, up + high), fill=rng.randint(50, 130))
    soft = small.filter(ImageFilter.GaussianBlur(small.height / 70))
    picture.paste(color, (0, 0), soft.resize((picture.width, horizon), Image.Resampling.BILINEAR))


def disc(radius: int) -> Image.Image:
    """The mask of a circle with a smooth edge."""
    mask = Image.new("L", (radius * 4, radius * 4))
    ImageDraw.Draw(mask).ellipse((0, 0, radius * 4 - 1, radius * 4 - 1), fill=255)
    return mask.reduce(2)


def add_sun(picture: Image.Image, centre: tuple[int, int], radius: int, color: Color) -> None:
    """A disc in its glow."""
    x, y = centre
    reach = radius * 5
    glow = Image.radial_gradient("L").point([max(0, 150 - round(v * 1.2)) for v in range(256)])
    picture.paste(
        color, (x - reach, y - reach), glow.resize((reach * 2, reach * 2), Image.Resampling.BILINEAR)
    )
    picture.paste(color, (x - radius, y - radius), disc(radius))


def add_planet(picture: Image.Image, rng: random.Random, horizon: int, colors: Sequence[Color]) -> None:
    """A large planet, lit from one side, with its ring."""
    radius = round(picture.height * rng.uniform(0.12, 0.2))
    x, y = (
        round(picture.height * rng.uniform(0.9, 1.3)) % picture.width,
        round(horizon * rng.uniform(0.4, 0.6)),
    )
    bands = gradient(radius * 2, radius * 2, [mix(colors[2], colors[3], rng.random()) for _ in range(7)])
    shade = Image.linear_gradient("L").rotate(-60).resize(bands.size)
    bands.paste(colors[0], (0, 0), shade)
    picture.paste(bands, (x - radius, y - radius), disc(radius))
    pen = ImageDraw.Draw(picture)
    wide, high = radius * 1.8, radius * 0.35
    pen.arc((x - wide, y - high, x + wide, y + high), -12, 192, fill=colors[4], width=max(radius // 22, 1))
