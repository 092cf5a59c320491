"""Places: mountains, dunes, a forest, a city and the sea, as layers of silhouettes from far to near."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw

Color = tuple[int, int, int]
Points = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of the scene: its image, where it is opaque, and the row on which it begins."""

    image: Image.Image
    mask: Image.Image
    top: int


@dataclass(frozen=True, slots=True)
class Ground:
    """The scene in front of the sky: size, horizon, colours from far to near, the column of the sun."""

    rng: random.Random
    width: int
    height: int
    horizon: int
    colors: list[Color]
    sun: int


def mix(a: Color, b: Color | None, share: float) -> Color:
    """A mix of two colours, with `share` of the second."""
    if b is None:
        return a
    red, green, blue = (round(x + (y - x) * share) for x, y in zip(a, b, strict=True))
    return red, green, blue


def gradient(width: int, height: int, colors: Sequence[Color], end: int | None = None) -> Image.Image:
    """Colours from top to bottom; row `end` has the last one."""
    strip = Image.new("RGB", (1, len(colors)))
    strip.putdata(list(colors))
    end = end or height
    column = strip.resize((1, end), Image.Resampling.BILINEAR, box=(0, 0.5, 1, len(colors) - 0.5))
    if end < height:
        column = column.crop((0, 0, 1, height))
        column.paste(colors[-1], (0, end, 1, height))
    return column.resize((width, height), Image.Resampling.NEAREST)


def silhouette(width: int, height: int, shapes: Sequence[Points]) -> Image.Image:
    """A mask of polygons with smooth edges; small ones are drawn at double size and reduced."""
    scale = 2 if width * height < 2_000_000 else 1
    mask = Image.new("L", (width * scale, height * scale))
    pen = ImageDraw.Draw(mask)
    for shape in shapes:
        pen.polygon([(x * scale, y * scale) for x, y in shape], fill=255)
    return mask.reduce(scale) if scale > 1 else mask


def ridge(rng: random.Random, width: int, base: float, swing: float, roughness: float) -> Points:
    """The outline of a mountain range by midpoint displacement, closed far below the image."""
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
    """A layer of silhouettes, given in the scene's coordinates; it becomes paler towards the bottom."""
    moved = [[(x, y - top) for x, y in shape] for shape in shapes]
    image = gradient(ground.width, ground.height - top, [color, mix(color, ground.colors[0], 0.35)])
    return Layer(image, silhouette(image.width, image.height, moved), top)


def depths(colors: Sequence[Color], count: int) -> list[Color]:
    """Colours from the farthest layer to the nearest."""
    return [mix(colors[0], colors[1], n / (count - 1)) for n in range(count)]


def mountains(ground: Ground) -> list[Layer]:
    """Four mountain ranges: rough far away, smooth near by."""
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
    """Rows of fir trees on hills."""
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
    """The outline of one fir tree."""
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
    """Three rows of buildings, the nearer ones with lit windows."""
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
    """Draws some lit windows."""
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
    """Distant hills, water with the reflection of the sun, and a few sailing boats."""
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


PAINTERS = {"mountains": mountains, "dunes": dunes, "forest": forest, "city": city, "sea": sea}
