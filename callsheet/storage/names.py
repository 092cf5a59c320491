"""Names of stored files: safe in every file system and bucket, and different for different rows.

Pure: does not look at what is stored.
"""

from __future__ import annotations

import hashlib
import re
import string
import unicodedata
from collections.abc import Mapping
from urllib.parse import quote

from callsheet.media_types import without_extension

# Bytes. File systems allow 255, and the name of a partial file is a little longer.
_LONGEST_FIELD = 100
_LONGEST_SEGMENT = 200
# What Windows has no files for: characters, and the names of devices, whatever comes after a dot.
_REFUSED = re.compile(r"[\x00-\x1f<>:\"\\|?*]")
_DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[1-9\xb9\xb2\xb3]) *(\.|$)", re.IGNORECASE)
_INNER_BLANK = re.compile(r"(?<=[^ ]) (?=[^ ])")

OWNER_FILE = ".callsheet-ledger"
"""The file that says whose a `report.url` is; with `-` and the batch's name, that of a `storage.url`."""

EXPORT_MARK = "callsheet-export.json"
"""The file that says of which export a folder is."""

PLACEHOLDERS = ("batch", "row_id", "sample", "index", "ext", "job_key", "model", "generation_id")
"""What `storage.key` may contain besides the batch file's carried columns."""


def carried_columns(template: str) -> list[str]:
    """The columns of the batch file that `storage.key` names."""
    names = (name for _, name, _, _ in string.Formatter().parse(template) if name is not None)
    return [name for name in names if name not in PLACEHOLDERS]


def ends_with_type(template: str) -> bool:
    """Whether a file's name ends as its type does: by `{ext}`, or after a carried cell."""
    return template.endswith(("{ext}", *(f"{{{name}}}" for name in carried_columns(template))))


def safe_name(text: str) -> str:
    """A field's value (a row id, for example) as part of a file name; different values have different names.

    Letters and digits of any script stay, and so do `-`, `_`, `.` and single blanks between them; a slash
    (`shot/1`, a film of the shot's first still) becomes a comma. Everything else is percent-encoded, a
    leading dot too, and all that is not ASCII in a text that is not in NFC. A result of more than 100 bytes
    is cut, and ends in `~` and a hash.
    """
    is_nfc = unicodedata.is_normalized("NFC", text)
    blanks = {match.start() for match in _INNER_BLANK.finditer(text)}
    characters = (
        character if index in blanks or _stays(character, is_nfc=is_nfc) else quote(character, safe="")
        for index, character in enumerate(text)
    )
    name = "".join(characters).replace("~", "%7E").replace("%2F", ",")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    return _shortened(name, _LONGEST_FIELD)


def _stays(character: str, *, is_nfc: bool) -> bool:
    if character.isascii():
        return character.isalnum() or character in "-_."
    return is_nfc and unicodedata.category(character)[0] in "LMN"


def name(template: str, carried: Mapping[str, object] | None = None, **fields: object) -> str:
    """A file's name inside the store, made from `storage.key`.

    The only slashes in it are the template's, because every field goes through `safe_name`. No segment is
    empty, consists of dots only, or has more than 200 bytes. Each is one that Windows takes, on every
    system, so that what is stored can be moved between them. Never raises for a template that the settings
    accepted.

    Args:
        template: for example `{batch}/{row_id}-{sample}-{index}.{ext}`.
        carried: the row's carried cells by column. The ending of another type of media in one is left out.
        fields: the values for its braces.
    """
    cells = {
        column: without_extension(str(cell)) for column, cell in (carried or {}).items() if cell is not None
    }
    if ends_with_type(template) and not template.endswith("{ext}"):
        template += ".{ext}"
    values = cells | fields
    filled = "".join(  # `format` would read a column named `a.b` as an attribute
        literal + (safe_name(str(values[field])) if field in values else "")
        for literal, field, _, _ in string.Formatter().parse(template)
    )
    return "/".join(_segment(segment) for segment in filled.split("/") if segment) or "%"


def folded(name: str) -> str:
    """A form that two names share when some file systems take them for the same name.

    Those of macOS and Windows ignore case, and macOS ignores how an accent is encoded.
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _segment(segment: str) -> str:
    if not segment.strip("."):
        return segment.replace(".", "%2E")
    segment = _on_windows(segment)
    stem, dot, extension = segment.rpartition(".")
    if not stem or len(extension) > 10:
        return _shortened(segment, _LONGEST_SEGMENT)
    return _shortened(stem, _LONGEST_SEGMENT - 1 - len(extension)) + dot + extension


def _on_windows(segment: str) -> str:
    """A segment with what Windows refuses, or drops at the end, percent-encoded."""
    segment = re.sub(r"[. ]\Z", _encoded, _REFUSED.sub(_encoded, segment))
    return re.sub(".", _encoded, segment, count=1) if _DEVICE.match(segment) else segment


def _encoded(match: re.Match[str]) -> str:
    return f"%{ord(match[0]):02X}"


def _shortened(text: str, limit: int) -> str:
    """At most so many bytes of UTF-8."""
    content = text.encode()
    if len(content) <= limit:
        return text
    return f"{content[: limit - 33].decode(errors='ignore')}~{hashlib.sha256(content).hexdigest()[:32]}"
