"""MIME types of images and videos: file name extensions, and the bytes by which a file is recognised.

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


class Ending:
    """Whether a file ends as its format ends: it is given the file's bytes as they come."""

    def __init__(self) -> None:
        self._first = self._last = b""
        self._size = 0
        self._boxes = _Boxes()

    def feed(self, chunk: bytes) -> None:
        """Takes in the next bytes."""
        self._first += chunk[: _LAST - len(self._first)]
        self._last = (self._last + chunk[-_LAST:])[-_LAST:]
        self._boxes.feed(chunk, self._size)
        self._size += len(chunk)

    def is_whole(self) -> bool:
        """Whether it does; true too of a format whose end cannot be told."""
        last, boxes = self._last.rstrip(_PADDING), self._boxes
        by_type = {
            "image/jpeg": last.endswith(b"\xff\xd9"),
            "image/png": last.endswith(b"IEND\xaeB`\x82"),
            "image/gif": last.endswith(b";"),
            "image/webp": self._size >= 8 + int.from_bytes(self._first[4:8], "little"),
            "image/avif": boxes.end_at(self._size),
            "image/heic": boxes.end_at(self._size),
            "video/mp4": boxes.end_at(self._size) and boxes.has_index,
            "video/quicktime": boxes.end_at(self._size) and boxes.has_index,
        }
        return by_type.get(recognise(self._first) or "", True)


class _Boxes:
    """The outermost boxes of ISO 14496-12, of which MP4 files and their kin consist: each says its length.

    Attributes:
        has_index: whether `moov` has come, without which nothing can be played.
    """

    def __init__(self) -> None:
        self.has_index = False
        self._next = 0  # where the next box begins
        self._head = b""  # what has come of its length and name
        self._is_last = False  # it goes to the end of the file, however long that is

    def feed(self, chunk: bytes, start: int) -> None:
        """Takes in the bytes that begin at `start`."""
        while not self._is_last:
            at = self._next + len(self._head) - start
            if at >= len(chunk):
                return
            wanted = 16 if len(self._head) >= 8 else 8  # the length is in 4 bytes, or in 8 more
            self._head += chunk[at : at + wanted - len(self._head)]
            if len(self._head) < wanted:
                return
            length = int.from_bytes(self._head[:4])
            if length == 1 and wanted == 8:
                continue
            length = int.from_bytes(self._head[8:16]) if length == 1 else length
            self.has_index = self.has_index or self._head[4:8] == b"moov"
            self._is_last = length < len(self._head)  # 0; anything else that short is no box
            self._next, self._head = self._next + length, b""

    def end_at(self, size: int) -> bool:
        """Whether a file of this size ends with a box."""
        return self._is_last or (self._next == size and not self._head)
