"""What a batch has stored: rows to export, a part at a time, and files to copy, whose hashes are checked."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import sqlalchemy as sa

from callsheet.batches.identities import sha256
from callsheet.batches.sources import local_copy
from callsheet.errors import InputError
from callsheet.ledger import queries
from callsheet.ledger.ledger import Ledger
from callsheet.media_types import extension
from callsheet.pricing.plan import Plan
from callsheet.report.contact_sheet.links import local_path
from callsheet.report.tables import MANIFEST, jobs_of, manifest, write

AT_ONCE = 16
"""Files that are read at the same time."""

_PART = 4_096  # rows that are in memory at once
_ABOUT = ["row_id", "sample", "index", "model", "prompt", "mime_type", "width", "height", "duration", "fps"]
_ABOUT += ["has_sound", "cost", "sha256", "bytes", "job_key", "generation_id"]
_NOT_ABOUT = {"url", "deletes_at", "stored_at", "current"}
# Columns that the loader of an image folder makes itself, or takes for the names of more files.
_TAKEN = re.compile(r"image|label|(.*_)?file_names?")
_LONGEST = 80


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export has done.

    Attributes:
        files: what the destination has now, without the marker.
        copied: how many of these this export has written.
        bytes: the size of what was written.
        removed: files of earlier exports that the batch no longer has.
        left_out: stored files that are not of a type that is exported.
    """

    files: int
    copied: int
    bytes: int
    removed: int = 0
    left_out: int = 0


async def stored_files(
    ledger: Ledger,
    plan: Plan | None,
    path: Path,
    *,
    in_order_of_storage: bool = False,
    also_removed: bool = False,
) -> None:
    """Writes the manifest of what is stored to a temporary file.

    Args:
        ledger: the ledger, opened for the batch.
        plan: the batch's last plan; None: nothing counts as removed.
        path: the file.
        in_order_of_storage: what is stored later comes later; otherwise the batch file's order.
        also_removed: with the files of rows that the batch file no longer has.

    Raises:
        StorageError: it cannot be written.
        LedgerError: the ledger cannot be read.
    """
    jobs = await asyncio.to_thread(jobs_of, plan) if plan else None

    def read(connection: sa.Connection, batch: str) -> pl.DataFrame:
        files = queries.stored_files(connection, batch, MANIFEST)
        if jobs is not None and not also_removed:
            files = (part.join(jobs, on="job_key", how="semi", maintain_order="left") for part in files)
        return manifest(files, None if in_order_of_storage else jobs)

    table = await ledger.read(read)
    await asyncio.to_thread(write, table, path)


def parts(path: Path) -> Iterator[pl.DataFrame]:
    """The rows of such a file, some at a time, with `name` and `ext` for a new file."""
    table = pl.scan_parquet(path)
    for start in range(0, int(table.select(pl.len()).collect().item()), _PART):
        yield _named(table.slice(start, _PART).collect())


def _named(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds a file's name, which is safe everywhere, without a dot, and of this file and content alone."""
    extensions = {mime_type: extension(mime_type) for mime_type in rows["mime_type"].unique()}
    stem = pl.col("row_id").str.replace_all("[^A-Za-z0-9_-]+", "_").str.head(_LONGEST)
    identity = sha256(pl.format("{}/{}/{}", "job_key", "index", "sha256")).str.head(12)
    return rows.with_columns(
        name=pl.format("{}-{}-{}-{}", stem, "sample", "index", identity),
        ext=pl.col("mime_type").replace_strict(extensions, default="bin", return_dtype=pl.String),
    )


def about(rows: pl.DataFrame) -> pl.DataFrame:
    """What is said of each file: its row, request and cost (a decimal as text), and the carried columns."""
    carried = [name for name in rows.columns if name not in {*_ABOUT, *_NOT_ABOUT, "name", "ext"}]
    return rows.select(
        *(pl.col(name).cast(pl.String) if name == "cost" else pl.col(name) for name in _ABOUT),
        *(pl.col(name).alias(_free(name, carried)) for name in carried),
    )


def _free(name: str, others: Collection[str]) -> str:
    """The name of a carried column, or another one where that has a meaning for those who load the export."""
    free = name
    while _TAKEN.fullmatch(free) or (free != name and free in others):
        free += "_column"
    return free


@asynccontextmanager
async def local_files(rows: Sequence[dict[str, Any]], endpoint_url: str | None) -> AsyncIterator[list[Path]]:
    """The files of some rows on this machine, with the bytes that the ledger knows.

    Args:
        rows: rows with `url`, `sha256` and `row_id`; `AT_ONCE` of them at most.
        endpoint_url: the address of an S3 server other than Amazon's.

    Raises:
        InputError: a file is not there any more, or has other bytes.
    """
    with ExitStack() as copies:
        tasks = (asyncio.to_thread(_local_file, row, endpoint_url, copies.enter_context) for row in rows)
        yield await asyncio.gather(*tasks)


def _local_file(row: dict[str, Any], endpoint_url: str | None, keep: Callable[[Any], Path]) -> Path:
    url = row["url"]
    path = keep(local_copy(str(local_path(url) or url), endpoint_url))
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(
            f"{url}: the file of row {row['row_id']} cannot be read: {error.strerror}",
            hint="Was it moved? Its place is in the ledger; relative paths start at the working directory.",
        ) from None
    if found != row["sha256"]:
        raise InputError(
            f"{url}: the file of row {row['row_id']} was changed since it was stored",
            hint="Put it back from a backup: what is exported is what was bought.",
        )
    return path
