"""The API keys: whose they are, created and revoked while the server runs (INTERFACE 5).

Keys of the settings are valid at every start. A key that was created here is kept in the state, as a hash.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import replace

from backlot.accounts import ApiKey, Caller, Workspace
from backlot.errors import Refused
from backlot.store import Store


def digest(key: str) -> str:
    """What is kept of a key: its SHA-256, in hex."""
    return hashlib.sha256(key.encode()).hexdigest()


class Keys:
    """The keys of one server.

    Attributes:
        known: every key by its digest, revoked ones too.
        callers: whose the valid ones are.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.known: dict[str, ApiKey] = {}
        self.callers: dict[str, Caller] = {}

    def open(self, workspace: Workspace, projects: Iterable[tuple[str, Iterable[str]]]) -> None:
        """Adds a workspace's keys: those of the settings, and those that were created in it."""
        for project, keys in projects:
            for key in keys:
                self.add(ApiKey(digest(key), hint(key), workspace.name, project), workspace)
        for kept in self.store.created_keys():
            if kept.workspace == workspace.name:
                self.add(kept, workspace)

    def add(self, key: ApiKey, workspace: Workspace) -> None:
        """Makes a key known, and valid unless it is revoked."""
        self.known[key.digest] = key
        if key.revoked_at is None:
            self.callers[key.digest] = Caller(workspace, key.project)

    def caller(self, authorization: str | None) -> Caller:
        """The project and workspace of a request's key.

        Raises:
            Refused: 401 for a missing or wrong key (INTERFACE 5.2).
        """
        scheme, _, key = (authorization or "").partition(" ")
        caller = self.callers.get(digest(key.strip()))
        if scheme.lower() != "bearer" or caller is None:
            raise Refused(
                "invalid_api_key", "Missing or incorrect API key. Send 'Authorization: Bearer sk_...'."
            )
        return caller

    def of(self, workspace: str) -> dict[str, list[ApiKey]]:
        """A workspace's keys by project, revoked ones too."""
        found: dict[str, list[ApiKey]] = {}
        for key in self.known.values():
            if key.workspace == workspace:
                found.setdefault(key.project, []).append(key)
        return found

    def create(self, workspace: Workspace, project: str, now: float) -> str:
        """A new key of a project, which may be new too. Nobody can read it here again."""
        key = f"sk_{secrets.token_urlsafe(24)}"
        made = ApiKey(digest(key), hint(key), workspace.name, project, created_at=int(now * 1000))
        self.store.add_key(made)
        self.add(made, workspace)
        return key

    def revoke(self, which: str, now: float) -> None:
        """Ends a key, by its digest; from now on it gets 401. Revoking again changes nothing."""
        key = self.known[which]
        if key.revoked_at is None:
            at = int(now * 1000)
            self.store.revoke_key(which, at)
            self.known[which] = replace(key, revoked_at=at)
            self.callers.pop(which, None)


def hint(key: str) -> str:
    """The part of a key that may be shown: `sk_...` and its last four characters."""
    return f"sk_\u2026{key[3:][-4:]}" if len(key) >= 10 else "sk_\u2026"
