"""Sidecars: a JSON file beside each stored file, with what was asked for and what it cost.

They are written while a run stores the files, where the config asks for them (`storage.sidecar`); what is
decided about the files later is added.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import polars as pl
import sqlalchemy as sa

from callsheet.config.settings import BatchSettings
from callsheet.errors import StorageConflict, StorageError
from callsheet.ledger import marks, queries
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.tables import attempts
from callsheet.records import MADE_FROM, File, StoredFile, dollars, made_from
from callsheet.report.report import REVIEW
from callsheet.standing import read_standing
from callsheet.storage.store import Store

_OF_ATTEMPT = (
    *("row_id", "sample", "type", "model", "prompt"),
    *("generation_id", "quoted", "cost", "currency", "carried"),
)
_OF_SIDECAR = ("name", "url", "sha256")
_AT_ONCE = 16  # files
_MEDIA_COLUMNS = {"mime_type", "width", "height", "duration", "fps", "has_sound"}


async def write_sidecar(store: Store, ledger: Ledger, file: File, stored: StoredFile) -> bool:
    """Writes the sidecar of a file that the store of the media has taken. Nothing else is overwritten.

    Returns:
        Whether it is there; False where its name is taken by something else.

    Raises:
        StorageError: storage refused it.
        LedgerError: the ledger cannot be read.
    """
    key, number = file.attempt.job_key, file.attempt.number
    query = sa.select(*(attempts.c[column] for column in (*_OF_ATTEMPT, "request"))).where(
        attempts.c.job_key == key, attempts.c.attempt == number
    )
    row = await ledger.read(lambda connection, _: connection.execute(query).one())
    name = f"{file.name}.json"
    origin, carried = made_from(row.carried)
    content = {
        "batch": ledger.batch,
        "job_key": key,
        **{column: getattr(row, column) for column in _OF_ATTEMPT},
        "carried": carried,
        MADE_FROM: origin,
        "quoted": None if row.quoted is None else dollars(row.quoted),
        "cost": None if row.cost is None else dollars(row.cost),
        "index": file.index,
        "request": json.loads(row.request),
        "url": stored.url,
        "sha256": stored.sha256,
        "bytes": stored.bytes,
        **file.media.model_dump(include=_MEDIA_COLUMNS),
    }
    try:
        await store.add(name, _as_json(content), "application/json")
    except StorageConflict:  # perhaps of an earlier try, with another plan
        return is_sidecar_of(await store.read(name), stored.sha256)
    return True


async def update_sidecars(settings: BatchSettings, ledger: Ledger) -> None:
    """Brings the sidecars up to date with what was decided about their files, and what checks found in them.

    Does nothing where the config asks for no sidecars, nor for a file that has none.

    Raises:
        StorageError: storage refused it.
        LedgerError: the ledger cannot be read.
    """
    if not settings.storage.sidecar:
        return
    standing = await ledger.read(read_standing, of_files=["name", "url", "sha256"])
    is_reviewed = pl.any_horizontal(pl.col("decided_by", "flags").is_not_null())
    await _update_sidecars(settings, standing.files.filter(is_reviewed).select(*_OF_SIDECAR, *REVIEW))


async def mark_sidecars(settings: BatchSettings, ledger: Ledger, since: int) -> None:
    """As `update_sidecars`, for the marks with a higher number than `since` alone."""
    if not settings.storage.sidecar:
        return

    def read(connection: sa.Connection, batch: str) -> pl.DataFrame:
        decisions = marks.decisions(connection, batch, since).drop("number")
        names = [*marks.FILE, *_OF_SIDECAR]
        parts = [
            queries.stored_files(connection, batch, names, condition)
            for condition in queries.of_jobs(decisions["job_key"].unique().to_list())
        ]
        return pl.concat(parts).join(decisions, on=marks.FILE).drop(marks.FILE) if parts else pl.DataFrame()

    try:
        await _update_sidecars(settings, await ledger.read(read))
    except StorageError as error:
        error.hint = f"{error.hint} The marks are kept: callsheet report CONFIG writes the sidecars.".strip()
        raise


async def _update_sidecars(settings: BatchSettings, reviewed_files: pl.DataFrame) -> None:
    """Writes what is said of these files into their sidecars."""
    store = Store.of(settings.storage.url, settings.storage)

    async def update(row: dict[str, Any]) -> None:
        name, url, sha256 = (row.pop(column) for column in ("name", "url", "sha256"))
        content = await store.read(f"{name}.json") if store.url_of(name) == url else None
        if not (content and is_sidecar_of(content, sha256)):
            return
        old_sidecar = json.loads(content)
        decided_at = row["decided_at"] and row["decided_at"].isoformat(timespec="seconds")
        flags = row.get("flags", old_sidecar.get("flags")) or []
        new_sidecar = old_sidecar | row | {"decided_at": decided_at, "flags": flags}
        if new_sidecar != old_sidecar:
            await store.write(f"{name}.json", _as_json(new_sidecar), "application/json")

    for chunk in reviewed_files.iter_slices(_AT_ONCE):
        await asyncio.gather(*map(update, chunk.iter_rows(named=True)))


def _as_json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode()


def is_sidecar_of(content: bytes | None, sha256: str) -> bool:
    """Whether what has the name is a sidecar of the same file."""
    try:
        sidecar = json.loads(content or b"")
    except ValueError:
        return False
    return isinstance(sidecar, dict) and sidecar.get("sha256") == sha256
