"""Pages in Markdown, for the Prefect UI."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from io import BytesIO

from PIL import Image

from callsheet.plain_text import printable
from callsheet.present.page import Document, Facts, Line, Link, Listed, Part, Picture, Pictures, Table


def markdown(page: Document) -> str:
    """A page of the parts that are not empty."""
    return "\n\n".join(filter(None, map(_part, page))) + "\n"


def _part(part: Part | Pictures) -> str:
    match part:
        case Line(said, strong):
            line = f"**{text(strong)}**{text(said)}" if strong else text(said)
            return f"{'#' * part.level} {text(strong + said)}" if part.level else line
        case Facts(facts):
            said_lines = "\n".join(_fact(name, said) for name, said in facts if said)
            return said_lines.replace("\n  ", "\\\n  ")  # what has no name begins a line, not a sentence
        case Table(lines):
            return _cells([[*lines[0]], *(map(text, line.values()) for line in lines)]) if lines else ""
        case Listed(title, items):
            points = [f"- {_code(str(item)) if part.are_commands else _item(item)}" for item in items]
            return "\n".join([f"## {text(title)}\n", *points]) if points else ""
        case Pictures():
            return _pictures(part)
        case link:
            return _item(link)


def text(said: str) -> str:
    """Text from users or the service in Markdown: one line, and no markup, HTML or end of a cell."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", printable(said))


def _fact(name: str, said: str) -> str:
    return f"- **{name}**: {text(said)}" if name else f"  {text(said)}"


def _item(item: str | Link) -> str:
    if isinstance(item, str):
        return text(item)
    if _opens(item.url):
        return f"[{text(item.words)}]({item.url})"
    return f"{text(item.words)}: {_place(item.url)}"


def _place(url: str) -> str:
    return f"<{url}>" if _opens(url) else _code(url)


def _code(said: str) -> str:
    return f"`{printable(said).replace('`', '')}`"


def _opens(url: str) -> bool:
    """Whether a browser can open it."""
    return url.startswith(("http://", "https://"))


def _cells(rows: Sequence[Iterable[str]]) -> str:
    head, *body = map(list, rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *body])


def _pictures(part: Pictures) -> str:
    """Each picture with its words beside it (a dialog wraps no cell), and below what has none."""
    rows = [[_picture(picture, part.edge), _words(picture)] for picture in part.pictures if picture.jpeg]
    others = [picture for picture in part.pictures if not picture.jpeg]
    below = "\n".join(
        f"- {_words(picture)}: {_place(picture.place) if picture.place else text(picture.text)}"
        for picture in others
    )
    return "\n\n".join(filter(None, [_cells([["", ""], *rows]) if rows else "", below]))


def _words(picture: Picture) -> str:
    return text(picture.words) + (f", **{text(picture.strong)}**" if picture.strong else "")


def _picture(picture: Picture, edge: int) -> str:
    content = BytesIO()
    with Image.open(BytesIO(picture.jpeg)) as image:
        image.thumbnail((edge, edge))
        image.save(content, "JPEG")
    return f"![{text(picture.name)}](data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode()})"
