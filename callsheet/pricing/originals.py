"""The stored files of a batch as another batch is made from them: each under an id that stays the same.

An id says which file it is: its row and its number there, as `callsheet review --keep` has them; then its
index, where a generation has several files. What is bought, kept or rejected later changes no id. What was
bought under the id that an older Callsheet gave a file keeps it. Nothing here writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import sqlalchemy as sa

from callsheet.batches.formats import FILE, objects
from callsheet.config.settings import BatchSettings
from callsheet.errors import InputError
from callsheet.files import path_of
from callsheet.ledger import queries
from callsheet.ledger.databases import exists
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.tables import attempts, media
from callsheet.pricing.plan import last_plan
from callsheet.standing import SUBMITTED, Standing, read_standing
from callsheet.storage.store import Store

OF_FILES = (
    *("prompt", "url", "storage", "name", "sha256", "mime_type", "width", "height", "duration"),
    *("request", "carried"),
)
"""The columns of files that another batch is made from, besides those that each standing has."""

_KEY = 8  # digits of a job's key, in a former id


@dataclass(frozen=True, slots=True)
class Originals:
    """The stored files of a batch (`files`), and the ids of the rows that it asks for, in order."""

    files: pl.DataFrame
    planned: pl.Series


async def read(origin: BatchSettings) -> Originals | None:
    """Reads what the batch of a config has stored; None where nothing of it is bought yet.

    Raises:
        LedgerError: its ledger cannot be read.
    """
    if not await asyncio.to_thread(exists, origin.ledger.url):
        return None
    async with await Ledger.open(origin.ledger.url, origin.batch, looks=True) as ledger:
        plan = await asyncio.to_thread(last_plan, origin)  # it has the file's order, and what was never sent

        def read(connection: sa.Connection, batch: str) -> tuple[Standing, pl.DataFrame]:
            jobs = plan.table if plan else None
            standing = read_standing(connection, batch, jobs, of_files=OF_FILES)
            return standing, files(connection, batch, standing)

        standing, stored_files = await ledger.read(read)
    if standing.attempts.is_empty():  # the ledger is there for other batches
        return None
    return Originals(stored_files, standing.jobs.filter("current")["row_id"])


def with_places(files: pl.DataFrame, origin: BatchSettings) -> pl.DataFrame:
    """Files with the column `FILE`, where each is: in the storage that its config names now, where it was
    moved there; otherwise where it was stored.
    """
    store = Store.of(origin.storage.url, origin.storage)
    storage_url = origin.storage.url.rstrip("/")
    stored_urls: set[str] = set()
    if storage_url.startswith("s3://") and (files["storage"].str.strip_chars_end("/") != storage_url).any():
        with suppress(InputError):  # then the files are where they were
            stored_urls = set(objects(f"{storage_url}/", origin.storage.endpoint_url))
    places = []
    for url, storage, name in files.select("url", "storage", "name").iter_rows():
        moved = _place(store.url_of(name))
        is_there = moved in stored_urls if moved.startswith("s3://") else Path(moved).is_file()
        places.append(moved if storage.rstrip("/") != storage_url and is_there else _place(url))
    return files.with_columns(pl.Series(FILE, places, pl.String))


def _place(url: str) -> str:
    """The path of a file on this machine; another URL stays as it is."""
    return str(path_of(url)) if url.startswith("file://") else url


def files(connection: sa.Connection, batch: str, standing: Standing) -> pl.DataFrame:
    """Every stored file of the batch, which stands so: its columns, its `id` and `former_id`, and whether it
    is `current`.
    """
    of_generation = ["job_key", "attempt"]
    rows = standing.files.join(
        _file_counts(connection, batch), on=of_generation, how="left", maintain_order="left"
    )
    rows = rows.join(_first_jobs(standing), on="job_key", how="left", maintain_order="left")
    rows = rows.join(
        standing.jobs.select("current", job_key="key"), on="job_key", how="left", maintain_order="left"
    )
    index = pl.when("several").then(pl.format("/{}", "index")).otherwise(pl.lit(""))
    is_first = pl.col("is_first").fill_null(value=False)
    key = pl.when(is_first).then(pl.lit("")).otherwise(pl.format("/{}", pl.col("job_key").str.head(_KEY)))
    return rows.with_columns(
        id=pl.format("{}/{}{}", "row_id", "file_number", index),
        former_id=pl.format("{}/{}{}{}", "row_id", "sample", index, key),
    ).drop("several", "is_first")


def with_bought_ids(files: pl.DataFrame, bought: Collection[str]) -> pl.DataFrame:
    """Files of another batch, each under its `former_id` where the ids of what is bought have that."""
    former = pl.col("former_id")
    return files.with_columns(id=pl.when(former.is_in(list(bought))).then(former).otherwise("id"))


def _file_counts(connection: sa.Connection, batch: str) -> pl.DataFrame:
    """`job_key` and `attempt` of each generation, and whether it has several files, stored or not."""
    query = (
        sa.select(media.c.job_key, media.c.attempt, sa.func.count().label("files"))
        .join_from(attempts, media, queries.FILES_OF)
        .where(attempts.c.batch == batch)
        .group_by(media.c.job_key, media.c.attempt)
    )
    counts = queries.read(connection, query)
    return counts.select("job_key", "attempt", several=pl.col("files") > 1)


def _first_jobs(standing: Standing) -> pl.DataFrame:
    """`job_key` of each job that was ever sent, and whether it is the first one of its row and sample."""
    sent = standing.attempts.filter(SUBMITTED)
    jobs = sent.group_by("job_key", "row_id", "sample").agg(pl.col("submitted_at").min())
    is_first = pl.struct("row_id", "sample").is_first_distinct()
    return jobs.sort("submitted_at", "job_key").select("job_key", is_first=is_first)
