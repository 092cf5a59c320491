"""An image folder: the images in `train/`, and `train/metadata.jsonl` with a line for each.

It is what `datasets.load_dataset("imagefolder", data_dir=...)` loads. Videos are left out: it loads none.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from callsheet.errors import InputError
from callsheet.export.destination import Destination
from callsheet.export.files import AT_ONCE, Exported, about, local_files, parts
from callsheet.files import temporary_file_errors

FOLDER = "train"
METADATA = f"{FOLDER}/metadata.jsonl"
_IS_IMAGE = pl.col("mime_type").str.starts_with("image/")
_FILE = pl.format("{}.{}", "name", "ext")


async def write(
    files: Path,
    destination: Destination,
    endpoint_url: str | None,
    work: Path,
    progress: Callable[[int], None],
) -> Exported:
    """Copies the images that are not there yet, removes those that the batch no longer has, describes them.

    Args:
        files: from `stored_files`.
        destination: where to.
        endpoint_url: the address of an S3 server other than Amazon's.
        work: a folder for temporary files.
        progress: called with the number of images that were copied in the meantime.

    Raises:
        InputError: there is no image, or a stored file was removed or changed.
        StorageError: the destination cannot be written.
    """
    lines = work / "metadata.jsonl"
    names: list[pl.Series] = []
    copied = size = left_out = 0
    with temporary_file_errors(), lines.open("wb") as metadata:
        for part in parts(files):
            images = part.filter(_IS_IMAGE)
            left_out += part.height - images.height
            missing = _missing(images, destination.present)
            for some in _some(missing):
                await _copy(some, destination, endpoint_url)
                progress(len(some))
            copied, size = copied + missing.height, size + int(missing["bytes"].sum())
            names.append(images.select(f"{FOLDER}/" + _FILE).to_series())
            metadata.write(_lines(images))
    all_names = pl.concat(names) if names else pl.Series(dtype=pl.String)
    if all_names.is_empty():
        videos = " (an image folder has no videos: --as webdataset takes them)" if left_out else ""
        raise InputError(
            f"the batch has no image to export{videos}", hint="callsheet status CONFIG counts its jobs."
        )
    removed = _removed(destination.present, all_names)
    await destination.remove(removed)
    await destination.write(METADATA, lines, "application/jsonl")
    return Exported(len(all_names) + 1, copied, size, len(removed), left_out)


def _missing(images: pl.DataFrame, present: pl.DataFrame) -> pl.DataFrame:
    """The images that are not at the destination in full."""
    place = images.with_columns(place=f"{FOLDER}/" + _FILE)
    return place.join(
        present, left_on=["place", "bytes"], right_on=["name", "size"], how="anti", maintain_order="left"
    )


def _some(rows: pl.DataFrame) -> Iterator[list[dict[str, Any]]]:
    for part in rows.iter_slices(AT_ONCE):
        yield part.rows(named=True)


async def _copy(rows: list[dict[str, Any]], destination: Destination, endpoint_url: str | None) -> None:
    async with local_files(rows, endpoint_url) as paths:
        await asyncio.gather(
            *(
                destination.write(row["place"], path, row["mime_type"])
                for row, path in zip(rows, paths, strict=True)
            )
        )


def _lines(images: pl.DataFrame) -> bytes:
    described = about(images).select(images.select(_FILE.alias("file_name")).to_series(), pl.all())
    content = io.BytesIO()
    described.write_ndjson(content)
    return content.getvalue()


def _removed(present: pl.DataFrame, names: pl.Series) -> pl.Series:
    """What an earlier export has written, and the batch no longer has."""
    ours = present.filter(
        pl.col("name").str.contains(rf"^{FOLDER}/[A-Za-z0-9_-]+-[0-9a-f]{{12}}\.[a-z0-9]+$")
    )
    return ours.filter(~pl.col("name").is_in(names.implode()))["name"]
