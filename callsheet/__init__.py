"""Callsheet from Python: price, buy and look at batches of images and videos, in scripts and notebooks.

    import callsheet

    callsheet.quote("batch.yaml", rows)            # rows: a DataFrame, in place of the config's batch file
    callsheet.run("batch.yaml", rows, {"budget.limit": "5.00"})
    callsheet.manifest("batch.yaml")               # a DataFrame: where each image and video is

Each call keeps what the command of its name keeps (`callsheet docs python`). All take the path of a config
file, and `settings`: single settings to change, by their dotted names. Money is text or a Decimal there, not
a float. A wrong config or setting is a `ConfigError` that names the place; errors are those of
`callsheet.errors`. `quote`, `run`, `collect` and `status` work in scripts and in notebooks; with `_async`
they are coroutines.

The library below never imports Prefect. Importing this module costs next to nothing: the first call loads the
rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet import errors

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from datetime import date

    import pandas as pd
    import pyarrow as pa

    from callsheet.present.priced import QuotedBatch
    from callsheet.python import Rows
    from callsheet.report.month import LedgerCosts
    from callsheet.report.summary import ReviewResult, Status, Summary

    Config = str | os.PathLike[str]
    Values = Mapping[str, object]

__all__ = [
    "collect",
    "collect_async",
    "costs",
    "errors",
    "manifest",
    "plan",
    "quote",
    "quote_async",
    "review",
    "reviews",
    "run",
    "run_async",
    "spending",
    "status",
    "status_async",
]


def quote(config: Config, rows: Rows | None = None, settings: Values | None = None) -> QuotedBatch:
    """Prices a batch exactly, and says which rows are wrong. Buys nothing.

    Args:
        rows: the batch, in place of `input.path`: a pandas or polars DataFrame, a pyarrow Table, or anything
            else with `__arrow_c_stream__`. Its columns are those of a batch file (`callsheet docs batches`),
            and the `line` of a reject is the number of its row, from 1.
        settings: single settings to change: `{"budget.limit": "5.00"}`.

    Returns:
        The fields of `quote --json`, money as Decimal in US dollars.

    Raises:
        InputError: the rows cannot be read, or one is rejected and `input.strict` is true.
        ServiceError: the service cannot be asked.
        LedgerError: the ledger cannot be read.
        Interrupted: Ctrl-C or another signal.
    """
    from callsheet import python

    return python.carry_out(python.quote(config, rows, settings))


async def quote_async(
    config: Config, rows: Rows | None = None, settings: Values | None = None
) -> QuotedBatch:
    """As `quote`, for code that has an event loop."""
    from callsheet import python

    return await python.quote(config, rows, settings)


def run(
    config: Config,
    rows: Rows | None = None,
    settings: Values | None = None,
    *,
    yes: bool = False,
    purse: str | None = None,
) -> Summary:
    """Buys every job of a batch that is not bought yet, and stores its media.

    Any stop is a pause: the same call goes on where the last one ended, and pays for nothing twice. A run
    that stops by itself, at the budget for instance, returns its result with a `stop_reason`.

    Args:
        rows, settings: as in `quote`.
        yes: approve what a person must approve (`budget.approve_above`, `budget.pilot`).
        purse: buy by the purse that a person has given in this name (`callsheet purse`): nothing beyond it.

    Returns:
        The fields of `run --json`, money as Decimal in US dollars.

    Raises:
        ApprovalNeeded: a person must approve, and there is no `yes`. Nothing was bought but a pilot.
        Interrupted: Ctrl-C or another signal. After the first one nothing more is bought, what is on the
            wire is answered and stored, and the report is written; a second one ends the run at once.
        InputError: the rows cannot be read; nothing was bought.
        ServiceError: the service could not be asked for the prices; nothing was bought.
        StorageError: the storage or the report cannot be written.
        LedgerError: the ledger cannot be used.
    """
    from callsheet import python

    return python.carry_out(python.run(config, rows, settings, yes=yes, purse=purse))


async def run_async(
    config: Config,
    rows: Rows | None = None,
    settings: Values | None = None,
    *,
    yes: bool = False,
    purse: str | None = None,
) -> Summary:
    """As `run`, for code that has an event loop."""
    from callsheet import python

    return await python.run(config, rows, settings, yes=yes, purse=purse)


def collect(config: Config, rows: Rows | None = None, settings: Values | None = None) -> Summary:
    """Polls and downloads what is paid for already. Never buys. It raises what `run` raises.

    `rows` are not read, because the ledger knows what is paid for; the four calls have the same parameters.
    Returns the fields of `collect --json`, money as Decimal in US dollars.
    """
    from callsheet import python

    return python.carry_out(python.collect(config, settings))


async def collect_async(config: Config, rows: Rows | None = None, settings: Values | None = None) -> Summary:
    """As `collect`, for code that has an event loop."""
    from callsheet import python

    return await python.collect(config, settings)


def status(config: Config, rows: Rows | None = None, settings: Values | None = None) -> Status:
    """The jobs of a batch by state, what it has cost, and the runs that are at work: from the ledger alone.

    Neither `rows` nor the config's `service` are read. Returns the fields of `status --json`, money as
    Decimal in US dollars. Raises `LedgerError` where the ledger cannot be read.
    """
    from callsheet import python

    return python.carry_out(python.status(config, settings))


async def status_async(config: Config, rows: Rows | None = None, settings: Values | None = None) -> Status:
    """As `status`, for code that has an event loop."""
    from callsheet import python

    return await python.status(config, settings)


def review(config: Config, marks: Rows, settings: Values | None = None) -> ReviewResult:
    """Marks stored files as kept or rejected; all of the marks are taken, or none. Buys nothing.

    Args:
        marks: a DataFrame with the columns of `marks.csv`: `row_id` and `decision` (`kept`, `rejected`, or
            empty to take a mark back); `sample`, `file_number`, `index` and `note` may be missing.
            `by`: who says so.

    Returns:
        The fields of `review --json`: how many files are kept, rejected and to review.

    Raises:
        InputError: a row or sample is not there, or a decision is another word; the message names the row of
            `marks`, from 1.
        LedgerError: the ledger cannot be read or written.
    """
    from callsheet import python

    return python.review(config, marks, settings)


def reviews(
    config: Config, settings: Values | None = None, *, as_arrow: bool = False
) -> pd.DataFrame | pa.Table:
    """Every stored file with what was decided about it, from the ledger: a row for each, in order of storage.

    The columns are `row_id`, `sample`, `file_number`, `index`, `decision`, `note`, `decided_by`,
    `decided_at`, `flags` and `score` (of the checks), `model`, `prompt`, `cost`, `url` and `job_key`.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    from callsheet import python

    return python.reviews(config, settings, as_arrow=as_arrow)


