"""The API keys: whose they are, created and revoked while the server runs (INTERFACE 5).

Keys of the settings are valid at every start. A key that was created here is kept in the state, as a hash.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable

from backlot.accounts import ApiKey, Workspace
from backlot.errors import Refused
from backlot.store import Store


def digest(key: str) -> str:
    """What is kept of a key: its SHA-256, in hex."""
    return hashlib.sha256(key.encode()).hexdigest()


class Keys:
    """The keys of one server; `known` has them by their digest, revoked ones too."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.known: dict[str, ApiKey] = {}

    def open(self, workspace: Workspace, projects: Iterable[tuple[str, Iterable[str]]]) -> None:
        """Adds a workspace's keys: those of the settings, and those that were created in it."""
        for project, keys in projects:
            for key in keys:
                self.known[digest(key)] = ApiKey(digest(key), hint(key), workspace, project)
        for kept in self.store.created_keys(workspace):
            self.known[kept.digest] = kept

    def caller(self, authorization: str | None) -> ApiKey:
        """The key of a request.

        Raises:
            Refused: 401 for a missing or wrong key (INTERFACE 5.2).
        """
        scheme, _, text = (authorization or "").partition(" ")
        key = self.known.get(digest(text.strip()))
        if scheme.lower() != "bearer" or key is None or key.revoked_at is not None:
            raise Refused(
                "invalid_api_key", "Missing or incorrect API key. Send 'Authorization: Bearer sk_...'."
            )
        return key

    def of(self, workspace: Workspace) -> dict[str, list[ApiKey]]:
        """A workspace's keys by project, revoked ones too."""
        found: dict[str, list[ApiKey]] = {}
        for key in self.known.values():
            if key.workspace is workspace:
                found.setdefault(key.project, []).append(key)
        return found

    def create(self, workspace: Workspace, project: str, now: float) -> str:
        """A new key of a project, which may be new too. Nobody can read it here again."""
        key = f"sk_{secrets.token_urlsafe(24)}"
        made = ApiKey(digest(key), hint(key), workspace, project, created_at=int(now * 1000))
        self.store.add_key(made)
        self.known[made.digest] = made
        return key

    def revoke(self, which: str, now: float) -> None:
        """Ends a key, by its digest; from now on it gets 401. Revoking again changes nothing."""
        key = self.known[which]
        if key.revoked_at is None:
            key.revoked_at = int(now * 1000)
            self.store.revoke_key(which, key.revoked_at)


def hint(key: str) -> str:
    """The part of a key that may be shown: `sk_...` and its last four characters."""
    return f"sk_\u2026{key[3:][-4:]}" if len(key) >= 10 else "sk_\u2026"
