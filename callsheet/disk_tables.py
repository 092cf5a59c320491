"""Tables in a temporary file, so that a batch of any size needs the memory of one table.

The file has no name and is gone when the process ends. Does not know what is in the tables.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from tempfile import TemporaryFile

import polars as pl

from callsheet.files import temporary_file_errors


class DiskTables:
    """Tables on disk, in the order in which they were added. They are read one at a time.

    Raises:
        StorageError: the temporary file cannot be written.
    """

    def __init__(self) -> None:
        with temporary_file_errors():
            self._file = TemporaryFile(prefix="callsheet-")  # noqa: SIM115  # open as long as this object exists
        self._end = 0
        self._tables: list[slice] = []  # of the file

    def add(self, table: pl.DataFrame) -> None:
        """Adds one more table."""
        start = self._end
        with temporary_file_errors():
            self._file.seek(start)
            table.write_ipc(self._file, compression="uncompressed")  # compressing takes longer than writing
            self._end = self._file.seek(0, io.SEEK_END)
        self._tables.append(slice(start, self._end))

    def __len__(self) -> int:
        return len(self._tables)

    def __getitem__(self, number: int) -> pl.DataFrame:
        place = self._tables[number]
        self._file.seek(place.start)
        return pl.read_ipc(self._file.read(place.stop - place.start))

    def __iter__(self) -> Iterator[pl.DataFrame]:
        return map(self.__getitem__, range(len(self)))
