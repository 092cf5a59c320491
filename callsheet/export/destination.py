"""Where an export goes: a folder or a bucket that has nothing else, so that what is there is the export.

A file is complete or absent there, so what an interrupted export has written is not written again.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress

import polars as pl

from callsheet.errors import InputError
from callsheet.storage.store import Store

MARKER = "callsheet-export.json"
"""The file that says which export this is."""

_FORMAT = 1
_UNFINISHED = re.compile(r"(^|/)\.[^/]+\.part$")  # what a killed export leaves in a folder
_PRESENT = {"name": pl.String, "size": pl.Int64}


async def mark(store: Store, url: str, *, batch: str, kind: str, ledger_id: str) -> pl.DataFrame:
    """Marks an empty place as that of an export, and refuses one that has something else.

    Args:
        store: the place.
        url: as it was given.
        batch: the batch.
        kind: what it is exported as.
        ledger_id: the ledger that says what is stored: an export of another one is not brought up to date.

    Returns:
        `name` and `size` in bytes of each file that an earlier export has written.

    Raises:
        InputError: something else is there.
        StorageError: it cannot be read or written.
    """
    marker = {"callsheet_export": _FORMAT, "batch": batch, "as": kind, "ledger_id": ledger_id}
    content = await store.read(MARKER)
    if content is None:
        for name, _ in await store.listing():
            raise InputError(
                f"{url}: has other files already, {name} for instance",
                hint="Name a new or empty folder, or the one of an earlier export of this batch.",
            )
        await store.write(MARKER, json.dumps(marker).encode(), "application/json")
    elif (found := _read(content)) != marker:
        what = f"the batch {found.get('batch')} as {found.get('as')}"
        if found | {"ledger_id": ledger_id} == marker:
            what += " from another ledger"
        raise InputError(f"{url}: has an export of {what}", hint="Name another folder for this one.")
    files = await store.listing()
    for name, _ in files:
        if _UNFINISHED.search(name):
            await store.remove(name)
    return pl.DataFrame(files, schema=_PRESENT, orient="row")


async def remove(store: Store, names: pl.Series) -> int:
    """Removes files of an earlier export. Returns how many."""
    for name in names:
        await store.remove(name)
    return len(names)


def _read(content: bytes) -> dict[str, object]:
    """The marker. Another file of that name is an export of something unknown."""
    with suppress(ValueError):
        if isinstance(found := json.loads(content), dict):
            return found
    return {}
