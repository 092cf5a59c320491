"""Images that are made to be sent: a JPEG of one that the service does not take; a video's last frame.

What was made is kept in the work folder, named after the SHA-256 of the file that it was made of, so that it
is made once. The file itself is never changed, and a job is told from others by its SHA-256: what another
version of a decoder makes of the same file is the same job.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from callsheet.errors import InputError
from callsheet.files import PartialFile
from callsheet.media_types import in_words

LONG_SIDE = 4096
"""Pixels of the longer side of a JPEG, at most."""

QUALITY = 92
"""Of a JPEG; less where it would still be too large."""

_LESS = (85, 75, 60)  # qualities that are tried then; after them half the pixels of each side
_WORDS = f"{LONG_SIDE:,} pixels on the longer side, and quality {QUALITY}"


def said(count: int) -> str:
    """What a person should know where so many images are sent as JPEGs."""
    images = "1 image is sent as a JPEG" if count == 1 else f"{count:,} images are sent as JPEGs"
    return f"{images}, as input.fit says: at most {_WORDS}"


def once(folder: Path | None, name: str, make: Callable[[], bytes]) -> bytes:
    """What `make` makes, kept in a folder under this name; without a folder it is made each time."""
    if folder is None:
        return make()
    path = folder / name
    with suppress(OSError):
        return path.read_bytes()
    content = make()
    with suppress(OSError), PartialFile(path) as file:  # it can be made again
        file.file.write(content)
        file.commit()
    return content


def jpeg(content: bytes, most: int) -> bytes:
    """An image as a JPEG of so many bytes at most: upright, in RGB, and without transparency.

    Raises:
        InputError: no decoder reads it.
    """
    from PIL import Image, ImageOps

    try:
        image: Any = Image.open(io.BytesIO(content))
        image.draft("RGB", (LONG_SIDE, LONG_SIDE))  # a JPEG is decoded at a fraction of its size
        image = _in_rgb(ImageOps.exif_transpose(image))
    except Exception as error:  # noqa: BLE001 - decoders raise anything for a damaged file
        what = in_words(content[:16]) or "no image"
        raise InputError(f"is {what} that cannot be read: {error}") from None
    side, profile = LONG_SIDE, image.info.get("icc_profile")
    while True:
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
        for quality in (QUALITY, *_LESS):
            made = io.BytesIO()
            image.save(made, "JPEG", quality=quality, icc_profile=profile)
            if made.tell() <= most:
                return made.getvalue()
        side = max(image.size) // 2


def _in_rgb(image: Any) -> Any:
    """An image in RGB on white; one with 16 bits for each pixel keeps the upper ones."""
    from PIL import Image

    if image.mode.startswith("I"):
        return image.point(lambda value: value / 256).convert("L").convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    if image.mode != "RGB":
        profile = image.info.pop("icc_profile", None) if image.mode in ("RGBA", "P") else None
        image.info.pop("icc_profile", None)  # one of another kind of colours
        image = image.convert("RGB")
        image.info |= {"icc_profile": profile} if profile else {}
    return image


def last_frame(path: Path, most: int) -> bytes:
    """The last frame of a video as a PNG, or as a JPEG where that has more than so many bytes.

    Raises:
        InputError: no decoder reads it.
    """
    import av

    last: Any = None
    try:
        with av.open(str(path)) as opened:
            video: Any = opened  # its types are incomplete
            for last in video.decode(video=0):  # noqa: B007 - the one that is left at the end
                pass
        image = last.to_image()
    except Exception as error:  # noqa: BLE001 - decoders raise anything for a damaged file
        raise InputError(f"its last frame cannot be read: {error}") from None
    made = io.BytesIO()
    image.save(made, "PNG")
    return made.getvalue() if made.tell() <= most else jpeg(made.getvalue(), most)
