"""An image folder with `metadata.jsonl`, as the `datasets` library loads it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack

import polars as pl

from callsheet.errors import InputError
from callsheet.export.files import AT_ONCE, NAME, Copying, Exported, Row, described
from callsheet.storage.store import Store

_FOLDER = "train"
_PLACE = f"{_FOLDER}/" + pl.col(NAME)
_OURS = rf"^{_FOLDER}/[A-Za-z0-9_-]+-[0-9a-f]{{12}}\.[a-z0-9]+$"


async def write_image_folder(
    files: pl.DataFrame,
    store: Store,
    present: pl.DataFrame,
    copying: Copying,
    progress: Callable[[int], None],
) -> Exported:
    """Copies the images that are not there yet, removes those that are no longer exported, describes them.

    `present` has `name` and `size` of each file that is there.
    """

    async def copy(row: Row) -> None:
        with ExitStack() as copies:
            path = await asyncio.to_thread(copying.local_file, row, copies)
            await store.write(f"{_FOLDER}/{row[NAME]}", path, row["mime_type"])

    images = files.filter(pl.col("mime_type").str.starts_with("image/"))
    left_out = files.height - images.height
    if images.is_empty():
        raise InputError(
            "there is no image to export, and an image folder has no videos",
            hint="--as folder takes them.",
        )
    missing = copying.missing(images, present, _PLACE)
    for chunk in missing.iter_slices(AT_ONCE):
        await asyncio.gather(*map(copy, chunk.iter_rows(named=True)))
        progress(chunk.height)
    ours = present.filter(pl.col("name").str.contains(_OURS))["name"]
    outdated = ours.filter(~ours.is_in(images.select(_PLACE).to_series().implode()))
    for name in outdated:
        await store.remove(name)
    lines = described(images, pl.col(NAME).alias("file_name"))
    await store.write(f"{_FOLDER}/metadata.jsonl", lines, "application/jsonl")
    return Exported(images.height + 1, missing.height, int(missing["bytes"].sum()), len(outdated), left_out)
