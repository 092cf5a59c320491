"""Where an export goes: a folder or a bucket that has nothing else, so that what is there is the export.

A file is complete or absent there, so what an interrupted export has written is not written again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import polars as pl

from callsheet.errors import InputError, StorageError
from callsheet.storage.store import Store

MARKER = "callsheet-export.json"
"""The file that says which export this is."""

_FORMAT = 1
_UNFINISHED = re.compile(r"(^|/)\.[^/]+\.part$")  # what a killed export leaves in a folder
_PRESENT = {"name": pl.String, "size": pl.Int64}


class Destination:
    """A folder or bucket of one export. Use `open_destination`.

    Attributes:
        url: as it was given.
        present: `name` and `size` of what an earlier export has written; about 70 bytes of memory a file.
    """

    def __init__(self, url: str, store: Store, present: pl.DataFrame) -> None:
        self.url = url
        self.present = present
        self._store = store

    async def write(self, name: str, data: bytes | Path, mime_type: str) -> None:
        """Writes a file in one step.

        Raises:
            StorageError: it cannot be written.
        """
        with _named_as_option():
            await self._store.write(name, data, mime_type)

    async def read(self, name: str) -> bytes | None:
        """A file's bytes; None where there is none."""
        return await self._store.read(name)

    async def remove(self, names: pl.Series) -> None:
        """Removes files of an earlier export."""
        for name in names:
            await self._store.remove(name)


async def open_destination(
    url: str, endpoint_url: str | None, *, batch: str, kind: str, ledger_id: str
) -> Destination:
    """Opens the destination of an export, and marks it.

    Args:
        url: a folder, or `s3://bucket/prefix`.
        endpoint_url: the address of an S3 server other than Amazon's.
        batch: the batch.
        kind: what it is exported as.
        ledger_id: the ledger that says what is stored: an export of another one is not brought up to date.

    Raises:
        InputError: something else is there.
        StorageError: it cannot be read or written.
    """
    store = Store(url, endpoint_url=endpoint_url)
    with _named_as_option():
        marker = {"callsheet_export": _FORMAT, "batch": batch, "as": kind, "ledger_id": ledger_id}
        present = await _marked(store, url, marker)
    return Destination(url, store, present)


async def _marked(store: Store, url: str, marker: dict[str, object]) -> pl.DataFrame:
    """Marks an empty place, refuses one that has something else, and returns what is there (`present`)."""
    found = _read(await store.read(MARKER))
    if found is None:
        for name, _ in await store.listing():
            raise InputError(
                f"{url}: has other files already, {name} for instance",
                hint="Name a new or empty folder, or the one of an earlier export of this batch.",
            )
        await store.write(MARKER, json.dumps(marker).encode(), "application/json")
    elif found != marker:
        what = f"the batch {found.get('batch')} as {found.get('as')}"
        if found | {"ledger_id": marker["ledger_id"]} == marker:
            what += " from another ledger"
        raise InputError(f"{url}: has an export of {what}", hint="Name another folder for this one.")
    present = await store.listing()
    for name, _ in present:
        if _UNFINISHED.search(name):
            await store.remove(name)
    return pl.DataFrame(present, schema=_PRESENT, orient="row")


@contextmanager
def _named_as_option() -> Iterator[None]:
    """A store's hint names the settings of its URL; here it comes from the command line."""
    try:
        yield
    except StorageError as error:
        error.hint = error.hint.replace("storage.url or report.url", "--to")
        raise


def _read(content: bytes | None) -> dict[str, object] | None:
    """The marker; None where there is none. Another file of that name is an export of something unknown."""
    if content is None:
        return None
    with suppress(ValueError):
        if isinstance(found := json.loads(content), dict):
            return found
    return {}
