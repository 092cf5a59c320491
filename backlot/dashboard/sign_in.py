"""Who may open the dashboard: one-time tokens, the sessions that they become, and its allowed names.

It knows no HTTP; `guard` does. Everything is forgotten when the server ends.
"""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
from urllib.parse import urlsplit

from backlot.settings import Settings

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def fingerprint(secret: str) -> str:
    """What is kept of a token or session, so that looking one up tells nothing about another."""
    return hashlib.sha256(secret.encode()).hexdigest()


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
        self._tokens.add(fingerprint(token))
        return token

    def exchange(self, token: str) -> str | None:
        """A new session for a token, which cannot be used again; None for one that is wrong or used."""
        if fingerprint(token) not in self._tokens:
            return None
        self._tokens.remove(fingerprint(token))
        session = secrets.token_urlsafe(24)
        self._sessions.add(fingerprint(session))
        return session

    def knows(self, session: str) -> bool:
        """Whether a session is open."""
        return fingerprint(session) in self._sessions

    def end(self, session: str) -> None:
        """Ends a session."""
        self._sessions.discard(fingerprint(session))


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
