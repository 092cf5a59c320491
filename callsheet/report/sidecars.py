"""Sidecars: a JSON file beside each stored file, with what was asked for and what it cost.

They are made from the ledger, while a run stores the files. Nothing here decides what is stored.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa

from callsheet.errors import StorageConflict
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.tables import attempts
from callsheet.records import File, StoredFile, dollars
from callsheet.storage.store import Store

_OF_ATTEMPT = (
    "row_id",
    "sample",
    "type",
    "model",
    "prompt",
    "generation_id",
    "quoted",
    "cost",
    "currency",
    "carried",
)


def name(of: str) -> str:
    """The name of a file's sidecar."""
    return f"{of}.json"


class Sidecars:
    """Writes the sidecars of a batch.

    Args:
        store: where the media are.
        ledger: the ledger, opened for the batch.
    """

    def __init__(self, store: Store, ledger: Ledger) -> None:
        self._store = store
        self._ledger = ledger

    async def write(self, file: File, stored: StoredFile) -> bool:
        """Writes the sidecar of a file that storage has taken. Nothing else is overwritten.

        Returns:
            Whether it is there; False where its name is taken by something else.

        Raises:
            StorageError: storage refused it.
            LedgerError: the ledger cannot be read.
        """
        content = await self._content(file, stored)
        data = (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode()
        try:
            await self._store.add(name(file.name), data, "application/json")
        except StorageConflict:  # perhaps of an earlier try, with another plan
            return _is_of(await self._store.read(name(file.name)), stored)
        return True

    async def _content(self, file: File, stored: StoredFile) -> dict[str, Any]:
        attempt, media = file.attempt, file.media
        columns = (attempts.c[column] for column in _OF_ATTEMPT)
        query = sa.select(*columns, attempts.c.request).where(
            attempts.c.job_key == attempt.job_key, attempts.c.attempt == attempt.number
        )
        row = await self._ledger.read(lambda connection, _: connection.execute(query).one())
        return {
            "batch": self._ledger.batch,
            "job_key": attempt.job_key,
            **{column: getattr(row, column) for column in _OF_ATTEMPT},
            "quoted": None if row.quoted is None else dollars(row.quoted),
            "cost": None if row.cost is None else dollars(row.cost),
            "index": file.index,
            "request": json.loads(row.request),
            "url": stored.url,
            "sha256": stored.sha256,
            "bytes": stored.bytes,
            "mime_type": media.mime_type,
            "width": media.width,
            "height": media.height,
            "duration": media.duration,
            "fps": media.fps,
            "has_sound": media.has_sound,
        }


def _is_of(content: bytes | None, stored: StoredFile) -> bool:
    """Whether what has the name is a sidecar of the same file."""
    try:
        found = json.loads(content or b"")
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("sha256") == stored.sha256
