"""The place of an export: whose it is, and what an earlier export of the same has left there."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import polars as pl

from callsheet.errors import InputError
from callsheet.storage.names import EXPORT_MARK
from callsheet.storage.store import Store

_FORMAT = 1
_UNFINISHED = re.compile(r"(^|/)\.[^/]+\.part$")  # what a killed export leaves in a folder
_PRESENT = {"name": pl.String, "size": pl.Int64}


async def mark(store: Store, url: str, *, batch: str, kind: str, ledger_id: str) -> pl.DataFrame:
    """Marks an empty place as that of an export, and refuses one that has something else.

    An export of another ledger than that of `ledger_id` is not brought up to date.

    Returns `name` and `size` in bytes of each file that an earlier export has written.
    """
    marker = {"callsheet_export": _FORMAT, "batch": batch, "as": kind, "ledger_id": ledger_id}
    content = await store.read(EXPORT_MARK)
    if content is None:
        for name, _ in await store.listing():
            raise InputError(
                f"{url}: has other files already, {name} for instance",
                hint="Name a new or empty folder, or the one of an earlier export of this batch.",
            )
        content = json.dumps(marker).encode()
        await store.write(EXPORT_MARK, content, "application/json")
    old_marker: Any = None  # another file of that name is an export of something unknown
    with suppress(ValueError):
        old_marker = json.loads(content)
    if old_marker != marker:
        old_marker = old_marker if isinstance(old_marker, dict) else {}
        description = f"the batch {old_marker.get('batch')} as {old_marker.get('as')}"
        if old_marker | {"ledger_id": ledger_id} == marker:
            description += " from another ledger"
        raise InputError(f"{url}: has an export of {description}", hint="Name another folder for this one.")
    files = await store.listing()
    for name, _ in files:
        if _UNFINISHED.search(name):
            await store.remove(name)
    return pl.DataFrame(files, schema=_PRESENT, orient="row")
