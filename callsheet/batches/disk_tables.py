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
        self._ends = [0]

    def add(self, table: pl.DataFrame) -> None:
        """Writes one more table."""
        content = io.BytesIO()
        table.write_ipc(content, compression="lz4")
        with temporary_file_errors():
            self._file.seek(self._ends[-1])
            self._file.write(content.getbuffer())
            self._file.flush()
            self._ends.append(self._file.tell())

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> pl.DataFrame:
        start, end = self._ends[number : number + 2]
        self._file.seek(start)
        return pl.read_ipc(io.BytesIO(self._file.read(end - start)))

    def __iter__(self) -> Iterator[pl.DataFrame]:
        return map(self.__getitem__, range(len(self)))
