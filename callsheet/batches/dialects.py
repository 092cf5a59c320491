"""How a text file is written (compression, encoding, delimiter, quote), and its lines.

Detects from the beginning of a file what the config does not give. Does not know rows. Lines are read as
UTF-8 with `\\n` at the end of each, whatever the file has.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import sys
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from callsheet.errors import InputError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_DELIMITERS = [",", ";", "\t", "|"]
_QUOTES = ['"', "'"]
_BYTE_ORDER_MARKS = {  # UTF-32's begin with UTF-16's, so they come first
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_LONGEST_CHARACTER = 4  # bytes of UTF-8
_SEP_LINE = re.compile(r"sep=(.)", re.IGNORECASE)  # Excel names the delimiter in a first line like this


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a file is written.

    Attributes:
        name: the file's name in messages.
        encoding: as Python names it.
        delimiter: what separates cells.
        quote: what encloses a cell; None where nothing does.
        lines_above: lines above the header that are neither rows nor blank.
    """

    name: str
    encoding: str
    delimiter: str
    quote: str | None
    lines_above: int = 0


def detect(
    path: Path,
    name: str,
    *,
    delimiter: str | None,
    quote: str | None,
    encoding: str | None,
    expected: Collection[str],
) -> Dialect:
    """Detects what is None: the encoding by the byte order mark, the delimiter and the quote by the header.

    Args:
        path: the local file.
        name: the file's name in messages; its extension says whether it is compressed.
        delimiter: what separates cells.
        quote: what encloses a cell.
        encoding: used where the file has no byte order mark.
        expected: columns that the header should have.

    Raises:
        UnicodeError, OSError: see `open_lines`.
    """
    encoding = _encoding(path, name, encoding)
    with open_lines(path, name, encoding) as file:
        lines = map(bytes.decode, file)
        lines_above, header = next(((at, line) for at, line in enumerate(lines) if line.strip()), (0, ""))
        sep_line = _SEP_LINE.fullmatch(header.rstrip("\n"))
        if sep_line:
            lines_above, header = lines_above + 1, next(lines, "")
    delimiter = delimiter or (sep_line[1] if sep_line else None)
    delimiter, quote = _delimiter_and_quote(header, name, expected, delimiter, quote)
    return Dialect(name, encoding, delimiter, quote, lines_above if sep_line else 0)


def _delimiter_and_quote(
    header: str, name: str, expected: Collection[str], delimiter: str | None, quote: str | None
) -> tuple[str, str]:
    """Those that find most of the expected columns in the header, and then most columns.

    Where no delimiter finds any, the file has one column; commas are then part of its text, except in a .csv.
    """
    first_choice = [","] if ".csv" in name.lower() else ["\t"]
    delimiters = [delimiter] if delimiter else first_choice + _DELIMITERS
    quotes = [quote] if quote else _QUOTES

    def columns(choice: tuple[str, str]) -> tuple[int, int]:
        cells = next(csv.reader([header], delimiter=choice[0], quotechar=choice[1]), [])
        return len(set(expected) & {cell.strip() for cell in cells}), len(cells)

    return max([(delimiter, quote) for quote in quotes for delimiter in delimiters], key=columns)


def _encoding(path: Path, name: str, declared: str | None) -> str:
    """The encoding by the byte order mark, otherwise the declared one, otherwise UTF-8."""
    with _open(path, name) as file:
        first_bytes = file.read(4)
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if first_bytes.startswith(mark):
            return encoding
    return declared if declared and declared != "utf-8" else "utf-8-sig"


def _open(path: Path, name: str) -> BinaryIO:
    extension = Path(name.lower()).suffix
    if extension == ".gz":
        return cast(BinaryIO, gzip.open(path))
    return cast(BinaryIO, zstd.open(path)) if extension == ".zst" else path.open("rb")


@contextmanager
def open_lines(path: Path, name: str, encoding: str) -> Iterator[BinaryIO]:
    """The file decompressed, as UTF-8 with `\\n` for every line end.

    A file that is declared as UTF-8 is given as it is: who decodes its lines finds what is not.

    Raises:
        UnicodeError, OSError, EOFError, zlib.error, ZstdError: while it is read; see `reading_errors`.
    """
    with _open(path, name) as file:
        if encoding == "utf-8-sig":
            lines = io.BufferedReader(_Lines(file.read))
            if lines.peek(len(codecs.BOM_UTF8)).startswith(codecs.BOM_UTF8):
                lines.read(len(codecs.BOM_UTF8))
            yield lines
        else:
            text = io.TextIOWrapper(file, encoding=encoding, newline="")
            yield io.BufferedReader(_Lines(lambda size: text.read(size // _LONGEST_CHARACTER).encode()))


class _Lines(io.RawIOBase):
    """Bytes in which each line ends with `\\n`.

    Args:
        read: gives at most so many bytes, in which a line may end with `\\r`, `\\n` or both; none at the end.
    """

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._after_return = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # BufferedReader gives this type
        block = self._read(len(buffer))
        if self._after_return and block.startswith(b"\n"):
            block = block[1:] or self._read(len(buffer))
        self._after_return = block.endswith(b"\r")
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        buffer[: len(block)] = block
        return len(block)


@contextmanager
def reading_errors(path: Path, name: str, encoding: str | None) -> Iterator[None]:
    """Explains why a file cannot be read as text, and names the line where that is possible.

    Raises:
        InputError: in place of the errors of decompression and decoding.
    """
    try:
        yield
    except UnicodeError as error:
        raise _wrong_encoding(path, name, encoding, error) from None
    except (EOFError, gzip.BadGzipFile, zlib.error, zstd.ZstdError) as error:
        raise InputError(f"{name}: cannot be decompressed: {error}") from None
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror or error}") from None


def _wrong_encoding(path: Path, name: str, declared: str | None, error: UnicodeError) -> InputError:
    hint = "Save it as UTF-8, or set input.encoding to its encoding, for example cp1252."
    encoding = _encoding(path, name, declared)
    if encoding != "utf-8-sig":
        return InputError(f"{name}: is not {encoding} text: {error}", hint=hint)
    with _open(path, name) as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError as wrong:
                byte = f"0x{line[wrong.start]:02X}"
                return InputError(f"{name}, line {number}: is not UTF-8 (byte {byte})", hint=hint)
    return InputError(f"{name}: is not UTF-8: {error}", hint=hint)
