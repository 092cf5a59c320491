"""The value that a wrong cell may mean: what a model offers that is nearest to it. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any

_PIXELS = re.compile(r"\s*(\d{2,5})\s*[x*\u00d7]\s*(\d{2,5})\s*", re.IGNORECASE)
_RATIO = re.compile(r"\s*(\d+(?:\.\d+)?)\s*[:x/*\u00d7-]\s*(\d+(?:\.\d+)?)\s*", re.IGNORECASE)
CLOSE = 1.03
"""How many times a ratio may be another one and still be taken for it: the pixels of a ratio are rounded."""

_WORDS = {
    **dict.fromkeys(("landscape", "horizontal", "wide", "widescreen"), "16:9"),
    **dict.fromkeys(("portrait", "vertical", "tall"), "9:16"),
    "square": "1:1",
}


def ratio_of_pixels(text: str, offered: Sequence[str]) -> str | None:
    """The offered aspect ratio of a size in pixels (`1820x1024`), within 3 %; None where there is none."""
    match = _PIXELS.fullmatch(text)
    if not match or min(int(match[1]), int(match[2])) < 64:
        return None
    return next(iter(_by_distance(int(match[1]) / int(match[2]), offered, CLOSE)), None)


def nearest(column: str, value: Any, offered: Sequence[Any]) -> Any:
    """The offered value that a wrong one may mean; None where none is near.

    Args:
        column: the setting.
        value: the wrong value.
        offered: what the model offers.
    """
    if column == "duration":
        return min(offered, key=lambda each: (abs(each - value), each), default=None)
    text = str(value).strip().lower()
    if column == "aspect_ratio":
        match = _RATIO.fullmatch(_WORDS.get(text, text))
        if match and float(match[1]) and float(match[2]):
            return next(iter(_by_distance(float(match[1]) / float(match[2]), offered, 2)), None)
    names = {str(each).lower(): each for each in offered}
    begins = [name for name in names if name.startswith(text) or text.startswith(name)]
    close = begins or difflib.get_close_matches(text, names, n=1)
    return names[close[0]] if close else None


def _by_distance(ratio: float, offered: Sequence[str], most: float) -> list[str]:
    """The offered ratios that differ by less than so many times, the nearest first."""
    distances = {}
    for each in offered:
        if (match := _RATIO.fullmatch(each)) and float(match[1]) and float(match[2]):
            other = float(match[1]) / float(match[2])
            distances[each] = max(ratio / other, other / ratio)
    return sorted((each for each in distances if distances[each] <= most), key=distances.__getitem__)
