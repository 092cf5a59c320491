"""What an image or video is made from, and its size. The same recipe always gives the same bytes."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import Literal

import orjson

FPS = 24


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference image. `data` is a small JPEG of an inline image; it is empty for an https `url`.

    An https URL is never fetched: an image drawn from the URL's text is used instead.
    """

    role: str
    url: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides the content. Sizes in pixels, `duration` in seconds (0 for an image).

    `sample` counts, from 1, how often the same was asked for. `blank`: black, whatever was asked for;
    `silent`: nothing is to be heard; `still`: all frames show the same picture.
    `program`: the file is made by the model's program, not drawn, and `references` have the whole images.
    """

    model: str
    prompt: str
    width: int
    height: int
    format: Literal["png", "jpeg", "webp", "mp4"]
    seed: int
    duration: int = 0
    sound: bool = False
    sample: int = 1
    references: tuple[Reference, ...] = ()
    blank: bool = field(default=False, repr=False)  # not in the digest: it is no part of what was asked for
    silent: bool = field(default=False, repr=False)
    still: bool = field(default=False, repr=False)
    program: bool = field(default=False, repr=False)

    @property
    def mime_type(self) -> str:
        """The media type of the file."""
        return "video/mp4" if self.format == "mp4" else f"image/{self.format}"

    def to_json(self) -> str:
        """The recipe without its reference images."""
        fields = {n: getattr(self, n) for n in self.__dataclass_fields__ if n != "references"}
        return orjson.dumps(fields).decode()

    @classmethod
    def from_json(cls, text: str) -> Recipe:
        """The inverse of `to_json`."""
        return cls(**orjson.loads(text))

    def digest(self) -> str:
        """A hash of the recipe with its reference images, in hex."""
        return hashlib.sha256(repr(self).encode()).hexdigest()


def size(aspect_ratio: str, resolution: str) -> tuple[int, int]:
    """Width and height in pixels, in the exact ratio and both even.

    `1K` is the area of a square of 1024 pixels; `720p` is the length of the shorter side. Both are
    approximate, because the ratio is exact.
    """
    wide, high = (int(part) for part in aspect_ratio.split(":"))
    if resolution.endswith("K"):
        step = float(resolution[:-1]) * 1024 / math.sqrt(wide * high)
    else:
        step = int(resolution[:-1]) / min(wide, high)
    factor = max(round(step / 2), 1) * 2
    return wide * factor, high * factor
