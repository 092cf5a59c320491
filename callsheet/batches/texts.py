"""Text files -> their text as UTF-8, with one kind of line end.

Where an encoding is wrong, it says which ones are likely, and how a line would read in each of them: an
encoding in which any file can be read is no help.
"""

from __future__ import annotations

import codecs
import gzip
import sys
import zlib
from pathlib import Path

from callsheet.errors import InputError
from callsheet.plain_text import cut, printable

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_BYTE_ORDER_MARKS = {  # UTF-32's begin with UTF-16's, so they come first
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_LIKELY = [  # what spreadsheets and editors write where they do not write UTF-8
    *("cp949", "gb18030", "big5", "cp932", "euc_jp", "cp1252", "cp1250", "cp1251", "cp1253", "cp1254"),
    *("cp1255", "cp1256", "cp1257", "koi8_r", "mac_roman"),
]
_WESTERN = set("äöüßéèêëàâçîïôûùœæøåñíóúáãõìò¿¡“”‘’„–—…•€°´«»·×½¼©®™º§")  # noqa: RUF001 - the letters themselves
_KINDS = {  # of files that are no text, by their first bytes
    b"PK\x03\x04": "a workbook (.xlsx) or another archive",
    b"\xd0\xcf\x11\xe0": "an old workbook (.xls), or one with a password",
    b"PAR1": "Parquet (.parquet)",
    b"\x1f\x8b": "compressed (.gz)",
    b"\x28\xb5\x2f\xfd": "compressed (.zst)",
}
_SHOWN = 3  # of the likely encodings
_SAMPLE = 1 << 16  # bytes that are looked at
_LONGEST_LINE = 60  # characters of a line that is shown


def read_text(path: Path, name: str, declared: str | None) -> tuple[bytes, str]:
    """The whole of a text file. Its `name`, which messages have, says whether it is compressed.

    `declared` is its encoding where it has no byte order mark; None: UTF-8.

    Returns:
        The text as UTF-8, each line with its `\\n`; and what a person should know of it, mostly nothing.

    Raises:
        InputError: it cannot be read, decompressed or decoded.
    """
    unpack = {".gz": gzip.decompress, ".zst": zstd.decompress}.get(Path(name.lower()).suffix, bytes)
    try:
        content = unpack(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"{name}: there is no such file") from None
    except (EOFError, gzip.BadGzipFile, zlib.error, zstd.ZstdError) as error:
        raise InputError(f"{name}: cannot be decompressed: {error}") from None
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror or error}") from None
    marked = next(
        (encoding for mark, encoding in _BYTE_ORDER_MARKS.items() if content.startswith(mark)), None
    )
    encoding = marked or declared or "utf-8"
    is_wide = codecs.lookup(encoding).name.startswith(("utf-16", "utf-32"))
    try:
        if not is_wide and _utf16(content) and content[:_SAMPLE].count(0) * 4 > len(content[:_SAMPLE]):
            raise UnicodeError("every other byte is 0")  # noqa: TRY301 - as of any other wrong encoding
        text = codecs.getincrementaldecoder(encoding)().decode(content, final=True)
    except UnicodeError as error:
        raise _wrong_encoding(name, encoding, content, error) from None
    note = "" if marked or not declared else _doubt(name, declared, content)
    if encoding != "utf-8" or b"\r" in content:  # the rest of a large file is not copied
        content = text.replace("\r\n", "\n").replace("\r", "\n").encode()
    return content if not content or content.endswith(b"\n") else content + b"\n", note


def _utf16(content: bytes) -> str:
    """Which UTF-16 a file looks like that has no byte order mark, by where its zeros are: each line end,
    blank and comma has one, in any language. Empty if it is none.
    """
    sample = content[: _SAMPLE & ~1]
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    if not (even or odd) or (even and odd) or len(content) % 2:
        return ""
    return "utf-16-be" if even else "utf-16-le"


def kind_of(content: bytes) -> str:
    """What a file is that is no text, by its first bytes; empty where they do not say it."""
    return next((kind for first, kind in _KINDS.items() if content.startswith(first)), "")


def _wrong_encoding(name: str, encoding: str, content: bytes, error: UnicodeError) -> InputError:
    """Says what is wrong, on which line where the file should be UTF-8, and what the encoding may be."""
    if kind := kind_of(content):
        return InputError(f"{name}: is not text, but {kind}", hint="A file's name must end as its type does.")
    place, problem = name, f"is not {encoding} text: {error}"
    if wide := _utf16(content):
        reads = content.decode(wide, "replace").partition("\n")[0]
        raise InputError(
            f"{name}: is not {encoding} text; it looks like UTF-16 without a byte order mark",
            hint=f"Save it as UTF-8, or set input.encoding: {wide}. Line 1 would read: {_cut(reads)}",
        )
    if isinstance(error, UnicodeDecodeError) and encoding.startswith("utf-8"):
        line = _lines_before(error.object, error.start) + 1
        place, problem = f"{name}, line {line}", f"is not UTF-8 (byte 0x{error.object[error.start]:02X})"
    readings = likely_readings(content)
    hint = "Save it as UTF-8, or set input.encoding to its encoding."
    if readings:
        number = _lines_before(content, content.find(_first_line(content))) + 1
        hint += f" Line {number} would read, most likely first:\n" + "\n".join(_lines(readings))
    return InputError(f"{place}: {problem}", hint=hint)


def _doubt(name: str, declared: str, content: bytes) -> str:
    """Why a file may not be in the declared encoding, although it can be read so; empty where it may be."""
    if content.isascii() or codecs.lookup(declared).name.startswith("utf"):
        return ""
    readings = likely_readings(content)
    names = {codecs.lookup(encoding).name for encoding in readings}
    if not readings or codecs.lookup(declared).name in names:
        return ""
    line = _first_line(content).decode(declared, "replace")
    alternatives = "; ".join(_lines(readings))
    return f"{name} is read as {declared}: {_cut(line)}. It may be another encoding: {alternatives}"


def _lines(readings: dict[str, str]) -> list[str]:
    return [f"{encoding}: {_cut(line)}" for encoding, line in [*readings.items()][:_SHOWN]]


def likely_readings(content: bytes) -> dict[str, str]:
    """The encodings that a text may have, the most likely first, and how its first other line would read."""
    from charset_normalizer import from_bytes  # slow to import, and seldom needed

    foreign = b"\n".join(line for line in content[:_SAMPLE].splitlines() if not line.isascii())
    readings: dict[str, str] = {}
    letters = {letter for letter in foreign.decode("cp1252", "replace").lower() if not letter.isascii()}
    western = ["cp1252"] if letters and letters <= _WESTERN else []
    matches = from_bytes(foreign, cp_isolation=_LIKELY) if foreign else ()
    for encoding in (*western, *(match.encoding for match in matches)):
        text = _first_line(content).decode(encoding, "replace")
        if text not in readings.values():
            readings[encoding] = text
    return readings


def _lines_before(content: bytes, position: int) -> int:
    """How many lines end before a byte."""
    return content[:position].replace(b"\r\n", b"\n").replace(b"\r", b"\n").count(b"\n")


def _first_line(content: bytes) -> bytes:
    """The first line that is not ASCII."""
    return next((line for line in content.splitlines() if not line.isascii()), b"")


def _cut(line: str) -> str:
    return cut(printable(line.strip()), _LONGEST_LINE)
