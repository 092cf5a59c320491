"""Who may open the dashboard: one-time links, the sessions that they become, allowed names, own forms.

Everything is forgotten when the server ends.
"""

from __future__ import annotations

import ipaddress
import secrets
from urllib.parse import urlsplit

from fastapi import Request
from starlette.exceptions import HTTPException

from backlot.settings import Settings

LASTS = 30 * 86400  # seconds that a browser keeps the cookie; the session ends with the server
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class SignIn:
    """The open tokens and sessions of one server.

    Args:
        names: the host names that a browser may use, in lower case; without any, there is no dashboard.
            So another site cannot reach it by a name of its own that points to this machine (DNS rebinding).
        linked: the one of them that links are made with; without it, the address of the server.
    """

    def __init__(self, names: frozenset[str] = frozenset(), linked: str | None = None) -> None:
        self.names = names
        self.linked = linked
        self._tokens: set[str] = set()
        self._sessions: set[str] = set()

    @classmethod
    def allowed_by(cls, settings: Settings) -> SignIn:
        """On loopback, the names of loopback; and the name of `dashboard_host`."""
        names = LOOPBACK if is_loopback(settings.host) else frozenset()
        host = settings.dashboard_host
        return cls(names | {host.lower()} if host else names, host)

    def link(self, base_url: str) -> str | None:
        """A new link that signs in once; None where there is no dashboard."""
        if not self.names:
            return None
        address = urlsplit(base_url)
        host = self.linked or address.hostname or ""
        name = f"[{host}]" if ":" in host else host
        port = f":{address.port}" if address.port else ""
        return f"{address.scheme}://{name}{port}/sign-in?token={self.new_token()}"

    def new_token(self) -> str:
        """A token that is good for one session."""
        token = secrets.token_urlsafe(16)
        self._tokens.add(token)
        return token

    def exchange(self, token: str) -> str | None:
        """A new session for a token, which cannot be used again; None for one that is wrong or used."""
        if token not in self._tokens:
            return None
        self._tokens.remove(token)
        session = secrets.token_urlsafe(24)
        self._sessions.add(session)
        return session

    def knows(self, session: str) -> bool:
        """Whether a session is open."""
        return session in self._sessions

    def end(self, session: str) -> None:
        """Ends a session."""
        self._sessions.discard(session)


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


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
