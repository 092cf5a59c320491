"""How a text file is written (packing, encoding, delimiter, quote), and its text.

Finds out from the head of a file what the config does not say; knows nothing of rows. Line ends of every kind
are one `\\n` from here on.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import sys
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from callsheet.errors import InputError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_DELIMITERS = [",", ";", "\t", "|"]
_QUOTES = ['"', "'"]
_MARKS = {  # UTF-32's begin as UTF-16's do
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_SEP_LINE = re.compile(r"sep=(.)", re.IGNORECASE)  # Excel's own way to name the delimiter


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a file is written.

    Attributes:
        name: what people call the file.
        quote: what encloses a cell; None where no letter does.
        above: lines above the header that are no rows.
    """

    name: str
    encoding: str
    delimiter: str
    quote: str | None
    above: int = 0


def sniff(
    path: Path,
    name: str,
    *,
    delimiter: str | None,
    quote: str | None,
    encoding: str | None,
    wanted: Collection[str],
) -> Dialect:
    """Finds what is not given: the encoding by the byte order mark, the others by the header.

    Raises:
        UnicodeError, OSError: as `text`.
    """
    found = _encoding(path, name, encoding)
    with text(path, name, found) as file:
        above, first = next(((at, line) for at, line in enumerate(file) if line.strip()), (0, ""))
        separator = _SEP_LINE.fullmatch(first.rstrip("\n"))
        if separator:
            above, first = above + 1, next(file, "")
    delimiter = delimiter or (separator[1] if separator else None)
    delimiter, quote = _letters(first, name, wanted, delimiter, quote)
    return Dialect(name, found, delimiter, quote, above if separator else 0)


def _letters(
    header: str, name: str, wanted: Collection[str], delimiter: str | None, quote: str | None
) -> tuple[str, str]:
    """The delimiter and quote that find most of the wanted columns in the header, and then most columns.

    Where none is found the file has one column, and unless it is a .csv its commas are part of the text.
    """
    likeliest = [","] if ".csv" in name.lower() else ["\t"]
    delimiters = [delimiter] if delimiter else likeliest + _DELIMITERS
    choices = [(each, letter) for letter in ([quote] if quote else _QUOTES) for each in delimiters]

    def found(choice: tuple[str, str]) -> tuple[int, int]:
        cells = next(csv.reader([header], delimiter=choice[0], quotechar=choice[1]), [])
        return len(set(wanted) & {cell.strip() for cell in cells}), len(cells)

    return max(choices, key=found)


def _encoding(path: Path, name: str, declared: str | None) -> str:
    """What the byte order mark says, otherwise the declared encoding, otherwise UTF-8."""
    with _open(path, name) as file:
        start = file.read(4)
    marked = next((encoding for mark, encoding in _MARKS.items() if start.startswith(mark)), None)
    return marked or (declared if declared and declared != "utf-8" else "utf-8-sig")


def _open(path: Path, name: str) -> BinaryIO:
    ending = Path(name.lower()).suffix
    if ending == ".gz":
        return cast(BinaryIO, gzip.open(path))
    return cast(BinaryIO, zstd.open(path)) if ending == ".zst" else path.open("rb")


@contextmanager
def text(path: Path, name: str, encoding: str) -> Iterator[TextIO]:
    """The file unpacked and decoded, with `\\n` for every line end.

    Raises:
        UnicodeError, OSError, EOFError, zlib.error, ZstdError: while it is read; see `explained`.
    """
    with _open(path, name) as packed, io.TextIOWrapper(packed, encoding=encoding) as file:
        yield file


@contextmanager
def explained(path: Path, name: str, encoding: str | None) -> Iterator[None]:
    """Says in words, with the line where there is one, why a file cannot be read as text.

    Raises:
        InputError: in place of what unpacking and decoding raise.
    """
    try:
        yield
    except UnicodeError as error:
        raise _not_of_encoding(path, name, encoding, error) from None
    except (EOFError, gzip.BadGzipFile, zlib.error, zstd.ZstdError) as error:
        raise InputError(f"{name}: cannot be unpacked: {error}") from None
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror or error}") from None


def _not_of_encoding(path: Path, name: str, encoding: str | None, error: UnicodeError) -> InputError:
    hint = "Save it as UTF-8, or say in input.encoding what it is, for example cp1252."
    found = _encoding(path, name, encoding)
    if found != "utf-8-sig":
        return InputError(f"{name}: is not {found} text: {error}", hint=hint)
    with _open(path, name) as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError as bad:
                return InputError(
                    f"{name}, line {number}: is not UTF-8 (byte 0x{line[bad.start]:02X})", hint=hint
                )
    return InputError(f"{name}: is not UTF-8: {error}", hint=hint)
