"""The rejects of a batch. All rows of a large file may be wrong, so they are kept on disk.

Does not know what is wrong with a row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import polars as pl

from callsheet.disk_tables import DiskTables
from callsheet.rows import REJECTS, harmless

_SLICE = 32_768  # lines of a batch file whose rejects are sorted at once
_ROWS = 32_768  # rejects that are written at once


class Rejects:
    """Rejects (`rows.rejects`) in a temporary file.

    Raises:
        StorageError: the temporary file cannot be written.
    """

    def __init__(self) -> None:
        self._tables = DiskTables()
        self._tables_of: defaultdict[int, list[int]] = defaultdict(list)  # by slice of the batch file

    def add(self, rejects: pl.DataFrame) -> None:
        """Takes in some rejects, of any lines."""
        number_of = (pl.col("line") // _SLICE).alias("slice")
        slices = rejects.with_columns(number_of).partition_by("slice", include_key=False, as_dict=True)
        for (number,), part in slices.items():
            self._tables_of[number].append(len(self._tables))
            self._tables.add(part)

    def slices(self) -> set[int]:
        """The slices of the batch file that have rejects."""
        return {*self._tables_of}

    def of_slice(self, number: int) -> Iterator[pl.DataFrame]:
        """The rejects of a slice, in the order in which they were added."""
        return (self._tables[table] for table in self._tables_of.get(number, ()))


def in_order(*collections: Rejects) -> Iterator[pl.DataFrame]:
    """All rejects of some collections, sorted by line, a table for each slice of the batch file.

    On the same line, those of the first collection come first. The first table is empty: it has the schema.
    """
    yield pl.DataFrame(schema=REJECTS)
    for number in sorted(set().union(*(each.slices() for each in collections))):
        tables = chain.from_iterable(each.of_slice(number) for each in collections)
        yield pl.concat(tables).sort("line", maintain_order=True)


def write_csv(rejects: pl.LazyFrame, path: Path) -> None:
    """Writes `rejects.csv`.

    A cell that a spreadsheet would run as a formula begins with an apostrophe; numbers are left as they are.

    Raises:
        OSError: it cannot be written.
    """
    total = rejects.select(pl.len()).collect().item()
    rejects = rejects.with_columns(harmless(pl.col(pl.String)))
    with path.open("wb") as file:
        for start in range(0, total or 1, _ROWS):  # `sink_csv` takes twice the memory
            rejects.slice(start, _ROWS).collect().write_csv(file, include_header=start == 0)
