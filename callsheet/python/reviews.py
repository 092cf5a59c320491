"""Marks from Python: a DataFrame in, a DataFrame out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import sqlalchemy as sa

from callsheet.config.load import load_without_service
from callsheet.errors import InputError
from callsheet.ledger.databases import check_exists
from callsheet.ledger.ledger import Ledger
from callsheet.python.calls import carry_out
from callsheet.report.parquet_tables import stored_files
from callsheet.report.summary import ReviewResult
from callsheet.reviewing.marks import enter, from_table

Config = str | os.PathLike[str]
Values = Mapping[str, object]

_COLUMNS = ["row_id", "sample", "index", "decision", "note", "decided_by", "decided_at", "flags", "score"]
_COLUMNS += ["model", "prompt", "cost", "url", "job_key"]


def review(config: Config, said: Any, settings: Values | None) -> ReviewResult:
    """See `callsheet.review`."""
    checked = load_without_service(Path(config), values=settings or {})
    if not hasattr(said, "__arrow_c_stream__"):
        raise InputError(
            f"marks: {type(said).__name__} is not a table", hint="pandas.DataFrame(marks) makes one."
        )
    table = pl.DataFrame(said)
    parsed = from_table(table, [f"marks, row {number}" for number in range(1, table.height + 1)], "marks")

    return carry_out(enter(checked, parsed))[1]


def reviews(config: Config, settings: Values | None, *, as_arrow: bool) -> pd.DataFrame | pa.Table:
    """See `callsheet.reviews`."""
    checked = load_without_service(Path(config), values=settings or {})

    def read(connection: sa.Connection, batch: str) -> pl.DataFrame:
        return stored_files(connection, batch).select(_COLUMNS)

    async def work() -> pl.DataFrame:
        check_exists(checked.ledger.url)
        async with await Ledger.open(checked.ledger.url, checked.batch) as ledger:
            return await ledger.read(read)

    table = carry_out(work()).to_arrow()
    return table if as_arrow else table.to_pandas(types_mapper=pd.ArrowDtype)
