"""What a request for a page must have: an allowed name, a session, and for a form its own origin."""

from __future__ import annotations

from urllib.parse import urlsplit

from fastapi import Request
from starlette.exceptions import HTTPException

from backlot.dashboard.sign_in import SignIn

LASTS = 30 * 86400  # seconds that a browser keeps the cookie; the session ends with the server


class Problem(Exception):
    """A page that says what is wrong, instead of the one that was asked for."""

    def __init__(self, status: int, title: str, text: str) -> None:
        super().__init__(title)
        self.status = status
        self.title = title
        self.text = text


def unknown() -> HTTPException:
    """What every unknown path answers: to a program without a session, the dashboard does not exist."""
    return HTTPException(404)


def cookie_name(request: Request) -> str:
    """The cookie's name. Browsers do not keep cookies apart by port, so the port is a part of it."""
    return f"backlot_{request.url.port or request.url.scheme}"


def session_of(request: Request) -> str:
    """The session that a request claims to be of; empty without one."""
    return request.cookies.get(cookie_name(request), "")


def check_name(request: Request, sign_in: SignIn) -> None:
    """Lets a request pass whose `Host` is an allowed name.

    Raises:
        HTTPException: 404, as for an unknown path.
    """
    try:
        name = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    except ValueError:
        name = ""
    if name.lower() not in sign_in.names:
        raise unknown()


def check_session(request: Request, sign_in: SignIn) -> None:
    """Lets a request pass that has a session.

    Raises:
        Problem: 403, for a browser that opens a page.
        HTTPException: 404, for everyone else.
    """
    if sign_in.knows(session_of(request)):
        return
    if "text/html" not in request.headers.get("accept", ""):
        raise unknown()
    raise Problem(
        403,
        "You are not signed in",
        "Open the link that the server printed when it started; each link works once. "
        "A signed-in browser can make another one.",
    )


def check_origin(request: Request) -> None:
    """Lets a form pass that was sent by a page of this server.

    `SameSite` alone does not do: to browsers, every port of this machine is the same site.

    Raises:
        Problem: 403.
    """
    if request.method in {"GET", "HEAD"}:
        return
    origin = request.headers.get("origin")
    if origin is None:
        own = request.headers.get("sec-fetch-site") == "same-origin"
    else:
        own = urlsplit(origin).netloc == request.headers.get("host")
    if not own:
        raise Problem(403, "This form was not sent from the dashboard", "Open the dashboard and try again.")
