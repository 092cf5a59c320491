"""A process that looks at files, one after the other, with a low priority: it makes their thumbnails, and
says what it sees of them, for the checks.

    python -P -m callsheet.report.contact_sheet.decoder

Stdin has a line for each file: JSON with `path`, `type` and `hashed` (whether a perceptual hash is wanted).
Stdout has for each a line of JSON, what `look` returns and the length of a JPEG in `jpeg`, and then the JPEG.
The process ends with its stdin. It is apart from the run so that a damaged file, or one that is made to crash
a decoder, cannot harm what costs money.
"""

from __future__ import annotations

import io
import json
import sys
from contextlib import suppress
from itertools import islice
from typing import Any

from PIL import ExifTags, Image, ImageOps

from callsheet.processes import give_way

EDGE = 320
"""Pixels of a thumbnail's longer side."""

_QUALITY = 72
_MOST_PIXELS = 120_000_000  # of an image: 360 MB while it is decoded
_DARK = 12  # of 255: the first frame of a video that fades in
_FRAMES = 240  # of a video that are looked at for one that is not dark: ten seconds
_BLACK = 24  # of 255: the lightest pixel of a black frame, which a codec does not keep exactly
_ONE_COLOUR = 8  # of 255: how much the pixels of one colour differ, for the same reason
_TURNED = 5  # and above: the EXIF orientations that exchange width and height


def main() -> None:
    """Answers every line of stdin."""
    with suppress(OSError):
        give_way()
    Image.MAX_IMAGE_PIXELS = _MOST_PIXELS // 2  # Pillow refuses twice as many
    for line in sys.stdin.buffer:
        request = json.loads(line)
        seen, jpeg = decode(request["path"], request["type"], hashed=request["hashed"])
        sys.stdout.buffer.write(json.dumps(seen | {"jpeg": len(jpeg)}).encode() + b"\n" + jpeg)
        sys.stdout.buffer.flush()


def decode(path: str, mime_type: str, *, hashed: bool) -> tuple[dict[str, Any], bytes]:
    """What is seen of a file, and a small JPEG of the image, or of a video's first frame that is not dark.

    Returns:
        `width` and `height`, in pixels as it is shown; `blank`: an image of one colour, or a video with black
        frames alone; `hash`: a perceptual hash as 16 hex digits, of an image that is not blank, if `hashed`.
        An empty dict and no JPEG where the file cannot be shown.
    """
    try:
        if mime_type.startswith("video/"):
            image, size, blank = _first_frame(path)
            hashed = False  # videos that begin with the same given frame are no duplicates
        else:
            image, size = _opened(path)
            extrema: Any = image.getextrema()  # a pair for each band
            blank = all(high - low <= _ONE_COLOUR for low, high in extrema)
        content = io.BytesIO()
        image.save(content, "JPEG", quality=_QUALITY)
        seen: dict[str, Any] = {"width": size[0], "height": size[1], "blank": blank, "hash": None}
        if hashed and not blank:
            seen["hash"] = perceptual_hash(image)
        return seen, content.getvalue()
    except Exception:  # noqa: BLE001 - decoders raise anything for a damaged file
        return {}, b""


def perceptual_hash(image: Image.Image) -> str:
    """The perceptual hash of an image, as 16 hex digits; nearly equal images differ in few of its 64 bits.

    A bit says whether one of the 64 lowest frequencies of the image in grey, its cosine transform, is above
    their median. It is `imagehash.phash` bit for bit, whose hashes are in ledgers; that package needs SciPy,
    150 MB, for this transform alone.
    """
    import numpy as np  # here, because it takes 0.1 s to load

    grey = np.asarray(image.convert("L").resize((32, 32), Image.Resampling.LANCZOS), dtype=float)
    waves = np.cos(np.pi / 64 * np.outer(range(8), range(1, 64, 2)))
    # Rounded, so that what is zero in a symmetric image is zero on every processor.
    low = np.round(waves @ grey @ waves.T, 6)
    return np.packbits(low > np.median(low)).tobytes().hex()


def _opened(path: str) -> tuple[Image.Image, tuple[int, int]]:
    """An image, small, without transparency and upright; and its size as it is shown."""
    image = Image.open(path)
    width, height = image.size
    image.draft("RGB", (2 * EDGE, 2 * EDGE))  # a JPEG is decoded at a fraction of its size
    image.thumbnail((EDGE, EDGE), Image.Resampling.BICUBIC, reducing_gap=2.0)
    if image.getexif().get(ExifTags.Base.Orientation, 1) >= _TURNED:
        width, height = height, width
    upright = ImageOps.exif_transpose(image)
    if upright.has_transparency_data:
        upright = upright.convert("RGBA")
        upright = Image.alpha_composite(Image.new("RGBA", upright.size, "white"), upright)
    return upright.convert("RGB"), (width, height)


def _first_frame(path: str) -> tuple[Image.Image, tuple[int, int], bool]:
    """The first frame that is not dark, or the first; its size; and whether all that were seen are black."""
    import av

    first: Image.Image | None = None
    size, black = (0, 0), True
    with av.open(path) as opened:
        video: Any = opened  # its types are incomplete
        video.streams.video[0].thread_count = 1
        for frame in islice(video.decode(video=0), _FRAMES):
            size = frame.width, frame.height
            scale = min(1, EDGE / max(size))
            width, height = (max(1, round(side * scale)) for side in size)
            image: Image.Image = frame.reformat(width, height, format="rgb24").to_image()
            first = first or image
            grey: Any = image.convert("L")
            black = black and grey.getextrema()[1] <= _BLACK
            if grey.resize((1, 1), Image.Resampling.BOX).tobytes()[0] > _DARK:
                return image, size, False
    if first is None:
        raise ValueError("a video without a frame")
    return first, size, black


if __name__ == "__main__":
    main()
