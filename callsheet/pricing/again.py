"""Samples of a row besides those that its batch file asks for: what was bought, and what is bought again.

What is asked for again has the next number of its request, and so a key of its own: a sample that was ever
sent is not sent again, and one that failed has used its number. Pure: it reads tables that are given to it.
"""

from __future__ import annotations

import polars as pl

from callsheet.plain_text import counted
from callsheet.records import State

_REQUEST = ["row_id", "asked"]
_OPEN = (State.SUBMITTING, State.PENDING, State.GENERATED, State.IN_DOUBT)


def higher_samples(jobs: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Each request again, with every number after its last sample up to the highest that the ledger has of
    the row.

    Args:
        jobs: with `row_id`, `asked` and `sample`.
        known: what the ledger has of the batch (`queries.requests`).

    Returns:
        Rows like the last of each request; the ledger need not have all of them.
    """
    highest = known.group_by("row_id").agg(highest=pl.col("sample").max()).filter(pl.col("highest") > 1)
    rows = _last(jobs.join(highest, on="row_id", maintain_order="left"))
    rows = rows.filter(pl.col("sample") < pl.col("highest"))
    numbers = pl.int_ranges(pl.col("sample") + 1, pl.col("highest") + 1)
    return rows.with_columns(sample=numbers).explode("sample").select(jobs.columns)


def next_samples(
    jobs: pl.DataFrame, known: pl.DataFrame, rejected: pl.Series, most: int
) -> tuple[pl.DataFrame, list[str]]:
    """One more sample of each request of the rows of which everything is rejected.

    A row of which anything is under way or in doubt, or to be bought anyway, waits for that.

    Args:
        jobs: the jobs of the plan that can be bought, with all samples that were ever sent; and `asked`.
        known: what the ledger has of the batch (`queries.requests`, with the run's policy).
        rejected: the ids of these rows (`marks.rejected_rows`).
        most: the highest number (`review.samples`).

    Returns:
        Rows like the last of each request, with the next number; and what a person should know, in sentences.
    """
    in_flight = known.filter(pl.col("state").is_in(_OPEN))["row_id"]
    not_to_buy = known.filter(~pl.col("to_buy"))["job_key"]
    to_buy = jobs.filter(~pl.col("key").is_in(not_to_buy.implode()))["row_id"]
    waits = pl.col("row_id").is_in(pl.concat([in_flight, to_buy]).implode())
    ends = _last(jobs.filter(pl.col("row_id").is_in(rejected.implode()) & ~waits))
    more = ends.with_columns(pl.col("sample") + 1).filter(pl.col("sample") <= most)
    used_up = ends.join(more, on="row_id", how="anti")["row_id"].n_unique()
    notes = [_in_words(more, most)] if more.height else []
    if used_up:
        notes.append(
            f"{_rows(used_up)} only rejected files and no sample left: at most {most} of a row are bought "
            "(review.samples)"
        )
    return more, notes


def _in_words(more: pl.DataFrame, most: int) -> str:
    """`3 rows have only rejected files: bought again, sample 2 of 3`."""
    numbers = more["sample"].unique().sort().to_list()
    samples = f"sample{'s' if len(numbers) > 1 else ''} {' and '.join(map(str, numbers))}"
    return f"{_rows(more['row_id'].n_unique())} only rejected files: bought again, {samples} of {most}"


def _rows(count: int) -> str:
    return f"{counted(count, 'row')} {'has' if count == 1 else 'have'}"


def _last(jobs: pl.DataFrame) -> pl.DataFrame:
    """The last sample of each request."""
    return jobs.sort("sample", maintain_order=True).unique(_REQUEST, keep="last", maintain_order=True)
