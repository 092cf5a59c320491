"""WebDataset shards: tar files with, for each stored file, the file itself and a JSON file of the same name.

`shards.json` lists them, as the library's own index does. They are filled in the order of storage, so what is
stored later comes into later shards, and those that are full are not written again.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import polars as pl

from callsheet.export.files import AT_ONCE, NAME, Copying, Exported, Row, described
from callsheet.files import temporary_file_errors
from callsheet.storage.store import Store

INDEX = "shards.json"
_MOST_FILES = 1_000
_MOST_BYTES = 512 << 20
Sample = tuple[Row, bytes]  # a row, and its JSON file


async def write_shards(
    files: pl.DataFrame,
    store: Store,
    present: pl.DataFrame,
    copying: Copying,
    progress: Callable[[int], None],
    *,
    batch: str,
) -> Exported:
    """Writes the shards that are not there yet or have changed, and removes those that are no longer needed.

    The parameters are those of `write_image_folder`, but that `files` is in order of storage, and `progress`
    is called in a thread. The shards are named after the batch.
    """
    old_entries: dict[str, dict[str, Any]] = {}  # of an earlier export; none where its index cannot be read
    with suppress(ValueError, KeyError, TypeError):
        shards = json.loads(await store.read(INDEX) or "{}")["shardlist"]
        old_entries = {entry["url"]: entry for entry in shards if entry["filesize"]}
    ours = present.filter(pl.col("name").str.contains(rf"^{re.escape(batch)}-\d{{6}}\.tar$"))
    sizes = dict(ours.iter_rows())
    index: list[dict[str, Any]] = []
    copied = size = 0
    for number, samples in enumerate(_shards(files)):
        name = f"{batch}-{number:06d}.tar"
        content = b"".join(f"{row[NAME]}\n".encode() + line + b"\n" for row, line in samples)
        if copying.provenance:
            content += b"".join(copying.provenance.packet(row) for row, _ in samples)
        members = hashlib.sha256(content).hexdigest()
        entry = {"url": name, "nsamples": len(samples), "members": members}
        old_entry = old_entries.pop(name, {})
        if {**old_entry, **entry} == old_entry and sizes.get(name) == old_entry["filesize"]:
            index.append(old_entry)
            continue
        with temporary_file_errors(), TemporaryDirectory(prefix="callsheet-") as folder:
            tar = Path(folder, name)
            filesize = await asyncio.to_thread(_pack, samples, copying, progress, tar)
            await store.write(name, tar, "application/x-tar")
        index.append(entry | {"filesize": filesize})
        await _write_index(store, batch, [*index, *old_entries.values()])
        copied, size = copied + len(samples), size + filesize
    await _write_index(store, batch, index)
    needed = [entry["url"] for entry in index]
    outdated = ours.filter(~pl.col("name").is_in(needed))["name"]
    for name in outdated:
        await store.remove(name)
    return Exported(len(index) + 1, copied, size, len(outdated))


def _shards(files: pl.DataFrame) -> Iterator[list[Sample]]:
    """The samples of each shard: a thousand at most, and half a GiB unless one file alone is larger."""
    shard: list[Sample] = []
    size = 0
    for row, line in zip(files.iter_rows(named=True), described(files).splitlines(), strict=True):
        if shard and (len(shard) == _MOST_FILES or size + row["bytes"] > _MOST_BYTES):
            yield shard
            shard, size = [], 0
        shard.append((row, line))
        size += row["bytes"]
    yield shard


def _pack(samples: list[Sample], copying: Copying, progress: Callable[[int], None], path: Path) -> int:
    """Writes a shard, and returns its size; the same samples always make the same bytes."""
    with tarfile.open(path, "w") as tar:
        for start in range(0, len(samples), AT_ONCE):
            chunk = samples[start : start + AT_ONCE]
            with ExitStack() as copies, ThreadPoolExecutor(AT_ONCE) as threads:
                local = partial(copying.local_file, copies=copies)
                paths = threads.map(local, [row for row, _ in chunk])
                for (row, line), copy in zip(chunk, paths, strict=True):
                    with copy.open("rb") as file:
                        _add(tar, row[NAME], copy.stat().st_size, file)
                    _add(tar, row[NAME].partition(".")[0] + ".json", len(line), io.BytesIO(line))
            progress(len(chunk))
    return path.stat().st_size


def _add(tar: tarfile.TarFile, name: str, size: int, content: IO[bytes]) -> None:
    member = tarfile.TarInfo(name)
    member.size = size
    tar.addfile(member, content)


async def _write_index(store: Store, batch: str, shards: list[dict[str, Any]]) -> None:
    index = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "name": batch, "shardlist": shards}
    await store.write(INDEX, json.dumps(index, indent=1).encode(), "application/json")
