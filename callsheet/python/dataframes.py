"""Tables of a batch as DataFrames, with exact decimals, or as pyarrow Tables; and marks from a DataFrame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
from pyarrow import parquet

from callsheet.batches.formats import local_copy
from callsheet.config.load import load_without_service
from callsheet.errors import InputError
from callsheet.ledger.databases import check_exists
from callsheet.ledger.ledger import Ledger
from callsheet.pricing.plan import QUOTE
from callsheet.pricing.work_folder import work_folder
from callsheet.python.calls import Config, Values, carry_out, in_memory
from callsheet.report.contact_sheet.cards import local_path
from callsheet.report.report import stored_files
from callsheet.report.summary import ReviewResult
from callsheet.reviewing.marks import enter, from_table
from callsheet.storage.store import Store

_REVIEWS = ["row_id", "sample", "index", "decision", "note", "decided_by", "decided_at", "flags", "score"]
_REVIEWS += ["model", "prompt", "cost", "url", "job_key"]


def read(name: str, config: Config, settings: Values | None, *, as_arrow: bool) -> pd.DataFrame | pa.Table:
    """A Parquet file of the report, by its name: see `callsheet.manifest`, `costs` and `plan`."""
    checked = load_without_service(Path(config), values=settings or {})
    endpoint_url, writers = checked.storage.endpoint_url, "callsheet.run or `callsheet report`"
    url = Store(checked.report.url, endpoint_url=endpoint_url).url_of(name)
    if name == QUOTE:  # which is always on this machine
        url, writers = str(work_folder(checked, make=False) / QUOTE), "callsheet.quote or callsheet.run"
    try:
        with local_copy(str(local_path(url) or url), endpoint_url) as path, parquet.ParquetFile(path) as file:
            return _given(file.read(), as_arrow)
    except FileNotFoundError:
        raise InputError(f"{url}: there is no such file yet", hint=f"{writers} writes it.") from None
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{url}: cannot be read as Parquet: {error}") from None


def review(config: Config, said: Any, settings: Values | None) -> ReviewResult:
    """See `callsheet.review`."""
    checked = load_without_service(Path(config), values=settings or {})
    table = in_memory(said, "marks")
    parsed = from_table(table, [f"marks, row {number}" for number in range(1, table.height + 1)], "marks")
    return carry_out(enter(checked, parsed))[1]


def reviews(config: Config, settings: Values | None, *, as_arrow: bool) -> pd.DataFrame | pa.Table:
    """See `callsheet.reviews`."""
    checked = load_without_service(Path(config), values=settings or {})

    async def work() -> pl.DataFrame:
        check_exists(checked.ledger.url)
        async with await Ledger.open(checked.ledger.url, checked.batch, looks=True) as ledger:
            return await ledger.read(stored_files)

    return _given(carry_out(work()).select(_REVIEWS).to_arrow(), as_arrow)


def _given(table: pa.Table, as_arrow: bool) -> pd.DataFrame | pa.Table:
    return table if as_arrow else table.to_pandas(types_mapper=pd.ArrowDtype)
