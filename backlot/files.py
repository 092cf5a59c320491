"""Serving a file from memory, whole or in part, and breaking off a connection."""

from __future__ import annotations

import hashlib
import re

from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from backlot.errors import Refused

RANGE = re.compile(r"bytes=(\d*)-(\d*)", re.ASCII)


class Cut(Response):
    """Close the connection at once, with nothing sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102 - ASGI's
        scope["state"]["transport"].abort()
        await receive_disconnect(receive)


async def receive_disconnect(receive: Receive) -> None:
    """Wait until the server has seen that the connection is gone, so that it does not answer for us."""
    while (await receive())["type"] != "http.disconnect":
        pass


class File(Response):
    """A file, or the one range that was asked for (RFC 9110, 14); several at once get the whole file."""

    def __init__(self, content: bytes, mime_type: str, request: Request, *, cut: bool = False) -> None:
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        headers = {"Accept-Ranges": "bytes", "ETag": tag, "Cache-Control": "private"}
        status = 200
        wanted = RANGE.fullmatch(request.headers.get("range", ""))
        if wanted and any(wanted.groups()) and request.headers.get("if-range", tag) == tag:
            first, last = span(wanted[1], wanted[2], len(content))
            headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            content = content[first : last + 1]
            status = 206
        super().__init__(content, status, headers, mime_type)
        self.bodiless = request.method == "HEAD"
        self.cut = cut

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; a `cut` file breaks off half-way, with its whole length announced."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if self.cut and not self.bodiless:
            await send(
                {"type": "http.response.body", "body": self.body[: len(self.body) // 2], "more_body": True}
            )
            scope["state"]["transport"].close()
            await receive_disconnect(receive)
            return
        await send({"type": "http.response.body", "body": b"" if self.bodiless else self.body})


def span(first: str, last: str, length: int) -> tuple[int, int]:
    """The first and last byte of a range, both inclusive.

    Raises:
        Refused: 416 when no byte of the file is in it.
    """
    if first:
        start, end = number(first), min(number(last), length - 1) if last else length - 1
    else:
        start, end = max(length - number(last), 0), length - 1
    if start > end:
        raise Refused(
            "invalid_parameter",
            "The range is outside the file.",
            "Range",
            status=416,
            headers={"Content-Range": f"bytes */{length}"},
        )
    return start, end


def number(digits: str) -> int:
    """A number of any length, for `int` refuses very long ones; from 18 digits on, it is past every file."""
    return int(digits.lstrip("0")[:18] or "0")
