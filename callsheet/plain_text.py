"""Text for people: safe to print on a terminal and in a log line, and numbers with their nouns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

# Control characters can move the cursor, change colours or the window's title; bidirectional overrides can
# make a text read as another one. Half a surrogate pair cannot be printed at all.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")

_GENERATED_ID = re.compile(r"[0-9a-f]{16}-\d+")
_LINE = re.compile(r"line ([1-9][0-9]{0,17})")

IN_MINUTES = 90
"""A time of fewer minutes is said in minutes alone."""


def printable(text: str) -> str:
    r"""The text in one line, with each unsafe character as its escape sequence: `\x1b`, `\n`, `\u202e`."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def cut(text: str, longest: int) -> str:
    """The text, or its beginning with an ellipsis where it has more characters than that."""
    return text if len(text) <= longest else f"{text[: max(1, longest - 1)]}…"


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: `1 job`, `1,200 jobs`; `plural` where it is not made with an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def and_more(names: Sequence[str], total: int) -> str:
    """The first of so many names, and how many more there are: `lamp, vase and 3 more`."""
    remaining = f" and {total - len(names):,} more" if total > len(names) else ""
    return f"{', '.join(names)}{remaining}"


def row_name(row_id: str, sample: int = 1, line: int | None = None) -> str:
    """A row as people know it: by its id, or by its line where the batch file gives it no id.

    The number of the sample is added where that is not the first: `lamp (sample 2)`, `line 12`.
    """
    name = row_id if line is None or has_own_id(row_id) else f"line {line}"
    return name if sample == 1 else f"{name} (sample {sample})"


def row_in_words(row_id: str, sample: int = 1, line: int | None = None) -> str:
    """The same in a sentence: `row lamp (sample 2)`, `line 12`."""
    by_line = line is not None and not has_own_id(row_id)
    return ("" if by_line else "row ") + row_name(row_id, sample, line)


def has_own_id(row_id: str) -> bool:
    """Whether the batch file gives a row this id; otherwise it is made of the row's content."""
    return not _GENERATED_ID.fullmatch(row_id)


def line_of(name: str) -> int | None:
    """The line in the name of a row without an id, `line 12`; None of any other name."""
    match = _LINE.fullmatch(name)
    return int(match[1]) if match else None


def moment_in_words(moment: datetime) -> str:
    """A moment in UTC: `2026-05-01 12:00:00 UTC`."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def time_in_words(seconds: float) -> str:
    """A time that people read: `40 s`, `12 min`, `3 h 5 min`, `1 day 9 h`."""
    return f"{seconds:.0f} s" if seconds < 90 else minutes_in_words(round(seconds / 60))


def minutes_in_words(minutes: int) -> str:
    """A time of whole minutes; in days and hours where it is more than a day."""
    if minutes < IN_MINUTES:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return counted(days, "day") + (f" {hours} h" if hours else "")
