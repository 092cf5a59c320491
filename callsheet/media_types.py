"""MIME types of images and videos: file name extensions, and the bytes by which a file is recognised.

Does not decode a file.
"""

from __future__ import annotations

import io
from typing import BinaryIO

# The extension is the interface's name for the format (INTERFACE 2.3 `output_format`), so `jpeg`.
_EXTENSIONS = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/jpg": "jpeg",
    "image/webp": "webp",
    "video/mp4": "mp4",
    # not of the interface, and sent all the same
    "image/avif": "avif",
    "image/gif": "gif",
    "image/heic": "heic",
    "video/quicktime": "mov",
    "video/webm": "webm",
}
_UNKNOWN = "bin"

_ENDINGS = frozenset({*_EXTENSIONS.values(), _UNKNOWN})

_BRANDS = {  # of a file in the boxes of ISO 14496-12; every other brand is a kind of MP4
    b"avif": "image/avif",
    b"avis": "image/avif",
    b"heic": "image/heic",
    b"heix": "image/heic",
    b"mif1": "image/heic",
    b"qt  ": "video/quicktime",
}
_LAST = 16  # bytes that tell whether a file ends as its format ends
_PADDING = b"\0\r\n "


def extension(mime_type: str) -> str:
    """The file name extension for a type, without the dot; `bin` for an unknown one."""
    return _EXTENSIONS.get(mime_type.lower(), _UNKNOWN)


def with_extension(name: str, mime_type: str) -> str:
    """A file's name with the extension of its type in place of another type's."""
    stem, dot, ending = name.rpartition(".")
    return f"{stem}.{extension(mime_type)}" if dot and ending in _ENDINGS else name


def without_extension(name: str) -> str:
    """A name without the extension of a type of media, if it has one."""
    stem, dot, ending = name.rpartition(".")
    return stem if dot and stem and ending.lower() in {*_ENDINGS, "jpg"} else name


def recognise(first_bytes: bytes) -> str | None:
    """The MIME type of a file that begins with these bytes (16 are enough); None for any other format.

    The formats are those of the interface (PNG, JPEG, WebP and MP4), and a few others.
    """
    if first_bytes.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if first_bytes.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if first_bytes[:4] == b"RIFF" and first_bytes[8:12] == b"WEBP":
        return "image/webp"
    if first_bytes.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if first_bytes.startswith(b"\x1a\x45\xdf\xa3"):
        return "video/webm"
    return _BRANDS.get(first_bytes[8:12], "video/mp4") if first_bytes[4:8] == b"ftyp" else None


def recognise_image(first_bytes: bytes) -> str | None:
    """As `recognise`, for the formats in which an image can be inlined (INTERFACE 2.2)."""
    mime_type = recognise(first_bytes)
    return mime_type if mime_type in {"image/png", "image/jpeg", "image/webp"} else None


def is_whole(file: BinaryIO) -> bool:
    """Whether a file ends as its format ends; true too of a format whose end cannot be told."""
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - _LAST))
    last = file.read().rstrip(_PADDING)
    file.seek(0)
    first = file.read(_LAST)
    match recognise(first):
        case "image/jpeg":
            return last.endswith(b"\xff\xd9")
        case "image/png":
            return last.endswith(b"IEND\xaeB`\x82")
        case "image/gif":
            return last.endswith(b";")
        case "image/webp":
            return size >= 8 + int.from_bytes(first[4:8], "little")
        case "image/avif" | "image/heic" | "video/mp4" | "video/quicktime" as mime_type:
            boxes = _boxes(file, size)  # `moov` is the index, without which no video can be played
            return boxes is not None and (mime_type.startswith("image/") or b"moov" in boxes)
    return True


def _boxes(file: BinaryIO, size: int) -> list[bytes] | None:
    """The names of the outermost boxes of ISO 14496-12, of which MP4 files and their kin consist.

    Each begins with its length. None where the file does not end with a box.
    """
    names, at = list[bytes](), 0
    while at < size:
        file.seek(at)
        head = file.read(16)
        least = 16 if head[:4] == b"\0\0\0\1" else 8  # then the length is in 8 more bytes
        if len(head) < least:
            return None
        names.append(head[4:8])
        length = int.from_bytes(head[8:] if least == 16 else head[:4])
        if length < least:  # 0: it goes to the end of the file; anything else that short is no box
            return names
        at += length
    return names if at == size else None
