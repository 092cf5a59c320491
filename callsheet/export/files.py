"""The files of an export: their copies on this machine, their names for programs, what is said of each."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from callsheet.batches.formats import local_copy
from callsheet.batches.identities import sha256
from callsheet.errors import InputError
from callsheet.export.provenance import Provenance
from callsheet.files import temporary_file_errors
from callsheet.media_types import extension
from callsheet.records import MADE_FROM
from callsheet.report.contact_sheet.cards import local_path

AT_ONCE = 16
"""Files that are read at the same time."""

NAME = "\0name"
"""The column with the name of each file in the export; no column of a batch file has such a name."""

Row = Mapping[str, Any]
"""A row of the manifest, a file."""

_ABOUT = ["row_id", "sample", "file_number", "index", "model", "prompt", "mime_type", "width", "height"]
_ABOUT += ["duration", "fps", "has_sound", "cost", "sha256", "bytes", "job_key", "generation_id"]
_ABOUT += ["decision", "note", "flags"]
_NOT_ABOUT = {"url", "deletes_at", "stored_at", "removed_at", "current", "decided_by", "decided_at", NAME}
# Columns that the loader of an image folder makes itself, or takes for the names of more files.
_TAKEN = re.compile(r"image|label|(.*_)?file_names?")
_LONGEST = 80


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export has done: numbers of files."""

    files: int  # what the destination has now, without the marker
    copied: int  # how many of these this export has written
    bytes: int  # the size of what was written
    removed: int = 0  # those of earlier exports that are not part of it any more
    left_out: int = 0  # those that are not of a type that is exported
    unmarked: int = 0  # those of a format that does not carry where they came from (`storage.provenance`)
    not_there: tuple[str, ...] = ()  # the URLs of those that nobody wants and that are gone


def with_names(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of the manifest with `NAME`, which is safe everywhere, and of this file and content alone."""
    extensions = {mime_type: extension(mime_type) for mime_type in rows["mime_type"].unique()}
    stem = pl.col("row_id").str.replace_all("[^A-Za-z0-9_-]+", "_").str.head(_LONGEST)
    identity = sha256(pl.format("{}/{}/{}", "job_key", "index", "sha256")).str.head(12)
    ending = pl.col("mime_type").replace_strict(extensions, default="bin", return_dtype=pl.String)
    name = pl.format("{}-{}-{}-{}.{}", stem, "sample", "index", identity, ending)
    return rows.with_columns(name.alias(NAME))


def described(rows: pl.DataFrame, *first: pl.Expr) -> bytes:
    """A line of JSON for each file: `first`, its row, request and cost (as text), and the carried columns."""
    left_out = _NOT_ABOUT if rows[MADE_FROM].count() else {*_NOT_ABOUT, MADE_FROM}
    carried = [name for name in rows.columns if name not in {*_ABOUT, *left_out}]
    lines = rows.select(
        *first,
        *(pl.col(name).cast(pl.String) if name == "cost" else pl.col(name) for name in _ABOUT),
        *(pl.col(name).alias(_free(name, carried)) for name in carried),
    )
    content = io.BytesIO()
    lines.write_ndjson(content)
    return content.getvalue()


def _free(name: str, carried: Collection[str]) -> str:
    """The name of a carried column, or another one where that has a meaning for those who load the export."""
    free = name
    while _TAKEN.fullmatch(free) or (free != name and free in carried):
        free += "_column"
    return free


@dataclass(frozen=True, slots=True)
class Copying:
    """How files come into an export.

    Attributes:
        endpoint_url: the address of an S3 server other than Amazon's.
        provenance: what is said in the copies of where a file came from; None: nothing, they are the files.
    """

    endpoint_url: str | None
    provenance: Provenance | None = None

    def local_file(self, row: Row, copies: ExitStack) -> Path:
        """A file as it is exported, on this machine; for a thread. `copies` removes a copy at its end.

        Raises:
            InputError: the file is not there, or has other bytes than the ledger knows.
        """
        path = _local_file(row, self.endpoint_url, copies)
        if self.provenance is None:
            return path
        with temporary_file_errors():
            folder = copies.enter_context(TemporaryDirectory(prefix="callsheet-"))
            return self.provenance.write(path, row, Path(folder, "copy"))

    def missing(self, files: pl.DataFrame, present: pl.DataFrame, name: pl.Expr) -> pl.DataFrame:
        """The files that are not there yet; `present` has `name` and `size` of each that is."""
        sizes = dict(present.select("name", "size").iter_rows())
        columns = (name.alias(NAME), "bytes", "mime_type", "model", "prompt")
        rows = files.select(columns).iter_rows(named=True)
        is_missing = [sizes.get(row[NAME]) not in self._sizes(row) for row in rows]
        return files.filter(pl.Series(is_missing, dtype=pl.Boolean))

    def _sizes(self, row: Row) -> tuple[int, ...]:
        return self.provenance.sizes(row) if self.provenance else (row["bytes"],)


def _local_file(row: Row, endpoint_url: str | None, copies: ExitStack) -> Path:
    path = copies.enter_context(local_copy(str(local_path(row["url"]) or row["url"]), endpoint_url))
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(
            f"{row['url']}: the file of row {row['row_id']} cannot be read: {error.strerror}",
            hint="Was it moved? Its place is in the ledger; relative paths start at the working directory.",
        ) from None
    if digest != row["sha256"]:
        raise InputError(
            f"{row['url']}: the file of row {row['row_id']} was changed since it was stored",
            hint="Put it back from a backup: what is exported is what was bought.",
        )
    return path
