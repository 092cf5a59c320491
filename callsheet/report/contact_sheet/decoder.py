"""A process that makes thumbnails, one after the other, with a low priority.

    python -P -m callsheet.report.contact_sheet.decoder

Stdin has a line for each file: JSON with `path` and `type`. Stdout has a JPEG for each, after its length in
four bytes; the length is 0 where the file cannot be shown. The process ends with its stdin. It is apart from
the run so that a damaged file, or one that is made to crash a decoder, cannot harm what costs money.
"""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import suppress
from itertools import islice
from typing import Any

from PIL import Image, ImageOps

EDGE = 320
"""Pixels of a thumbnail's longer side."""

_QUALITY = 72
_MOST_PIXELS = 120_000_000  # of an image: 360 MB while it is decoded
_DARK = 12  # of 255: the first frame of a video that fades in
_FRAMES = 60  # of a video that are looked at for one that is not dark


def main() -> None:
    """Answers every line of stdin."""
    with suppress(OSError):
        os.nice(10)
    Image.MAX_IMAGE_PIXELS = _MOST_PIXELS // 2  # Pillow refuses twice as many
    for line in sys.stdin.buffer:
        request = json.loads(line)
        jpeg = thumbnail(request["path"], request["type"])
        sys.stdout.buffer.write(len(jpeg).to_bytes(4, "big") + jpeg)
        sys.stdout.buffer.flush()


def thumbnail(path: str, mime_type: str) -> bytes:
    """A small JPEG of an image, or of a video's first frame that is not dark; empty where there is none."""
    try:
        image = _first_frame(path) if mime_type.startswith("video/") else _opened(path)
        return _jpeg(image) if image else b""
    except Exception:  # noqa: BLE001 - decoders raise anything for a damaged file
        return b""


def _opened(path: str) -> Image.Image:
    image = Image.open(path)
    image.draft("RGB", (2 * EDGE, 2 * EDGE))  # a JPEG is decoded at a fraction of its size
    image.thumbnail((EDGE, EDGE), Image.Resampling.BICUBIC, reducing_gap=2.0)
    return ImageOps.exif_transpose(image)


def _first_frame(path: str) -> Image.Image | None:
    import av

    first: Image.Image | None = None
    with av.open(path) as opened:
        video: Any = opened  # its types are incomplete
        video.streams.video[0].thread_count = 1
        for frame in islice(video.decode(video=0), _FRAMES):
            width, height = _fitted(frame.width, frame.height)
            image: Image.Image = frame.reformat(width, height, format="rgb24").to_image()
            first = first or image
            if image.convert("L").resize((1, 1), Image.Resampling.BOX).tobytes()[0] > _DARK:
                return image
    return first


def _fitted(width: int, height: int) -> tuple[int, int]:
    scale = min(1, EDGE / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


def _jpeg(image: Image.Image) -> bytes:
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    content = io.BytesIO()
    image.convert("RGB").save(content, "JPEG", quality=_QUALITY)
    return content.getvalue()


if __name__ == "__main__":
    main()
