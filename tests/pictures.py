"""Images for tests: small ones that differ by a number, and one of many bytes."""

from __future__ import annotations

import io
import random

from PIL import Image

HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + b"h" * 100
"""How a HEIC image begins."""


def picture(number: int = 0, kind: str = "PNG", size: tuple[int, int] = (64, 36)) -> bytes:
    """An image; another number makes another one."""
    content = io.BytesIO()
    Image.new("RGB", size, (number * 37 % 256, number * 91 % 256, 120)).save(content, kind)
    return content.getvalue()


def large() -> bytes:
    """A PNG of 12 MB, which no compression makes smaller."""
    content = io.BytesIO()
    noise = random.Random(7).randbytes(3 * 2000 * 2000)
    Image.frombytes("RGB", (2000, 2000), noise).save(content, "PNG", compress_level=0)
    return content.getvalue()
