"""Where a file came from, as XMP in its copy: that a model has made it, and which (`storage.provenance`).

The packet is put between the parts of a file, and no pixel, frame or sample is touched. A file that has XMP
or a content credential (C2PA) of its own stays as it is: a change would make these invalid.
"""

from __future__ import annotations

import mmap
import os
import re
import shutil
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from PIL import Image

from callsheet.plain_text import cut

MADE_BY_A_MODEL = "http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia"
"""The IPTC digital source type of what a model has made."""

_PACKET = """\
<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/">
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
  <rdf:Description rdf:about=""
   xmlns:xmp="http://ns.adobe.com/xap/1.0/"
   xmlns:Iptc4xmpExt="http://iptc.org/std/Iptc4xmpExt/2008-02-29/"
   {properties}/>
 </rdf:RDF>
</x:xmpmeta>
<?xpacket end="r"?>"""
_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_LONGEST = 5_000  # characters of a prompt: a JPEG has room for 65,502 bytes
_JPEG = b"http://ns.adobe.com/xap/1.0/\0"
_PNG = b"XML:com.adobe.xmp\0"
_UUID = bytes.fromhex("be7acfcb97a942e89c71999491e3afac")  # of a box with XMP (ISO 16684-3)
_OF_ITS_OWN = (_JPEG, _PNG, _UUID, b"c2pa.claim")
_VP8X = struct.Struct("<4sIB3x3s3s")


@dataclass(frozen=True, slots=True)
class Provenance:
    """What is said in copies: the service's address, which may not be known, and whether the prompt, too."""

    service: str
    with_prompt: bool

    def packet(self, row: Mapping[str, Any]) -> bytes:
        """The XMP packet of a file, a row of the manifest."""
        by = f" by {self.service}" if self.service else ""
        properties = {
            "xmp:CreatorTool": f"Callsheet {version('callsheet')}",
            "Iptc4xmpExt:DigitalSourceType": MADE_BY_A_MODEL,
            "Iptc4xmpExt:AISystemUsed": f"{row['model']}{by}",
        }
        if self.with_prompt:
            properties["Iptc4xmpExt:AIPromptInformation"] = cut(row["prompt"], _LONGEST)
        written = (f"{name}={quoteattr(_NOT_IN_XML.sub('', value))}" for name, value in properties.items())
        return _PACKET.format(properties="\n   ".join(written)).encode()

    def sizes(self, row: Mapping[str, Any]) -> tuple[int, ...]:
        """The sizes that the copy of a file may have."""
        added, sizes = len(self.packet(row)), tuple[int, ...]()
        match row["mime_type"]:
            case "image/jpeg":
                sizes = (4 + len(_JPEG) + added,)
            case "image/png":
                sizes = (len(_chunk(b"")) + len(_PNG) + 4 + added,)
            case "image/webp":
                even = 8 + added + added % 2
                sizes = (even, even + _VP8X.size)
            case "video/mp4":
                sizes = (8 + len(_UUID) + added,)
            case _:
                sizes = (0,)
        return tuple(row["bytes"] + size for size in sizes)

    def write(self, path: Path, row: Mapping[str, Any], copy: Path) -> Path:
        """Writes a copy of a file that says where it came from; returns its path, or the file's own where it
        carries no XMP, or has some already.
        """
        if row["mime_type"] not in CARRIED or _has_its_own(path):
            return path
        packet = self.packet(row)
        if row["mime_type"] == "video/mp4":
            if _last_box_is_open(path):
                return path
            shutil.copyfile(path, copy)
            with copy.open("ab") as file:
                file.write(struct.pack(">I4s", 24 + len(packet), b"uuid") + _UUID + packet)
            return copy
        content = path.read_bytes()
        match row["mime_type"]:
            case "image/jpeg":
                content = _in_jpeg(content, packet)
            case "image/png":
                content = _in_png(content, packet)
            case "image/webp":
                content = _in_webp(content, packet, path)
        copy.write_bytes(content)
        return copy


CARRIED = ("image/jpeg", "image/png", "image/webp", "video/mp4")
"""The types of files that carry it."""


def _has_its_own(path: Path) -> bool:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        is_webp = content[8:12] == b"WEBP" and content[12:16] == b"VP8X" and content[20] & 4
        return bool(is_webp) or any(content.find(mark) >= 0 for mark in _OF_ITS_OWN)


def _last_box_is_open(path: Path) -> bool:
    """Whether the last box of an MP4 goes to the end of the file, whatever follows."""
    with path.open("rb") as file:
        while head := file.read(16):
            length = int.from_bytes(head[8:] if head[:4] == b"\0\0\0\1" else head[:4])
            if length < 8:
                return True
            file.seek(length - len(head), os.SEEK_CUR)
    return False


def _in_jpeg(content: bytes, packet: bytes) -> bytes:
    """After the first segments, APP0 and APP1, which say what kind of a JPEG it is."""
    at = 2
    while content[at : at + 2] in (b"\xff\xe0", b"\xff\xe1"):
        at += 2 + int.from_bytes(content[at + 2 : at + 4])
    segment = struct.pack(">2sH", b"\xff\xe1", 2 + len(_JPEG) + len(packet)) + _JPEG + packet
    return content[:at] + segment + content[at:]


def _in_png(content: bytes, packet: bytes) -> bytes:
    """After the header, as text that is not compressed."""
    after_header = 33
    return content[:after_header] + _chunk(_PNG + bytes(4) + packet) + content[after_header:]


def _chunk(data: bytes) -> bytes:
    named = b"iTXt" + data
    return struct.pack(">I", len(data)) + named + struct.pack(">I", zlib.crc32(named))


def _in_webp(content: bytes, packet: bytes, path: Path) -> bytes:
    """At the end; the header of an extended WebP, which says so, is added where it is missing."""
    chunks = content[12 : 8 + int.from_bytes(content[4:8], "little")]
    if chunks[:4] != b"VP8X":
        with Image.open(path) as image:
            alpha = 0x10 if image.mode == "RGBA" else 0
            width, height = ((pixels - 1).to_bytes(3, "little") for pixels in image.size)
        chunks = _VP8X.pack(b"VP8X", 10, alpha, width, height) + chunks
    chunks = chunks[:8] + bytes([chunks[8] | 4]) + chunks[9:]
    chunks += struct.pack("<4sI", b"XMP ", len(packet)) + packet + bytes(len(packet) % 2)
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WEBP" + chunks
