"""Pages in Markdown, for the Prefect UI."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO

from PIL import Image

from callsheet.plain_text import printable
from callsheet.present.page import (
    Document,
    Facts,
    Heading,
    Item,
    Line,
    Link,
    Listed,
    Part,
    Picture,
    Pictures,
    Place,
    Steps,
    Table,
    Verbatim,
)


def markdown(page: Document) -> str:
    """A page of the parts that are not empty."""
    return "\n\n".join(filter(None, map(_part, page))) + "\n"


def _part(part: Part | Pictures) -> str:
    match part:
        case Line(said, strong):
            content = (f"**{text(strong)}**" if strong else "") + text(said)
        case Heading():
            content = f"{'#' * part.level} {text(part.text)}"
        case Facts(facts):
            content = "\n".join(_fact(name, said) for name, said in facts if said)
        case Table(lines):
            content = _cells([[*lines[0]], *(map(text, line.values()) for line in lines)]) if lines else ""
        case Steps(sentences):
            content = _list("What to do next", sentences)
        case Listed(title, items):
            content = _list(title, items)
        case Verbatim(lines):
            content = "\n".join(["```", *map(printable, lines), "```"]) if lines else ""
        case Pictures():
            content = "\n\n".join(filter(None, _pictures(part)))
        case Place() | Link():
            content = _item(part)
    return content


def text(said: str) -> str:
    """Text from users or the service in Markdown: one line, and no markup, HTML or end of a cell."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", printable(said))


def _fact(name: str, said: str) -> str:
    return f"- **{name}**: {text(said)}" if name else f"  {text(said)}"


def _list(title: str, items: Iterable[Item]) -> str:
    points = [f"- {_item(item)}" for item in items]
    return "\n".join([f"## {text(title)}\n", *points]) if points else ""


def _item(item: Item) -> str:
    match item:
        case Place(name, url):
            return f"{text(name)}: {_place(url)}"
        case Link(words, url):
            return f"[{text(words)}]({url})"
        case said:
            return text(said)


def _place(url: str) -> str:
    """Where a file is: a link where a browser can open it."""
    return f"<{url}>" if url.startswith(("http://", "https://")) else f"`{printable(url).replace('`', '')}`"


def _cells(rows: Sequence[Iterable[str]]) -> str:
    head, *body = map(list, rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *body])


def _pictures(part: Pictures) -> Iterator[str]:
    """Each picture with its words beside it (a dialog wraps no cell), and below what has none."""
    rows = [[_picture(picture, part.edge), _words(picture)] for picture in part.pictures if picture.jpeg]
    if rows:
        yield _cells([["", ""], *rows])
    yield "\n".join(
        f"- {_words(picture)}: {_place(picture.place) if picture.place else text(picture.text)}"
        for picture in part.pictures
        if not picture.jpeg
    )


def _words(picture: Picture) -> str:
    return text(picture.words) + (f", **{text(picture.strong)}**" if picture.strong else "")


def _picture(picture: Picture, edge: int) -> str:
    content = BytesIO()
    with Image.open(BytesIO(picture.jpeg)) as image:
        image.thumbnail((edge, edge))
        image.save(content, "JPEG")
    return f"![{text(picture.name)}](data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode()})"
