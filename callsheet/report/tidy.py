"""What nobody wants any more of a batch's files: what it is, and how it is removed from storage.

The ledger keeps all that it knows of them. A file is removed first and entered as removed then, so what was
interrupted is done by the same command again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import polars as pl

from callsheet import failpoints, places
from callsheet.config.settings import BatchSettings
from callsheet.errors import OtherLedger
from callsheet.ledger import marks
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.marks import FILE, FileKey, MediaDecision
from callsheet.pricing.plan import last_plan
from callsheet.records import Record
from callsheet.report.contact_sheet.thumbnails import thumbnail_name
from callsheet.report.report import update_manifest
from callsheet.report.sidecars import is_sidecar_of
from callsheet.standing import Standing, read_standing
from callsheet.storage.spool import work_folder
from callsheet.storage.store import Store

_OF_FILES = ("url", "storage", "name", "sha256", "bytes", "cost", "removed_at")
_AT_ONCE = 16  # files


@dataclass(frozen=True, slots=True)
class Unwanted(Record):
    """A file that nobody wants any more. `cost`, in dollars, is that of its generation."""

    row_id: str
    file_number: int
    index: int
    model: str
    why: str  # `rejected`, `replaced` or `not current`
    since: datetime
    bytes: int
    cost: Decimal | None
    url: str


@dataclass(frozen=True)
class Tidying:
    """The files of a batch that nobody wants any more; `table` has a row for each, in order of storage."""

    table: pl.DataFrame

    @property
    def files(self) -> list[Unwanted]:
        """What is said of each."""
        return [Unwanted(*row) for row in self.table.select(Unwanted.__slots__).iter_rows()]

    @property
    def bytes(self) -> int:
        """How much they take in storage."""
        return int(self.table["bytes"].sum())

    @property
    def cost(self) -> Decimal:
        """What their generations have cost, in dollars."""
        return Decimal(self.table.unique(["job_key", "attempt"])["cost"].sum() or 0)


async def find_unwanted(ledger: Ledger, settings: BatchSettings, days: int) -> Tidying:
    """The files in `storage.url` that nobody wants, and that have been so for so many days.

    A file is rejected; or the batch file no longer asks for it, and nobody has kept it: its row asks for
    something else (`replaced`) or is gone (`not current`).

    Raises:
        OtherLedger: the ledger is not the batch's, or does not know all of it.
        StorageDown: nothing of what was stored is there.
        LedgerError: the ledger cannot be read.
    """
    if reason := await places.warning_of(ledger, settings):
        raise OtherLedger(reason, hint="Nothing was removed. Use the batch's own ledger.")
    if down := await places.stop_for_storage(ledger, settings):
        raise down
    plan = await asyncio.to_thread(last_plan, settings)
    jobs = plan.table if plan else None
    standing = await ledger.read(read_standing, jobs, of_files=_OF_FILES)
    return Tidying(_unwanted(standing, settings.storage.url, datetime.now(UTC) - timedelta(days=days)))


def _unwanted(standing: Standing, storage_url: str, before: datetime) -> pl.DataFrame:
    jobs = standing.jobs.select("current", job_key="key")
    has_row = pl.col("row_id").is_in(standing.jobs.filter("current")["row_id"].implode())
    is_rejected = pl.col("decision").eq_missing(MediaDecision.REJECTED)
    why = (
        pl.when(is_rejected)
        .then(pl.lit("rejected"))
        .when(pl.col("decision").eq_missing(MediaDecision.KEPT) | pl.col("current"))
        .then(None)
        .when(has_row)
        .then(pl.lit("replaced"))
        .otherwise(pl.lit("not current"))
    )
    files = standing.files.join(jobs, on="job_key", how="left", maintain_order="left")
    files = files.with_columns(why=why, since=pl.max_horizontal("stored_at", "decided_at"))
    is_here = pl.col("storage").str.strip_chars_end("/") == storage_url.rstrip("/")
    is_there = pl.col("removed_at").is_null() & is_here
    return files.filter(is_there, pl.col("why").is_not_null(), pl.col("since") < before)


async def remove(
    ledger: Ledger, settings: BatchSettings, shown: Tidying, days: int, progress: Callable[[int], None]
) -> Tidying:
    """Removes what a person was shown, unless it is wanted again by now: with its thumbnails, its sidecars,
    and what the spool has of it.

    `progress` is called with the number of files that were removed in the meantime.

    Returns:
        What was removed.

    Raises:
        StorageError: storage refused it; what was removed until then is entered as removed.
        LedgerError: the ledger cannot be read or written.
    """
    still = await find_unwanted(ledger, settings, days)
    unwanted = still.table.join(shown.table.select(FILE), on=FILE, how="semi", maintain_order="left")
    media, report = (Store.of(url, settings.storage) for url in (settings.storage.url, settings.report.url))
    for chunk in unwanted.iter_slices(_AT_ONCE):
        await asyncio.gather(*(_remove_file(media, *file) for file in chunk.select("name", "sha256").rows()))
        failpoints.passed("after tidy.remove")
        await ledger.write(marks.removed, [FileKey(*file) for file in chunk.select(FILE).iter_rows()])
        progress(chunk.height)
    standing = await ledger.read(read_standing, None, of_files=["sha256", "removed_at"])
    is_removed = pl.col("removed_at").is_not_null()
    in_use = standing.files.filter(~is_removed)["sha256"].implode()
    hashes = standing.files.filter(is_removed, ~pl.col("sha256").is_in(in_use))["sha256"].unique()
    there = {name for name, _ in await report.listing()}
    for name in {*map(thumbnail_name, hashes)} & there:
        await report.remove(name)
    for path in (work_folder(settings, make=False) / "spool").glob("*"):
        if path.name.rpartition(".")[2] in hashes:
            path.unlink(missing_ok=True)
    await update_manifest(settings, ledger)
    return Tidying(unwanted)


async def _remove_file(media: Store, name: str, sha256: str) -> None:
    await media.remove(name)
    sidecar = f"{name}.json"
    if is_sidecar_of(await media.read(sidecar), sha256):
        await media.remove(sidecar)
