"""What is wrong with a stored file, by what was seen of it and what was asked for. Pure."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping
from typing import Any

from callsheet.config.settings import Checks
from callsheet.pricing.rates import CLOSE
from callsheet.report.contact_sheet.thumbnails import Seen

_NEAR = 4  # of 64 bits: of the same image saved anew at most 3 differ, of unlike ones rarely fewer than 10
_RATIO = re.compile(r"([1-9]\d*(?:\.\d+)?):([1-9]\d*(?:\.\d+)?)")
_PIXELS = re.compile(r"(\d+) ?[x\u00d7] ?(\d+)", re.IGNORECASE)
_THOUSANDS = re.compile(r"(\d+(?:\.\d+)?)K", re.IGNORECASE)
_LINES = re.compile(r"(\d+)p", re.IGNORECASE)


def is_wanted(checks: Checks) -> bool:
    """Whether the config wants any check at all."""
    return checks.command is not None or {checks.blank, checks.size, checks.duplicate} != {"off"}


def may_reject(checks: Checks) -> bool:
    """Whether a check may reject a file."""
    return checks.command is not None or "reject" in (checks.blank, checks.size, checks.duplicate)


class Pictures:
    """The perceptual hashes of a batch's images. Among 100,000 a nearly equal one is found in 0.1 ms.

    Args:
        known: the row of each image and its hash, 16 hex digits.
    """

    def __init__(self, known: Iterable[tuple[str, str]] = ()) -> None:
        known = list(known)
        self._rows = [row_id for row_id, _ in known]
        self._hashes = array("Q", (int(hash_, 16) for _, hash_ in known))

    def add(self, row_id: str, hash_: str) -> None:
        """Adds an image of a row."""
        self._rows.append(row_id)
        self._hashes.append(int(hash_, 16))

    def like(self, row_id: str, hash_: str) -> str | None:
        """The first other row that has nearly the same image as this row's; None where none has."""
        import numpy as np  # here, because it takes 0.1 s to load

        differing = np.bitwise_count(np.asarray(self._hashes) ^ np.uint64(int(hash_, 16)))
        near = (self._rows[place] for place in np.flatnonzero(differing <= _NEAR))
        return next((other for other in near if other != row_id), None)


def wrong(
    checks: Checks, seen: Seen, row_id: str, request: Mapping[str, Any], pictures: Pictures
) -> list[tuple[str, str]]:
    """What the checks find in a file of a row, by the request as it was sent (INTERFACE 2.3, 2.4).

    Returns:
        The check and its flag, a short text for people, of each that finds something. A file that no decoder
        can show is `unreadable`: a person should look at it, and no check rejects it.
    """
    if not seen.width:
        return [("", "unreadable")]
    found = []
    if checks.blank != "off" and seen.blank:
        found.append(("blank", "blank"))
    if checks.size != "off" and (asked := not_as_asked(seen.width, seen.height, request)):
        found.append(("size", f"size: {seen.width} \u00d7 {seen.height}, not {asked}"))
    if checks.duplicate != "off" and seen.hash and (other := pictures.like(row_id, seen.hash)):
        found.append(("duplicate", f"duplicate of row {other}"))
    return found


def rejecting(checks: Checks, found: Iterable[tuple[str, str]]) -> str:
    """The first check that found something and rejects the file for it; empty where none does."""
    return next((name for name, _ in found if name and getattr(checks, name) == "reject"), "")


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
