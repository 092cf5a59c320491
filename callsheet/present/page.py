"""What a page is made of: parts, the most important first. Texts are plain; who shows them makes them safe.

The renderers (`console.py`, `markdown.py`) take exactly this, and know nothing of quotes or batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

MOST_LISTED = 1_000
"""Jobs that a table lists. Nobody reads more, and printing half a million takes minutes."""

Fact = tuple[str, str]
"""A name, and what is to say. Without a name it is about the fact before; without a text it is left out."""


class Tone(Enum):
    """How a line is meant."""

    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"
    ASIDE = "aside"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text, after a beginning that stands out.

    `tone` is how the beginning is meant, or where there is none the text. `indent` is in columns. `level` 1
    is the title of a page, 2 that of a part of it.
    """

    text: str = ""
    strong: str = ""
    tone: Tone | None = None
    indent: int = 0
    level: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts, a line each."""

    facts: Iterable[Fact]
    indent: int = 2


@dataclass(frozen=True, slots=True)
class Table:
    """Lines with the same keys, which are the head; nothing where there are none.

    `texts` are the columns that are broken where they are long; the others are numbers, or keys of jobs.
    `limit`: how many lines are shown where a page is short, and `more` what the others are.
    """

    lines: Sequence[Mapping[str, str]]
    texts: tuple[str, ...] = ()
    limit: int = 30
    more: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """Words about a place, a path or a URL; where a browser can open it, they lead there."""

    words: str
    url: str


@dataclass(frozen=True, slots=True)
class Listed:
    """Sentences and places under a title; nothing where there are none. Commands are kept whole."""

    title: str
    items: Iterable[str | Link]
    are_commands: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture with its words, and one that stands out; without a JPEG, its place or a text."""

    name: str
    words: str
    strong: str
    jpeg: bytes
    place: str
    text: str


@dataclass(frozen=True, slots=True)
class Pictures:
    """Pictures, each with so many pixels on its longer side."""

    pictures: Sequence[Picture]
    edge: int


Part = Line | Facts | Table | Listed | Link
Page = list[Part]
Document = Sequence[Part | Pictures]
"""A page with pictures, which only Markdown shows."""
