"""Tables set aside on disk, in order, so that a batch of any size needs the memory of one of them.

The file has no name and is gone with the process. Knows nothing of what the tables hold.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from tempfile import TemporaryFile

import polars as pl

from callsheet.files import temporary_file_errors


class Spill:
    """Tables on disk. Iterating reads them back, one at a time.

    Raises:
        StorageError: there is no room for them.
    """

    def __init__(self) -> None:
        with temporary_file_errors():
            self._file = TemporaryFile(prefix="callsheet-")  # noqa: SIM115  # open for as long as the spill is
        self._ends = [0]

    def add(self, table: pl.DataFrame) -> None:
        """Sets one more table aside."""
        packed = io.BytesIO()
        table.write_ipc(packed, compression="lz4")
        with temporary_file_errors():
            self._file.seek(self._ends[-1])
            self._file.write(packed.getbuffer())
            self._file.flush()
            self._ends.append(self._file.tell())

    def __iter__(self) -> Iterator[pl.DataFrame]:
        for start, end in zip(self._ends, self._ends[1:], strict=False):
            self._file.seek(start)
            yield pl.read_ipc(io.BytesIO(self._file.read(end - start)))
