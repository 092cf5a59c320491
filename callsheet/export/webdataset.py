"""WebDataset shards: tar files with, for each stored file, the file itself and a JSON file of the same name.

`shards.json` lists them, as the library's own index does. Shards are filled in the order of storage, so what
is stored later comes into later shards, and those that are full are not written again.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl

from callsheet.errors import InputError
from callsheet.export.destination import Destination
from callsheet.export.files import AT_ONCE, Exported, about, local_files, parts
from callsheet.files import temporary_file_errors

INDEX = "shards.json"
_MOST_FILES = 1_000
_MOST_BYTES = 512 << 20
Sample = tuple[dict[str, Any], bytes]  # a row, and its JSON file


async def write(
    files: Path,
    destination: Destination,
    endpoint_url: str | None,
    work: Path,
    progress: Callable[[int], None],
    *,
    batch: str,
) -> Exported:
    """Writes the shards that are not there yet or have changed, and removes those that are no longer needed.

    Args:
        files: from `stored_files`.
        destination: where to.
        endpoint_url: the address of an S3 server other than Amazon's.
        work: a folder for temporary files: one shard at a time.
        progress: called with the number of files that were packed in the meantime.
        batch: the batch; the shards are named after it.

    Raises:
        InputError: nothing is stored, or a stored file was removed or changed.
        StorageError: the destination cannot be written.
    """
    known = _known(await destination.read(INDEX))
    sizes = dict(destination.present.filter(pl.col("name").str.ends_with(".tar")).iter_rows())
    index: list[dict[str, Any]] = []
    copied = size = 0
    for number, samples in enumerate(_shards(files)):
        name = f"{batch}-{number:06d}.tar"
        entry = {"url": name, "nsamples": len(samples), "members": _hash(samples)}
        before = known.get(name, {})
        if {**before, **entry} == before and sizes.get(name) == before["filesize"]:
            index.append(before)
            continue
        tar = work / "shard.tar"
        await _pack(samples, tar, endpoint_url, progress)
        await destination.write(name, tar, "application/x-tar")
        index.append(entry | {"filesize": tar.stat().st_size})
        known[name] = index[-1]
        await _write_index(destination, batch, [*index, *_later(known, index)])
        copied, size = copied + len(samples), size + tar.stat().st_size
    if not index:
        raise InputError(
            "the batch has no stored file to export", hint="callsheet status CONFIG counts its jobs."
        )
    await _write_index(destination, batch, index)
    needed = {entry["url"] for entry in index}
    ours = re.compile(rf"{re.escape(batch)}-\d{{6}}\.tar")
    removed = pl.Series(
        [name for name in sizes if ours.fullmatch(name) and name not in needed], dtype=pl.String
    )
    await destination.remove(removed)
    return Exported(len(index) + 1, copied, size, len(removed))


def _shards(files: Path) -> Iterator[list[Sample]]:
    """The samples of each shard: a thousand at most, and half a GiB unless one file alone is larger."""
    shard: list[Sample] = []
    size = 0
    for row, described in _samples(files):
        if shard and (len(shard) == _MOST_FILES or size + row["bytes"] > _MOST_BYTES):
            yield shard
            shard, size = [], 0
        shard.append((row, described))
        size += row["bytes"]
    if shard:
        yield shard


def _samples(files: Path) -> Iterator[Sample]:
    for part in parts(files):
        content = io.BytesIO()
        about(part).write_ndjson(content)
        yield from zip(part.iter_rows(named=True), content.getvalue().splitlines(), strict=True)


def _hash(samples: list[Sample]) -> str:
    digest = hashlib.sha256()
    for row, described in samples:
        digest.update(f"{row['name']}.{row['ext']}\n".encode() + described + b"\n")
    return digest.hexdigest()


async def _pack(
    samples: list[Sample], path: Path, endpoint_url: str | None, progress: Callable[[int], None]
) -> None:
    with temporary_file_errors(), tarfile.open(path, "w") as tar:
        for start in range(0, len(samples), AT_ONCE):
            some = samples[start : start + AT_ONCE]
            async with local_files([row for row, _ in some], endpoint_url) as paths:
                await asyncio.to_thread(_add, tar, some, paths)
            progress(len(some))


def _add(tar: tarfile.TarFile, samples: list[Sample], paths: list[Path]) -> None:
    """Adds files and their JSON; the same samples always make the same bytes."""
    for (row, described), path in zip(samples, paths, strict=True):
        member = tarfile.TarInfo(f"{row['name']}.{row['ext']}")
        member.size = path.stat().st_size
        with path.open("rb") as file:
            tar.addfile(member, file)
        member = tarfile.TarInfo(f"{row['name']}.json")
        member.size = len(described)
        tar.addfile(member, io.BytesIO(described))


def _known(content: bytes | None) -> dict[str, dict[str, Any]]:
    """The shards of an earlier export by name; none where its index cannot be read."""
    with suppress(ValueError, KeyError, TypeError):
        if content:
            return {entry["url"]: entry for entry in json.loads(content)["shardlist"] if entry["filesize"]}
    return {}


def _later(known: dict[str, dict[str, Any]], index: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Shards of an earlier export that this one has not come to yet."""
    written = {entry["url"] for entry in index}
    return [entry for name, entry in sorted(known.items()) if name not in written]


async def _write_index(destination: Destination, batch: str, shards: list[dict[str, Any]]) -> None:
    index = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "name": batch, "shardlist": shards}
    await destination.write(INDEX, json.dumps(index, indent=1).encode(), "application/json")
