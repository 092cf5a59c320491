"""MIME types of images and videos: file name extensions, and the bytes by which a file is recognised.

Does not decode a file.
"""

from __future__ import annotations

import io
import re
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
    **dict.fromkeys([b"avif", b"avis"], "image/avif"),
    **dict.fromkeys([b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1"], "image/heic"),
    b"qt  ": "video/quicktime",
}
_MATTERS = frozenset({b"moov", b"mdat", b"meta", b"moof"})  # boxes without which the others are no use
_JPEG_MARKER = re.compile(rb"\xff([^\x00\x01\xd0-\xd7\xff])", re.DOTALL)  # what has no length is left out
_FIRST = 16  # bytes that tell a file's type
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


_OTHERS = {b"II*\0": "a TIFF image", b"MM\0*": "a TIFF image", b"BM": "a BMP image"}
"""Images that no service of the interface sends, by their first bytes."""


def in_words(first_bytes: bytes) -> str | None:
    """What a file is that begins with these bytes, for people: `a HEIC image`, `a video`; None: not known."""
    mime_type = recognise(first_bytes)
    if mime_type is None:
        return next((words for first, words in _OTHERS.items() if first_bytes.startswith(first)), None)
    kind, _, name = mime_type.partition("/")
    return f"a {name.upper()} image" if kind == "image" else f"a {kind}"


def recognise_image(first_bytes: bytes) -> str | None:
    """As `recognise`, for the formats in which an image can be inlined (INTERFACE 2.2)."""
    mime_type = recognise(first_bytes)
    return mime_type if mime_type in {"image/png", "image/jpeg", "image/webp"} else None


def is_whole(file: BinaryIO, *, proven: bool = False) -> bool:
    """Whether a file has the end of its format; true too of a format whose end cannot be told.

    A JPEG, PNG or WebP may have other bytes after that end. Whether a file in boxes (MP4, AVIF) has ended
    where something follows that is no box cannot be told by itself: it must end with a box, unless it is
    `proven` that the transfer was whole. Then a GIF is taken as it is, too.
    """
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    first = file.read(_FIRST)
    match recognise(first):
        case "image/jpeg":
            return _ends_as_jpeg(file)
        case "image/png":
            return _ends_as_png(file, size)
        case "image/gif":
            file.seek(max(0, size - _FIRST))
            return proven or file.read().rstrip(_PADDING).endswith(b";")
        case "image/webp":
            return size >= 8 + int.from_bytes(first[4:8], "little")
        case "image/avif" | "image/heic" | "video/mp4" | "video/quicktime" as mime_type:
            boxes = _boxes(file, size, may_follow=proven)
            names = set(boxes or ())  # `moov` or `meta` is the index, without which nothing can be shown
            is_image = mime_type.startswith("image/")
            return bool(names & {b"meta", b"moov"}) if is_image else names >= {b"moov", b"mdat"}
    return True


def _ends_as_jpeg(file: BinaryIO) -> bool:
    """Goes from marker to marker to the one that ends it: those of an inlined thumbnail are passed over."""
    file.seek(0)
    content, at = file.read(), 2
    while marker := _JPEG_MARKER.search(content, at):
        if marker[1] == b"\xd9":
            return True
        at = marker.end() + int.from_bytes(content[marker.end() : marker.end() + 2])
    return False


def _ends_as_png(file: BinaryIO, size: int) -> bool:
    """Goes from chunk to chunk to `IEND`. Each is its length, its name, its bytes and a checksum."""
    at = 8
    while at + 12 <= size:
        file.seek(at)
        length, name = int.from_bytes(file.read(4)), file.read(4)
        at += 12 + length
        if name == b"IEND":
            return at <= size
    return False


def _boxes(file: BinaryIO, size: int, *, may_follow: bool) -> list[bytes] | None:
    """The names of the outermost boxes of ISO 14496-12, of which MP4 files and their kin consist.

    Each begins with its length. None where the file does not end with a box; or, where other bytes
    `may_follow`, where a box that matters is cut off.
    """
    names, at = list[bytes](), 0
    while at < size:
        file.seek(at)
        head = file.read(16)
        head_size = 16 if head[:4] == b"\0\0\0\1" else 8  # then the length is in 8 more bytes
        length = int.from_bytes(head[8:] if head_size == 16 else head[:4])
        is_known = head[4:8] in _MATTERS
        if len(head) < head_size or (may_follow and at + length > size and length >= head_size):
            return names if may_follow and not is_known else None
        names.append(head[4:8])
        if length < head_size:  # 0: it goes to the end of the file; anything else that short is no box
            return names
        at += length
    return names if at == size else None
