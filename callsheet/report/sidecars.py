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
    *("row_id", "sample", "type", "model", "prompt"),
    *("generation_id", "quoted", "cost", "currency", "carried"),
)
_OF_MEDIA = {"mime_type", "width", "height", "duration", "fps", "has_sound"}


async def write_sidecar(store: Store, ledger: Ledger, file: File, stored: StoredFile) -> bool:
    """Writes the sidecar of a file that the store of the media has taken. Nothing else is overwritten.

    Returns:
        Whether it is there; False where its name is taken by something else.

    Raises:
        StorageError: storage refused it.
        LedgerError: the ledger cannot be read.
    """
    name, content = f"{file.name}.json", await _content(ledger, file, stored)
    data = (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode()
    try:
        await store.add(name, data, "application/json")
    except StorageConflict:  # perhaps of an earlier try, with another plan
        return _is_of(await store.read(name), stored)
    return True


async def _content(ledger: Ledger, file: File, stored: StoredFile) -> dict[str, Any]:
    key, number = file.attempt.job_key, file.attempt.number
    query = sa.select(*(attempts.c[column] for column in (*_OF_ATTEMPT, "request"))).where(
        attempts.c.job_key == key, attempts.c.attempt == number
    )
    row = await ledger.read(lambda connection, _: connection.execute(query).one())
    return {
        "batch": ledger.batch,
        "job_key": key,
        **{column: getattr(row, column) for column in _OF_ATTEMPT},
        "quoted": None if row.quoted is None else dollars(row.quoted),
        "cost": None if row.cost is None else dollars(row.cost),
        "index": file.index,
        "request": json.loads(row.request),
        "url": stored.url,
        "sha256": stored.sha256,
        "bytes": stored.bytes,
        **file.media.model_dump(include=_OF_MEDIA),
    }


def _is_of(content: bytes | None, stored: StoredFile) -> bool:
    """Whether what has the name is a sidecar of the same file."""
    try:
        found = json.loads(content or b"")
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("sha256") == stored.sha256
