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


class Problem(Exception):
    """A page that says what is wrong, instead of the one that was asked for."""

    def __init__(self, status: int, title: str, text: str) -> None:
        super().__init__(title)
        self.status = status
        self.title = title
        self.text = text


class SignIn:
    """The open tokens and sessions of one server.

    A browser may use the names of loopback, where the server listens there, and the name of `dashboard_host`;
    without any name, there is no dashboard. So another site cannot reach it by a name of its own that points
    to this machine (DNS rebinding).
    """

    def __init__(self, settings: Settings) -> None:
        self.host = settings.dashboard_host
        self.names = LOOPBACK if is_loopback(settings.host) else frozenset[str]()
        if self.host:
            self.names |= {self.host.lower()}
        self.tokens: set[str] = set()
        self.sessions: set[str] = set()

    def link(self, base_url: str) -> str | None:
        """A new link that signs in once; None where there is no dashboard."""
        if not self.names:
            return None
        address = urlsplit(base_url)
        host = self.host or address.hostname or ""
        name = f"[{host}]" if ":" in host else host
        port = f":{address.port}" if address.port else ""
        self.tokens.add(token := secrets.token_urlsafe(16))
        return f"{address.scheme}://{name}{port}/sign-in?token={token}"

    def exchange(self, token: str) -> str:
        """A new session for a token, which cannot be used again.

        Raises:
            Problem: 403 for a token that is wrong or used.
        """
        if token not in self.tokens:
            raise Problem(
                403,
                "This link does not work",
                "Each link works once, and until the server ends. A signed-in browser can make another one.",
            )
        self.tokens.remove(token)
        self.sessions.add(session := secrets.token_urlsafe(24))
        return session

    def check_name(self, request: Request) -> None:
        """Lets a request pass whose `Host` is an allowed name.

        Raises:
            HTTPException: 404, as for an unknown path.
        """
        try:
            name = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
        except ValueError:
            name = ""
        if name.lower() not in self.names:
            raise unknown()

    def check(self, request: Request) -> None:
        """Lets a request pass that has a session; a form, where a page of this server has sent it.

        `SameSite` alone does not do for that: to browsers, every port of this machine is the same site.

        Raises:
            Problem: 403, for a browser that opens a page without a session, and for a form of elsewhere.
            HTTPException: 404, as for an unknown path, for everyone else.
        """
        self.check_name(request)
        if session_of(request) not in self.sessions:
            if "text/html" not in request.headers.get("accept", ""):
                raise unknown()
            raise Problem(
                403,
                "You are not signed in",
                "Open the link that the server printed when it started; each link works once. "
                "A signed-in browser can make another one.",
            )
        if request.method in {"GET", "HEAD"}:
            return
        origin = request.headers.get("origin")
        if origin is None:
            is_own = request.headers.get("sec-fetch-site") == "same-origin"
        else:
            is_own = urlsplit(origin).netloc == request.headers.get("host")
        if not is_own:
            text = "Open the dashboard and try again."
            raise Problem(403, "This form was not sent from the dashboard", text)


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def unknown() -> HTTPException:
    """What every unknown path answers: to a program without a session, the dashboard does not exist."""
    return HTTPException(404)


def cookie_name(request: Request) -> str:
    """The cookie's name. Browsers do not keep cookies apart by port, so the port is a part of it."""
    return f"backlot_{request.url.port or request.url.scheme}"


def session_of(request: Request) -> str:
    """The session that a request claims to be of; empty without one."""
    return request.cookies.get(cookie_name(request), "")
