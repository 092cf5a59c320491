"""The stored files of a batch as another batch is made from them: each under an id that stays the same.

An id says which file it is: its row and its number there, as `callsheet review --keep` has them; then its
index, where a generation has several files. What is bought, kept or rejected later changes no id. What was
bought under the id that an older Callsheet gave a file keeps it. Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Collection

import polars as pl
import sqlalchemy as sa

from callsheet.ledger import queries
from callsheet.ledger.tables import attempts, media
from callsheet.standing import SUBMITTED, Standing

OF_FILES = (
    *("prompt", "url", "storage", "name", "sha256", "mime_type", "width", "height", "duration"),
    *("request", "carried"),
)
"""The columns of files that another batch is made from, besides those that each standing has."""

_KEY = 8  # digits of a job's key, in a former id


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
