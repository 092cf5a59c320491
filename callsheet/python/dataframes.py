"""The report's tables as DataFrames, with exact decimals, or as pyarrow Tables. It only reads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from callsheet.batches.sources import local_copy
from callsheet.config.load import load_without_service
from callsheet.errors import InputError
from callsheet.pricing.plan import QUOTE, work_folder
from callsheet.report.contact_sheet.links import local_path
from callsheet.storage.store import Store


def read(
    name: str, config: str | os.PathLike[str], settings: Mapping[str, object] | None, *, as_arrow: bool
) -> pd.DataFrame | pa.Table:
    """A Parquet file of the report.

    Args:
        name: the file's name.
        config: the config file.
        settings: single settings to change.
        as_arrow: a pyarrow Table instead of a DataFrame.

    Raises:
        ConfigError: the config is wrong.
        InputError: there is no such file yet, or it cannot be read.
    """
    checked = load_without_service(Path(config), values=settings or {})
    endpoint_url, writers = checked.storage.endpoint_url, "callsheet.run or `callsheet report`"
    url = Store(checked.report.url, endpoint_url=endpoint_url).url_of(name)
    if name == QUOTE:  # which is always on this machine
        url, writers = str(work_folder(checked) / QUOTE), "callsheet.quote or callsheet.run"
    try:
        with local_copy(str(local_path(url) or url), endpoint_url) as path, parquet.ParquetFile(path) as file:
            table = file.read()
    except FileNotFoundError:
        raise InputError(f"{url}: there is no such file yet", hint=f"{writers} writes it.") from None
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{url}: cannot be read as Parquet: {error}") from None
    return table if as_arrow else table.to_pandas(types_mapper=pd.ArrowDtype)