def spending(
    config: Config, by: str = "batch", since: date | None = None, settings: Values | None = None
) -> LedgerCosts:
    """What all batches of the config's ledger came to, beside the month before, from the ledger alone.

    Args:
        by: `day`, `month`, `batch`, `model`, or a column of the batch files.
        since: the first UTC day; without it, the first of this month.

    Returns:
        The fields of `costs --json`.

    Raises:
        InputError: no job has this column, or the day is too early or too late.
        LedgerError: the ledger cannot be read.
    """
    from callsheet import python

    return python.carry_out(python.spending(config, by, since, settings))


def manifest(
    config: Config, *, settings: Values | None = None, as_arrow: bool = False
) -> pd.DataFrame | pa.Table:
    """`manifest.parquet`: a row for each stored file, in the batch's order.

    `callsheet docs files_and_columns` has the columns. The config's `service` section is not read.

    Returns:
        A pandas DataFrame whose columns have Arrow types (`pd.ArrowDtype`), or a pyarrow Table if `as_arrow`;
        `cost` is `decimal128(18, 6)`, in US dollars.

    Raises:
        InputError: no run has written the file yet, or it cannot be read.
    """
    from callsheet import python

    return python.read("manifest.parquet", config, settings, as_arrow=as_arrow)


def costs(
    config: Config, *, settings: Values | None = None, as_arrow: bool = False
) -> pd.DataFrame | pa.Table:
    """`costs.parquet`: a row for each attempt that was submitted, in order of submission.

    `quoted`, `cost`, `unit_price` and `quantity` are `decimal128(18, 6)`; `cost` is null while in doubt.
    Otherwise it is as `manifest`.
    """
    from callsheet import python

    return python.read("costs.parquet", config, settings, as_arrow=as_arrow)


def plan(
    config: Config, *, settings: Values | None = None, as_arrow: bool = False
) -> pd.DataFrame | pa.Table:
    """The plan that was priced last: a row for each job, in order; otherwise as `manifest`.

    It is on this machine: `quote.parquet` of a quote, or `plan.parquet` of a run. `price` and `unit_price`
    are exact decimals, in US dollars; `request` is the JSON that is sent.
    """
    from callsheet import python

    return python.read("quote.parquet", config, settings, as_arrow=as_arrow)
