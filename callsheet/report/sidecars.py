"""Sidecars: a JSON file beside each stored file, with what was asked for and what it cost.

They are made from the ledger, while a run stores the files; what is decided about the files later is added
(`update_sidecars`). Nothing here decides what is stored.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import polars as pl
import sqlalchemy as sa

from callsheet.config.settings import BatchSettings
from callsheet.errors import StorageConflict
from callsheet.ledger import marks
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.tables import attempts
from callsheet.records import File, StoredFile, dollars
from callsheet.report.parquet_tables import stored_files
from callsheet.storage.store import Store

_OF_ATTEMPT = (
    *("row_id", "sample", "type", "model", "prompt"),
    *("generation_id", "quoted", "cost", "currency", "carried"),
)
_AT_ONCE = 16  # files
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
    try:
        await store.add(name, _as_json(content), "application/json")
    except StorageConflict:  # perhaps of an earlier try, with another plan
        return _is_of(await store.read(name), stored.sha256)
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


async def update_sidecars(settings: BatchSettings, ledger: Ledger) -> None:
    """Brings the sidecars up to date with what was decided about their files, and what checks found in them.

    Does nothing where the config asks for no sidecars, nor for a file that has none.

    Raises:
        StorageError: storage refused it.
        LedgerError: the ledger cannot be read.
    """
    if not settings.storage.sidecar:
        return
    store = Store(settings.storage.url, endpoint_url=settings.storage.endpoint_url, put=settings.storage.put)
    said = await ledger.read(_said)

    async def update(row: dict[str, Any]) -> None:
        name, url, sha256 = (row.pop(column) for column in ("name", "url", "sha256"))
        content = await store.read(f"{name}.json") if store.url_of(name) == url else None
        if not (content and _is_of(content, sha256)):
            return
        before = json.loads(content)
        decided_at = row["decided_at"] and row["decided_at"].isoformat(timespec="seconds")
        after = before | row | {"decided_at": decided_at, "flags": row["flags"] or []}
        if after != before:
            await store.write(f"{name}.json", _as_json(after), "application/json")

    for some in said.iter_slices(_AT_ONCE):
        await asyncio.gather(*map(update, some.iter_rows(named=True)))


def _said(connection: sa.Connection, batch: str) -> pl.DataFrame:
    """The files of which anything was said, with their places."""
    files = stored_files(connection, batch, [*marks.FILE, "name", "url", "sha256"])
    is_said = pl.any_horizontal(pl.col("decided_by", "flags").is_not_null())
    return files.filter(is_said).drop(*marks.FILE, "score")


def _as_json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode()


def _is_of(content: bytes | None, sha256: str) -> bool:
    """Whether what has the name is a sidecar of the same file."""
    try:
        found = json.loads(content or b"")
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("sha256") == sha256
