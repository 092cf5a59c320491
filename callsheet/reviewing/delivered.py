"""What was ordered, what the service says came, and what came by its bytes: where these differ.

Ordered is the request as it was sent (INTERFACE 2.3, 2.4), said is the answer (2.6 to 2.9), and came is what
was measured in the file. What nobody says or could measure differs from nothing.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from callsheet.pricing.parameters import CLOSE
from callsheet.records import ModelType
from callsheet.report.contact_sheet.thumbnails import Seen

_SOUND = "sound"
_LENGTH = 0.5  # seconds by which a video may be shorter or longer than ordered
_FPS = 1.0  # frames a second that said and measured may differ by
_RATIO = re.compile(r"([1-9]\d*(?:\.\d+)?):([1-9]\d*(?:\.\d+)?)")
_PIXELS = re.compile(r"(\d+) ?[x\u00d7] ?(\d+)", re.IGNORECASE)
_THOUSANDS = re.compile(r"(\d+(?:\.\d+)?)K", re.IGNORECASE)
_LINES = re.compile(r"(\d+)p", re.IGNORECASE)


def differences(request: Mapping[str, Any], stated: Mapping[str, Any], measured: Seen) -> dict[str, str]:
    """What of a file is not as it was ordered, by name and in words.

    The names are `model`, `length`, `still`, `sound`, `format` and `size`. `stated` is a row of
    `marks.unchecked`.
    """
    in_words = {"model": _compared(request["model"], None, stated["model_delivered"])}
    if stated["type"] == ModelType.VIDEO:
        lengths = request.get("duration"), measured.duration, stated["duration"]
        in_words["length"] = _compared(*lengths, is_same=_is_as_long, as_text=_seconds)
        in_words["still"] = "all frames show the same picture" if measured.still else ""
        sounds = (
            _sound(request.get("sound", False)),
            _sound(measured.has_sound, measured),
            _sound(stated["has_sound"]),
        )
        in_words["sound"] = _compared(*sounds, is_same=_is_as_loud)
        in_words["format"] = _frame_rate(measured.fps, stated["fps"])
    else:
        formats = _format(stated["mime_type"]), _format(stated["mime_type_said"])
        in_words["format"] = _compared(request.get("output_format"), *formats)
    in_words["size"] = _sizes(request, (measured.width, measured.height), (stated["width"], stated["height"]))
    return {name: text for name, text in in_words.items() if text}


def _compared(
    ordered: Any,
    came: Any,
    stated: Any,
    *,
    is_same: Callable[[Any, Any], bool] = operator.eq,
    as_text: Callable[[Any], str] = str,
) -> str:
    """`10 s ordered, 2 s came`, where what came or what is said is not as ordered; None is not known.

    What is wrong comes first. What is said is named where it says another thing than the file.
    """
    values = {word: value for word, value in (("came", came), ("said", stated)) if value is not None}
    wrong_words = [
        word for word, value in values.items() if ordered is not None and not is_same(ordered, value)
    ]
    if not wrong_words:
        return ""
    if len(values) > 1 and as_text(came) == as_text(stated):
        del values["said"]
    words = sorted(values, key=lambda word: word not in wrong_words)
    return ", ".join([f"{as_text(ordered)} ordered", *(f"{as_text(values[word])} {word}" for word in words)])


def _is_as_long(left: float, right: float) -> bool:
    return abs(left - right) <= _LENGTH


def _seconds(seconds: float) -> str:
    return f"{round(seconds, 1):g} s"


def _sound(has_sound: bool | None, measured: Seen | None = None) -> str | None:
    if measured and measured.silent:
        return "silence"
    return None if has_sound is None else _SOUND if has_sound else "no sound"


def _is_as_loud(left: str, right: str) -> bool:
    return (left == _SOUND) == (right == _SOUND)


def _format(mime_type: str | None) -> str | None:
    """The name of an image's format; a type that is no image's says nothing."""
    kind, _, name = (mime_type or "").partition("/")
    return name.replace("jpg", "jpeg") if kind == "image" else None


def _frame_rate(came: float | None, stated: float | None) -> str:
    """Nobody orders a frame rate: it is compared with what is said."""
    if not came or not stated or abs(came - stated) <= _FPS:
        return ""
    return f"{stated:g} frames a second said, {came:g} came"


def _sizes(request: Mapping[str, Any], *came_and_said: tuple[int | None, int | None]) -> str:
    """What was ordered of a size is in words, which several sizes fit."""

    def missed(size: tuple[int, int]) -> str:
        return not_as_asked(*size, request)

    sizes = [(width, height) if width and height else None for width, height in came_and_said]
    ordered = next((missed(size) for size in sizes if size and missed(size)), None)
    return _compared(ordered, *sizes, is_same=lambda _, size: not missed(size), as_text=_pixels)


def _pixels(size: tuple[int, int] | str) -> str:
    return size if isinstance(size, str) else f"{size[0]} \u00d7 {size[1]}"


def not_as_asked(width: int, height: int, request: Mapping[str, Any]) -> str:
    """The aspect ratio or resolution that was asked for and a file does not have; empty where it has both.

    `width` and `height` are in pixels.
    """
    ratio, resolution = str(request.get("aspect_ratio", "")), str(request.get("resolution", ""))
    if match := _RATIO.fullmatch(ratio):
        times = width / height * float(match[2]) / float(match[1])
        if max(times, 1 / times) > CLOSE:
            return ratio
    return "" if _may_be(width, height, resolution) else resolution


def _may_be(width: int, height: int, resolution: str) -> bool:
    """Whether a size may be what a resolution means, which the interface does not say (2.3, 2.4).

    Services take `2K` for the longer side of an image or for the side of a square of its area, and `720p` for
    the shorter side of a video or of a wide one of its area. So only what is neither is wrong: what the next
    smaller or larger resolution would be. Any other word says nothing.
    """
    short, long = sorted((width, height))
    if pixels := _PIXELS.fullmatch(resolution):
        return (width, height) == (int(pixels[1]), int(pixels[2]))
    if thousands := _THOUSANDS.fullmatch(resolution):
        side = float(thousands[1]) * 1024
        return long >= 0.9 * side and short <= 1.1 * side
    if lines := _LINES.fullmatch(resolution):
        return 0.75 * int(lines[1]) <= short <= 1.4 * int(lines[1])
    return True
