"""Sends a file from memory, whole or in part, and closes a connection on purpose."""

from __future__ import annotations

import hashlib
import re

from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from backlot.errors import Refused

RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


class Disconnect(Response):
    """Closes the connection at once, without an answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102 - ASGI's
        scope["state"]["transport"].abort()
        await receive_disconnect(receive)


async def receive_disconnect(receive: Receive) -> None:
    """Waits until the server knows that the connection is closed, so that it does not send an answer."""
    while (await receive())["type"] != "http.disconnect":
        pass


class File(Response):
    """A file, or the requested range of it (RFC 9110, 14). A request for several ranges gets the file.

    A `truncated` file announces its whole length, sends half, and closes the connection.
    """

    def __init__(self, content: bytes, mime_type: str, request: Request, *, truncated: bool = False) -> None:
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        headers = {"Accept-Ranges": "bytes", "ETag": tag, "Cache-Control": "private"}
        status = 200
        requested = RANGE.fullmatch(request.headers.get("range", ""))
        if requested and any(requested.groups()) and request.headers.get("if-range", tag) == tag:
            first, last = span(requested[1], requested[2], len(content))
            headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            content = content[first : last + 1]
            status = 206
        super().__init__(content, status, headers, mime_type)
        self.truncated = truncated

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it."""
        if not self.truncated or scope["method"] == "HEAD":
            await super().__call__(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        half = self.body[: len(self.body) // 2]
        await send({"type": "http.response.body", "body": half, "more_body": True})
        scope["state"]["transport"].close()
        await receive_disconnect(receive)


def span(first: str, last: str, length: int) -> tuple[int, int]:
    """The first and last byte of a range, both inclusive.

    Raises:
        Refused: 416 when the range has no byte of the file.
    """
    if first:
        start, end = int(first), min(int(last or length), length - 1)
    else:
        start, end = max(length - int(last), 0), length - 1
    if start > end:
        raise Refused(
            "invalid_parameter",
            "The range is outside the file.",
            "Range",
            status=416,
            headers={"Content-Range": f"bytes */{length}"},
        )
    return start, end
