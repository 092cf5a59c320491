"""MIME types of images and videos: file name extensions, and the first bytes by which a file is recognised.

Does not decode a file, and does not open one.
"""

from __future__ import annotations

# The extension is the interface's name for the format (INTERFACE 2.3 `output_format`), so `jpeg`.
_EXTENSIONS = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/jpg": "jpeg",
    "image/webp": "webp",
    "video/mp4": "mp4",
}


def extension(mime_type: str) -> str:
    """The file name extension for a type, without the dot; `bin` for one that the interface does not name."""
    return _EXTENSIONS.get(mime_type.lower(), "bin")


def recognise(first_bytes: bytes) -> str | None:
    """The MIME type of a file that begins with these bytes (16 are enough); None for any other format.

    The formats are those of the interface: PNG, JPEG, WebP and MP4.
    """
    if first_bytes.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if first_bytes.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if first_bytes[:4] == b"RIFF" and first_bytes[8:12] == b"WEBP":
        return "image/webp"
    return "video/mp4" if first_bytes[4:8] == b"ftyp" else None


def recognise_image(first_bytes: bytes) -> str | None:
    """As `recognise`, for the formats in which an image can be inlined (INTERFACE 2.2)."""
    mime_type = recognise(first_bytes)
    return mime_type if mime_type in {"image/png", "image/jpeg", "image/webp"} else None


def begins_as(mime_type: str, first_bytes: bytes) -> bool:
    """Whether a file's first bytes fit its type; always true of a type that the interface does not name."""
    expected = extension(mime_type)
    return expected == "bin" or expected == extension(recognise(first_bytes) or "")
