"""Pages on a terminal, or as plain lines where there is none.

Text from users or from the service goes through `safe` first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain, repeat

from rich import box, table
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from callsheet.plain_text import printable
from callsheet.present.page import Fact, Facts, Line, Link, Listed, Part, Table, Tone

_STYLES = {Tone.GOOD: "green", Tone.WARNING: "yellow", Tone.BAD: "red", Tone.ASIDE: "dim"}

_UNLIMITED = 10_000  # columns
_LONGEST_NAME = 30  # columns that stay in one piece in a table
_NARROWEST = 8  # columns of a text in a narrow table

# What stays in one piece: a command that can be copied, a word, or a Chinese or Japanese character.
_WIDE = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef"
_PIECE = re.compile(rf"\s*(callsheet [a-z]+(?: \S+)?(?: --set \S+| --\S+)*|[{_WIDE}]|[^\s{_WIDE}]+)\s*")


def safe(text: str) -> str:
    """Text from users or the service, for `Console.print`: no control characters, no markup, one line."""
    return escape(printable(text))


def print_page(console: Console, page: Iterable[Part]) -> None:
    """Prints a page, a part below the other."""
    for part in page:
        match part:
            case Line():
                _print_text(console, part)
            case Facts(facts, indent):
                _print_facts(console, facts, " " * indent)
            case Table():
                _print_table(console, part)
            case Listed(title, items):
                names = chain([title], repeat(""))
                facts = zip(names, map(_in_words, items), strict=False)
                _print_facts(console, facts, "  ", are_whole=part.are_commands)
            case Link():
                console.print(safe(_in_words(part)))


def print_line(console: Console, markup: str, indent: int = 4) -> None:
    """Prints a line of text with markup.

    On a terminal it is broken between words, and what follows is indented by so many columns. A word that is
    longer than that, such as a path, stays in one piece. Elsewhere a line stays a line.
    """
    text = Text.from_markup(markup)
    if console.is_terminal:
        breaks, used = [], 0
        for piece in _PIECE.finditer(text.plain):
            if used > indent and used + cell_len(piece[0].rstrip()) > console.width:
                breaks.append(piece.start())
                used = indent
            used += cell_len(piece[0])
        *broken, last = text.divide(breaks)
        for line in broken:
            line.rstrip()
        text = Text("\n" + " " * indent).join([*broken, last])
    console.print(text)


def _print_text(console: Console, line: Line) -> None:
    style, text = _STYLES[line.tone] if line.tone else "", safe(line.text)
    if line.strong:
        text = f"[{f'bold {style}'.strip()}]{safe(line.strong)}[/]{text}"
    elif style:
        text = f"[{style}]{text}[/]"
    print_line(console, " " * line.indent + text, line.indent + 2)


def _print_facts(console: Console, facts: Iterable[Fact], indent: str, *, are_whole: bool = False) -> None:
    for name, text in facts:
        line = f"{indent}[bold]{name:<10}[/] {safe(text)}"
        if text and are_whole:
            console.print(line)
        elif text:
            print_line(console, line, len(indent) + 11)


def _print_table(console: Console, part: Table) -> None:
    if not part.lines:
        return
    unlimited = console.options.update(width=_UNLIMITED)
    columns = _columns(part)
    if console.measure(columns, options=unlimited).maximum > console.width:
        columns = _columns(part, is_narrow=True)
    if console.measure(columns, options=unlimited).minimum > console.width:
        columns = _columns(part, is_narrow=True, breaks_names=True)
    console.print(columns)
    if (left_out := len(part.lines) - part.limit) > 0:
        console.print(f"  and {left_out:,} {part.more}")


def _columns(part: Table, *, is_narrow: bool = False, breaks_names: bool = False) -> table.Table:
    """A narrow one has less between its columns, and the words of a number's head below each other.

    Sentences are broken first: where there is place, a name of one word stays whole.
    """
    lines = [[safe(text) for text in line.values()] for line in part.lines[: part.limit]]
    columns = table.Table(box=box.SIMPLE_HEAD, collapse_padding=is_narrow)
    for name, texts in zip(part.lines[0], zip(*lines, strict=True), strict=True):
        if name in part.texts:
            is_name = all(" " not in text and cell_len(text) <= _LONGEST_NAME for text in texts)
            is_whole, least = is_name and not breaks_names, _NARROWEST if is_narrow else None
            columns.add_column(name, overflow="fold", no_wrap=is_whole, min_width=least)
        else:
            head = name.replace(" ", "\n", 1) if is_narrow else name
            columns.add_column(head, justify="left" if name == "key" else "right", no_wrap=True)
    for line in lines:
        columns.add_row(*line)
    return columns


def _in_words(item: str | Link) -> str:
    return item if isinstance(item, str) else f"{item.words}: {item.url}"
