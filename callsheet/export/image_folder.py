"""An image folder: the images in `train/`, and `train/metadata.jsonl` with a line for each.

It is what `datasets.load_dataset("imagefolder", data_dir=...)` loads. Videos are left out: it loads none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack

import polars as pl

from callsheet.errors import InputError
from callsheet.export.stored import AT_ONCE, NAME, Exported, Row, described, local_file
from callsheet.storage.store import Store

FOLDER = "train"
METADATA = f"{FOLDER}/metadata.jsonl"
_PLACE = f"{FOLDER}/" + pl.col(NAME)
_OURS = rf"^{FOLDER}/[A-Za-z0-9_-]+-[0-9a-f]{{12}}\.[a-z0-9]+$"


async def write(
    files: pl.DataFrame,
    store: Store,
    present: pl.DataFrame,
    endpoint_url: str | None,
    progress: Callable[[int], None],
) -> Exported:
    """Copies the images that are not there yet, removes those that are no longer exported, describes them.

    `files` is from `stored.named`; `present` has `name` and `size` of each file that is there. The rest is as
    for `export.export`.

    Raises:
        InputError: there is no image, or a stored file was removed or changed.
        StorageError: the destination cannot be written.
    """
    images = files.filter(pl.col("mime_type").str.starts_with("image/"))
    left_out = files.height - images.height
    if images.is_empty():
        raise InputError(
            "there is no image to export, and an image folder has no videos",
            hint="--as webdataset takes them.",
        )
    missing = images.join(
        present, left_on=[_PLACE, "bytes"], right_on=["name", "size"], how="anti", maintain_order="left"
    )
    for some in missing.iter_slices(AT_ONCE):
        await asyncio.gather(*(_copy(row, store, endpoint_url) for row in some.iter_rows(named=True)))
        progress(some.height)
    ours = present.filter(pl.col("name").str.contains(_OURS))["name"]
    gone = ours.filter(~ours.is_in(images.select(_PLACE).to_series().implode()))
    for name in gone:
        await store.remove(name)
    lines = described(images, pl.col(NAME).alias("file_name"))
    await store.write(METADATA, lines, "application/jsonl")
    return Exported(images.height + 1, missing.height, int(missing["bytes"].sum()), len(gone), left_out)


async def _copy(row: Row, store: Store, endpoint_url: str | None) -> None:
    with ExitStack() as copies:
        path = await asyncio.to_thread(local_file, row, endpoint_url, copies)
        await store.write(f"{FOLDER}/{row[NAME]}", path, row["mime_type"])
